"""Router, experts and settings as one immutable value, which is swapped whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from ir3de.gateway.config.experts import ExpertConfig
from ir3de.gateway.config.models import Config
from ir3de.gateway.config.part import read_variable
from ir3de.gateway.experts.circuit_breaker import CircuitBreaker
from ir3de.gateway.experts.concurrency import ConcurrencyLimit, SharedConcurrencyLimit
from ir3de.gateway.experts.transport import Destination
from ir3de.gateway.workers.table import find_worker_row

if TYPE_CHECKING:
    from ir3de.router import Router

WARN_INTERVAL_S = 60.0  # seconds
_COUNTERPARTS = {"chat": "messages", "messages": "chat"}  # formats that can be translated into each other


@dataclass(eq=False)
class Expert:
    """An expert as it is served: its configuration, concurrency limit and circuit breaker."""

    config: ExpertConfig
    concurrency: ConcurrencyLimit
    breaker: CircuitBreaker
    _complained: float = -math.inf

    def should_warn(self) -> bool:
        """Whether to log a warning that every request would repeat: at most once per interval."""
        if monotonic() - self._complained < WARN_INTERVAL_S:
            return False
        self._complained = monotonic()
        return True

    @classmethod
    def from_config(cls, config: ExpertConfig, workers: int = 1) -> Expert:
        """The limits are for all workers together; where workers cannot share them, each has its part."""
        limit, queue, wait = config.concurrency.limit, config.concurrency.queue, config.concurrency.wait
        settings = config.breaker.model_dump()
        if (row := find_worker_row(f"expert {config!r}", workers)) is not None:  # another configuration begins anew
            breaker = CircuitBreaker(**settings, cells=row.common, lock=row.table.lock)
            return cls(config, SharedConcurrencyLimit(limit, queue, wait, row), breaker)
        limit, queue = math.ceil(limit / workers), math.ceil(queue / workers)
        return cls(config, ConcurrencyLimit(limit, queue, wait), CircuitBreaker(**settings))

    @property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def capabilities(self) -> frozenset[str]:
        return self.translated.union(self.config.capabilities)

    @cached_property
    def translated(self) -> frozenset[str]:
        """The formats in which it answers only because requests and answers are translated."""
        own = self.config.capabilities if self.config.translate else ()
        return frozenset(name for name, other in _COUNTERPARTS.items() if name not in own and other in own)

    @cached_property
    def destination(self) -> Destination:
        """Where it is, and how it is connected."""
        config = self.config
        return Destination(config.base_url, config.keep_alive, config.http2, config.tls)

    @cached_property
    def asks_usage(self) -> bool:
        """Whether to ask for the usage of streams, whoever asks: it has a price, or its configuration wants it."""
        wanted, price = self.config.stream_usage, self.config.price
        return bool(price.input_per_1m or price.output_per_1m) if wanted is None else wanted

    @cached_property
    def authorization(self) -> str | None:
        """The header that the endpoint wants, from the environment."""
        key = read_variable(self.config.api_key_env)
        return None if key is None else f"Bearer {key}"


@dataclass(frozen=True)
class Snapshot:
    """Router, experts and settings that belong together: a request takes one and keeps it to its end."""

    config: Config
    router: Router
    digest: str  # SHA-256 of the router's artifact
    experts: Mapping[str, Expert] = field(default_factory=dict)  # in the order of the configuration
    _capable: dict[frozenset[str], tuple[Expert, ...]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_config(
        cls, config: Config, router: Router, digest: str, before: Snapshot | None = None, **more: Any
    ) -> Self:
        """Build a snapshot. Experts whose configuration did not change keep their queue and their breaker.

        `more` are the fields of a subclass.
        """
        known = {} if before is None else before.experts
        experts = {}
        for wanted in config.experts:
            kept = known.get(wanted.name)
            if kept is None or kept.config != wanted:
                kept = Expert.from_config(wanted, config.server.workers)
            experts[wanted.name] = kept
        return cls(config, apply_routing_settings(router, config), digest, experts, **more)

    def find_capable(self, needs: frozenset[str]) -> tuple[Expert, ...]:
        """The experts with all these capabilities; looked up again and again, so worked out once."""
        found = self._capable.get(needs)
        if found is None:
            found = tuple(expert for expert in self.experts.values() if needs <= expert.capabilities)
            self._capable[needs] = found
        return found

    @cached_property
    def translated(self) -> frozenset[str]:
        """The formats in which some expert answers only because requests and answers are translated."""
        return frozenset().union(*(expert.translated for expert in self.experts.values()))

    @cached_property
    def has_context_windows(self) -> bool:
        """Whether any expert's context window is known."""
        return any(expert.config.context_window is not None for expert in self.experts.values())


def apply_routing_settings(router: Router, config: Config) -> Router:
    """The router, warm, with the threshold and the default of the configuration, where it names them."""
    router.route("The first prompt loads the tokenizer, which should not be a client's.")
    router.tokenizer.warm_up()

    routing, policy = config.routing, router.policy
    default = routing.default if routing.default in router.experts else None
    if routing.threshold is None and default is None:
        return router
    threshold = policy.threshold if routing.threshold is None else routing.threshold
    return router.with_policy(replace(policy, threshold=threshold), default=default)


class LiveSnapshot:
    """The only owner of what serves now: router, experts and settings. Everybody else asks it, and a change is a swap.

    Requests in flight keep the snapshot they began with.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def swap(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
