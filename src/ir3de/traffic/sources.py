"""Sources of feedback: the labels that one author gave on one day to the requests of one key.

A source's labels for an expert are one contribution. Its id depends on the source and the expert alone, so feedback
that is read again is recognised, and whatever holds for contributions holds for feedback. Nothing that is decided about
a source depends on other sources: then a router without it is the router that never saw it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from ir3de.errors import InputError
from ir3de.router import Router
from ir3de.statistics.contributions import FEEDBACK, TEACHER, Contribution
from ir3de.traffic.records import list_authors

TEACHER_AUTHOR = "teacher:"  # how the author of taught feedback begins
ID_HASH_CHARS = 12
MAX_SLUG_CHARS = 24
MAX_RECIPE_CHARS = 180
KINDS = ("key", "author", "day")
_EXAMPLES = "key:alice, author:admin or day:2026-11-17"


def clean_name(name: str) -> str:
    """A name as a recipe may hold it.

    >>> clean_name("alice\\n")
    'alice?'
    """
    return "".join(one if one.isprintable() else "?" for one in name)[:MAX_RECIPE_CHARS]


def find_day(time: float) -> str:
    """The day of a time in UTC.

    >>> find_day(1_763_337_600.0)
    '2025-11-17'
    """
    try:
        return datetime.fromtimestamp(time, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # a clock that jumped
        return date.min.isoformat()


@dataclass(frozen=True, order=True)
class Source:
    """Who labelled whose requests, and on which day (UTC)."""

    author: str
    key: str
    day: str

    def make_id(self, expert: str) -> str:
        """The id of the contribution to that expert.

        >>> Source("alice", "alice", "2026-11-17").make_id("law")
        'alice-2026-11-17-4b89796d0064'
        """
        slug = re.sub(r"[^A-Za-z0-9]+", "-", self.author).strip("-")[:MAX_SLUG_CHARS] or FEEDBACK
        whole = json.dumps([self.author, self.key, self.day, expert])
        return f"{slug}-{self.day}-{hashlib.sha256(whole.encode()).hexdigest()[:ID_HASH_CHARS]}"

    def make_recipe(self, first_request: str) -> dict[str, Any]:
        """How the contribution came about. Its first request shows whether a journal still has it."""
        taught = {TEACHER: self.author.removeprefix(TEACHER_AUTHOR)} if self.is_taught else {}
        return {FEEDBACK: self.author, "key": self.key, "day": self.day, "request": clean_name(first_request), **taught}

    @classmethod
    def of_contribution(cls, contribution: Contribution) -> Source:
        """The source that a contribution of feedback came from."""
        recipe = contribution.recipe
        return cls(*(str(recipe.get(name, "")) for name in (FEEDBACK, "key", "day")))

    @property
    def is_taught(self) -> bool:
        """Whether the author is a teacher."""
        return self.author.startswith(TEACHER_AUTHOR)

    def __str__(self) -> str:
        of = "" if self.key == self.author else f" on requests of {self.key or 'no key'}"
        return f"{self.author}{of}, {self.day}"


@dataclass(frozen=True)
class SourcePattern:
    """Which sources are meant: those of a key, of an author, or of a day; from a day on, up to a day.

    >>> pattern = SourcePattern.parse("key:alice", since="2026-11-01")
    >>> pattern.matches(Source("admin", "alice", "2026-11-17")), pattern.matches(Source("alice", "alice", "2026-10-31"))
    (True, False)
    """

    kind: str
    name: str
    since: str | None = None  # a day, as `until`, which is included
    until: str | None = None

    @classmethod
    def parse(cls, text: str, *, since: str | None = None, until: str | None = None) -> SourcePattern:
        """A source as the command line names it."""
        kind, colon, name = text.partition(":")
        if kind not in KINDS or not colon or not name:
            raise InputError(f"a source is {_EXAMPLES}, found {text!r:.80}")
        if kind == "day":
            _check_day(name, "the day of --source")
        days = [None if one is None else _check_day(one, what) for one, what in ((since, "since"), (until, "until"))]
        return cls(kind, clean_name(name), *days)

    def matches(self, source: Source) -> bool:
        """Whether the source is meant. A key's sources are its requests, and all that it labelled."""
        if (self.since and source.day < self.since) or (self.until and source.day > self.until):
            return False
        if self.kind == "key":
            return self.name == source.key or source.author in list_authors(self.name)
        return self.name == (source.author if self.kind == "author" else source.day)

    @property
    def times(self) -> tuple[float | None, float | None]:
        """The first second of the days that are meant, and the first after them."""
        first, last = (self.name, self.name) if self.kind == "day" else (None, None)
        begins = [one for one in (first, self.since) if one]
        ends = [one for one in (last, self.until) if one]
        return (_find_midnight(max(begins)) if begins else None, _find_midnight(min(ends), 1) if ends else None)


def _check_day(text: str, what: str) -> str:
    try:
        return date.fromisoformat(text[:10]).isoformat()  # a source is a whole day: the time of day is not used
    except ValueError:
        raise InputError(f"{what} is a day such as 2026-11-17, found {text!r:.80}") from None


def _find_midnight(day: str, days_later: int = 0) -> float:
    return datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp() + 86_400 * days_later


def find_feedback(router: Router) -> dict[tuple[str, str], Contribution]:
    """The contributions of feedback that a router has, by expert and id."""
    return {(name, one.id): one for name, own in router.contributions.items() for one in own if one.is_feedback}


def group_ids(found: Mapping[tuple[str, str], Contribution] | Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of contributions by expert."""
    grouped: dict[str, list[str]] = {}
    for expert, name in found:
        grouped.setdefault(expert, []).append(name)
    return grouped
