"""An expert as it is served, and a replica of one: the configuration, and what is known of it meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Literal
from urllib.parse import urlsplit

from ir3de_gateway.config.experts import ExpertConfig, ReplicaConfig, read_variable
from ir3de_gateway.experts.circuit_breaker import CELLS, Cells, CircuitBreaker
from ir3de_gateway.experts.circuit_breaker import State as BreakerState
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, create_limit
from ir3de_gateway.transport import Destination
from ir3de_gateway.workers.table import find_worker_row

WARN_INTERVAL_S = 60.0
LEAST_WARMTH = 0.01  # of a replica that has just come back
_COUNTERPARTS = {"chat": "messages", "messages": "chat"}  # formats that can be translated into each other

ReplicaState = Literal["up", "warming", "down", "drained"] | BreakerState

# Numbers that all workers share, after those of the breaker; a time of 0 means never. The health is, of a replica that
# is up, how many checks in a row have failed; of one that is down, -1 less the checks in a row that were good.
_HEALTH, _WARM_SINCE, _NEXT_CHECK = range(CELLS, CELLS + 3)
_IN_FLIGHT = 0  # a number of each worker


@dataclass(eq=False)
class Expert:
    """An expert as it is served: its configuration, concurrency limit and circuit breaker."""

    config: ExpertConfig
    concurrency: ConcurrencyLimit
    breaker: CircuitBreaker
    replicas: tuple[Replica, ...] = field(default=(), init=False)  # those of a `ReplicatedExpert`
    _complained: float = field(default=-math.inf, init=False)

    def should_warn(self) -> bool:
        """Whether to log a warning that every request would repeat: at most once per interval."""
        if monotonic() - self._complained < WARN_INTERVAL_S:
            return False
        self._complained = monotonic()
        return True

    @classmethod
    def from_config(cls, config: ExpertConfig, workers: int = 1) -> Expert:
        """The limits are for all workers together; where workers cannot share them, each has its part."""
        settings = config.breaker.model_dump()
        row = find_worker_row(f"expert {config!r}", workers)  # another configuration begins anew
        if row is None:
            breaker = CircuitBreaker(**settings)
        else:
            breaker = CircuitBreaker(**settings, cells=row.common, lock=row.table.lock)
        return cls(config, create_limit(**config.concurrency.model_dump(), workers=workers, row=row), breaker)

    def leave(self) -> None:
        """A request that was admitted has ended."""
        self.concurrency.release()

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
        return Destination(config.base_url, config.keep_alive, config.http2, config.tls, config.max_connections)

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

    @cached_property
    def is_anthropics(self) -> bool:
        """Whether Anthropic itself serves it."""
        return self.config.provider == "anthropic" or urlsplit(self.config.base_url).hostname == "api.anthropic.com"


class Replica(Expert):
    """A replica is asked as an expert is: it has the expert's name and settings, and an address of its own."""

    def __init__(self, config: ExpertConfig, own: ReplicaConfig, concurrency: ConcurrencyLimit, workers: int) -> None:
        """`concurrency` is the limit of all replicas together."""
        more: dict[str, Any] = {"base_url": own.base_url, "replicas": ()}
        more |= {} if own.api_key_env is None else {"api_key_env": own.api_key_env}
        self.label, self.weight = own.label, own.weight
        self.is_drained = False
        self.turn = 0.0  # when its next request would be due if nobody had any, in requests of weight 1
        self.credit = 0.0  # towards its next part in a choice, while it is warming
        self._row = find_worker_row(f"replica {own.base_url} of {config!r}", workers)
        self._cells: Cells = [0.0] * (CELLS + 3) if self._row is None else self._row.common
        self._own: Cells = [0.0] if self._row is None else self._row.own
        self.lock: AbstractContextManager[object] = nullcontext() if self._row is None else self._row.table.lock
        settings = config.breaker.model_dump()
        breaker = _ReplicaBreaker(self.begin_warming, **settings, cells=self._cells, lock=self.lock, clock=monotonic)
        super().__init__(config.model_copy(update=more), concurrency, breaker)

    # requests in flight ------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests that it is answering, over all workers."""
        return int(self._own[_IN_FLIGHT] if self._row is None else sum(self._row.list_all(_IN_FLIGHT)))

    def begin(self) -> None:
        """It gets a request."""
        self._own[_IN_FLIGHT] += 1.0  # nobody else writes it, so the lock is not needed

    def leave(self) -> None:
        self._own[_IN_FLIGHT] -= 1.0

    def clear_dead_workers(self) -> None:
        """Forget the requests of workers that have died."""
        if self._row is not None:
            self._row.table.clear_dead_workers()

    # state -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ReplicaState:
        """In one word: whether it gets requests, and if not, why."""
        if self.is_drained:
            return "drained"
        if self.is_down:
            return "down"
        breaker = self.breaker.state
        if breaker != "closed":
            return breaker
        return "up" if self.get_warmth() >= 1.0 else "warming"

    @property
    def is_down(self) -> bool:
        """Whether health checks say so."""
        return self._cells[_HEALTH] < 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether it would get requests, if its breaker let them pass."""
        return not self.is_drained and not self.is_down

    @property
    def retry_after(self) -> float:
        """Seconds until it may get requests; infinite if nobody knows."""
        if self.is_drained:
            return math.inf
        return max(self.breaker.retry_after, self.config.health.down_interval if self.is_down else 0.0)

    def set_drained(self, is_drained: bool) -> None:
        """Give it no more requests, or requests again."""
        if self.is_drained and not is_drained:
            self.begin_warming()
        self.is_drained = is_drained

    # slow start --------------------------------------------------------------------------------------------------

    def get_warmth(self) -> float:
        """The part of its weight that counts: less than 1 for a while after it has come back."""
        since, seconds = self._cells[_WARM_SINCE], self.config.slow_start
        if not since:
            return 1.0
        passed = monotonic() - since
        if passed >= seconds:
            self._cells[_WARM_SINCE] = 0.0
            return 1.0
        return max(passed / seconds, LEAST_WARMTH)

    def begin_warming(self) -> None:
        """It has come back: its share of the requests grows little by little."""
        self.credit = 0.0
        if self.config.slow_start:
            self._cells[_WARM_SINCE] = monotonic()

    # health checks -----------------------------------------------------------------------------------------------

    @property
    def next_check(self) -> float:
        """When it is to be checked again, as a time of the machine."""
        return self._cells[_NEXT_CHECK]

    def claim_check(self) -> bool:
        """Whether this worker is to check it now. Of all workers, one gets a yes."""
        if monotonic() < self._cells[_NEXT_CHECK]:
            return False
        health = self.config.health
        with self.lock:
            now = monotonic()
            if now < self._cells[_NEXT_CHECK]:
                return False
            self._cells[_NEXT_CHECK] = now + health.timeout + health.interval  # if its outcome never comes
            return True

    def schedule_check(self) -> None:
        """The next check comes after an interval, or earlier if it is due earlier."""
        interval = self.config.health.down_interval if self.is_down else self.config.health.interval
        self._cells[_NEXT_CHECK] = min(self._cells[_NEXT_CHECK], monotonic() + interval)

    def record_check(self, *, is_good: bool) -> bool:
        """What a health check found, or a request that could not connect. True if it was down and is up, or vice versa.

        Who comes back this way begins anew: its breaker, which has seen it go, is closed.
        """
        health = self.config.health
        with self.lock:
            before = self._cells[_HEALTH]
            if is_good:
                after = before - 1.0 if -health.healthy < before < 0.0 else 0.0
            else:
                after = before + 1.0 if 0.0 <= before < health.unhealthy - 1 else -1.0
            self._cells[_HEALTH] = after
            self.schedule_check()
        if before < 0.0 <= after:
            self.breaker.close()
            self.begin_warming()
        return (before < 0.0) != (after < 0.0)


class _ReplicaBreaker(CircuitBreaker):
    """A breaker that tells when a probe has closed it."""

    def __init__(self, tell: Callable[[], None], /, **settings: Any) -> None:
        super().__init__(**settings)
        self._tell = tell

    def record_beginning(self, ticket: int | None = None) -> None:
        was_open = self.is_open
        super().record_beginning(ticket)
        if was_open and not self.is_open:
            self._tell()
