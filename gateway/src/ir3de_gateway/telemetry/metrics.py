"""Prometheus metrics, added up over all workers."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from platform import python_version
from time import monotonic
from typing import TYPE_CHECKING, get_args

from prometheus_client import ProcessCollector
from prometheus_client.core import InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from ir3de import __version__
from ir3de_gateway.exchange_record import REFUSAL_LABELS, ExchangeRecord, Outcome
from ir3de_gateway.store.workers import WorkerPlace
from ir3de_gateway.telemetry.counts import (
    PROCESS_COUNTS,
    CandidateMetrics,
    Counter,
    Counts,
    DriftMetrics,
    Dump,
    JournalMetrics,
    KeyMetrics,
    StoreMetrics,
    build_budget_metrics,
)

if TYPE_CHECKING:
    from ir3de_gateway.experts.expert import Expert
    from ir3de_gateway.experts.snapshot import LiveSnapshot
    from ir3de_gateway.keys.registry import KeyRegistry
    from ir3de_gateway.store import SharedStore

NO_EXPERT = "none"  # the label for names that are not experts
OUTCOMES = get_args(Outcome)
REASONS = (  # of fallbacks, and of answers of another expert
    "connect", "timeout", "408", "429", "5xx", "busy", "resting", "cooling", "garbage", "broken", "resources", "other",
    *REFUSAL_LABELS, "pinned", "shadow", "explore", "too dear to switch",
)  # fmt: skip
STATUS_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx", "none", "none", "none", "none")  # none was sent
MIN_QUEUE_S = 0.001  # a request that got a place at once did not wait
BREAKER_VALUES = {"closed": 0, "half-open": 1, "open": 2, "cooling": 3}

ROUTE_BUCKETS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1)
ANSWER_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CONFIDENCE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

WARN_INTERVAL_S = 60.0

_log = logging.getLogger("ir3de.gateway")


class Metrics:
    """The metrics of one gateway, exported to Prometheus together with those of the other workers.

    A new counter is one line here; `metrics.resends["law"] += 1` counts.
    """

    def __init__(self, live: LiveSnapshot, shared: WorkerPlace | None = None) -> None:
        self._live, self._shared = live, shared
        self.keys: KeyRegistry | None = None  # where there is a keys file
        counts = self._counts = Counts()
        counter, gauge, histogram = counts.add_counter, counts.add_gauge, counts.add_histogram
        self._requests = counter("ir3de_requests", "Requests.", "expert", "outcome")
        self._responses = counter("ir3de_http_responses", "Responses to clients.", "endpoint", "status")
        self._route = histogram("ir3de_route_seconds", "Time to decide on an expert.", ROUTE_BUCKETS)
        self._confidence = histogram("ir3de_confidence", "Confidence, if it is a probability.", CONFIDENCE_BUCKETS)
        self._abstained = counter("ir3de_abstain", "Decisions on which the router abstained.")
        asked = "Prompts of which the table was unsure, by what the router's encoder did."
        self._consultations = counter("ir3de_consultations", asked, "outcome")
        self._fallbacks = counter("ir3de_fallback", "Requests passed to another expert.", "from", "to", "reason")
        other = "Answers of another expert than the decided one."
        self._instead = counter("ir3de_instead", other, "decided", "answered", "reason")
        moved = "Changes of a conversation's expert with a price, by whether they were worth it."
        self._switches = counter("ir3de_switches", moved, "outcome")
        upstream = "From the request to an expert to the end of its answer."
        self._upstream = histogram("ir3de_upstream_seconds", upstream, ANSWER_BUCKETS, "expert")
        ttft = "From a request to the first byte of its answer."
        self._ttft = histogram("ir3de_ttft_seconds", ttft, ANSWER_BUCKETS, "expert")
        queue = "Time in the queue of an expert, of requests that had to wait."
        self._queue = histogram("ir3de_queue_seconds", queue, ANSWER_BUCKETS, "expert")
        self._tokens = counter("ir3de_tokens", "Tokens, as experts count them.", "expert", "direction")
        self._cost = counter("ir3de_cost", "Tokens times their prices.", "expert")
        self.resends = counter("ir3de_resends", "Requests sent again because a kept connection had closed.", "expert")
        self._of_keys = KeyMetrics(counts)
        self._cache = counter("ir3de_cache", "Lookups in the response cache.", "result")
        self._hooks = counter("ir3de_hook_calls", "Calls of hooks.", "hook", "outcome")
        self._in_flight = gauge("ir3de_in_flight", "Requests being answered.", "expert")
        self._of_experts = ExpertGauges(counts)
        self._process = ProcessMetrics(counts)
        self.replicas = ReplicaMetrics(counts)
        self.journal = JournalMetrics(counts)
        self._store = StoreMetrics(counts)
        self.candidate = CandidateMetrics(counts)
        self.drift = DriftMetrics(counts)
        self._experts: set[str] = set()  # labels that were counted
        self._own: Dump = counts.dump()
        self._published = ""
        self._warned = -WARN_INTERVAL_S
        if shared is not None and (before := self._read_published(shared).get(shared.number)) is not None:
            counts.resume(before)

    def get_label(self, expert: str) -> str:
        """The expert's name if it is configured, or was when it was first counted."""
        return expert if expert in self._experts or expert in self._live.snapshot.experts else NO_EXPERT

    def count_cache(self, result: str) -> None:
        """Count a lookup in the response cache."""
        self._cache[result] += 1

    def count_consultation(self, outcome: str) -> None:
        """Count a prompt that the router's encoder was asked about: consulted, late, missing or failed."""
        self._consultations[outcome] += 1

    def count_hook(self, hook: str, outcome: str) -> None:
        """Count a call of a hook."""
        self._hooks[hook, outcome] += 1

    def observe(self, record: ExchangeRecord) -> None:
        """Count a request that has ended."""
        expert = record.expert if record.expert in self._experts else self._add_expert(record.expert)
        self._requests[expert, record.outcome if record.outcome in OUTCOMES else "upstream_error"] += 1
        self._responses[record.endpoint, STATUS_CLASSES[record.status // 100 % 10]] += 1
        if record.queue_seconds is not None and record.queue_seconds >= MIN_QUEUE_S:
            self._queue[expert].add(record.queue_seconds)
        if record.route_seconds is not None:
            self._route[()].add(record.route_seconds)
        if record.decision is not None:
            if (confidence := record.decision.confidence) is not None:
                self._confidence[()].add(confidence)
            if record.decision.abstained:
                self._abstained[()] += 1
        if record.instead.label and record.decided is not None and record.first_seconds is not None:
            is_routed = record.decided in self._live.snapshot.router.experts
            decided = record.decided if is_routed else self.get_label(record.decided)
            self._instead[decided, expert, limit_reason(record.instead.label)] += 1
        for giver, taker, reason in record.fallbacks:
            self._fallbacks[self.get_label(giver), self.get_label(taker), limit_reason(reason)] += 1
        if record.switch is not None:
            self._switches[record.switch.outcome] += 1
        if record.retries:
            self.replicas.retries[expert] += record.retries
        if record.upstream_seconds is not None:
            self._upstream[expert].add(record.upstream_seconds)
        if record.first_seconds is not None:
            self._ttft[expert].add(record.first_seconds)
        if record.prompt_tokens:
            self._tokens[expert, "prompt"] += record.prompt_tokens
        if record.completion_tokens:
            self._tokens[expert, "completion"] += record.completion_tokens
        if record.cost:
            self._cost[expert] += record.cost
        if record.key:
            self._of_keys.observe(record, expert)

    def count_refusal(self, key: str, code: str) -> None:
        """Count a rejected request; `key` is empty if it came without a known key."""
        if key:
            self._of_keys.count_refusal(key, code)

    def count_response(self, endpoint: str, status: int) -> None:
        """Count a response without an expert."""
        self._responses[endpoint, STATUS_CLASSES[status // 100 % 10]] += 1

    def _add_expert(self, name: str) -> str:
        """The label of an expert. All its metrics are shown from now on."""
        label = self.get_label(name)
        if label not in self._experts:
            self._experts.add(label)
            for outcome in OUTCOMES:
                self._requests[label, outcome] += 0
            for direction in ("prompt", "completion"):
                self._tokens[label, direction] += 0
            self._cost[label] += 0
            self.resends[label] += 0
            self._upstream[label], self._ttft[label], self._queue[label]
        return label

    def watch_store(self, store: SharedStore) -> None:
        """Show the store that machines share, too."""
        self._store.store = store

    def refresh(self, in_flight: Mapping[str, int]) -> None:
        """Set the gauges and publish all numbers: before a scrape, and once a second if there are other workers."""
        experts = self._live.snapshot.experts
        self._in_flight.clear()
        for name, count in in_flight.items():
            self._in_flight[self.get_label(name)] += count
        self._of_experts.refresh(experts)
        self._process.refresh()
        self.replicas.refresh(experts.values())
        self._store.refresh()
        self._own = self._counts.dump()
        if self._shared is not None:
            self._write(self._shared)

    def _write(self, shared: WorkerPlace) -> None:
        text = json.dumps(self._own)
        if text == self._published:
            return
        try:
            shared.publish(text)
            self._published = text
        except (sqlite3.Error, OSError) as error:
            self._warn("other workers do not see this one's metrics", error)

    def _read_published(self, shared: WorkerPlace) -> dict[int, Dump]:
        try:
            return {number: json.loads(text) for number, text in shared.read_published().items()}
        except (sqlite3.Error, OSError, ValueError) as error:
            self._warn("cannot read the metrics of other workers", error)
            return {}

    def _warn(self, what: str, error: Exception) -> None:
        if monotonic() - self._warned >= WARN_INTERVAL_S:
            self._warned = monotonic()
            _log.warning("%s: %s", what, error)

    async def build_shared(self) -> list[Metric]:
        """What is the same in all workers: budgets, as the store has them."""
        return [] if self.keys is None else await build_budget_metrics(self.keys)

    def scrape(self, accept: str = "", shared: Sequence[Metric] = ()) -> tuple[bytes, str]:
        """All metrics in the format that the client prefers, and its content type; this worker's as of `refresh`."""
        encode, content_type = choose_encoder(accept)
        registry = CollectorRegistry()
        described = [_describe_build(), _describe_router(self._live)]
        registry.register(_Scrape([*self._counts.build(self._read_all()), *described, *shared]))
        return encode(registry), content_type

    def _read_all(self) -> Iterator[tuple[Dump, bool]]:
        yield self._own, True
        if self._shared is not None:
            for number, dump in self._read_published(self._shared).items():
                if number != self._shared.number:
                    yield dump, self._shared.is_alive(number)


class ExpertGauges:
    """The queue, the circuit breaker and the limits of each expert."""

    def __init__(self, counts: Counts) -> None:
        waiting = counts.add_gauge("ir3de_waiting", "Requests in the queue of an expert.", "expert")
        states = "0 closed, 1 half-open, 2 open, 3 cooling."
        breaker = counts.add_gauge("ir3de_breaker_state", states, "expert", adds_up=False)
        at_once, in_line = "Requests that an expert gets at once.", "Requests that may wait for an expert."
        limit = counts.add_gauge("ir3de_concurrency_limit", at_once, "expert", adds_up=False)
        queue_limit = counts.add_gauge("ir3de_queue_limit", in_line, "expert", adds_up=False)
        self._gauges: list[tuple[Counter, Callable[[Expert], float]]] = [
            (waiting, lambda expert: expert.concurrency.waiting_here),
            (breaker, lambda expert: BREAKER_VALUES[expert.breaker.state]),
            (limit, lambda expert: expert.config.concurrency.limit),
            (queue_limit, lambda expert: expert.config.concurrency.queue),
        ]

    def refresh(self, experts: Mapping[str, Expert]) -> None:
        """Set the gauges."""
        for gauge, read in self._gauges:
            gauge.clear()
            gauge.update((name, read(expert)) for name, expert in experts.items())


class ProcessMetrics:
    """The connections and log lines of all workers, and their resources as Prometheus' own client reads them.

    Numbers are rounded, so that an idle worker has nothing new to publish.
    """

    def __init__(self, counts: Counts) -> None:
        self._counters = {
            "log_lines_dropped": counts.add_counter("ir3de_log_lines_dropped", "Log lines that could not be written."),
            "connections_refused": counts.add_counter("ir3de_connections_refused", "Connections beyond the limit."),
            "connections_closed_idle": counts.add_counter(
                "ir3de_connections_closed_idle", "Idle connections closed for others."
            ),
        }
        self._seen = dict.fromkeys(self._counters, 0)
        self._connections = counts.add_gauge("ir3de_connections", "Clients that are connected.")
        self._collector = ProcessCollector(registry=None)
        started = counts.add_gauge("process_start_time_seconds", "When the youngest worker started.", adds_up=False)
        memory = counts.add_gauge("process_resident_memory_bytes", "Resident memory of all workers.")
        files = counts.add_gauge("process_open_fds", "Open files of all workers.")
        max_files = counts.add_gauge("process_max_fds", "Files that all workers may open.")
        self._gauges = {  # with the digits that are kept
            "process_start_time_seconds": (started, 3),
            "process_resident_memory_bytes": (memory, -6),
            "process_open_fds": (files, 0),
            "process_max_fds": (max_files, 0),
        }
        self._cpu = counts.add_counter("process_cpu_seconds", "CPU time of all workers.")
        self._seen_cpu = 0.0

    def refresh(self) -> None:
        """Read the numbers again."""
        self._connections[()] = PROCESS_COUNTS.connections_open
        for name, counter in self._counters.items():
            now = getattr(PROCESS_COUNTS, name)
            counter[()] += now - self._seen[name]
            self._seen[name] = now
        for metric in self._collector.collect():  # none without /proc
            value = metric.samples[0].value
            if metric.name in self._gauges:
                gauge, digits = self._gauges[metric.name]
                gauge[()] = round(value, digits)
            elif metric.name == "process_cpu_seconds":
                self._cpu[()] += round(value, 1) - self._seen_cpu
                self._seen_cpu = round(value, 1)


class ReplicaMetrics:
    """Requests, retries, hedges and health checks of replicas, and their state. Their labels are configured, so few."""

    def __init__(self, counts: Counts) -> None:
        counter, gauge, replica = counts.add_counter, counts.add_gauge, ("expert", "replica")
        self.requests = counter("ir3de_replica_requests", "Requests to replicas, by outcome.", *replica, "outcome")
        self.retries = counter("ir3de_retries", "Requests sent on to another replica.", "expert")
        hedges = "Requests to a second replica because the first was slow; won: it answered first."
        self.hedges = counter("ir3de_hedges", hedges, "expert", "outcome")
        self.health_checks = counter("ir3de_health_checks", "Health checks of replicas.", *replica, "outcome")
        in_flight = "Requests that a replica is answering."
        self._in_flight = gauge("ir3de_replica_in_flight", in_flight, *replica, adds_up=False)
        self._up = gauge("ir3de_replica_up", "1 if a replica gets requests, else 0.", *replica, adds_up=False)

    def refresh(self, experts: Iterable[Expert]) -> None:
        """Set the gauges."""
        self._in_flight.clear()
        self._up.clear()
        for expert in experts:
            for replica in expert.replicas:
                place = (expert.name, replica.label)
                self._in_flight[place] = replica.in_flight
                self._up[place] = float(replica.state in ("up", "warming"))


class _Scrape(Collector):
    """Metrics that were collected already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


@cache
def _describe_build() -> Metric:
    facts = {"version": __version__, "python": python_version()}
    return InfoMetricFamily("ir3de_build", "The version of the gateway.", value=facts)


def _describe_router(live: LiveSnapshot) -> Metric:
    """The current router."""
    router = live.snapshot.router
    facts = {
        "digest": live.snapshot.digest,
        "experts": str(len(router.experts)),
        "scorer": type(router.scorer).__name__,
        "selector": type(router.selector).__name__,
    }
    return InfoMetricFamily("ir3de_router", "The current router.", value=facts)


def limit_reason(reason: str) -> str:
    """One of `REASONS`: all statuses from 500 on are one, unknown reasons are `other`.

    >>> limit_reason("503"), limit_reason("429"), limit_reason("the moon")
    ('5xx', '429', 'other')
    """
    if reason in REASONS:
        return reason
    return "5xx" if len(reason) == 3 and reason.isdecimal() and reason[0] == "5" else "other"
