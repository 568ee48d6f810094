"""Router, experts and settings as one immutable value, which is swapped whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from ir3de_gateway.config.models import Config
from ir3de_gateway.experts.expert import Expert as Expert  # re-exported: the parts of a snapshot
from ir3de_gateway.experts.expert import create_expert

if TYPE_CHECKING:
    from ir3de import Router


@dataclass(frozen=True)
class Snapshot:
    """Router, experts and settings that belong together: a request takes one and keeps it to its end."""

    config: Config
    router: Router
    digest: str  # SHA-256 of the router's artifact
    experts: Mapping[str, Expert] = field(default_factory=dict)  # in the order of the configuration
    capable: dict[frozenset[str], tuple[Expert, ...]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_config(
        cls, config: Config, router: Router, digest: str, before: Snapshot | None = None, **more: Any
    ) -> Self:
        """Build a snapshot. Experts whose configuration did not change keep their queue and breaker.

        `more` are the fields of a subclass.
        """
        known = {} if before is None else before.experts
        experts = {}
        for wanted in config.experts:
            kept = known.get(wanted.name)
            if kept is None or kept.config != wanted:
                kept = create_expert(wanted, config.server.workers)
            experts[wanted.name] = kept
        return cls(config, apply_routing_settings(router, config), digest, experts, **more)

    def find_capable(self, needs: frozenset[str]) -> tuple[Expert, ...]:
        """The experts with all these capabilities, cached."""
        found = self.capable.get(needs)
        if found is None:
            found = tuple(expert for expert in self.experts.values() if needs <= expert.capabilities)
            self.capable[needs] = found
        return found

    @cached_property
    def translated(self) -> frozenset[str]:
        """The formats in which some expert answers only because requests and answers are translated."""
        return frozenset().union(*(expert.translated for expert in self.experts.values()))

    @cached_property
    def caches_answers(self) -> bool:
        """Whether there is a response cache."""
        return self.config.cache.ttl > 0

    @cached_property
    def has_before_hooks(self) -> bool:
        """Whether any hook sees requests."""
        return bool(self.config.hooks.before)

    @cached_property
    def has_after_hooks(self) -> bool:
        """Whether any hook sees answers."""
        return bool(self.config.hooks.after)

    @cached_property
    def has_context_windows(self) -> bool:
        """Whether any expert's context window is known."""
        return any(expert.config.context_window is not None for expert in self.experts.values())


def apply_routing_settings(router: Router, config: Config) -> Router:
    """The router, warmed up, with the threshold and the default expert of the configuration if it names them."""
    router.route("The first prompt loads the tokenizer, so that no client waits for it.")
    router.tokenizer.warm_up()

    routing, policy = config.routing, router.policy
    default = routing.default if routing.default in router.experts else None
    if routing.threshold is None and default is None:
        return router
    threshold = policy.threshold if routing.threshold is None else routing.threshold
    return router.with_policy(replace(policy, threshold=threshold), default=default)


class LiveSnapshot:
    """The only owner of the router, experts and settings that serve now. A change replaces the whole snapshot.

    Requests in flight keep the snapshot they started with.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def swap(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
