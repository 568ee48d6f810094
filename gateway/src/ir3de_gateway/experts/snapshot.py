"""Router, experts and settings as one immutable value, swapped whole; and the active health checks of its replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from ir3de.errors import IR3DEError
from ir3de_gateway.config.document import Config
from ir3de_gateway.experts.expert import Expert as Expert  # re-exported: the parts of a snapshot
from ir3de_gateway.experts.expert import Replica, create_expert
from ir3de_gateway.experts.switch import SwitchRule, build_rule
from ir3de_gateway.transport import NoConnectionError, OutOfResourcesError, Transport, UpstreamCall

if TYPE_CHECKING:
    from ir3de import Router

MAX_CHECK_WAIT_S = 1.0  # between two looks for due checks: other replicas may have been configured
MAX_CHECK_BYTES = 1 << 20  # of an answer, which is read so that its connection can be reused

_log = logging.getLogger("ir3de.gateway")


@dataclass(frozen=True)
class Snapshot:
    """Router, experts and settings that belong together: a request takes one and keeps it to its end."""

    config: Config
    router: Router
    digest: str  # SHA-256 of the router's artifact
    experts: Mapping[str, Expert] = field(default_factory=dict)  # in the order of the configuration
    candidate: Snapshot | None = None  # the same with the router that is tried beside this one
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
    def aliases(self) -> Mapping[str, str]:
        """Each alias, and `auto` or the expert that it stands for."""
        return self.config.resolve_aliases()

    @cached_property
    def caches_answers(self) -> bool:
        """Whether there is a response cache."""
        return self.config.cache.ttl > 0

    @cached_property
    def keeps_journal(self) -> bool:
        """Whether routed requests are recorded, so that feedback on them is possible."""
        return self.config.feedback.folder is not None

    @cached_property
    def has_before_hooks(self) -> bool:
        """Whether any hook sees requests."""
        return bool(self.config.hooks.before)

    @cached_property
    def has_after_hooks(self) -> bool:
        """Whether any hook sees answers."""
        return bool(self.config.hooks.after)

    @cached_property
    def switch_rule(self) -> SwitchRule | None:
        """When a conversation may change its expert; None where that has no price."""
        return build_rule(self.config.routing.switch, self.config.experts)

    @cached_property
    def has_replicas(self) -> bool:
        """Whether any expert has several addresses."""
        return any(expert.replicas for expert in self.experts.values())

    @cached_property
    def has_context_windows(self) -> bool:
        """Whether any expert's context window is known."""
        return any(expert.config.context_window is not None for expert in self.experts.values())


def apply_routing_settings(router: Router, config: Config) -> Router:
    """The router, warmed up, with the threshold and the default expert of the configuration if it names them."""
    router.route("The first prompt loads the tokenizer, so that no client waits for it.")
    router.tokenizer.warm_up()
    if router.opinion is not None and config.routing.encoder_deadline:
        try:
            router.route("The first prompt loads the encoder, too.", consult=True)
        except IR3DEError as error:
            _log.warning("the router's encoder cannot be used, and the table decides alone: %s", error)
    default = config.routing.default if config.routing.default in router.experts else None
    return set_policy(router, config.routing.threshold, default)


def set_policy(router: Router, threshold: float | None, default: str | None) -> Router:
    """The router with another threshold and default expert; None keeps its own."""
    if threshold is None and default is None:
        return router
    policy = router.policy if threshold is None else replace(router.policy, threshold=threshold)
    return router.with_policy(policy, default=default)


class LiveSnapshot:
    """The only owner of the router, experts and settings that serve now. A change replaces the whole snapshot.

    Requests in flight keep the snapshot they started with.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def swap(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


class HealthChecker:
    """Sends a GET request to each replica from time to time. Of several workers, one makes each check."""

    def __init__(self, live: LiveSnapshot, transport: Transport, count: Callable[[Replica, bool], None]) -> None:
        """`count` is called with the outcome of each check."""
        self._live, self._transport, self._count = live, transport, count
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        try:
            while True:
                await asyncio.sleep(self.start_checks())
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def start_checks(self) -> float:
        """Start the checks that are due, and return the seconds until the next look."""
        wait = MAX_CHECK_WAIT_S
        for replica in self._list_checked():
            if replica.claim_check():
                task = asyncio.create_task(self.check(replica))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            wait = min(wait, replica.next_check - monotonic())
        return max(wait, 0.01)

    def _list_checked(self) -> Iterator[Replica]:
        for expert in self._live.snapshot.experts.values():
            if expert.replicas and expert.config.health.active:
                yield from expert.replicas

    async def check(self, replica: Replica) -> None:
        """Check one replica, now."""
        try:
            status = await self._request(replica)
        except (NoConnectionError, OutOfResourcesError):  # the replica is not the cause
            replica.schedule_check()
            return
        except OSError as error:
            found, is_good = _describe(error, replica.config.health.timeout), False
        else:
            found, is_good = f"status {status}", status < 500
        self._count(replica, is_good)
        if replica.record_check(is_good=is_good):
            log_change(replica, found)

    async def _request(self, replica: Replica) -> int:
        health, loop = replica.config.health, asyncio.get_running_loop()
        key = replica.authorization
        head = b"accept: */*\r\n" + (b"" if key is None else b"authorization: %b\r\n" % key.encode())
        deadline = loop.time() + health.timeout
        call = UpstreamCall(replica.destination, health.path, head, b"", health.timeout, deadline, method="GET")
        answer = await self._transport.send(call)
        try:
            size = 0
            while size < MAX_CHECK_BYTES and (piece := await answer.read(deadline)):
                size += len(piece)
        finally:
            answer.close()
        return answer.status


def _describe(error: OSError, seconds: float) -> str:
    """Why a check failed; some errors have no text."""
    if isinstance(error, TimeoutError):
        return f"no response within {seconds:g} s"
    return " ".join(str(error).split()) or "the connection was closed"


def log_change(replica: Replica, found: str) -> None:
    """Log that a replica is down, or up again."""
    where = (replica.name, replica.config.base_url)
    if replica.is_down:
        _log.warning("'%s' at %s is down (%s): it gets no requests until a health check succeeds", *where, found[:300])
    else:
        _log.info("'%s' at %s is up again", *where)
