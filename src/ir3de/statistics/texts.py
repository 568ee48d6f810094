"""Texts with a source, such as a data set or a web site; and tables, which are not iterables of texts.

A source travels with its text as an attribute of a str. Only the kept sample uses it. Counts never depend on sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.statistics.sample import TAUGHT, hash_text

SOURCE_FIELD = "source"


class SourcedText(str):
    """A text with the name of its source. It can be used wherever a str can."""

    __slots__ = ("source",)
    source: str


def attach_source(text: str, row: Mapping[str, object]) -> str:
    """The text with the source in the field `source` of its row: a string or a whole number. Others are ignored."""
    source = row.get(SOURCE_FIELD)
    if type(source) is int:
        source = str(source)
    if not isinstance(source, str) or not source:
        return text
    made = SourcedText(text)
    made.source = source
    return made


def read_text(row: object, number: int) -> str:
    """The text of a row such as {"text": "Is this contract void?", "source": "forum"}, with its source."""
    if not isinstance(row, Mapping):
        is_missing = row is None or isinstance(row, float) or type(row).__name__ == "NAType"
        advice = ". Leave missing texts out, in pandas by dropna()" if is_missing else ""
        raise InputError(
            f"the text at index {number} must be a str, or a row such as {{'text': …, 'source': …}}, found "
            f"{type(row).__name__}: {row!r:.60}{advice}"
        )
    text = row.get("text", row.get("prompt"))
    if not isinstance(text, str):
        found = f"the fields {', '.join(map(repr, row))}" if text is None and row else type(text).__name__
        where = getattr(row, "place", None) or f"index {number}"  # a row of a file knows where it was read
        raise InputError(f"{where}: 'text' (or 'prompt') must be a str, found {found}: give each row its text")
    return attach_source(text, row)


def hash_sources(texts: Sequence[str]) -> npt.NDArray[np.uint32]:
    """The hash of each text's source, 0 without one: (n,)."""
    names = [text.source if isinstance(text, SourcedText) else "" for text in texts]
    hashes = {name: min(hash_text(name), TAUGHT - 1) for name in set(names)}  # of no name it is 0
    return np.array([hashes[name] for name in names], np.uint32)


def is_frame(data: object) -> bool:
    """Whether an object has columns with names, or is a polars LazyFrame, which has them once it is collected."""
    if isinstance(data, (str, bytes, Mapping, list, tuple)):
        return False
    return any(hasattr(data, name) for name in ("collect_schema", "column_names", "columns"))


def refuse_table(data: object, what: str, instead: str = "") -> None:
    """Raise an error for a table as an iterable of texts: a loop over it gives the names of its columns."""
    if is_frame(data):
        found = f"found a {type(data).__name__}: give the column that holds the texts{instead}"
        raise InputError(f"{what} must be an iterable of str, {found}")
