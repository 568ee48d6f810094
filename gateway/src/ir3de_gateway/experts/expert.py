"""An expert as it is served, with one address or several: its limits, its replicas, and which one gets a request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from time import monotonic
from typing import Any, Literal
from urllib.parse import urlsplit

from ir3de_gateway.config.experts import ExpertConfig, ReplicaConfig, read_variable
from ir3de_gateway.experts.affinity import choose_near
from ir3de_gateway.experts.circuit_breaker import CELLS, Cells, CircuitBreaker
from ir3de_gateway.experts.circuit_breaker import State as BreakerState
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, create_limit
from ir3de_gateway.store.numbers import find_worker_row
from ir3de_gateway.transport import Destination

WARN_INTERVAL_S = 60.0
_COUNTERPARTS = {
    "chat": "messages",
    "messages": "chat",
    "responses": "chat",
}  # formats, and what they are translated to
LEAST_WARMTH = 0.01  # of a replica that has just come back
_BEST_FIRST: tuple[BreakerState, ...] = ("closed", "half-open", "cooling", "open")

ReplicaState = Literal["up", "warming", "down", "drained"] | BreakerState

# Numbers that all workers share, after those of the breaker; a time of 0 means never. The health of a replica that is
# up is the number of failed checks in a row; of one that is down, -1 minus the number of good checks in a row.
_HEALTH, _WARM_SINCE, _NEXT_CHECK = range(CELLS, CELLS + 3)
_IN_FLIGHT = 0  # a number of each worker


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


def create_expert(config: ExpertConfig, workers: int = 1) -> Expert:
    """The expert of a configuration, with one address or with several.

    The limits are for all workers together; where workers cannot share them, each has its part.
    """
    row = find_worker_row(f"expert {config!r}", workers)  # a changed configuration starts with fresh numbers
    limit = create_limit(**config.concurrency.model_dump(), workers=workers, row=row)
    if config.replicas:
        return ReplicatedExpert(config, limit, workers)
    return Expert(config, limit, CircuitBreaker(**config.breaker.model_dump(), cells=row.common, lock=row.table.lock))


class ReplicatedExpert(Expert):
    """An expert whose requests are shared among its replicas.

    A conversation has a replica that it prefers (see `affinity`). Of other requests, the replica with the fewest in
    flight for its weight gets the next one, counted over all workers. If several have as few, they take turns.
    """

    def __init__(self, config: ExpertConfig, concurrency: ConcurrencyLimit, workers: int = 1) -> None:
        replicas = tuple(Replica(config, own, concurrency, workers) for own in config.list_replicas())
        super().__init__(config, concurrency, _JointBreaker(replicas, config.breaker.model_dump()))
        self.replicas = replicas
        self._turn = 0.0  # of the replica that was chosen last

    def pick(
        self, tried: Collection[Replica] = (), *, may_probe: bool = True, beginning: bytes = b""
    ) -> Replica | None:
        """The replica for the next request, which counts from now on; None if none is available.

        Those in `tried` have failed already. `beginning` is a hash of the conversation's. A half-open replica gets its
        probe first. With `may_probe=False` it gets one only if there is no other replica.
        """
        available = self._list_available(tried)
        states = {replica: replica.breaker.state for replica in available}
        ready = [replica for replica in available if states[replica] == "closed"]
        if not ready or (may_probe and len(ready) < len(available)):
            for replica in available:
                if states[replica] == "half-open" and replica.breaker.allow_request():
                    replica.begin()
                    return replica
        if not ready:
            return None
        ready[0].clear_dead_workers()
        with ready[0].lock:
            chosen = self._choose(ready, beginning)
            chosen.begin()
        return chosen

    def has_another(self, tried: Collection[Replica]) -> bool:
        """Whether `pick` would find one now."""
        return any(replica.breaker.state in ("closed", "half-open") for replica in self._list_available(tried))

    def _list_available(self, tried: Collection[Replica]) -> list[Replica]:
        return [replica for replica in self.replicas if replica.is_available and replica not in tried]

    def _choose(self, ready: Sequence[Replica], beginning: bytes) -> Replica:
        """The one that the conversation prefers; otherwise the least busy for its weight, and equals take turns."""
        if len(ready) == 1:
            return ready[0]
        total = sum(replica.weight for replica in ready)
        warm = [replica for replica in ready if replica.takes_part(total)] or ready
        if beginning and self.config.affinity:
            in_flight = {replica: replica.in_flight for replica in warm}
            chosen = choose_near(beginning, warm, in_flight, self.config.affinity)
            chosen.credit = max(0.0, chosen.credit - 1.0)
            return chosen
        loads = {replica: replica.in_flight / replica.weight for replica in warm}
        chosen = min(warm, key=lambda replica: (loads[replica], max(replica.turn, self._turn)))
        self._turn = max(chosen.turn, self._turn)  # a replica that was away does not catch up
        chosen.turn = self._turn + 1.0 / chosen.weight
        chosen.credit = max(0.0, chosen.credit - 1.0)
        return chosen

    def describe_absence(self) -> str:
        """Why no replica is available: how many are in which state."""
        words = {"open": "resting after failures", "half-open": "being probed"}
        counted = Counter(words.get(replica.state, replica.state) for replica in self.replicas)
        listed = ", ".join(f"{count} {state}" for state, count in counted.items())
        return f"no replica of '{self.name}' is available: {listed}"

    def set_drained(self, labels: Collection[str]) -> None:
        """Drain these replicas, and none of the others."""
        for replica in self.replicas:
            replica.set_drained(replica.label in labels)


class Replica(Expert):
    """One address of an expert, with the expert's name and settings."""

    def __init__(self, config: ExpertConfig, own: ReplicaConfig, concurrency: ConcurrencyLimit, workers: int) -> None:
        """`concurrency` is the limit of all replicas together."""
        changes: dict[str, Any] = {"base_url": own.base_url, "replicas": ()}
        changes |= {} if own.api_key_env is None else {"api_key_env": own.api_key_env}
        self.label, self.weight, self.address = own.label, own.weight, own.base_url.encode()
        self.is_drained = False
        self.turn = 0.0  # when its next request would be due if none were in flight, in requests of weight 1
        self.credit = 0.0  # towards its next part in a choice, while it is warming
        self._row = find_worker_row(f"replica {own.base_url} of {config!r}", workers)
        self._cells: Cells = self._row.common
        self.lock: AbstractContextManager[object] = self._row.table.lock
        settings = config.breaker.model_dump()
        breaker = CircuitBreaker(
            **settings, clock=monotonic, cells=self._cells, lock=self.lock, on_closed=self.begin_warming
        )
        super().__init__(config.model_copy(update=changes), concurrency, breaker)

    # requests in flight ------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of its requests, over all workers."""
        return int(sum(self._row.every[_IN_FLIGHT]))

    def begin(self) -> None:
        """It gets a request."""
        self._row.own[_IN_FLIGHT] += 1.0  # only this worker writes it, so no lock is needed

    def leave(self) -> None:
        self._row.own[_IN_FLIGHT] -= 1.0

    def clear_dead_workers(self) -> None:
        """Drop the requests of workers that have died."""
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
        """Whether its health checks fail."""
        return self._cells[_HEALTH] < 0.0

    @property
    def is_available(self) -> bool:
        """Whether it gets requests, as far as its breaker permits."""
        return not self.is_drained and not self.is_down

    @property
    def retry_after(self) -> float:
        """Seconds until it may get requests; infinite if unknown."""
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
        """It has come back: its share of the requests starts to grow."""
        self.credit = 0.0
        if self.config.slow_start:
            self._cells[_WARM_SINCE] = monotonic()

    def takes_part(self, total: float) -> bool:
        """Whether it takes part in a choice among replicas with this total weight.

        While it is warming, each choice adds the warm part of its share to its credit, and it needs a credit of 1.
        """
        warmth = self.get_warmth()
        if warmth >= 1.0:
            return True
        self.credit = min(1.0, self.credit + warmth * self.weight / total)
        return self.credit >= 1.0

    # health checks -----------------------------------------------------------------------------------------------

    @property
    def next_check(self) -> float:
        """When its next check is due, in the machine's monotonic time."""
        return self._cells[_NEXT_CHECK]

    def claim_check(self) -> bool:
        """Whether this worker is to check it now. One of all workers gets True."""
        if monotonic() < self._cells[_NEXT_CHECK]:
            return False
        health = self.config.health
        with self.lock:
            now = monotonic()
            if now < self._cells[_NEXT_CHECK]:
                return False
            self._cells[_NEXT_CHECK] = now + health.timeout + health.interval  # if the result never arrives
            return True

    def schedule_check(self) -> None:
        """Schedule the next check after an interval, unless it is due earlier."""
        interval = self.config.health.down_interval if self.is_down else self.config.health.interval
        self._cells[_NEXT_CHECK] = min(self._cells[_NEXT_CHECK], monotonic() + interval)

    def record_check(self, *, is_good: bool) -> bool:
        """Record a health check, or a request that could not connect. True if the replica went down or came back.

        When it comes back, its breaker closes and it starts to warm.
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


class _JointBreaker(CircuitBreaker):
    """The breakers and health checks of all replicas together. Each replica records its own answers."""

    def __init__(self, replicas: Sequence[Replica], settings: Mapping[str, Any]) -> None:
        super().__init__(**settings)
        self._replicas = replicas

    @property
    def state(self) -> BreakerState:
        found = {replica.breaker.state if replica.is_available else "open" for replica in self._replicas}
        return next(state for state in _BEST_FIRST if state in found)

    @property
    def retry_after(self) -> float:
        """Seconds until a replica may be available; one second if unknown."""
        least = min(replica.retry_after for replica in self._replicas)
        return least if math.isfinite(least) else 1.0
