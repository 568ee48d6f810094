"""An expert as it is served: its configuration, its concurrency limit and its circuit breaker."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ir3de_gateway.config.experts import ExpertConfig, read_variable
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, create_limit
from ir3de_gateway.store.numbers import find_worker_row
from ir3de_gateway.transport import Destination

if TYPE_CHECKING:
    from ir3de_gateway.experts.replicas import Replica

WARN_INTERVAL_S = 60.0
_COUNTERPARTS = {"chat": "messages", "messages": "chat"}  # formats that can be translated into each other


@dataclass(eq=False)
class Expert:
    """An expert as it is served."""

    config: ExpertConfig
    concurrency: ConcurrencyLimit
    breaker: CircuitBreaker
    replicas: tuple[Replica, ...] = field(default=(), init=False)  # those of a `ReplicatedExpert`
    _warned_at: float = field(default=-math.inf, init=False)

    def should_warn(self) -> bool:
        """Whether to log a warning that every request would repeat: at most once per interval."""
        if monotonic() - self._warned_at < WARN_INTERVAL_S:
            return False
        self._warned_at = monotonic()
        return True

    @classmethod
    def from_config(cls, config: ExpertConfig, workers: int = 1) -> Expert:
        """The limits are for all workers together; where workers cannot share them, each has its part."""
        settings = config.breaker.model_dump()
        row = find_worker_row(f"expert {config!r}", workers)  # a changed configuration starts with fresh numbers
        if row is None:
            breaker = CircuitBreaker(**settings)
        else:
            breaker = CircuitBreaker(**settings, cells=row.common, lock=row.table.lock)
        return cls(config, create_limit(**config.concurrency.model_dump(), workers=workers, row=row), breaker)

    def leave(self) -> None:
        """An admitted request has ended."""
        self.concurrency.release()

    @cached_property
    def name(self) -> str:
        return self.config.name

    @cached_property
    def model(self) -> str:
        """The name of its model upstream."""
        return self.config.served_model

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
        """Where it is, and how to connect to it."""
        config = self.config
        return Destination(config.base_url, config.keep_alive, config.http2, config.tls, config.max_connections)

    @cached_property
    def asks_usage(self) -> bool:
        """Whether to request the usage of streams for every client: it has a price, or `stream_usage` is true."""
        wanted = self.config.stream_usage
        return self.has_price if wanted is None else wanted

    @cached_property
    def has_price(self) -> bool:
        """Whether its answers cost anything."""
        return bool(self.config.price.input_per_1m or self.config.price.output_per_1m)

    @cached_property
    def authorization(self) -> str | None:
        """The value of the endpoint's header `authorization`, with the key from the environment."""
        key = read_variable(self.config.api_key_env)
        return None if key is None else f"Bearer {key}"

    @cached_property
    def is_anthropics(self) -> bool:
        """Whether Anthropic itself serves it."""
        return self.config.provider == "anthropic" or urlsplit(self.config.base_url).hostname == "api.anthropic.com"
