"""Rows of a gateway's decision log as records of traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ir3de.errors import InputError, IR3DEError
from ir3de.traffic.prices import Price
from ir3de.traffic.records import JournalPrompt, TrafficRecord

_NUMBERS = ("confidence", "expected_score", "in_domain", "seconds", "cost")
_COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens")
_TEXTS = ("key", "router", "why", "arm", "conversation")
MAX_DAMAGED_LINES = 1_000  # a file with more is not a decision log


@dataclass
class DamagedLines:
    """Lines that could not be read: counted up to a limit, the first one remembered."""

    most: int = MAX_DAMAGED_LINES
    lines: int = 0
    first: str = ""

    def __call__(self, error: IR3DEError) -> None:
        self.first = self.first or str(error)
        self.lines += 1
        if self.lines > self.most:
            raise InputError(
                f"more than {self.most:,} lines are damaged or not decisions: name a log that `logs.decisions` of the "
                f"gateway's configuration wrote. The first one is {self.first}"
            )


@dataclass
class DecisionLog:
    """The rows of a decision log, which are records of traffic, and the prices that they name."""

    rows: Iterable[Mapping[str, object]]
    on_damage: Callable[[InputError], None] = field(default_factory=DamagedLines)
    prices: dict[str, Price] = field(default_factory=dict)

    def __iter__(self) -> Iterator[TrafficRecord]:
        for number, row in enumerate(self.rows):
            try:
                record = parse_row(row, number)
            except InputError as error:
                self.on_damage(error)
                continue
            price = row.get("price")
            if isinstance(price, Mapping):
                self.prices[record.served] = Price.parse(price, getattr(row, "place", "a row"))
            yield record


def parse_row(row: Mapping[str, object], number: int = 0) -> TrafficRecord:
    """One row, checked; an `InputError` where it is not a row of a decision log."""
    where = getattr(row, "place", "a row")
    expert, served, ranking = row.get("expert"), row.get("served"), row.get("ranking")
    if not (isinstance(expert, str) or row.get("abstained") is True) or not isinstance(ranking, list):
        raise InputError(f"{where}: no decision (fields 'expert' and 'ranking'), found {', '.join(row)[:200]}")
    ranked = tuple(_rank(one) for one in ranking if isinstance(one, Mapping) and isinstance(one.get("expert"), str))
    decided = expert if isinstance(expert, str) else None
    answered = served if isinstance(served, str) and served else decided or (ranked[0][0] if ranked else "")
    if not answered:
        raise InputError(f"{where}: no expert in 'expert', 'served' or 'ranking'")
    fields: dict[str, Any] = {name: _read_number(row.get(name)) for name in (*_NUMBERS, *_COUNTS)}
    fields |= {name: int(fields[name]) for name in _COUNTS if fields[name] is not None}
    fields |= {name: row[name] for name in _TEXTS if isinstance(row.get(name), str)}
    propensity = _read_number(row.get("propensity"))
    return TrafficRecord(
        str(row.get("request_id") or f"row {number}"),
        _read_time(row.get("time"), where),
        decided=decided,
        served=answered,
        propensity=1.0 if propensity is None else propensity,
        abstained=row.get("abstained") is True,
        ranking=ranked,
        status=int(_read_number(row.get("status")) or 200),
        prompt=_read_prompt(row),
        **fields,
    )


def _rank(one: Mapping[str, Any]) -> tuple[str, float]:
    value = _read_number(one.get("probability"))
    return str(one["expert"]), (_read_number(one.get("expected_score")) or 0.0) if value is None else value


def _read_prompt(row: Mapping[str, object]) -> JournalPrompt | None:
    turns, text = row.get("turns"), row.get("text")
    if isinstance(turns, list) and turns and all(isinstance(one, str) for one in turns):
        return JournalPrompt.from_text(turns)
    return JournalPrompt.from_text([text]) if isinstance(text, str) else None


def _read_time(given: object, where: str) -> float:
    """Seconds since 1970; 0 where the row has no time."""
    if given is None:
        return 0.0
    if (number := _read_number(given)) is not None:
        return number
    try:
        found = datetime.fromisoformat(str(given))
    except ValueError:
        raise InputError(f"{where}: 'time' is not a time: {given!r:.80}") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _read_number(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]
