"""POST /v1/route: where prompts would go, and why; nothing is sent anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, SkipValidation
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import InputError
from ir3de.gateway.api_errors import ApiError, ClientDisconnect, build_type_error, validate
from ir3de.gateway.config.models import Part, Routing
from ir3de.gateway.http.variants import VariantSpec, get_variant, has_variant, list_options
from ir3de.gateway.requests.client import read_body
from ir3de.gateway.requests.controls import CostWeights
from ir3de.gateway.requests.json_body import read_json
from ir3de.gateway.requests.prompt import extract_text, parse_turns
from ir3de.gateway.wire import FORMATS
from ir3de.selectors import MAX_TOKENS

if TYPE_CHECKING:
    from ir3de.gateway.experts.snapshot import Snapshot
    from ir3de.router import Router

MAX_INPUTS = 1_000
MAX_EXPLAINED_INPUTS = 100  # an explanation takes a kilobyte per token
MAX_INLINE_CHARS = 4_000  # routed in the event loop, within a millisecond or two
MAX_INLINE_FLIPS_CHARS = 400  # the same with flips, which decide once for every word


class RouteRequest(Part):
    """Prompts to route: `input` or `messages`."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"oneOf": [{"required": ["input"]}, {"required": ["messages"]}]}
    )

    input: SkipValidation[str | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]] = ""
    """A prompt, or several."""
    messages: SkipValidation[list[Any]] = []  # noqa: RUF012 - pydantic copies it
    """Or a chat, which is routed as the chat endpoint routes it."""
    explain: bool | None = None
    """Also give for whom every word speaks, and every token with its vote."""
    flips: bool | None = None
    """Also give the words without which the decision would differ."""
    selector: str | None = None
    """Try another selector."""
    k: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """The number of tokens that vote, with the selector `entropy`."""
    scorer: str | None = None
    """Try another scorer."""
    weights: CostWeights | None = None
    """What a unit of cost is worth, instead of the router's own."""

    def read_texts(self, routing: Routing) -> Sequence[str]:
        """The prompts, or a `ApiError` that names the field."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        texts = _read_texts(given, routing)
        most = MAX_EXPLAINED_INPUTS if self.explain or self.flips else MAX_INPUTS
        if len(texts) > most:
            what = " with explain or flips" if most < MAX_INPUTS else ""
            raise ApiError(400, f"input has {len(texts):,} prompts, at most {most:,} are possible{what}", param="input")
        return texts

    @property
    def wanted(self) -> VariantSpec:
        return VariantSpec(self.scorer and self.scorer[:80], self.selector and self.selector[:80], self.k)


async def route(request: Request) -> Response:
    """Say where each prompt would go."""
    snapshot: Snapshot = request.app.state.gateway.live.snapshot
    limits = snapshot.config.server.limits
    try:
        content = await read_body(request.receive, dict(request.scope["headers"]), limits)
    except ClientDisconnect:
        return Response(status_code=400)  # which nobody reads
    body = await read_json(content, limits.json_depth)
    asked = validate(RouteRequest, body.values, status=400, shows_found=True)
    texts = asked.read_texts(snapshot.config.routing)
    try:
        is_short = sum(map(len, texts)) <= (MAX_INLINE_FLIPS_CHARS if asked.flips else MAX_INLINE_CHARS)
        if is_short and has_variant(snapshot.router, asked.wanted):
            content = build_answer(snapshot.router, snapshot.digest, asked, texts)
        else:  # long prompts, or a variant that must be built first: a thread lets others be served meanwhile
            content = await asyncio.to_thread(build_answer, snapshot.router, snapshot.digest, asked, texts)
    except InputError as error:  # weights so large that no number holds them
        raise ApiError(400, str(error)) from error
    return Response(content, media_type="application/json")


routes = [Route("/v1/route", route, methods=["POST"])]


def build_answer(router: Router, digest: str, asked: RouteRequest, texts: Sequence[str]) -> bytes:
    """The answer as JSON."""
    variant = get_variant(router, asked.wanted)
    begin = perf_counter()
    if len(texts) == 1:
        decisions = [variant.route(texts[0], weights=asked.weights)]
    else:
        decisions = variant.route_batch(texts, weights=asked.weights)
    took = perf_counter() - begin
    data = []
    for index, (text, decision) in enumerate(zip(texts, decisions, strict=True)):
        row: dict[str, Any] = {"index": index, **decision.to_dict()}
        if asked.explain:
            row |= variant.explain(text, weights=asked.weights).describe_parts()
        if asked.flips:
            row["flips"] = variant.flips(text, weights=asked.weights).to_dict()
        data.append(row)
    return json.dumps(
        {
            "object": "list",
            "router": digest,
            "experts": list(variant.experts),
            "default": variant.default,
            "calibrated": variant.calibrated,
            "route_us": round(took / len(texts) * 1e6, 1),  # a prompt, on average
            "data": data,
            "options": list_options(router),
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode(errors="replace")


def _read_texts(values: Mapping[str, Any], routing: Routing) -> list[str]:
    given = values.get("input")
    if "messages" in values:
        if given is not None:
            raise ApiError(400, "input and messages are two ways to say the same: send one of them", param="input")
        return [extract_text(parse_turns(FORMATS["chat/completions"], values), routing.text, routing.envelopes)]
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        raise build_type_error("input", "a prompt or a list of prompts (or send messages)", given)
    if not given:
        raise ApiError(400, "input is empty: send at least one prompt", param="input")
    for place, text in enumerate(given):
        if not isinstance(text, str):
            raise build_type_error(f"input[{place}]", "a string", text)
    return given
