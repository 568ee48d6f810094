"""Logged requests as columns of numbers: what each side of a comparison chooses for them, and what is known of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.traffic.records import TrafficRecord
from ir3de.traffic.rerouting import FixedExpert, Log, PromptReader, Side, find_logged_expert, list_reachable

BATCH_REQUESTS = 4_096
MAX_SHOWN_CHARS = 300  # of a prompt
SECONDS_PER_DAY = 86_400

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Sureness: TypeAlias = tuple[float | None, float | None]  # confidence, expected score
Pairs: TypeAlias = list[tuple[float, float]]  # of the two sides


@dataclass(frozen=True)
class Choice:
    """What one side chooses for a request; the decision if a router made it now."""

    expert: str
    abstained: bool = False
    decision: Decision | None = None
    logged: Sureness = (None, None)

    @property
    def sureness(self) -> Sureness:
        """The confidence, or the expected score of an outcome router."""
        return self.logged if self.decision is None else (self.decision.confidence, self.decision.expected_score)


@dataclass
class Columns:
    """The compared requests, a list per column. Experts are numbers, in the order of `experts`."""

    experts: dict[str, int]
    counts: Counter[str] = field(default_factory=Counter)
    chosen: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    served: list[int] = field(default_factory=list)
    logged: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    tokens: list[tuple[float, float, float]] = field(default_factory=list)  # read anew, from the cache, written; nan
    costs: list[float] = field(default_factory=list)  # nan if unknown
    sureness: tuple[Pairs, Pairs] = field(default_factory=lambda: ([], []))  # where both sides have it
    labels: dict[int, str] = field(default_factory=dict)  # by the place of the request
    scores: dict[int, float] = field(default_factory=dict)
    propensity: dict[int, float] = field(default_factory=dict)  # of scored requests
    reachable: dict[int, tuple[bool, bool]] = field(default_factory=dict)  # of scored requests, for each side
    values: dict[int, tuple[float, float, float]] = field(default_factory=dict)  # of scored requests
    shown: dict[int, str] = field(default_factory=dict)  # the prompts of moved requests

    def __len__(self) -> int:
        return len(self.served)

    def number(self, expert: str) -> int:
        return self.experts.setdefault(expert, len(self.experts))

    def find_conversations(self) -> Indices:
        """The number of each request's conversation; without one a request stands for itself."""
        return renumber(np.array(self.conversations))

    def find_days(self) -> Indices:
        """The number of each request's day, in UTC."""
        return renumber(np.floor(np.array(self.times) / SECONDS_PER_DAY))

    def add(self, record: TrafficRecord, choices: tuple[Choice, Choice], reader: PromptReader | None) -> None:
        """One more request."""
        place, (live, candidate) = len(self), choices
        for column, choice in zip(self.chosen, choices, strict=True):
            column.append(self.number(choice.expert))
        self.served.append(self.number(record.served))
        self.logged.append(self.number(find_logged_expert(record)))
        self.times.append(record.time)
        self.conversations.append(f"c {record.conversation}" if record.conversation else f"r {record.id} {record.time}")
        self.tokens.append(_read_tokens(record))
        self.costs.append(np.nan if record.cost is None else record.cost)
        abstained = live.abstained, candidate.abstained
        self.counts.update(abstained_live=abstained[0], abstained_candidate=abstained[1], abstained_both=all(abstained))
        self._add_feedback(place, record, choices)
        for pairs, one, other in zip(self.sureness, live.sureness, candidate.sureness, strict=True):
            if one is not None and other is not None:
                pairs.append((one, other))
        if live.expert != candidate.expert and reader is not None:
            self.shown[place] = reader.read(record.prompt)[:MAX_SHOWN_CHARS]

    def _add_feedback(self, place: int, record: TrafficRecord, choices: tuple[Choice, Choice]) -> None:
        if labels := {one.expert for one in record.feedback if one.expert is not None}:
            self.counts["contradictory"] += len(labels) > 1
            if len(labels) == 1:
                self.labels[place] = labels.pop()
        scores = [one.score for one in record.feedback if one.score is not None]
        if not scores:
            return
        if not 0 < record.propensity <= 1:
            self.counts["bad_propensity"] += 1
            return
        self.scores[place], self.propensity[place] = sum(scores) / len(scores), record.propensity
        reachable = list_reachable(record)
        live, candidate = (reachable is None or one.expert in reachable for one in choices)
        self.reachable[place] = live, candidate
        decision = choices[0].decision or choices[1].decision
        expected = {} if decision is None else dict(decision.ranking)
        names = (record.served, choices[0].expert, choices[1].expert)
        first, second, third = (expected.get(name, 0.0) for name in names)
        self.values[place] = first, second, third


def _read_tokens(record: TrafficRecord) -> tuple[float, float, float]:
    read, written = record.prompt_tokens, record.completion_tokens
    if read is None or written is None:
        return np.nan, np.nan, np.nan
    cached = min(record.cached_tokens or 0, read)
    return read - cached, cached, written


def collect_columns(sides: tuple[Side, Side], records: Iterable[TrafficRecord]) -> Columns:
    """Choose an expert on both sides for every request, a batch at a time; routers route the prompt again."""
    routers = [side for side in sides if isinstance(side, Router)]
    names = [name for router in routers for name in router.experts]
    names += [side.name for side in sides if isinstance(side, FixedExpert)]
    columns = Columns({name: number for number, name in enumerate(dict.fromkeys(names))})
    reader = PromptReader(routers[0]) if routers else None
    for batch in _split(records):
        columns.counts["read"] += len(batch)
        ready = batch if reader is None else [one for one in batch if one.prompt is not None]
        columns.counts["without_prompt"] += len(batch) - len(ready)
        if Log() in sides:
            decided = [one for one in ready if find_logged_expert(one)]
            columns.counts["undecided"] += len(ready) - len(decided)
            ready = decided
        chosen = [_choose(side, ready, reader, columns.counts) for side in sides]
        for record, live, candidate in zip(ready, *chosen, strict=True):
            if live is None or candidate is None:
                columns.counts["unreadable"] += 1
            else:
                columns.add(record, (live, candidate), reader)
    return columns


def _split(records: Iterable[TrafficRecord]) -> Iterator[list[TrafficRecord]]:
    stream = iter(records)
    while batch := list(islice(stream, BATCH_REQUESTS)):
        yield batch


def _choose(
    side: Side, records: Sequence[TrafficRecord], reader: PromptReader | None, counts: Counter[str]
) -> list[Choice | None]:
    if isinstance(side, FixedExpert):
        return [Choice(side.name)] * len(records)
    if isinstance(side, Log):
        return [
            Choice(find_logged_expert(one), one.abstained, None, (one.confidence, one.expected_score))
            for one in records
        ]
    assert reader is not None
    found: list[Choice | None] = []
    for routed in reader.route(side, [one.prompt for one in records if one.prompt is not None]):
        if routed is None:
            found.append(None)
            continue
        decision, reading = routed
        counts[reading] += 1
        expert = decision.expert or decision.best  # one of them would answer
        found.append(Choice(expert, decision.abstained, decision))
    return found


def renumber(clusters: npt.NDArray[Any]) -> Indices:
    """The same clusters, numbered without gaps."""
    return np.unique(clusters, return_inverse=True)[1].astype(np.int64)


def write_day(seconds: float) -> str:
    """A time as a day in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
