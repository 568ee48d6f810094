"""Tables that other libraries hold in memory: they are refused where only texts make sense.

A loop over a table gives the names of its columns, which would be counted, or routed, as if they were texts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir3de.errors import InputError


def is_frame(data: object) -> bool:
    """Whether an object has columns with names, or is a polars LazyFrame, which has them once it is collected."""
    if isinstance(data, (str, bytes, Mapping, list, tuple)):
        return False
    return any(hasattr(data, name) for name in ("collect_schema", "column_names", "columns"))


def refuse_table(data: object, what: str, instead: str = "") -> None:
    """Refuse a table as an iterable of texts; `instead` names another way, if there is one."""
    if is_frame(data):
        raise InputError(
            f"{what} must be an iterable of str, found a {type(data).__name__}: give the column that holds the texts"
            f"{instead}"
        )
