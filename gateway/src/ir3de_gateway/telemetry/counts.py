"""Plain numbers that are counted while serving, also by client key. They become Prometheus metrics when scraped."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from time import time
from typing import Any, Literal

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.keys.registry import KeyRegistry
from ir3de_gateway.store import SharedStore
from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.numbers import DamagedNumbersError

Labels = str | tuple[str, ...]  # the label's value, or the values of all labels; () for a metric without labels
Dump = dict[str, Any]  # all numbers of a worker, as JSON
MAX_KEYS = 1_000  # with labels of their own; a keys file may have more, and change for ever
OTHERS = "other"
DRIFT_KINDS = ("word", "pair", "expert", "sign", "number")

_log = logging.getLogger("ir3de.gateway")


class Counter(dict[Labels, float]):
    """Numbers by the values of their labels.

    >>> requests = Counter()
    >>> requests["law", "ok"] += 1
    >>> requests
    {('law', 'ok'): 1}
    """

    def __missing__(self, labels: Labels) -> float:
        return 0


class Buckets:
    """How many values there were up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Histogram(dict[Labels, Buckets]):
    """Buckets by the values of their labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self.bounds = bounds

    def __missing__(self, labels: Labels) -> Buckets:
        found = self[labels] = Buckets(self.bounds)
        return found


@dataclass(frozen=True)
class Family:
    """A metric: its name, its help text, and the names of its labels."""

    name: str
    documentation: str
    kind: Literal["counter", "histogram", "gauge"]
    labels: tuple[str, ...]
    adds_up: bool = True  # over the workers; otherwise the largest value counts


@dataclass
class Counts:
    """The metrics of one worker: numbers, and how to show them together with those of other workers."""

    started: float = field(default_factory=time)
    families: dict[str, Family] = field(default_factory=dict)
    _numbers: dict[str, Counter | Histogram] = field(default_factory=dict)

    def add_counter(self, name: str, documentation: str, *labels: str) -> Counter:
        """A new counter; without labels it is shown from the start."""
        return self._add_counter(Family(name, documentation, "counter", labels))

    def add_gauge(self, name: str, documentation: str, *labels: str, adds_up: bool = True) -> Counter:
        """A new gauge, which is set rather than counted. It vanishes with its worker."""
        return self._add_counter(Family(name, documentation, "gauge", labels, adds_up))

    def _add_counter(self, family: Family) -> Counter:
        self.families[family.name] = family
        made = self._numbers[family.name] = Counter()
        if not family.labels:
            made[()] = 0
        return made

    def add_histogram(self, name: str, documentation: str, bounds: Sequence[float], *labels: str) -> Histogram:
        self.families[name] = Family(name, documentation, "histogram", labels)
        made = self._numbers[name] = Histogram(bounds)
        if not labels:
            made[()]
        return made

    def dump(self) -> Dump:
        """A copy of all numbers, as JSON."""
        metrics = {
            name: [(_tuple(labels), _plain(value)) for labels, value in numbers.items()]
            for name, numbers in self._numbers.items()
        }
        return {"started": self.started, "metrics": metrics}

    def resume(self, dump: Dump) -> None:
        """Count on from the numbers of a worker that has ended."""
        self.started = min(self.started, dump["started"])
        for name, labels, value in _read(dump):
            numbers, family = self._numbers.get(name), self.families.get(name)
            if family is None or family.kind == "gauge":
                continue
            if isinstance(numbers, Histogram):
                buckets = numbers[labels]
                buckets.counts = [own + other for own, other in zip(buckets.counts, value[0], strict=True)]
                buckets.total += value[1]
            elif numbers is not None:
                numbers[labels] += value

    def build(self, dumps: Iterable[tuple[Dump, bool]]) -> Iterator[Metric]:
        """The metrics of all workers together; a dump comes with whether its worker is alive."""
        numbers: dict[str, dict[tuple[str, ...], Any]] = {name: {} for name in self.families}
        started = inf
        for dump, is_alive in dumps:
            started = min(started, dump["started"])
            for name, labels, value in _read(dump):
                family = self.families.get(name)
                if family is not None and (is_alive or family.kind != "gauge"):
                    before = numbers[name].get(labels)
                    numbers[name][labels] = value if before is None else _join(before, value, family)
        for name, family in self.families.items():
            yield _build_metric(family, numbers[name], self._numbers[name], started)


def _tuple(labels: Labels) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else labels


def _plain(value: float | Buckets) -> Any:
    return [list(value.counts), value.total] if isinstance(value, Buckets) else value


def _read(dump: Dump) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    for name, rows in dump["metrics"].items():
        for labels, value in rows:
            yield name, tuple(labels), value


def _join(one: Any, other: Any, family: Family) -> Any:
    if family.kind == "histogram":
        return [[a + b for a, b in zip(one[0], other[0], strict=True)], one[1] + other[1]]
    return one + other if family.adds_up else max(one, other)


def _build_metric(
    family: Family, numbers: Mapping[tuple[str, ...], Any], own: Counter | Histogram, started: float
) -> Metric:
    metric = Metric(family.name, family.documentation, family.kind)
    for values, value in numbers.items():
        labels = dict(zip(family.labels, values, strict=True))
        if isinstance(own, Histogram):
            names = [*map(floatToGoString, own.bounds), "+Inf"]
            totals = list(accumulate(value[0]))
            for bound, count in zip(names, totals, strict=True):
                metric.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
            metric.add_sample(f"{family.name}_count", labels, totals[-1])
            metric.add_sample(f"{family.name}_sum", labels, value[1])
        else:
            metric.add_sample(family.name + ("_total" if family.kind == "counter" else ""), labels, value)
        if family.kind != "gauge":
            metric.add_sample(f"{family.name}_created", labels, started)
    return metric


@dataclass
class ProcessCounts:
    """Plain numbers; each is written by one thread."""

    connections_open: int = 0
    connections_closed_idle: int = 0  # closed to make room for new ones
    connections_refused: int = 0  # because all others were busy
    log_lines_dropped: int = 0


PROCESS_COUNTS = ProcessCounts()


class KeyMetrics:
    """Requests, tokens and cost by key and expert, and refusals by key."""

    def __init__(self, counts: Counts) -> None:
        self._requests = counts.add_counter("ir3de_key_requests", "Requests of a key.", "key", "expert")
        self._tokens = counts.add_counter(
            "ir3de_key_tokens",
            "Tokens of a key, as experts count them; estimates where they do not.",
            "key",
            "expert",
            "direction",
        )
        self._cost = counts.add_counter("ir3de_key_cost", "Tokens of a key times their prices.", "key", "expert")
        self._estimated = counts.add_counter(
            "ir3de_key_estimated", "Requests of a key whose tokens were estimated.", "key", "expert"
        )
        self._refusals = counts.add_counter("ir3de_key_refusals", "Requests of a key that were refused.", "key", "code")
        self._keys: set[str] = set()

    def observe(self, record: ExchangeRecord, expert: str) -> None:
        """Count a request that has ended; `expert` is a label."""
        key = self._get_label(record.key)
        if record.outcome == "client_error" and record.status in (403, 429) and record.upstream_seconds is None:
            self.count_refusal(key, record.error)
        self._requests[key, expert] += 1
        if record.prompt_tokens:
            self._tokens[key, expert, "prompt"] += record.prompt_tokens
        if record.completion_tokens:
            self._tokens[key, expert, "completion"] += record.completion_tokens
        if record.cost:
            self._cost[key, expert] += record.cost
        if record.is_estimated:
            self._estimated[key, expert] += 1

    def count_refusal(self, key: str, code: str) -> None:
        self._refusals[self._get_label(key), code] += 1

    def _get_label(self, key: str) -> str:
        if key not in self._keys:
            if len(self._keys) >= MAX_KEYS:
                return OTHERS
            self._keys.add(key)
        return key


async def build_budget_metrics(keys: KeyRegistry) -> list[Metric]:
    """The budgets of keys that have one, and whether the keys file is valid.

    All workers share these numbers, so each of them reports the same: they are not added up.
    """
    budget = GaugeMetricFamily("ir3de_key_budget", "What a key may cost.", labels=("key", "period"))
    used = GaugeMetricFamily(
        "ir3de_key_budget_used", "What a key with a budget has cost in this period.", labels=("key", "period")
    )
    is_valid = GaugeMetricFamily(
        "ir3de_keys_file_valid", "1 if the keys file is in force, 0 while it is broken and the one before serves."
    )
    is_valid.add_metric((), float(keys.problem is None))
    with_budget = [
        key for key in keys.list_all() if (key.limits.budget_per_day, key.limits.budget_per_month) != (None, None)
    ]
    for key in with_budget[:MAX_KEYS]:
        assert key.store is not None
        try:
            usage = (await key.store.read_usage(key.name)).usage
        except (DamagedNumbersError, StoreUnavailableError):  # it is in the log, and at /admin/keys
            continue
        day, month = (key.limits.budget_per_day, usage.day), (key.limits.budget_per_month, usage.month)
        for period, (limit, so_far) in {"day": day, "month": month}.items():
            if limit is not None:
                budget.add_metric((key.name, period), limit)
                used.add_metric((key.name, period), so_far.shown_cost)
    return [budget, used, is_valid]


class StoreMetrics:
    """The store that machines share, as one worker sees it."""

    def __init__(self, counts: Counts) -> None:
        self.store: SharedStore | None = None  # None where this machine serves alone
        away = "1 while the shared store does not answer, or cannot be written."
        self._away = counts.add_gauge("ir3de_store_away", away, adds_up=False)
        unsettled = "Requests whose usage is to be written when the shared store is back."
        self._unsettled = counts.add_gauge("ir3de_store_unsettled", unsettled)
        failures = "Operations of the shared store that failed: away, full, or refused."
        self._failures = counts.add_counter("ir3de_store_failures", failures, "kind")
        self._lost = counts.add_counter("ir3de_store_lost", "Requests whose usage could never be written.")

    def refresh(self) -> None:
        if self.store is None:
            return
        connection, limits = self.store.connection, self.store.limits
        self._away[()] = float(not connection.is_up)
        for kind in ("away", "full", "refused"):
            self._failures[kind] = connection.failures[kind]
        if limits is not None:
            self._unsettled[()], self._lost[()] = limits.unsettled, limits.lost


class JournalMetrics:
    """What the journal holds too little of, and the feedback on answers."""

    def __init__(self, counts: Counts) -> None:
        kinds = "Feedback that clients gave, by kind: expert, score, comment, and deleted."
        self._feedback = counts.add_counter("ir3de_feedback", kinds, "kind")
        self._lost = counts.add_counter("ir3de_journal_lost", "Requests that could not be kept in the journal.")
        self._explored = counts.add_counter("ir3de_explored", "Uncertain prompts that another candidate got.", "expert")

    def count_feedback(self, *kinds: str) -> None:
        """Count what one feedback has."""
        for kind in kinds:
            self._feedback[kind] += 1

    def count_lost(self, requests: int) -> None:
        """Count requests that the journal does not have."""
        self._lost[()] += requests

    def count_explored(self, expert: str) -> None:
        """Count a prompt that went to another candidate."""
        self._explored[expert] += 1


class DriftMetrics:
    """The changes of the traffic, as one worker sees them."""

    def __init__(self, counts: Counts) -> None:
        found = "Changes of the traffic that were found, by kind: word, pair, expert, sign, number."
        self._alarms = counts.add_counter("ir3de_drift_alarms", found, "kind")
        self._alarms.update(dict.fromkeys(DRIFT_KINDS, 0))  # so that Prometheus sees the first one rise
        looked = "Requests of the journal that drift was looked for in."
        self._prompts = counts.add_gauge("ir3de_drift_prompts", looked, adds_up=False)

    def set_prompts(self, prompts: int) -> None:
        """How many requests were looked at."""
        self._prompts[()] = prompts

    def count(self, kind: str) -> None:
        """Count an alarm."""
        self._alarms[kind] += 1


class CandidateMetrics:
    """The candidate router beside the live one, and where its test stands."""

    def __init__(self, counts: Counts) -> None:
        both = "Requests on which a candidate router decided, too: agree, or who served; failed if it could not decide."
        self._requests = counts.add_counter("ir3de_candidate_requests", both, "result")
        states = "0 no candidate is tried, 1 one is tried, 2 it is better and may be promoted, 3 it was stopped."
        self._state = counts.add_gauge("ir3de_candidate_state", states, adds_up=False)
        found = "Evidence of the sequential test that the candidate is worse (against), or better (in_favour)."
        self._evidence = counts.add_gauge("ir3de_candidate_evidence", found, "side", adds_up=False)

    def count(self, result: str) -> None:
        """Count a request: agree, live, candidate."""
        self._requests[result] += 1

    def count_failure(self, error: Exception) -> None:
        """Count a request on which the candidate could not decide, and log the first."""
        if not self._requests["failed"]:
            _log.warning("the candidate router cannot decide on some requests: %r", error)
        self._requests["failed"] += 1

    def set_state(self, state: int, against: float | None = None, in_favour: float | None = None) -> None:
        """Where the candidate stands; the evidence is None where another worker has it."""
        self._state[()] = state
        self._evidence.clear()
        if against is not None and in_favour is not None:
            self._evidence.update({"against": round(against, 3), "in_favour": round(in_favour, 3)})
