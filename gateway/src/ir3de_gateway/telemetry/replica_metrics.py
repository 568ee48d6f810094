"""What is counted of replicas. Their labels are names of the configuration, so there are few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ir3de_gateway.telemetry.counts import Counts

if TYPE_CHECKING:
    from ir3de_gateway.experts.expert import Expert


class ReplicaMetrics:
    """Requests, retries, hedges and health checks of replicas, and how they are now."""

    def __init__(self, counts: Counts) -> None:
        self.requests = counts.add_counter(
            "ir3de_replica_requests", "Requests to replicas, and how they ended.", "expert", "replica", "outcome"
        )
        self.retries = counts.add_counter("ir3de_retries", "Requests sent on to another replica.", "expert")
        self.hedges = counts.add_counter(
            "ir3de_hedges", "Second replicas asked because the first was slow; won: they answered.", "expert", "outcome"
        )
        self.health_checks = counts.add_counter(
            "ir3de_health_checks", "Health checks of replicas.", "expert", "replica", "outcome"
        )
        self._in_flight = counts.add_gauge(
            "ir3de_replica_in_flight", "Requests that a replica is answering.", "expert", "replica", adds_up=False
        )
        self._up = counts.add_gauge(
            "ir3de_replica_up", "1 if a replica gets requests, else 0.", "expert", "replica", adds_up=False
        )

    def refresh(self, experts: Iterable[Expert]) -> None:
        """Set the gauges."""
        self._in_flight.clear()
        self._up.clear()
        for expert in experts:
            for replica in expert.replicas:
                place = (expert.name, replica.label)
                self._in_flight[place] = replica.in_flight
                self._up[place] = float(replica.state in ("up", "warming"))
