"""POST /v1/route: where prompts would go, and why; nothing is sent anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import InputError
from ir3de.gateway.api_errors import ClientLeft, Problem
from ir3de.gateway.http.variants import Wanted, is_ready, options, variant
from ir3de.gateway.requests.client import read_body
from ir3de.gateway.requests.json_body import Body
from ir3de.gateway.requests.prompt import chat_turns, text_of
from ir3de.policies import Cost
from ir3de.selectors import MOST_TOKENS

if TYPE_CHECKING:
    from ir3de.gateway.config.models import Routing
    from ir3de.gateway.experts.snapshot import Snapshot
    from ir3de.router import Router

MOST_INPUTS = 1_000
MOST_EXPLAINED = 100  # a kilobyte a token adds up
AT_ONCE = 4_000  # characters that are answered without leaving the event loop: a millisecond or two

FIELDS = ("input", "messages", "explain", "flips", "selector", "k", "scorer", "weights")


@dataclass(frozen=True)
class Asked:
    """What a client wants to know."""

    texts: Sequence[str]
    explain: bool
    flips: bool
    wanted: Wanted
    weights: Mapping[str, float] | None

    @classmethod
    def read(cls, values: Mapping[str, Any], routing: Routing) -> Asked:
        """The request's fields, each of its type, or a `Problem` that names the field."""
        if unknown := [name for name in values if name not in FIELDS]:
            raise Problem(400, f"no field {unknown[0]!r:.80}: there are {', '.join(FIELDS)}", param=unknown[0][:80])
        explain, flips = (_flag(values, name) for name in ("explain", "flips"))
        texts = _texts(values, routing)
        most = MOST_EXPLAINED if explain or flips else MOST_INPUTS
        if len(texts) > most:
            what = " with explain or flips" if most < MOST_INPUTS else ""
            raise Problem(400, f"input has {len(texts):,} prompts, at most {most:,} go at once{what}", param="input")
        wanted = Wanted(_name(values, "scorer"), _name(values, "selector"), _k(values))
        return cls(texts, explain, flips, wanted, _weights(values))

    @property
    def quick(self) -> bool:
        return sum(map(len, self.texts)) <= AT_ONCE


async def route(request: Request) -> Response:
    """Say where each prompt would go."""
    snapshot: Snapshot = request.app.state.gateway.live.snapshot
    limits = snapshot.config.server.limits
    try:
        content = await read_body(request.receive, dict(request.scope["headers"]), limits)
    except ClientLeft:
        return Response(status_code=400)  # which nobody reads
    body = Body.read(content, limits.json_depth)
    asked = Asked.read(body.values, snapshot.config.routing)
    try:
        if asked.quick and is_ready(snapshot.router, asked.wanted):
            content = answer(snapshot.router, snapshot.digest, asked)
        else:  # long prompts, or a reading that has to be made first: others are served meanwhile
            content = await asyncio.to_thread(answer, snapshot.router, snapshot.digest, asked)
    except InputError as error:  # weights so large that no number holds them
        raise Problem(400, str(error)) from error
    return Response(content, media_type="application/json")


routes = [Route("/v1/route", route, methods=["POST"])]


def answer(router: Router, digest: str, asked: Asked) -> bytes:
    """The answer as JSON."""
    reading = variant(router, asked.wanted)
    begin = perf_counter()
    if len(asked.texts) == 1:
        decisions = [reading.route(asked.texts[0], weights=asked.weights)]
    else:
        decisions = reading.route_batch(asked.texts, weights=asked.weights)
    took = perf_counter() - begin
    data = []
    for index, (text, decision) in enumerate(zip(asked.texts, decisions, strict=True)):
        row: dict[str, Any] = {"index": index, **decision.to_dict()}
        if asked.explain:
            row["votes"] = [vote.to_dict() for vote in reading.explain(text, weights=asked.weights).tokens]
        if asked.flips:
            row["flips"] = reading.flips(text, weights=asked.weights).to_dict()
        data.append(row)
    return json.dumps(
        {
            "object": "list",
            "router": digest,
            "experts": list(reading.experts),
            "default": reading.default,
            "calibrated": reading.calibrated,
            "expects_quality": reading.from_outcomes,  # then shares are scores to expect, not probabilities
            "route_us": round(took / len(asked.texts) * 1e6, 1),  # a prompt, on average
            "data": data,
            "options": options(router),
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode(errors="replace")


def _texts(values: Mapping[str, Any], routing: Routing) -> list[str]:
    given = values.get("input")
    if "messages" in values:
        if given is not None:
            raise Problem(400, "input and messages are two ways to say the same: send one of them", param="input")
        return [text_of(chat_turns(values), routing.text, routing.envelopes)]
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        raise _wrong("input", "a prompt or a list of prompts (or send messages)", given)
    if not given:
        raise Problem(400, "input is empty: send at least one prompt", param="input")
    for place, text in enumerate(given):
        if not isinstance(text, str):
            raise _wrong(f"input[{place}]", "a string", text)
    return given


def _flag(values: Mapping[str, Any], name: str) -> bool:
    given = values.get(name)
    if given is not None and not isinstance(given, bool):
        raise _wrong(name, "true or false", given)
    return bool(given)


def _name(values: Mapping[str, Any], name: str) -> str | None:
    given = values.get(name)
    if given is not None and not isinstance(given, str):
        raise _wrong(name, "a name", given)
    return None if given is None else given[:80]


def _k(values: Mapping[str, Any]) -> int | None:
    given = values.get("k")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_TOKENS:
        raise _wrong("k", f"a whole number between 1 and {MOST_TOKENS:,}", given)
    return given


def _weights(values: Mapping[str, Any]) -> Mapping[str, float] | None:
    given = values.get("weights")
    if given is None:
        return None
    try:
        Cost.of(given)
    except InputError as error:
        raise Problem(400, f"weights: {error}"[:300], "invalid_type", "weights") from error
    return dict(given)


def _wrong(param: str, wanted: str, found: object) -> Problem:
    return Problem(400, f"{param} must be {wanted}, found {json.dumps(found)[:80]}", "invalid_type", param)
