"""Labelled texts of every shape: files and folders, tables in memory, rows, or texts beside labels."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

from ir3de.corpora.folders import find_experts
from ir3de.corpora.formats import FORMATS, LABELLED_STDIN
from ir3de.corpora.frames import Frame, iterate_rows, list_columns, list_indices, list_values, refuse_splits
from ir3de.corpora.label_arguments import advise_unlabelled, is_pair, join_labels, refuse_columns_by_name
from ir3de.corpora.labels import choose_columns, order_labels, read_label, split_row
from ir3de.corpora.rows import list_names, text_in
from ir3de.corpora.sources import expand
from ir3de.corpora.streams import STDIN, Options, Source
from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError
from ir3de.statistics.texts import is_frame, refuse_table
from ir3de.storage.files import find_kind

# what labelled texts can be: files by name, a table, rows, or the pair (texts, labels)
Labelled: TypeAlias = "str | Path | Frame | Iterable[str | Path] | Iterable[Mapping[str, Any]] | tuple[Any, Any]"

PEEKED_ROWS = 200
PLAIN_TEXTS = frozenset({".txt", ".text", ".md"})
OnDamage: TypeAlias = Callable[[InputError], None]


def read_labelled(
    data: Labelled,
    labels: Iterable[Any] | None = None,
    *,
    label: str | None = None,
    text: str | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_damage: OnDamage | None = None,
) -> dict[str, list[str]]:
    """Read labelled texts into {label: texts}. All texts are held in memory; each file is read once.

    `data` is a file with columns or fields (or several, a folder of them, `-` for standard input), a DataFrame of
    pandas or polars, a `datasets.Dataset`, a list of rows, or texts with their `labels`, also as one pair. `label`
    names the column of the labels, and `text` that of the texts; without `text` the usual names are tried, and then
    the only other column.
    A folder needs no `label`: each of its sub-folders, and each file directly in it, is then the expert of that name.

    Labels are stripped, numbers are taken as they are written, and the experts are sorted by label. Rows without a text
    are left out. A row without a label is an error, unless `on_damage` takes it; the row is then left out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "train.csv")
    ...     _ = path.write_text("prompt,team\\nIs it void?,law\\nSort a list.,code\\nSue them?,law\\n")
    ...     read_labelled(path, label="team")
    {'code': ['Sort a list.'], 'law': ['Is it void?', 'Sue them?']}
    >>> read_labelled(["Is it void?", "Sort a list."], ["law", "code"])
    {'code': ['Sort a list.'], 'law': ['Is it void?']}
    """
    if labels is not None:
        data = join_labels(data, labels, label, text, "read_labelled(")
    found: dict[str, list[str]] = {}
    without_text = 0
    for name, prompt in _pairs(data, label, text, Options(on_bytes=on_bytes, on_damage=on_damage)):
        if prompt and not prompt.isspace():
            found.setdefault(name, []).append(prompt)
        else:
            without_text += 1
    if not found:
        raise _nothing_found(data, without_text)
    return {name: found[name] for name in order_labels(found)}


def _nothing_found(data: Any, without_text: int) -> InputError:
    paths = [data] if isinstance(data, str | Path) else data if isinstance(data, list) else []
    place = f"{paths[0]}: " if len(paths) == 1 and isinstance(paths[0], str | Path) else ""
    rows = f" (rows with a label, but without a text: {without_text:,})" if without_text else ""
    return InputError(f"{place}found no text with a label{rows}: give at least one row that has both")


def read_experts(
    data: Any, label: str | None, text: str | None, labels: Any = None, *, call: str = "read_labelled("
) -> Mapping[str, Iterable[str]]:
    """The texts of each expert: {expert: texts} as it is, everything else as `read_labelled` reads it.

    `call` is how the function that people called begins, for the advice in errors.
    """
    if labels is not None:
        data = join_labels(data, labels, label, text, call)
    if isinstance(data, Mapping):
        refuse_splits(data)
        refuse_columns_by_name(data, label, text)
        return data
    return read_labelled(data, label=label, text=text)


def prompts_of(name: str, texts: Iterable[str]) -> Iterator[str]:
    """An expert's prompts one by one; what is no prompt is refused, and says which it is."""
    refuse_table(texts, f"the prompts of '{name}'")
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        found = "one string: put it in a list" if isinstance(texts, str) else type(texts).__name__
        raise InputError(f"the prompts of '{name}' must be an iterable of str, found {found}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            found = f"{type(text).__name__} at index {number}: {text!r:.60}"
            raise InputError(f"the prompts of '{name}' must be str, found {found}")
        yield text


def peek_rows(data: Any, most: int = PEEKED_ROWS) -> list[Mapping[str, object]]:
    """The first rows of a table, of files or of a list, with all their columns; empty if they cannot be read again."""
    if is_frame(data):
        return list(islice(iterate_rows(data, "", None), most))
    if isinstance(data, (str, Path)):
        data = [data]
    if not isinstance(data, Sequence) or STDIN in data:
        return []
    if all(isinstance(one, (str, Path)) for one in data):
        with closing(_read_files(data, "", None, Options(on_damage=lambda _: None))) as rows:
            return [row for _, row in islice(rows, most) if isinstance(row, Mapping)]
    return [row for row in data[:most] if isinstance(row, Mapping)]


def _pairs(data: Any, label: str | None, text: str | None, options: Options) -> Iterator[tuple[str, str]]:
    """Every label with its text, whatever the shape of the data."""
    refuse_splits(data)
    if is_pair(data):
        if label is not None or text is not None:
            raise InputError("(texts, labels) have no columns: leave label= and text= out")
        texts, labels = data
        return _pair_up(texts, labels, options)
    if isinstance(data, Mapping):
        raise InputError("{expert: texts} names its experts itself: give label= with a table, with files or with rows")
    if label is None and isinstance(data, (str, Path)) and find_kind(data) == "folder":
        return _read_folder(data, text, options)
    if label is None and (advice := advise_unlabelled(data)):
        raise InputError(f"found a {type(data).__name__}, and no labels: {advice}")
    if label is None:
        raise InputError(f"say which column names the expert (label=…, on the command line --label){_describe(data)}")
    if label == text:
        raise InputError(f"label= and text= both name {text!r}: give the column of the expert and that of the prompt")
    if is_frame(data):
        return _labelled_rows(((row.place, row) for row in iterate_rows(data, label, text)), label, text, options)
    if isinstance(data, (str, Path)):
        data = [data]
    if not isinstance(data, Iterable):
        raise InputError(
            f"labelled texts must be files, a table with columns, rows or (texts, labels), found {type(data).__name__}"
        )
    items = iter(data)
    first = next(items, None)
    if isinstance(first, (str, Path)):
        return _labelled_rows(_read_files([first, *items], label, text, options), label, text, options)
    rows = chain(() if first is None else (first,), items)
    placed = ((getattr(row, "place", f"index {number}"), row) for number, row in enumerate(rows))
    return _labelled_rows(placed, label, text, options)


def _labelled_rows(
    rows: Iterable[tuple[str, object]], label: str, text: str | None, options: Options
) -> Iterator[tuple[str, str]]:
    for place, row in rows:
        try:
            name, prompt = split_row(row, label, text)
            if name is None and prompt and not prompt.isspace():
                raise InputError(f"the row has no label, {label!r} is empty: fill it in, or leave the row out")
        except InputError as error:
            options.report_damage(InputError(f"{place}: {error}"))
            continue
        if name is not None:
            yield name, prompt


def _pair_up(texts: Any, labels: Any, options: Options) -> Iterator[tuple[str, str]]:
    """Pair texts with their labels; there must be as many of the one as of the other."""
    prompts, names = list_values(texts), list_values(labels)
    if len(prompts) != len(names):
        raise InputError(f"found {len(prompts):,} texts and {len(names):,} labels: give one label for each text")
    for number, prompt, value in zip(list_indices(texts, len(prompts)), prompts, names, strict=True):
        try:
            name = read_label(value, "label")
            if not isinstance(prompt, (str, type(None))):
                raise InputError(f"a text must be a str, found {prompt!r:.60}")
            if name is None and prompt and not prompt.isspace():
                raise InputError("the text has no label: give it one, or leave it out")
        except InputError as error:
            options.report_damage(InputError(f"index {number!r}: {error}"))
            continue
        if name is not None:
            yield name, replace_lone_surrogates(prompt or "")


def _read_folder(folder: str | Path, text: str | None, options: Options) -> Iterator[tuple[str, str]]:
    """The texts of a folder of experts."""
    for name, paths in find_experts(folder).items():
        for source in expand(paths):
            form = FORMATS[source.kind]
            with closing(form.read(source, options)) as rows:
                for number, row in rows:
                    try:
                        prompt = text_in(row, text)
                    except InputError as error:
                        options.report_damage(InputError(f"{form.place(source, number)}: {error}"))
                    else:
                        yield name, prompt


def _read_files(
    paths: Sequence[str | Path], label: str, text: str | None, options: Options
) -> Generator[tuple[str, object], None, None]:
    """The rows of all files that have columns or fields, each with its place."""
    named = {str(path) for path in paths}
    columns = Options(
        columns=partial(choose_columns, label=label, text=text),
        on_bytes=options.on_bytes,
        on_damage=options.on_damage,
    )
    sources = expand(paths)
    plain = [source for source in sources if source.kind in PLAIN_TEXTS]
    for source in sources:
        if source in plain and (source.name in named or len(plain) == len(sources)):
            raise _no_columns(source)
        if source not in plain:
            form = LABELLED_STDIN if source.kind == STDIN else FORMATS[source.kind]
            with closing(form.read(source, columns)) as rows:
                for number, row in rows:
                    yield form.place(source, number), row


def _no_columns(source: Source) -> InputError:
    stem = Path(source.name).name.partition(".")[0]
    return InputError(
        f"{source.name}: lines of plain text have no column with a label: name the expert itself "
        f"({stem}={source.name}), or write the rows as .csv, .tsv, .jsonl or .parquet"
    )


def _describe(data: object) -> str:
    if is_frame(data):
        return f"; found the columns {list_names(list_columns(data))}"
    if isinstance(data, (str, Path)) and str(data) != STDIN:
        with closing(_read_files([data], "", None, Options())) as rows:
            _, row = next(rows, ("", {}))
        return f"; {data} has the columns {list_names(row)}" if isinstance(row, Mapping) else ""
    return ""
