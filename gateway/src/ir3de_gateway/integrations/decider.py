"""The router's decision on the body of a request that another gateway forwards. Nothing is sent anywhere."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ir3de.errors import InputError, name_some
from ir3de.serving import ENVELOPES
from ir3de_gateway.admin.router_source import LoadedRouter, RouterFollower
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import run_in_thread
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.experts.snapshot import set_policy
from ir3de_gateway.headers import encode_name
from ir3de_gateway.stages.choice import Prompt
from ir3de_gateway.stages.choose import route_turns
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import WireFormat
from ir3de_gateway.wire.signal import build_signal

if TYPE_CHECKING:
    from ir3de import Decision, Router

ROUTED = frozenset(("chat", "completions", "responses", "messages"))  # capabilities whose requests are routed
ABSTAINED, NEAREST = "abstained", "abstained: nearest expert"

_log = logging.getLogger("ir3de.gateway")


@dataclass(frozen=True)
class Settings:
    """What an operator sets."""

    models: Mapping[str, str] = field(default_factory=dict)  # the model or route of an expert, if it has another name
    default: str | None = None  # the expert for prompts that the router abstains on, instead of the router's own
    threshold: float | None = None  # of the confidence below which the router abstains, instead of its own
    routed_models: frozenset[str] = frozenset(RESERVED)  # names that ask for routing


@dataclass(frozen=True)
class Verdict:
    """Where a request goes, and why."""

    expert: str | None  # None where the router abstains, knows no default, and no expert is near
    model: str | None  # the expert's name for the gateway that asked
    why: str  # empty if the router decided
    decision: Decision
    router: str  # the SHA-256 of its artifact
    seconds: float
    prompt: Prompt  # what was routed on

    @property
    def signal(self) -> dict[str, Any]:
        """The documented object."""
        return build_signal(self.decision, self.router)

    def list_headers(self) -> list[tuple[str, bytes]]:
        """The provenance headers, named as those of IR3DE's own gateway."""
        confidence, score = self.decision.confidence, self.decision.expected_score
        found = [
            ("x-ir3de-expert", encode_name(self.expert or "")),
            ("x-ir3de-model", encode_name(self.model or "")),
            ("x-ir3de-confidence", b"" if confidence is None else b"%.4f" % confidence),
            ("x-ir3de-expected-score", b"" if score is None else b"%.4f" % score),
            ("x-ir3de-router", self.router[:12].encode()),
            ("x-ir3de-why", self.why.encode()),
            ("x-ir3de-reason", self.decision.reason.encode()),
            ("x-ir3de-consulted", b"true" if self.decision.consulted else b""),
            ("x-ir3de-route-us", b"%.1f" % (1e6 * self.seconds)),
        ]
        return [(name, value) for name, value in found if value]


class Decider:
    """A router with an operator's settings. It follows its artifact: `reload` takes a new one."""

    def __init__(self, location: str, settings: Settings, cache: Path | None = None) -> None:
        self._follower, self._settings = RouterFollower(location, cache), settings
        self._live = self._prepare(self._follower.load())

    def _prepare(self, loaded: LoadedRouter) -> tuple[Router, str]:
        """The router with the settings, warmed up, and its hash."""
        router, settings = loaded.router, self._settings
        unknown = sorted({*settings.models, *([settings.default] if settings.default else [])} - set(router.experts))
        if unknown:
            message = f"the router has no expert {unknown[0]!r}: there are {name_some(router.experts, unknown[0])}"
            raise InputError(message)
        router = set_policy(router, settings.threshold, settings.default)
        router.route("The first prompt loads the tokenizer, so that no client waits for it.")
        return router, loaded.digest

    @property
    def experts(self) -> tuple[str, ...]:
        return self._live[0].experts

    @property
    def router(self) -> Router:
        """The router that decides now."""
        return self._live[0]

    @property
    def digest(self) -> str:
        return self._live[1]

    async def reload(self) -> bool:
        """Take a new router if there is one that can be used. The old one decides meanwhile."""
        found = await run_in_thread(self._follower.check)
        if found is None:
            return False
        try:
            self._live = await run_in_thread(self._prepare, found)
        except InputError as error:
            _log.warning("the new router cannot be used, and the current one stays: %s", error)
            return False
        return True

    def wants(self, values: Mapping[str, Any]) -> bool:
        """Whether a request asks for routing: it names no model, or one that stands for the router."""
        return values.get("model", RESERVED[0]) in self._settings.routed_models

    async def decide(self, wire: WireFormat, values: Mapping[str, Any]) -> Verdict:
        """Decide on a request, or raise an `ApiError` that names what is wrong with it."""
        router, digest = self._live
        prompt = read_prompt(wire, values, "conversation", ENVELOPES, counts_tokens=False)
        started = perf_counter()
        if prompt.turns:
            route = partial(_route_chat, router, prompt.turns)
            is_quick = prompt.is_quick
        else:
            route, is_quick = partial(router.route, prompt.text), router.opinion is None
        decision = route() if is_quick else await run_in_thread(route)
        return self._judge(decision, digest, perf_counter() - started, prompt)

    def _judge(self, decision: Decision, digest: str, seconds: float, prompt: Prompt) -> Verdict:
        expert, why = decision.expert, ABSTAINED if decision.abstained else ""
        if expert is None and decision.reason != "no known token":
            expert, why = decision.best, NEAREST
        model = None if expert is None else self._settings.models.get(expert, expert)
        return Verdict(expert, model, why, decision, digest, seconds, prompt)


def _route_chat(router: Router, turns: Any) -> Decision:
    return route_turns(router, turns).decision


def find_wire(path: str) -> WireFormat | None:
    """The format of a path such as /v1/chat/completions?x=1; None if requests there are not routed.

    >>> find_wire("/openai/v1/chat/completions?x=1").capability, find_wire("/v1/embeddings"), find_wire("/healthz")
    ('chat', None, None)
    """
    _, found, name = path.partition("?")[0].rpartition("/v1/")
    wire = FORMATS.get(name) if found else None
    return wire if wire is not None and wire.capability in ROUTED and wire.method == "POST" else None


def build_error_headers(error: ApiError) -> list[tuple[str, bytes]]:
    """The headers of a request that is forwarded although it was not routed."""
    return [("x-ir3de-why", b"not routed"), ("x-ir3de-error", encode_name(error.message[:200].replace("\n", " ")))]
