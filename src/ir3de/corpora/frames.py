"""Tables that other libraries hold in memory, known by what they can do: none of those libraries is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ir3de.corpora.labels import choose_columns, is_missing
from ir3de.corpora.rows import Row, list_names
from ir3de.errors import InputError
from ir3de.statistics.texts import is_frame


@runtime_checkable
class Frame(Protocol):
    """A table with named columns: a DataFrame of pandas or polars, a Dataset, a table of pyarrow."""

    def __getitem__(self, column: Any, /) -> Any: ...

    def __len__(self) -> int: ...


def refuse_splits(data: object) -> None:
    """Refuse a mapping of splits, such as a DatasetDict, and say which splits there are."""
    if isinstance(data, Mapping) and type(data) is not dict and data and all(map(is_frame, data.values())):
        raise InputError(
            f"found a {type(data).__name__} with the splits {list_names(data)}: give one of them, for instance "
            f"data[{next(iter(data))!r}]"
        )


def require_experts_apart(data: object) -> None:
    """Refuse what is not {expert: texts}: a table would be taken for a mapping whose experts are its columns."""
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
    """What the numbers of a column of a Dataset stand for, where the Dataset says so."""
    features = getattr(frame, "features", None)
    names = getattr(features.get(column), "names", None) if isinstance(features, Mapping) else None
    return list(names) if isinstance(names, (list, tuple)) else None


def _decode(values: list[Any], names: list[str] | None) -> list[Any]:
    found = [None if not isinstance(value, str) and is_missing(value) else value for value in values]
    if names is None:
        return found
    return [names[value] if isinstance(value, int) and 0 <= value < len(names) else None for value in found]
