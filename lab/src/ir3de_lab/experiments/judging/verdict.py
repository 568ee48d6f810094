"""What a judge says of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ir3de.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """Points reached, of so many."""

    points: float
    of: float


def field(row: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a test row, or an error that says what is there."""
    value = row.get(name)
    if not isinstance(value, kind):
        found = f"it is {value!r:.60}" if name in row else f"the row has {', '.join(row) or 'no fields'}"
        raise InputError(f"a test row needs a field {name!r} of type {kind.__name__}, but {found}")
    return value
