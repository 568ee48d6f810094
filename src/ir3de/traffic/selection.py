"""Which requests of a journal are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Selection:
    """Which requests are meant. All of its conditions hold together.

    >>> Selection(key="alice", since=1_760_000_000.0).build_where()
    ('key = ? AND time >= ?', ['alice', 1760000000.0])
    """

    key: str | None = None  # of these clients' requests
    author: str | None = None  # with feedback of this author
    since: float | None = None  # seconds since 1970
    until: float | None = None
    has_feedback: bool = False
    router: str | None = None  # which the router of this hash decided
    candidate: str | None = None  # on which the candidate router of this hash decided
    disagrees: bool = False  # of these, where it named another expert than the live router

    def build_where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        tried = "json_extract(details, '$.candidate') = ?"
        times = (("time >= ?", self.since), ("time < ?", self.until))
        given = (("key = ?", self.key), *times, ("router = ?", self.router), (tried, self.candidate))
        parts = [(text, value) for text, value in given if value is not None]
        if self.author is not None:
            parts.append(("number IN (SELECT request FROM feedback WHERE author = ?)", self.author))
        where = [text for text, _ in parts]
        if self.has_feedback:
            where.append("number IN (SELECT request FROM feedback)")
        if self.disagrees:
            where.append("json_extract(details, '$.candidate_expert') IS NOT decided")
        return " AND ".join(where) or "1", [value for _, value in parts]


ALL = Selection()
