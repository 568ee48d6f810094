"""Lines of the access and the decision log, one JSON object each. No keys or headers; prompts only if configured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ir3de.serving import shorten_turn

if TYPE_CHECKING:
    from ir3de_gateway.config.experts import Price
    from ir3de_gateway.exchange_record import ExchangeRecord

MAX_NAME_CHARS = 100  # of values that clients choose: a line must fit into one write to a pipe
MAX_TEXT_CHARS = 100_000  # routing reads the first thousand tokens
MAX_RANKED = 10

_ROUTED = '"confidence": %.6f, "margin": %.6f, "route_us": %.1f, "ttft_ms": %.3f, "total_ms": %.3f'
_json = json.dumps
_quote = json.encoder.encode_basestring_ascii


def format_access_line(record: ExchangeRecord) -> bytes:
    """The access log line of a request."""
    # built by hand: a dictionary and json.dumps take five times as long
    words = _format_words(
        record.method, record.endpoint, record.asked[:MAX_NAME_CHARS], record.expert, record.model,
        record.status, record.outcome, record.error, record.why, record.decided,
    )  # fmt: skip
    handed_on = _json(record.fallbacks[:MAX_RANKED]) if record.fallbacks else "[]"
    prompt_tokens, completion_tokens, cost = record.prompt_tokens, record.completion_tokens, record.cost
    return (
        f'{{"time": "{_format_time(record.started)}", "request_id": {_quote(record.request_id[:MAX_NAME_CHARS])}, '
        f"{words}{_format_decision(record)}{_format_reasons(record)}, "
        f'"fallbacks": {handed_on}, "resends": {record.resends}, '
        f"{_format_replica(record) if record.replica else ''}"
        f'"prompt_tokens": {"null" if prompt_tokens is None else prompt_tokens}, '
        f'"completion_tokens": {"null" if completion_tokens is None else completion_tokens}, '
        f'"cost": {"null" if cost is None else f"{cost:.9g}"}, '
        f'"received_bytes": {record.received_bytes}, "sent_bytes": {record.sent_bytes}, '
        f'"stream": {"true" if record.stream else "false"}{_format_key(record) if record.key else ""}'
        f"{_format_cache(record) if record.cache else ''}}}\n"
    ).encode()


def _format_key(record: ExchangeRecord) -> str:
    """Who asked, and whether tokens and cost are an estimate."""
    estimated = ', "estimated": true' if record.is_estimated else ""
    return f', "key": {_quote(record.key[:MAX_NAME_CHARS])}{estimated}'


def _format_replica(record: ExchangeRecord) -> str:
    return f'"replica": {_quote(record.replica)}, "retries": {record.retries}, '


def _format_cache(record: ExchangeRecord) -> str:
    return f', "cache": "{record.cache}"'


def _format_decision(record: ExchangeRecord) -> str:
    """How sure the router was of the expert that answered, and how long each step took."""
    confidence, margin = (None, None) if record.decision is None else (record.confidence, record.margin)
    route, first, total = record.route_seconds, record.first_seconds, record.total_seconds * 1e3
    if confidence is not None and margin is not None and route is not None and first is not None:
        return _ROUTED % (confidence, margin, route * 1e6, first * 1e3, total)  # most lines, and the fastest way
    expected = "" if record.expected_score is None else f'"expected_score": {record.expected_score:.6f}, '
    return (
        f'"confidence": {"null" if confidence is None else f"{confidence:.6f}"}, {expected}'
        f'"margin": {"null" if margin is None else f"{margin:.6f}"}, '
        f'"route_us": {"null" if route is None else f"{route * 1e6:.1f}"}, '
        f'"ttft_ms": {"null" if first is None else f"{first * 1e3:.3f}"}, "total_ms": {total:.3f}'
    )


def _format_reasons(record: ExchangeRecord) -> str:
    """Which turn of a chat decided, and why the router abstained or another expert answers; nothing as a rule."""
    return "".join(f', "{name}": {_json(value)}' for name, value in _describe_reasons(record).items())


def _describe_reasons(record: ExchangeRecord) -> dict[str, Any]:
    """The fields `chat`, `reason` and `instead`, as far as there is something to say."""
    found: dict[str, Any] = {} if record.reason is None else {"chat": record.reason._asdict()}
    if reason := record.instead.text or ("" if record.decision is None else record.decision.reason):
        found["reason"] = reason
    if record.instead.kind:
        found["instead"] = record.instead.kind
    return found


def _shorten_turns(turns: Sequence[str]) -> list[str]:
    """What routing reads of the last turns, as many as fit into `MAX_TEXT_CHARS`."""
    kept, left = list[str](), MAX_TEXT_CHARS
    for text in map(shorten_turn, reversed(turns)):
        left -= len(text)
        if left < 0:
            break
        kept.append(text)
    return kept[::-1]


def format_decision_line(record: ExchangeRecord, *, price: Price | None = None, prompts: bool = False) -> bytes:
    """The decision log line of a routed request; it has the text only with `prompts`."""
    decision = record.decision
    assert decision is not None
    score = decision.expected_score
    name = "probability" if score is None else "expected_score"
    line: dict[str, Any] = {
        "time": _format_time(record.started),
        "request_id": record.request_id[:MAX_NAME_CHARS],
        "router": record.router,
        "expert": decision.expert,
        "served": record.expert,
        "confidence": _round(decision.confidence, 6),
        **({} if score is None else {"expected_score": round(score, 6)}),
        "margin": round(decision.margin, 6),
        "ranking": [{"expert": one, name: round(value, 6)} for one, value in decision.ranking[:MAX_RANKED]],
        "abstained": decision.abstained,
        "reason": decision.reason,
        "in_domain": _round(decision.in_domain, 6),
        "why": record.why,
        **(_describe_reasons(record) | {"reason": decision.reason}),
        "fallbacks": [list(handed_on) for handed_on in record.fallbacks[:MAX_RANKED]],
        "status": record.status,
        "outcome": record.outcome,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "cost": record.cost,
        **({"key": record.key} if record.key else {}),
    }
    if price is not None:
        line["price"] = {"input_per_1m": price.input_per_1m, "output_per_1m": price.output_per_1m}
    if prompts:
        line["text"] = record.text[:MAX_TEXT_CHARS]
        if record.turns:
            line["turns"] = _shorten_turns(record.turns)
    try:
        return json.dumps(line, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return json.dumps(line).encode() + b"\n"


def _format_time(seconds: float) -> str:
    second = int(seconds)
    return _format_second(second) + _MILLISECONDS[int((seconds - second) * 1000)]


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


# Most lines have the same few words, so their quoted forms are cached.

_MILLISECONDS = tuple(f".{milliseconds:03}Z" for milliseconds in range(1000))


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@lru_cache(maxsize=1024)
def _format_words(
    method: str,
    endpoint: str,
    asked: str,
    expert: str,
    model: str,
    status: int,
    outcome: str,
    error: str,
    why: str,
    decided: str | None,
) -> str:
    return (
        f'"method": {_quote(method)}, "endpoint": {_quote(endpoint)}, "asked": {_quote(asked)}, '
        f'"expert": {_quote(expert)}, "decided": {_json(decided)}, "model": {_quote(model)}, '
        f'"status": {status}, "outcome": {_quote(outcome)}, '
        f'"error": {_quote(error)}, "why": {_quote(why)}, '
    )
