"""Labels of which nearly every row has its own: most likely the wrong column was named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir3de.corpora.labels import find_needed_text, guess_label

MIN_ROWS = 20  # of fewer, each may well be an expert of its own
MIN_UNIQUE = 0.8  # labels for each row
MAX_KINDS = 0.5  # different values for each row of a column that could hold labels

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class LikelyColumns:
    """The columns that were likely meant; `text` is None where it need not be named."""

    label: str
    text: str | None


def are_unique(texts: Mapping[str, Sequence[str]]) -> bool:
    """Whether nearly every row of {label: texts} has a label of its own.

    >>> are_unique({f"Title {number}": ["support"] for number in range(30)})
    True
    >>> are_unique({"billing": ["Where is my invoice?"] * 30})
    False
    """
    rows = sum(map(len, texts.values()))
    return rows >= MIN_ROWS and len(texts) >= MIN_UNIQUE * rows


def is_unique_column(rows: Rows, label: str) -> bool:
    """Whether nearly every one of these rows has a value of its own in that column."""
    return len(rows) >= MIN_ROWS and _count_kinds(rows, label) >= MIN_UNIQUE * len(rows)


def find_likely_columns(rows: Rows, label: str) -> LikelyColumns | None:
    """Which columns could be meant instead of `label`; None if no other column has values that come again."""
    meant = guess_label(rows, label)
    if meant is None or _count_kinds(rows, meant) > max(2, MAX_KINDS * len(rows)):
        return None
    return LikelyColumns(meant, find_needed_text(rows, meant))


def _count_kinds(rows: Rows, name: str) -> int:
    return len({repr(row.get(name)) for row in rows})


def describe_unique(texts: Mapping[str, Sequence[str]], label: str | None) -> str:
    """What was found, as the beginning of an error."""
    rows = sum(map(len, texts.values()))
    where = "the labels" if label is None else f"the column {label!r}"
    return f"{where} would make {len(texts):,} experts of {rows:,} rows: nearly every row has its own label"
