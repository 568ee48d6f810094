"""Arguments in the wrong place, and options by other tools' names: each is answered with the right command."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click

from ir3de.cli import hints
from ir3de.files.atomic import find_kind

EXAMPLE_ROUTER = "router"
COLUMNS = {"label": "--label", "text": "--text", "field": "--text"}  # label=team is an argument in other tools
PATH_NAMES = ("csv", "data", "dataset", "file", "files", "input", "jsonl", "parquet", "path", "texts", "train", "tsv")
OTHER_OPTIONS = {
    **{f"--{name}": "--label" for name in ("class", "column", "labels", "label-column", "target", "team")},
    **{f"--{name}": "--text" for name in ("prompt", "prompts", "text-column")},
    **{f"--{name}": "PATH" for name in PATH_NAMES},
    **dict.fromkeys(("--router", "--out", "--output", "-o"), "ROUTER"),
}


class Word(NamedTuple):
    """One word of a command: an argument by its place, or an option or its value."""

    text: str
    is_argument: bool = False


def refuse_misplaced(described: Collection[str]) -> None:
    """Refuse a column or a file of texts that stands where it does not belong. `described` names need no path."""
    words = _read_words(hints.given_arguments(), click.get_current_context().command)
    if (wrong := _find_fault(words, described)) is not None:
        raise click.UsageError(wrong + hints.write_command(_correct(words)))


def explain_option(error: click.NoSuchOption) -> click.UsageError:
    """The error with the right command, where the option has another name here; else the error as it is."""
    context = error.ctx
    if context is None or error.option_name not in OTHER_OPTIONS or not _takes_texts(context.command):
        return error
    with context.scope(cleanup=False):
        right = hints.write_command(_correct(_read_words(hints.given_arguments(), context.command)))
    return click.UsageError(f"there is no option {error.option_name}. Did you mean:{right}", context)


def _takes_texts(command: click.Command) -> bool:
    return any(parameter.name == "sources" for parameter in command.params)


def _find_fault(words: Sequence[Word], described: Collection[str]) -> str | None:
    """What is wrong with the places of the arguments, if anything is."""
    arguments = [word.text for word in words if word.is_argument and word.text not in described]
    columns = _find_columns(words)
    if wrong := next((one for one in arguments if one in columns), None):
        return f"{wrong} is no file: name the column with {columns[wrong][0]}:"
    first, *others = arguments or [""]
    if others and all(map(_is_pair, others)):
        return None
    if hints.is_texts(first):
        if _find_router(others) is None:
            return f"{first} is a file of texts, and the router is missing: name it first:"
        return f"the router and the texts look swapped, for {first} is a file of texts: the router comes first:"
    if any(map(hints.is_router, others)) and not hints.is_router(first):
        return f"the router and the texts look swapped, for {first} is no router: the router comes first:"
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
    """Let the arguments, which are at these places, begin with the router; a missing one gets an example's name."""
    if not places:
        return
    first, *others = places
    is_texts, router = hints.is_texts(texts[first]), _find_router([texts[place] for place in others])
    if is_texts and router is None:
        texts.insert(first, EXAMPLE_ROUTER)
    elif router is not None and (is_texts or (hints.is_router(router) and not hints.is_router(texts[first]))):
        other = next(place for place in others if texts[place] == router)
        texts[first], texts[other] = router, texts[first]


def _find_columns(words: Sequence[Word]) -> dict[str, tuple[str, str]]:
    """The arguments that are columns of a file beside them, each with the option and the name that were meant."""
    arguments = [word.text for word in words if word.is_argument]
    tables = [one for one in arguments if hints.is_texts(one)]
    if not tables:
        return {}
    found = {}
    for one in arguments:
        option, equals, name = one.partition("=")
        if equals and option in COLUMNS and not find_kind(name):
            found[one] = (COLUMNS[option], name)
    if not found and not _has_option(words, "--label"):
        named = {name for row in hints.peek_rows(tables[:1])[:1] for name in row}
        # the first argument may be a new router of that name
        found |= {one: ("--label", one) for one in arguments[1:] if one in named and not find_kind(one)}
    return found


def _find_router(arguments: Sequence[str]) -> str | None:
    """The argument that is a router, or could become one."""
    free = [one for one in arguments if not _is_pair(one) and find_kind(one) != "file" and not Path(one).suffix]
    return next((one for one in free if hints.is_router(one)), free[0] if free else None)


def _is_pair(argument: str) -> bool:
    return "=" in argument and not find_kind(argument)


def _has_option(words: Sequence[Word], option: str) -> bool:
    return any(word.text.partition("=")[0] == option for word in words if not word.is_argument)


def _find_value(words: Sequence[Word], option: str) -> str | None:
    """What an option was given, if it was."""
    for word, after in pairwise([*words, Word("")]):
        name, equals, value = word.text.partition("=")
        if name == option and not word.is_argument:
            return value if equals else after.text
    return None


def _name_missing(words: Sequence[Word]) -> list[str]:
    """The options that must be added so that label and text of the first table are found."""
    from ir3de.corpora.labels import find_needed_text, guess_label

    tables = [word.text for word in words if word.is_argument and hints.is_texts(word.text)]
    rows = hints.peek_rows(tables[:1]) if tables else []
    given = _find_value(words, "--label")
    label = guess_label(rows) if given is None else given
    if label is None:
        return []
    text = None if _has_option(words, "--text") or _has_option(words, "--field") else find_needed_text(rows, label)
    return [*(() if given else ("--label", label)), *(() if text is None else ("--text", text))]


def _read_words(arguments: Sequence[str], command: click.Command) -> list[Word]:
    """The words of a command; what it calls otherwise is put in its words and places."""
    takes_value = _list_options(command)
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
            value = value if equals else next(left, "")
            meant = OTHER_OPTIONS[name]
            if meant == "ROUTER":
                words.insert(0, Word(value, is_argument=True))
            else:
                words += [Word(value, is_argument=True)] if meant == "PATH" else [Word(meant), Word(value)]
    return words


def _list_options(command: click.Command) -> Mapping[str, bool]:
    """Every option of a command, and whether a value follows it."""
    return {
        name: not option.is_flag
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
