"""An expert with several addresses: which of them gets the next request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker, State
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, create_limit
from ir3de_gateway.experts.expert import Expert, Replica
from ir3de_gateway.workers.table import find_worker_row

_BEST_FIRST: tuple[State, ...] = ("closed", "half-open", "cooling", "open")


def create_expert(config: ExpertConfig, workers: int = 1) -> Expert:
    """The expert of a configuration, with one address or with several."""
    if not config.replicas:
        return Expert.from_config(config, workers)
    row = find_worker_row(f"expert {config!r}", workers)
    limit = create_limit(**config.concurrency.model_dump(), workers=workers, row=row)
    return ReplicatedExpert(config, limit, workers)


class ReplicatedExpert(Expert):
    """An expert whose requests are shared among its replicas.

    The replica with the fewest requests in flight for its weight gets the next one, counted over all workers. If
    several have as few, they take turns.
    """

    def __init__(self, config: ExpertConfig, concurrency: ConcurrencyLimit, workers: int = 1) -> None:
        replicas = tuple(Replica(config, own, concurrency, workers) for own in config.list_replicas())
        super().__init__(config, concurrency, _JointBreaker(replicas, config.breaker.model_dump()))
        self.replicas = replicas
        self._turn = 0.0  # of whoever was chosen last

    def pick(self, tried: Collection[Replica] = (), *, may_probe: bool = True) -> Replica | None:
        """The replica for the next request, which counts from now on; None if none can be asked.

        Those in `tried` have failed already. One whose breaker is half-open gets its probe, but not from a request that
        `may_probe` forbids, unless there is no other.
        """
        wanted = [replica for replica in self.replicas if replica.is_wanted and replica not in tried]
        states = {replica: replica.breaker.state for replica in wanted}
        ready = [replica for replica in wanted if states[replica] == "closed"]
        if not ready or (may_probe and len(ready) < len(wanted)):
            for replica in wanted:
                if states[replica] == "half-open" and replica.breaker.allow_request():
                    replica.begin()
                    return replica
        if not ready:
            return None
        ready[0].clear_dead_workers()
        with ready[0].lock:
            chosen = self._choose(ready)
            chosen.begin()
        return chosen

    def has_another(self, tried: Collection[Replica]) -> bool:
        """Whether `pick` would find one now."""
        others = (replica for replica in self.replicas if replica.is_wanted and replica not in tried)
        return any(replica.breaker.state in ("closed", "half-open") for replica in others)

    def _choose(self, ready: Sequence[Replica]) -> Replica:
        """The least busy for its weight; if several are, the one whose turn it is."""
        if len(ready) == 1:
            return ready[0]
        total = sum(replica.weight for replica in ready)
        warm = [replica for replica in ready if _takes_part(replica, total)] or ready
        loads = {replica: replica.in_flight / replica.weight for replica in warm}
        chosen = min(warm, key=lambda replica: (loads[replica], max(replica.turn, self._turn)))
        self._turn = max(chosen.turn, self._turn)  # who was away does not catch up
        chosen.turn = self._turn + 1.0 / chosen.weight
        chosen.credit = max(0.0, chosen.credit - 1.0)
        return chosen

    def describe_absence(self) -> str:
        """Why no replica can be asked: how many are in which state."""
        words = {"open": "resting after failures", "half-open": "being probed"}
        counted = Counter(words.get(replica.state, replica.state) for replica in self.replicas)
        listed = ", ".join(f"{count} {state}" for state, count in counted.items())
        return f"no replica of '{self.name}' can be asked now: {listed}"

    def set_drained(self, labels: Collection[str]) -> None:
        """Drain these replicas, and none of the others."""
        for replica in self.replicas:
            replica.set_drained(replica.label in labels)


def _takes_part(replica: Replica, total: float) -> bool:
    """Whether a replica takes part in a choice. One that is warming does whenever it has saved up for a request: with
    every choice it gets that part of its share by which it is warm.
    """
    warmth = replica.get_warmth()
    if warmth >= 1.0:
        return True
    replica.credit = min(1.0, replica.credit + warmth * replica.weight / total)
    return replica.credit >= 1.0


class _JointBreaker(CircuitBreaker):
    """What the breakers and health checks of all replicas say together. Each replica records its own answers."""

    def __init__(self, replicas: Sequence[Replica], settings: Mapping[str, Any]) -> None:
        super().__init__(**settings)
        self._replicas = replicas

    @property
    def state(self) -> State:
        found = {replica.breaker.state if replica.is_wanted else "open" for replica in self._replicas}
        return next(state for state in _BEST_FIRST if state in found)

    @property
    def retry_after(self) -> float:
        """Seconds until a replica may be asked; a second if nobody knows."""
        least = min(replica.retry_after for replica in self._replicas)
        return least if math.isfinite(least) else 1.0
