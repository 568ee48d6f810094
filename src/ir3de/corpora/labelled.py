"""Labelled texts of every shape: files and folders, tables in memory, rows, or texts with labels."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ir3de.corpora.labels import (
    advise_unlabelled,
    choose_columns,
    find_experts,
    is_missing,
    is_pair,
    join_labels,
    order_labels,
    read_label,
    refuse_columns_by_name,
    split_row,
)
from ir3de.corpora.rows import text_in
from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError
from ir3de.files.atomic import find_kind
from ir3de.files.formats import FORMATS, LABELLED_STDIN, Row, list_names
from ir3de.files.sources import expand
from ir3de.files.streams import STDIN, Options, Source
from ir3de.statistics.texts import is_frame, refuse_table

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
    """An expert's prompts one by one; rejects what is not a prompt, by its index."""
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
        raise InputError(f"name the column of the expert (label=…, on the command line --label){_describe(data)}")
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


@runtime_checkable
class Frame(Protocol):
    """A table with named columns: a DataFrame of pandas or polars, a Dataset, a table of pyarrow."""

    def __getitem__(self, column: Any, /) -> Any: ...

    def __len__(self) -> int: ...


def refuse_splits(data: object) -> None:
    """Reject a mapping of splits, such as a DatasetDict, and list its splits."""
    if isinstance(data, Mapping) and type(data) is not dict and data and all(map(is_frame, data.values())):
        raise InputError(
            f"found a {type(data).__name__} with the splits {list_names(data)}: give one of them, for instance "
            f"data[{next(iter(data))!r}]"
        )


def require_experts_apart(data: object) -> None:
    """Reject what is not {expert: texts}: a table would be taken for a mapping whose experts are its columns."""
    if not isinstance(data, Mapping):
        raise InputError(
            f"expected {{expert: texts}}, found {type(data).__name__}: pass ir3de.corpora.read_labelled(data, label=…)"
        )
    refuse_splits(data)


def iterate_rows(frame: Any, label: str, text: str | None) -> Iterator[Row]:
    """The rows of a table, with the columns that hold the label, the text and the source."""
    kind = type(frame).__name__
    names = list_columns(frame)
    for name in (label, text):
        if name is not None and name not in names and name in getattr(getattr(frame, "index", None), "names", ()):
            raise InputError(f"{name!r} is the index of the {kind}, not a column: give frame.reset_index()")
    wanted = choose_columns(names, label, text)
    if hasattr(frame, "collect_schema") and hasattr(frame, "collect"):
        frame = frame.select(wanted).collect()
    meanings = {name: _find_class_names(frame, name) for name in wanted}
    columns = [_decode(_list_values(frame[name]), meanings[name]) for name in wanted]
    numbers = list_indices(frame, len(columns[0]) if columns else 0)
    for number, values in zip(numbers, zip(*columns, strict=True), strict=True):
        row = Row(zip(wanted, values, strict=True))
        row.place, row.sole_column = f"{kind}, index {number!r}", None
        yield row


def list_indices(data: Any, count: int) -> Sequence[Any]:
    """How people find the rows again: by the index of pandas, else by their place, counted from 0 as Python does."""
    listing = getattr(getattr(data, "index", None), "tolist", None)
    return range(count) if listing is None else list(listing())


def list_values(column: Any) -> list[Any]:
    """A column, an array or any other iterable as a list of Python's own objects, nulls as None."""
    return [None if not isinstance(value, str) and is_missing(value) else value for value in _list_values(column)]


def _list_values(column: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):  # pyarrow; polars and pandas; numpy
        if callable(convert := getattr(column, method, None)):
            return list(convert())
    return list(column)


def list_columns(frame: Any) -> list[str]:
    """The names of a table's columns."""
    if hasattr(frame, "collect_schema"):
        return [str(name) for name in frame.collect_schema().names()]
    names = getattr(frame, "column_names", None)
    found = list(frame.columns) if names is None else list(names)
    if unnamed := [name for name in found if not isinstance(name, str)]:
        how = "'_'.join" if isinstance(unnamed[0], tuple) else "str"
        raise InputError(
            f"the columns of a {type(frame).__name__} must have names that are strings, found {unnamed[0]!r}: "
            f"rename them first, for instance frame.columns = frame.columns.map({how})"
        )
    if twice := sorted({name for name in found if found.count(name) > 1}):
        raise InputError(f"the columns {list_names(twice)} of a {type(frame).__name__} are there twice: rename them")
    return found


def _find_class_names(frame: Any, column: str) -> list[str] | None:
    """What the numbers of a column of a Dataset stand for, if the Dataset defines it."""
    features = getattr(frame, "features", None)
    names = getattr(features.get(column), "names", None) if isinstance(features, Mapping) else None
    return list(names) if isinstance(names, (list, tuple)) else None


def _decode(values: list[Any], names: list[str] | None) -> list[Any]:
    found = [None if not isinstance(value, str) and is_missing(value) else value for value in values]
    if names is None:
        return found
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in found]
