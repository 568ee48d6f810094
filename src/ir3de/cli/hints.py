"""Wrong calls, answered with the nearest right command, which is filled in and ready to be copied."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import click

from ir3de.cli import lib
from ir3de.cli.formats import one_line
from ir3de.errors import InputError, IR3DEError
from ir3de.files.atomic import find_kind

Function = TypeVar("Function", bound=Callable[..., Any])
Rows = Sequence[Mapping[str, object]]

ARGUMENTS = "ir3de.arguments"  # key of the context's `meta`: the arguments as they were written
PEEKED_ROWS = 200
STDIN = "-"
HEADER_CHARS = 60  # shown of a first line that is a row
TABLES = {".csv", ".tsv"}  # whose first line names the columns
EXAMPLE_ROUTER = "router"
COLUMNS = {"label": "--label", "text": "--text", "field": "--text"}  # label=team is an argument in other tools
PATH_NAMES = ("csv", "data", "dataset", "file", "files", "input", "jsonl", "parquet", "path", "texts", "train", "tsv")
OTHER_OPTIONS = {  # what other tools call our options and arguments
    **{f"--{name}": "--label" for name in ("class", "column", "labels", "label-column", "target", "team")},
    **{f"--{name}": "--text" for name in ("prompt", "prompts", "text-column")},
    **{f"--{name}": "PATH" for name in PATH_NAMES},
    **dict.fromkeys(("--router", "--out", "--output", "-o"), "ROUTER"),
}


# writing a command --------------------------------------------------------------------------------------------------


def given_arguments() -> list[str]:
    """The arguments of the running command, as they were written."""
    return list(click.get_current_context().meta.get(ARGUMENTS, ()))


def write_command(arguments: Sequence[str]) -> str:
    """The running command with other arguments, on a line of its own, quoted for the shell."""
    return f"\n  {click.get_current_context().command_path} {shlex.join(arguments)}"


def write_with(options: Mapping[str, str | None]) -> str:
    """The running command with these values of options, instead of those given; without the option for None."""
    names = (*options, *(("--field",) if "--text" in options else ()))
    left, kept = iter(given_arguments()), []
    for argument in left:
        if argument in names:
            next(left, None)
        elif not argument.startswith(tuple(f"{name}=" for name in names)):
            kept.append(argument)
    added = [part for name, value in options.items() if value is not None for part in (name, value)]
    return write_command([*kept, *added])


# looking at paths ---------------------------------------------------------------------------------------------------


def is_texts(path: str | Path) -> bool:
    """Whether the path is a file of texts, by its suffix."""
    return find_kind(path) == "file" and lib.sources.recognise(Path(path)) is not None


def is_router(path: str | Path) -> bool:
    """Whether a router is saved there."""
    return lib.router_folder.holds_router(path)


def peek_rows(paths: Sequence[str]) -> Rows:
    """The first rows of the first table; empty if it cannot be read twice, or has no columns."""
    try:
        sources = [source for source in lib.corpora.expand(paths) if source.path is not None]
        tables = [source.name for source in sources if source.kind not in lib.labelled.PLAIN_TEXTS]
        return list(islice(lib.corpora.read_rows(tables[:1], on_damage=lambda _: None), PEEKED_ROWS))
    except IR3DEError:
        return []


# arguments in the wrong place, options by other names ---------------------------------------------------------------


def router_before_prompt(function: Function) -> Function:
    """Reject swapped arguments: a prompt as ROUTER, and a router as TEXT."""

    @wraps(function)
    def command(*args: Any, router_path: Path, text: str | None, **kwargs: Any) -> Any:
        if text is not None and not is_router(router_path) and is_router(text):
            other = {str(router_path): text, text: str(router_path)}
            right = write_command([other.get(argument, argument) for argument in given_arguments()])
            raise click.UsageError(f"ROUTER and TEXT look swapped: the router comes first:{right}")
        return function(*args, router_path=router_path, text=text, **kwargs)

    return command  # type: ignore[return-value]


class Word(NamedTuple):
    """One word of a command: an argument by its place, or an option or its value."""

    text: str
    is_argument: bool = False


def refuse_misplaced(described: Collection[str]) -> None:
    """Reject a column or a file of texts in the wrong place. `described` names need no path."""
    words = _read_words(given_arguments(), click.get_current_context().command)
    if (wrong := _find_fault(words, described)) is not None:
        raise click.UsageError(wrong + write_command(_correct(words)))


def explain_option(error: click.NoSuchOption) -> click.UsageError:
    """The error with the right command, if the option has another name here; else the error as it is."""
    context = error.ctx
    if context is None or error.option_name not in OTHER_OPTIONS:
        return error
    if not any(parameter.name == "sources" for parameter in context.command.params):
        return error
    with context.scope(cleanup=False):
        right = write_command(_correct(_read_words(given_arguments(), context.command)))
    return click.UsageError(f"there is no option {error.option_name}. Did you mean:{right}", context)


def _find_fault(words: Sequence[Word], described: Collection[str]) -> str | None:
    arguments = [word.text for word in words if word.is_argument and word.text not in described]
    columns = _find_columns(words)
    if wrong := next((one for one in arguments if one in columns), None):
        return f"{wrong} is not a file: name the column with {columns[wrong][0]}:"
    first, *others = arguments or [""]
    if others and all(map(_is_pair, others)):
        return None
    if is_texts(first):
        if _find_router(others) is None:
            return f"{first} is a file of texts, and the router is missing: name it first:"
        return f"router and texts look swapped, because {first} is a file of texts: the router comes first:"
    if any(map(is_router, others)) and not is_router(first):
        return f"router and texts look swapped, because {first} is not a router: the router comes first:"
    return None


def _correct(words: Sequence[Word]) -> list[str]:
    """The arguments as they were likely meant: the router first, then the texts, and the columns behind options."""
    columns = _find_columns(words)
    kept = [word for word in words if not (word.is_argument and word.text in columns)]
    texts = [word.text for word in kept]
    _put_router_first(texts, [place for place, word in enumerate(kept) if word.is_argument])
    for option, name in dict(columns.values()).items():
        texts += [] if _has_option(words, option) else [option, name]
    return texts + _name_missing([*words, *map(Word, texts)])


def _put_router_first(texts: list[str], places: Sequence[int]) -> None:
    """Move the router to the first of these places; a missing one gets an example's name."""
    if not places:
        return
    first, *others = places
    has_texts, router = is_texts(texts[first]), _find_router([texts[place] for place in others])
    if has_texts and router is None:
        texts.insert(first, EXAMPLE_ROUTER)
    elif router is not None and (has_texts or (is_router(router) and not is_router(texts[first]))):
        other = next(place for place in others if texts[place] == router)
        texts[first], texts[other] = router, texts[first]


def _find_columns(words: Sequence[Word]) -> dict[str, tuple[str, str]]:
    """The arguments that are columns of a file among them, each with the option and the name that were meant."""
    arguments = [word.text for word in words if word.is_argument]
    tables = [one for one in arguments if is_texts(one)]
    if not tables:
        return {}
    pairs = {one: one.partition("=") for one in arguments}
    found = {
        one: (COLUMNS[option], name)
        for one, (option, equals, name) in pairs.items()
        if equals and option in COLUMNS and not find_kind(name)
    }
    if not found and not _has_option(words, "--label"):
        named = {name for row in peek_rows(tables[:1])[:1] for name in row}
        # the first argument may be a new router of that name
        found |= {one: ("--label", one) for one in arguments[1:] if one in named and not find_kind(one)}
    return found


def _find_router(arguments: Sequence[str]) -> str | None:
    """The argument that is a router, or could become one."""
    free = [one for one in arguments if not _is_pair(one) and find_kind(one) != "file" and not Path(one).suffix]
    return next((one for one in free if is_router(one)), free[0] if free else None)


def _is_pair(argument: str) -> bool:
    return "=" in argument and not find_kind(argument)


def _has_option(words: Sequence[Word], option: str) -> bool:
    return any(word.text.partition("=")[0] == option for word in words if not word.is_argument)


def _name_missing(words: Sequence[Word]) -> list[str]:
    """The options that must be added so that label and text of the first table are found."""
    tables = [word.text for word in words if word.is_argument and is_texts(word.text)]
    rows = peek_rows(tables[:1]) if tables else []
    given = None
    for word, after in pairwise([*words, Word("")]):
        name, equals, value = word.text.partition("=")
        if name == "--label" and not word.is_argument:
            given = given or (value if equals else after.text)
    label = given or lib.labels.guess_label(rows)
    if label is None:
        return []
    has_text = _has_option(words, "--text") or _has_option(words, "--field")
    text = None if has_text else lib.labels.find_needed_text(rows, label)
    return [*(() if given else ("--label", label)), *(() if text is None else ("--text", text))]


def _read_words(arguments: Sequence[str], command: click.Command) -> list[Word]:
    """The words of a command; what other tools call otherwise is replaced by our names and places."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    takes_value = {name: not one.is_flag for one in options for name in (*one.opts, *one.secondary_opts)}
    words: list[Word] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if argument == "--":
            words += [Word(one, is_argument=True) for one in left]
        elif argument == "-" or not argument.startswith("-"):
            words.append(Word(argument, is_argument=True))
        elif name in takes_value:
            words.append(Word(argument))
            words += [Word(next(left, ""))] if takes_value[name] and not equals else []
        elif name in OTHER_OPTIONS:
            value, meant = value if equals else next(left, ""), OTHER_OPTIONS[name]
            if meant == "ROUTER":
                words.insert(0, Word(value, is_argument=True))
            else:
                words += [Word(value, is_argument=True)] if meant == "PATH" else [Word(meant), Word(value)]
    return words


# files without a name, columns that are missing ---------------------------------------------------------------------


def refuse_unnamed(paths: Sequence[str], field: str | None) -> None:
    """Reject files without a name and without --label, with the command that was likely meant."""
    if STDIN in paths:
        right = write_with({"--label": "COLUMN"})
        raise click.UsageError(f"- is standard input: name the field that holds the expert:{right}")
    for path in paths:
        if Path(path).suffix or "/" in path:
            lib.corpora.expand([path])  # rejects a missing file, and names one that is spelt like it
    files = [path for path in paths if is_texts(path)]
    if len(files) < len(paths) or not files:
        return  # the parser of NAME=PATH rejects the others
    rows = peek_rows(files[:1])
    _refuse_missing_header(rows, files[0])
    label = lib.labels.guess_label(rows, field)
    if label is None:
        named = {path: f"{Path(path).name.partition('.')[0] or 'law'}={path}" for path in files}
        right = write_command([named.get(one, one) for one in given_arguments()])
        raise click.UsageError(
            f"expected name=path, found {files[0]!r}, which has no column that could name an expert: name the expert "
            f"of each file:{right}"
        )
    right = write_with({"--label": label, "--text": field or lib.labels.find_needed_text(rows, label)})
    columns = lib.formats.list_names(rows[0])
    raise click.UsageError(f"{files[0]} has the columns {columns}: name the column of the expert:{right}")


def refuse_pairs(pairs: Sequence[str]) -> NoReturn:
    """Reject NAME=PATH with --label."""
    path = pairs[0].partition("=")[2]
    bare = [one.partition("=")[2] if one in pairs else one for one in given_arguments()]
    raise click.UsageError(
        f"{pairs[0]} names its expert, and --label reads experts from a column: leave --label out, or leave the name "
        f"out if {path} has that column:{write_command(bare)}"
    )


def refuse_columns(paths: Sequence[str], label: str, field: str | None) -> None:
    """Reject a column that does not exist, with the command that names the nearest one."""
    if not (rows := peek_rows(paths)):
        return
    columns = list(rows[0])
    others = [name for name in columns if name not in (label, field)]
    if label not in columns and "." not in label:
        _refuse_missing_header(rows, paths[0])
        nearest = lib.labels.suggest_name(label, others) or lib.labels.guess_label(rows, field)
        if nearest is not None:
            text = field if field in columns else lib.labels.find_needed_text(rows, nearest)
            _refuse_missing("--label", label, columns, nearest, {"--label": nearest, "--text": text})
    if field is not None and field not in columns and "." not in field:
        nearest = lib.labels.suggest_name(field, others) or lib.labels.find_spoken(rows, others)
        if nearest is not None:
            _refuse_missing("--text", field, columns, nearest, {"--label": label, "--text": nearest})
    if field is None and (spoken := lib.labels.find_needed_text(rows, label)) is not None:
        likely = lib.labels.find_likely_columns(rows, label) if lib.labels.is_unique_column(rows, label) else None
        right = write_with({"--label": likely.label if likely else label, "--text": likely.text if likely else spoken})
        unlikely = f", and nearly every row has its own {label!r}" if likely else ""
        raise click.UsageError(
            f"found no column with a usual name for the text{unlikely}: there are {lib.formats.list_names(columns)}. "
            f"Name the one of the prompts{' and the one of the label' if likely else ''}:{right}"
        )


def refuse_unique_labels(description: str, paths: Sequence[str], label: str, field: str | None) -> NoReturn:
    """Reject labels of which nearly every row has its own, with the command that names the likely columns."""
    anyway = write_command([*given_arguments(), "--unique-labels"])
    accept = f"or, if each row is an expert of its own:{anyway}"
    rows = peek_rows(paths)
    meant = lib.labels.find_likely_columns(rows, label) if rows else None
    if meant is None:
        raise click.UsageError(f"{description}: name the column that groups them\n{accept}")
    right = write_with({"--label": meant.label, "--text": meant.text or (label if field == meant.label else field)})
    raise click.UsageError(f"{description}. Did you mean the column {meant.label!r}:{right}\n{accept}")


def _refuse_missing_header(rows: Rows, path: str) -> None:
    """Reject a table whose first line is a row: a value of a column equals the column's name."""
    if not TABLES.isdisjoint(Path(path).suffixes) and any(row[name] == name for row in rows for name in row):
        first = one_line(", ".join(rows[0]), HEADER_CHARS)
        raise click.UsageError(
            f"the first line of {path} looks like a row ({first}): write a line above it that names the columns, such "
            "as prompt,label"
        )


def _refuse_missing(
    option: str, wanted: str, columns: Sequence[str], nearest: str, right: Mapping[str, str | None]
) -> NoReturn:
    found = f"found no column {wanted!r} for {option}: there are {lib.formats.list_names(columns)}"
    raise click.UsageError(f"{found}. Did you mean {nearest!r}?{write_with(right)}")


def offer_skipping(error: Exception, paths: Sequence[str], label: str, field: str | None) -> None:
    """If other rows can be read, count those that cannot, and name the command that skips them."""
    if STDIN in paths:
        return  # it cannot be read twice
    broken: list[InputError] = []
    try:
        found = lib.corpora.read_labelled(paths, label=label, text=field, on_damage=broken.append)
    except InputError:
        return
    if broken and found:
        rows = "this row" if len(broken) == 1 else f"the {len(broken):,} rows that cannot be read"
        right = write_with({"--skip-bad": str(len(broken))})
        raise InputError(f"{error}. To skip {rows}:{right}") from error
