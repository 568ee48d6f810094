"""Lines of the access log, as JSON or for a terminal, and of the decision log.

They contain no keys and no headers, and prompts only if configured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from time import localtime, strftime
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticSerializationError, to_json

from ir3de.serving import shorten_turn

if TYPE_CHECKING:
    from ir3de_gateway.config.experts import Price
    from ir3de_gateway.exchange_record import ExchangeRecord

MAX_NAME_CHARS = 100  # of values that clients choose: a line must fit into one write to a pipe
MAX_TEXT_CHARS = 100_000  # routing reads the first thousand tokens
MAX_RANKED = 10

_EXPERT_WIDTH, _WHY_WIDTH, _MS_WIDTH, _TOKENS_WIDTH = 16, 25, 10, 18
_DIM, _BOLD, _RED, _GREEN, _YELLOW, _RESET = (f"\x1b[{code}m" for code in (2, 1, 31, 32, 33, 0))


def format_access_line(record: ExchangeRecord) -> bytes:
    """The access log line of a request."""
    route, first, decision = record.route_seconds, record.first_seconds, record.decision
    line: dict[str, Any] = {
        "time": _format_time(record.started), "request_id": record.request_id[:MAX_NAME_CHARS],
        "method": record.method, "endpoint": record.endpoint, "asked": record.asked[:MAX_NAME_CHARS],
        "expert": record.expert, "decided": record.decided, "model": record.model, "status": record.status,
        "outcome": record.outcome, "error": record.error, "why": record.why,
        "confidence": None if decision is None or record.confidence is None else round(record.confidence, 6),
        "margin": None if decision is None or record.margin is None else round(record.margin, 6),
        "route_us": None if route is None else round(route * 1e6, 1),
        "ttft_ms": None if first is None else round(first * 1e3, 3), "total_ms": round(record.total_seconds * 1e3, 3),
        "fallbacks": record.fallbacks[:MAX_RANKED], "resends": record.resends,
        "prompt_tokens": record.prompt_tokens, "completion_tokens": record.completion_tokens, "cost": record.cost,
        "received_bytes": record.received_bytes, "sent_bytes": record.sent_bytes, "stream": record.stream,
    }  # fmt: skip
    if decision is None or decision.reason or record.reason is not None or record.instead.kind or record.instead.text:
        line |= _describe_reasons(record)
    if record.expected_score is not None:
        line["expected_score"] = round(record.expected_score, 6)
    if decision is not None and decision.consulted:
        line["consulted"] = True
    if record.replica:
        line |= {"replica": record.replica, "retries": record.retries}
    if record.key:
        line |= {"key": record.key[:MAX_NAME_CHARS], **({"estimated": True} if record.is_estimated else {})}
    if record.cached_tokens is not None:
        line["cached_tokens"] = record.cached_tokens
    if record.cache:
        line["cache"] = record.cache
    return _encode(line)


def _describe_reasons(record: ExchangeRecord) -> dict[str, Any]:
    """The fields `chat`, `switch`, `reason` and `instead`, which most requests do not have.

    They are which turn decided, whether the conversation changed its expert, and why another one answers.
    """
    found: dict[str, Any] = {} if record.reason is None else {"chat": record.reason._asdict()}
    if record.switch is not None:
        found["switch"] = record.switch.describe()
    if reason := record.instead.text or ("" if record.decision is None else record.decision.reason):
        found["reason"] = reason
    if record.instead.kind:
        found["instead"] = record.instead.kind
    return found


def shorten_turns(turns: Sequence[str]) -> list[str]:
    """The part of the last turns that routing reads, as many as fit into `MAX_TEXT_CHARS`."""
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
        "time": _format_time(record.started), "request_id": record.request_id[:MAX_NAME_CHARS],
        "router": record.router, "expert": decision.expert, "served": record.expert,
        "confidence": _round(decision.confidence), **({} if score is None else {"expected_score": _round(score)}),
        "margin": _round(decision.margin),
        "ranking": [{"expert": one, name: _round(value)} for one, value in decision.ranking[:MAX_RANKED]],
        "abstained": decision.abstained, "in_domain": _round(decision.in_domain), "why": record.why,
        **({"consulted": True} if decision.consulted else {}),
        **(_describe_reasons(record) | {"reason": decision.reason}),
        "fallbacks": record.fallbacks[:MAX_RANKED], "status": record.status, "outcome": record.outcome,
        "prompt_tokens": record.prompt_tokens, "completion_tokens": record.completion_tokens, "cost": record.cost,
        **({"key": record.key} if record.key else {}),
    }  # fmt: skip
    if record.arm:
        line |= {"propensity": _round(record.propensity), "arm": record.arm}
    if (trial := record.trial) is not None:
        line |= {"candidate": trial.candidate, "candidate_expert": trial.candidate_expert}
    if price is not None:
        line["price"] = price.model_dump(exclude_none=True)
    if prompts:
        line["text"] = record.text[:MAX_TEXT_CHARS]
        if record.turns:
            line["turns"] = shorten_turns(record.turns)
    return _encode(line)


def _encode(line: dict[str, Any]) -> bytes:
    try:
        return to_json(line) + b"\n"
    except PydanticSerializationError:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return json.dumps(line).encode() + b"\n"


def _format_time(seconds: float) -> str:
    second = int(seconds)
    return _format_second(second) + _MILLISECONDS[int((seconds - second) * 1000)]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


_MILLISECONDS = tuple(f".{milliseconds:03}Z" for milliseconds in range(1000))


@lru_cache(maxsize=4)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# for a terminal ------------------------------------------------------------------------------------------------------


def wants_colours(file: int) -> bool:
    """Whether a file is a terminal that shows colours (https://no-color.org)."""
    return is_terminal(file) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_terminal(file: int) -> bool:
    try:
        return os.isatty(file)
    except OSError:  # it is closed
        return False


def format_terminal_line(record: ExchangeRecord, *, colours: bool = False) -> bytes:
    """One aligned line: time, status, expert, why, milliseconds, tokens; then anything unusual.

    >>> from ir3de_gateway.exchange_record import ExchangeRecord
    >>> record = ExchangeRecord("r", "chat", started=0, expert="law", status=200, total_seconds=0.4123, why="pinned")
    >>> record.prompt_tokens, record.completion_tokens = 10, 5
    >>> format_terminal_line(record)[9:].decode()
    '200 law              pinned                        412 ms 10 + 5 tokens\\n'
    """
    expert = _fit(record.expert or "-", _EXPERT_WIDTH)
    why = _fit(_describe_reason(record), _WHY_WIDTH)
    milliseconds = f"{record.total_seconds * 1e3:,.0f} ms".replace(",", " ").rjust(_MS_WIDTH)
    tokens = _describe_tokens(record).ljust(_TOKENS_WIDTH)
    unusual = _describe_unusual(record)
    status = f"{record.status or '---':>3}"
    if colours:
        colour = _GREEN if record.status < 400 else _YELLOW if record.status < 500 else _RED
        status, expert, why = f"{colour}{status}{_RESET}", f"{_BOLD}{expert}{_RESET}", f"{_DIM}{why}{_RESET}"
        unusual = f"{_YELLOW}{unusual}{_RESET}" if unusual else ""
    line = f"{_format_clock(int(record.started))} {status} {expert} {why} {milliseconds} {tokens} {unusual}"
    return f"{line.rstrip()}\n".encode(errors="backslashreplace")


def _describe_reason(record: ExchangeRecord) -> str:
    if not record.expert:
        return f"{record.method} {record.endpoint}" if record.endpoint.startswith("/") else record.endpoint
    why = record.why or ("routed" if record.reason is None else record.reason.why)
    if why == "abstained" and record.decision is not None and record.decision.reason:
        why = record.decision.reason  # which is more specific
    return why if record.confidence is None else f"{why} {record.confidence:.2f}"


def _describe_tokens(record: ExchangeRecord) -> str:
    if record.prompt_tokens is None and record.completion_tokens is None:
        return ""
    return f"{record.prompt_tokens or 0} + {record.completion_tokens or 0} tokens"


def _describe_unusual(record: ExchangeRecord) -> str:
    failed = [f"{giver} {reason}" for giver, _, reason in record.fallbacks[:3]]
    parts = [f"after {', '.join(failed)}"] if failed else []
    if not failed and record.why != "abstained":
        parts.append(record.instead.text)
    parts.append(record.instead.kind)
    if record.cache == "hit":
        parts.append("from the cache")
    if record.retries:
        parts.append(f"{record.retries} {'retry' if record.retries == 1 else 'retries'}")
    if record.expert and record.endpoint != "chat":
        parts.append(record.endpoint)
    if record.stream and record.first_seconds is not None:
        parts.append(f"first byte {record.first_seconds * 1e3:.0f} ms")
    if record.outcome not in ("ok", "client_error"):
        parts.append(record.outcome)
    if record.error and record.error != record.outcome:
        parts.append(record.error)
    if record.replica:  # which is empty if the expert has only one
        parts.append(f"replica {record.replica}")
    if record.key:
        parts.append(f"key {record.key[:_EXPERT_WIDTH]}")
    return _make_printable(", ".join(filter(None, parts)))


def _fit(text: str, width: int) -> str:
    text = _make_printable(text)
    return f"{text[: width - 1]}…" if len(text) > width else text.ljust(width)


def _make_printable(text: str) -> str:
    """Without characters that move the cursor or change colours: clients choose some of it."""
    text = text[:MAX_NAME_CHARS]
    return text if text.isprintable() else "".join(char if char.isprintable() else "�" for char in text)


@lru_cache(maxsize=4)
def _format_clock(seconds: int) -> str:
    return strftime("%H:%M:%S", localtime(seconds))
