"""Prometheus metrics, added up over all workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from prometheus_client.core import InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from ir3de.gateway.exchange_record import ExchangeRecord, Outcome
from ir3de.gateway.telemetry.worker_folder import get_worker_folder, is_process_alive

if TYPE_CHECKING:
    from ir3de.gateway.experts.snapshot import LiveSnapshot

NO_EXPERT = "none"  # the label for names that are not experts
OUTCOMES = get_args(Outcome)
REASONS = (
    "connect",
    "timeout",
    "408",
    "429",
    "5xx",
    "busy",
    "resting",
    "cooling",
    "garbage",
    "broken",
    "other",
)  # of fallbacks
BREAKER_VALUES = {"closed": 0, "half-open": 1, "open": 2, "cooling": 3}

ROUTE_BUCKETS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1)
ANSWER_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
CONFIDENCE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)

_log = logging.getLogger(__name__)


class Metrics:
    """Metrics for Prometheus. Each gateway has its own registry, so that one process can have several gateways."""

    def __init__(self, live: LiveSnapshot, folder: Path | None = None) -> None:
        self._live = live
        self._folder = _check_multiprocess(folder or get_worker_folder())
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("ir3de_requests", "Requests.", ("expert", "outcome"), registry=registry)
        self._route = Histogram(
            "ir3de_route_seconds", "Time to decide on an expert.", buckets=ROUTE_BUCKETS, registry=registry
        )
        self._confidence = Histogram(
            "ir3de_confidence",
            "Confidence of decisions, where it is a probability.",
            buckets=CONFIDENCE_BUCKETS,
            registry=registry,
        )
        self._abstained = Counter("ir3de_abstain", "Decisions on which the router abstained.", registry=registry)
        self._fallbacks = Counter(
            "ir3de_fallback", "Requests handed on to another expert.", ("from", "to", "reason"), registry=registry
        )
        self._upstream = Histogram(
            "ir3de_upstream_seconds",
            "From asking an expert to the end of its answer.",
            ("expert",),
            buckets=ANSWER_BUCKETS,
            registry=registry,
        )
        self._ttft = Histogram(
            "ir3de_ttft_seconds",
            "From a request to the first byte of its answer.",
            ("expert",),
            buckets=ANSWER_BUCKETS,
            registry=registry,
        )
        self._tokens = Counter(
            "ir3de_tokens", "Tokens, as experts count them.", ("expert", "direction"), registry=registry
        )
        self._cost = Counter("ir3de_cost", "Tokens times their prices.", ("expert",), registry=registry)
        # a sum over the workers that are alive
        self._in_flight = _gauge("ir3de_in_flight", "Requests being answered.", registry, "livesum")
        self._waiting = _gauge("ir3de_waiting", "Requests in line for an expert.", registry, "livesum")
        self._breaker = _gauge("ir3de_breaker_state", "0 closed, 1 half-open, 2 open, 3 cooling.", registry, "livemax")
        self._scraped = registry
        if self._folder is not None:
            self._scraped = CollectorRegistry()
            MultiProcessCollector(self._scraped, path=str(self._folder))  # type: ignore[no-untyped-call]
        self._scraped.register(_RouterInfo(live))
        self._experts: dict[str, _ExpertMetrics] = {}
        self._fallback_counters: dict[tuple[str, str, str], Counter] = {}

    def get_label(self, expert: str) -> str:
        """The expert's name if it is configured, or was when it was first counted."""
        return expert if expert in self._experts or expert in self._live.snapshot.experts else NO_EXPERT

    def observe(self, record: ExchangeRecord) -> None:
        """Count a request that has ended."""
        expert = self._experts.get(record.expert) or self._get_expert_metrics(record.expert)
        (expert.requests.get(record.outcome) or expert.requests["upstream_error"]).inc()
        if record.route_seconds is not None:
            self._route.observe(record.route_seconds)
        if record.decision is not None:
            if record.confidence is not None:
                self._confidence.observe(record.confidence)
            if record.decision.abstained:
                self._abstained.inc()
        for fallback in record.fallbacks:
            (self._fallback_counters.get(fallback) or self._get_fallback_counter(*fallback)).inc()
        if record.upstream_seconds is not None:
            expert.upstream.observe(record.upstream_seconds)
        if record.first_seconds is not None:
            expert.first.observe(record.first_seconds)
        if record.prompt_tokens:
            expert.prompt_tokens.inc(max(0, record.prompt_tokens))
        if record.completion_tokens:
            expert.completion_tokens.inc(max(0, record.completion_tokens))
        if record.cost:
            expert.cost.inc(max(0.0, record.cost))

    def refresh(self, in_flight: Mapping[str, int]) -> None:
        """Set the gauges: before a scrape, and once a second if other workers may be scraped."""
        for name, count in in_flight.items():
            self._in_flight.labels(self.get_label(name)).set(count)
        for name, expert in self._live.snapshot.experts.items():
            self._waiting.labels(name).set(expert.concurrency.waiting)
            self._breaker.labels(name).set(BREAKER_VALUES[expert.breaker.state])

    def scrape(self, accept: str = "") -> tuple[bytes, str]:
        """Everything in the format that the client prefers, and its content type."""
        if self._folder is not None:
            _remove_dead_workers(self._folder)
        encode, content_type = choose_encoder(accept)
        return encode(self._scraped), content_type

    def _get_expert_metrics(self, name: str) -> _ExpertMetrics:
        label = self.get_label(name)
        found = self._experts.get(label)
        if found is None:
            found = self._experts[label] = _ExpertMetrics(self, label)
        return found

    def _get_fallback_counter(self, giver: str, taker: str, reason: str) -> Counter:
        labels = self.get_label(giver), self.get_label(taker), limit_reason(reason)
        counter = self._fallbacks.labels(*labels)
        if labels == (giver, taker, reason):  # others are not cached, or clients could fill the cache
            self._fallback_counters[labels] = counter
        return counter


class _ExpertMetrics:
    """The metrics of one expert, looked up once."""

    __slots__ = ("completion_tokens", "cost", "first", "prompt_tokens", "requests", "upstream")

    def __init__(self, metrics: Metrics, label: str) -> None:
        self.requests = {outcome: metrics._requests.labels(label, outcome) for outcome in OUTCOMES}
        self.upstream = metrics._upstream.labels(label)
        self.first = metrics._ttft.labels(label)
        self.prompt_tokens = metrics._tokens.labels(label, "prompt")
        self.completion_tokens = metrics._tokens.labels(label, "completion")
        self.cost = metrics._cost.labels(label)


class _RouterInfo(Collector):
    """The router that decides now."""

    def __init__(self, live: LiveSnapshot) -> None:
        self._live = live

    def collect(self) -> Iterable[InfoMetricFamily]:
        snapshot = self._live.snapshot
        router = snapshot.router
        facts = {
            "digest": snapshot.digest,
            "experts": str(len(router.experts)),
            "scorer": type(router.scorer).__name__,
            "selector": type(router.selector).__name__,
        }
        yield InfoMetricFamily("ir3de_router", "The router that decides.", value=facts)


def limit_reason(reason: str) -> str:
    """One of `REASONS`: all statuses from 500 on are one, unknown reasons are `other`.

    >>> limit_reason("503"), limit_reason("429"), limit_reason("the moon")
    ('5xx', '429', 'other')
    """
    if reason in REASONS:
        return reason
    return "5xx" if len(reason) == 3 and reason.isdecimal() and reason[0] == "5" else "other"


def _gauge(name: str, documentation: str, registry: CollectorRegistry, mode: str) -> Gauge:
    return Gauge(name, documentation, ("expert",), registry=registry, multiprocess_mode=mode)  # type: ignore[arg-type]


def _check_multiprocess(folder: Path | None) -> Path | None:
    """The folder, unless prometheus_client was imported before it was set."""
    if folder is not None and not values.ValueClass._multiprocess:
        _log.warning(
            "metrics are this worker's alone: PROMETHEUS_MULTIPROC_DIR was set after prometheus_client's import"
        )
        return None
    return folder


def _remove_dead_workers(folder: Path) -> None:
    """Remove the gauges of workers that have ended; their counters stay."""
    for pid in {int(path.stem.rpartition("_")[2]) for path in folder.glob("gauge_live*.db")}:
        if not is_process_alive(pid):
            with suppress(FileNotFoundError):  # another worker was faster
                mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
