"""POST /v1/route: where prompts would go, and why; nothing is sent anywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, SkipValidation
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import InputError
from ir3de.selectors import MAX_TOKENS
from ir3de_gateway.api_errors import ApiError, ClientDisconnect, build_type_error, validate
from ir3de_gateway.background import run_in_thread
from ir3de_gateway.config.document import Routing
from ir3de_gateway.config.experts import Part
from ir3de_gateway.http.variants import VariantSpec, get_variant, has_variant, list_options
from ir3de_gateway.requests.client import CostWeights, read_body
from ir3de_gateway.requests.json_body import read_json
from ir3de_gateway.requests.kept_texts import SHORT_CHARS
from ir3de_gateway.requests.tokens import Beginning
from ir3de_gateway.stages.choice import MAX_INLINE_TURNS
from ir3de_gateway.stages.choose import route_turns
from ir3de_gateway.stages.preview import preview
from ir3de_gateway.stages.read import extract_text, list_user_turns, parse_turns, read_chat
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.signal import build_signal

if TYPE_CHECKING:
    from ir3de import Conversation, Decision, Router
    from ir3de.serving import Explanation, TurnExplanation
    from ir3de_gateway.experts.snapshot import Snapshot
    from ir3de_gateway.gateway import Gateway

SpokenTurn = tuple[int, str]  # a turn of the user: its place among the messages, and its text
FindTarget = Callable[[Sequence[Any], "Decision"], Mapping[str, Any]]

MAX_INPUTS = 1_000
MAX_EXPLAINED_INPUTS = 100
MAX_EXPLAINED_CHARS = 50_000  # read of all prompts together: explaining them takes about a second
MAX_EXPLAINED_CHAT_CHARS = 16_384  # of a chat, whose newest turns come first
READ_CHARS = 8_192  # of a prompt, as a rule: see embedding/beginnings.py
BATCH_INPUTS = 50  # routed together: more would take memory
MAX_KEPT_BYTES = 8_000_000  # that the prompts of a large request may take in memory
MAX_TURNS = 1_000  # of a chat that are shown, the last ones
MAX_EXPLAINED_TURNS = 100  # of them, with the words that decided, as far as these are not too long
MAX_TEXT_CHARS = 200  # of a turn

# routed in the event loop, within a few milliseconds; longer ones, and more of them, in a thread
MAX_INLINE_INPUTS = 16
MAX_INLINE_CHARS = 4_000
MAX_INLINE_EXPLAINED_CHARS = 200


class RouteRequest(Part):
    """Prompts to route: `input` or `messages`."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"oneOf": [{"required": ["input"]}, {"required": ["messages"]}]}
    )

    input: SkipValidation[str | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS)]] = ""
    """A prompt, or several."""
    messages: SkipValidation[list[Any]] = []  # noqa: RUF012 - pydantic copies it
    """Or a chat, which is routed as the chat endpoint routes it: `turns` then has a row for each turn of the user."""
    explain: bool | None = None
    """Also give the expert that each word is a sign of, and every token with its vote."""
    flips: bool | None = None
    """Also give the words without which the decision would differ."""
    target: bool | None = None
    """Also give the expert that would answer now, and how to request it: an expert may have no endpoint, or fail."""
    signal: bool | None = None
    """Also give the signal: the versioned object that other gateways build on (docs/envoy.md)."""
    selector: str | None = None
    """Try another selector."""
    k: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """The number of tokens that vote, with the selector `entropy`."""
    scorer: str | None = None
    """Try another scorer."""
    weights: CostWeights | None = None
    """What a unit of cost is worth, instead of the router's own."""

    def read_turns(self, routing: Routing) -> list[SpokenTurn] | None:
        """The user's turns, where a chat is routed as a conversation; None for other requests."""
        if routing.text != "conversation" or "messages" not in self.model_fields_set:
            return None
        if "input" in self.model_fields_set:
            raise _build_both_error()
        turns = parse_turns(FORMATS["chat/completions"], {"messages": self.messages})
        return list_user_turns(turns, routing.envelopes)

    def read_texts(self, routing: Routing) -> Sequence[str]:
        """The prompts, or a `ApiError` that names the field."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        texts = _read_texts(given, routing)
        most, what = (MAX_EXPLAINED_INPUTS, " with explain or flips") if self.is_explained else (MAX_INPUTS, "")
        if len(texts) > most:
            raise ApiError(400, f"input has {len(texts):,} prompts, at most {most:,} are possible{what}", param="input")
        if any(isinstance(text, Beginning) and len(text) <= SHORT_CHARS for text in texts):
            message = (
                f"the prompts take more than {MAX_KEPT_BYTES:,} bytes, which is the limit here: send fewer at once"
            )
            raise ApiError(413, message, param="input")
        size = sum(min(len(text), READ_CHARS) for text in texts)
        if self.is_explained and size > MAX_EXPLAINED_CHARS:
            message = (
                f"the prompts have {size:,} characters that are read, at most {MAX_EXPLAINED_CHARS:,} are possible"
            )
            raise ApiError(413, f"{message}{what}: send fewer at once", param="input")
        return texts

    @property
    def is_explained(self) -> bool:
        return bool(self.explain or self.flips)

    def is_quick(self, texts: Sequence[str]) -> bool:
        """Whether an answer takes a few milliseconds at most."""
        most = MAX_INLINE_EXPLAINED_CHARS if self.is_explained else MAX_INLINE_CHARS
        return len(texts) <= MAX_INLINE_INPUTS and sum(map(len, texts)) <= most

    @property
    def wanted(self) -> VariantSpec:
        return VariantSpec(self.scorer and self.scorer[:80], self.selector and self.selector[:80], self.k)


async def route(request: Request) -> Response:
    """Report where each prompt would go."""
    gateway: Gateway = request.app.state.gateway
    snapshot = gateway.live.snapshot
    limits = snapshot.config.server.limits
    try:
        content = await read_body(request.receive, dict(request.scope["headers"]), limits)
    except ClientDisconnect:
        return Response(status_code=400)  # the client is gone
    values = (await read_json(content, limits.json_depth, kept_bytes=MAX_KEPT_BYTES)).values
    del content  # the prompts are enough
    query = validate(RouteRequest, values, status=400, shows_found=True)
    turns = query.read_turns(snapshot.config.routing)
    texts = query.read_texts(snapshot.config.routing) if turns is None else [text for _, text in turns]
    is_served = query.wanted.is_served(snapshot.router)
    find_target = None
    if query.target or (query.signal and turns and snapshot.switch_rule is not None):
        key, weights = request.state.key, query.weights
        find_target = partial(preview, snapshot, key=key, weights=weights, is_served=is_served)
    try:
        if not has_variant(snapshot, query.wanted):  # it must be built first
            await run_in_thread(get_variant, snapshot, query.wanted)
        if query.is_quick(texts) and snapshot.router.opinion is None:  # an encoder would block the event loop
            content = build_answer(snapshot, query, texts, turns, find_target)
        else:
            content = await asyncio.get_running_loop().run_in_executor(
                _start_thread(), build_answer, snapshot, query, texts, turns, find_target
            )
    except InputError as error:  # weights so large that no number holds them
        raise ApiError(400, str(error)) from error
    return Response(content, media_type="application/json")


routes = [Route("/v1/route", route, methods=["POST"])]


@lru_cache(maxsize=1)
def _start_thread() -> ThreadPoolExecutor:
    """One thread for all long requests: with more, the event loop would wait for each of them in turn."""
    return ThreadPoolExecutor(1, thread_name_prefix="ir3de-route")


def build_answer(
    snapshot: Snapshot,
    query: RouteRequest,
    texts: Sequence[str],
    turns: Sequence[SpokenTurn] | None = None,
    find_target: FindTarget | None = None,
) -> bytes:
    """The answer as JSON. `turns` are those of a chat that is routed as a conversation."""
    variant = get_variant(snapshot, query.wanted)
    begin, chat = perf_counter(), None
    if turns:
        chat = route_turns(variant, texts, query.weights)
        decisions = [chat.decision]
    elif turns is not None:  # no words of the user
        decisions, texts = [variant.route("", weights=query.weights)], [""]
    elif len(texts) == 1:
        decisions = [variant.route(texts[0], weights=query.weights)]
    else:
        batches = (texts[start : start + BATCH_INPUTS] for start in range(0, len(texts), BATCH_INPUTS))
        decisions = [one for batch in batches for one in variant.route_batch(batch, weights=query.weights)]
    took = perf_counter() - begin
    head = {
        "object": "list",
        "router": snapshot.digest,
        "experts": list(variant.experts),
        "default": variant.default,
        "calibrated": variant.calibrated,
        "route_us": round(took / len(texts) * 1e6, 1),  # a prompt, on average
    }

    def look_ahead(text: str, decision: Decision) -> dict[str, Any]:
        chat = query.messages or [{"role": "user", "content": text}]
        target = {} if find_target is None else find_target(chat, decision)
        row: dict[str, Any] = {"target": target} if query.target else {}
        if query.signal:
            row["signal"] = build_signal(decision, snapshot.digest, target.get("switch"))
        return row

    explain = partial(_explain, variant, query) if chat is None else partial(_explain_chat, variant, query, chat)
    data = b",".join(  # row by row, because an explanation takes several times the memory of its JSON
        _encode(
            {
                "index": index,
                **decision.to_dict(),
                **explain(text),
                **look_ahead(text, decision),
            }
        )
        for index, (text, decision) in enumerate(zip(texts if chat is None else texts[-1:], decisions, strict=True))
    )
    shown = b"" if turns is None else b'"turns":[%b],' % _describe_turns(chat, query, turns)
    options = _encode(list_options(snapshot))
    return b"".join((_encode(head)[:-1], b",", shown, b'"data":[', data, b'],"options":', options, b"}"))


def _describe_turns(chat: Conversation | None, query: RouteRequest, turns: Sequence[SpokenTurn]) -> bytes:
    """The rows of the turns as JSON."""
    if chat is None:
        return b""
    explained_chars = MAX_EXPLAINED_CHAT_CHARS if query.explain else 0
    rows = describe_turns(chat, turns, explained_chars=explained_chars, read_chars=READ_CHARS)
    return b",".join([_encode(row) for row in rows][::-1])


def _explain_chat(variant: Router, query: RouteRequest, chat: Conversation, text: str) -> dict[str, Any]:
    """The words that decided the last turn. Flips are those of a prompt, so chats of several turns have none."""
    row = chat.explain().deciding.describe_parts() if query.explain else {}
    if query.flips and len(chat) == 1 and not read_chat([(0, text)])[1]:
        row["flips"] = variant.flips(text, weights=query.weights).to_dict()
    return row


def _explain(variant: Router, query: RouteRequest, text: str) -> dict[str, Any]:
    row = variant.explain(text, weights=query.weights).describe_parts() if query.explain else {}
    if query.flips:
        row["flips"] = variant.flips(text, weights=query.weights).to_dict()
    return row


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(errors="replace")


def _build_both_error() -> ApiError:
    return ApiError(400, "input and messages are alternatives: send one of them", param="input")


def _read_texts(values: Mapping[str, Any], routing: Routing) -> list[str]:
    given = values.get("input")
    if "messages" in values:
        if given is not None:
            raise _build_both_error()
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


# the turns of a chat -----------------------------------------------------------------------------------------------


def describe_turns(
    chat: Conversation, turns: Sequence[SpokenTurn], *, explained_chars: int, read_chars: int
) -> Iterator[Mapping[str, Any]]:
    """A row for each turn, newest first, ready for JSON.

    The newest ones have the words that decided: `explained_chars` together, where `read_chars` of each turn are read.
    Unless that is 0, each row has `explained`: whether it has them.
    """
    is_asked, first_explained = explained_chars > 0, len(chat) - MAX_EXPLAINED_TURNS
    known: dict[tuple[int, str], dict[str, Any]] = {}  # turns that one turn decided share its words
    for turn in reversed(range(max(0, len(chat) - MAX_TURNS), len(chat))):
        found = chat.explain(turn)
        key, words = (found.decided, found.decision.best), dict[str, Any]()
        if key in known:
            words = known[key]
        elif explained_chars > 0 and turn >= first_explained:
            explained_chars -= min(len(turns[found.decided][1]), read_chars)
            words = known[key] = _describe_words(found.deciding) if explained_chars >= 0 else {}
        place, text = turns[turn]
        row = {"turn": turn, "message": place, "text": text.strip()[:MAX_TEXT_CHARS], **_describe_turn(found)}
        words = words if turn >= first_explained else {}
        yield {**row, **({"explained": bool(words)} if is_asked else {}), **words}
        if len(chat) > MAX_INLINE_TURNS:
            sleep(0)  # gives the interpreter's lock to the event loop


def _describe_turn(found: TurnExplanation) -> dict[str, Any]:
    decision, confidence, score = found.decision, found.decision.confidence, found.decision.expected_score
    return {
        "expert": decision.expert,
        "best": decision.best,
        "confidence": None if confidence is None else round(confidence, 6),
        **({} if score is None else {"expected_score": round(score, 6)}),
        "abstained": decision.abstained,
        "reason": decision.reason,
        "why": found.why,
        "decided": found.decided,
        "weights": [
            {"turn": one.turn, "weight": round(one.weight, 6), "lead": round(one.lead, 6)} for one in found.weights
        ],
    }


def _describe_words(found: Explanation) -> dict[str, Any]:
    return {
        "summary": found.summary,
        "compared": list(found.compared),
        "words": [word.to_dict() for word in found.words],
    }
