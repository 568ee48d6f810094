"""Attributes of OpenTelemetry's conventions for generative AI (`gen_ai.*`), and our own beside them (`ir3de.*`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ir3de_gateway.telemetry.answer_facts import AnswerFacts

if TYPE_CHECKING:
    from ir3de_gateway.exchange_record import ExchangeRecord

Attributes = dict[str, Any]

MAX_CHARS = 100  # of a value that clients choose
OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}
_CHATS = ("chat", "responses", "messages")
_NUMBERS = {  # of a request's fields: the attribute, and whether it is a whole number
    "temperature": ("gen_ai.request.temperature", False),
    "top_p": ("gen_ai.request.top_p", False),
    "top_k": ("gen_ai.request.top_k", False),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", False),
    "presence_penalty": ("gen_ai.request.presence_penalty", False),
    "max_tokens": ("gen_ai.request.max_tokens", True),
    "max_completion_tokens": ("gen_ai.request.max_tokens", True),
    "max_output_tokens": ("gen_ai.request.max_tokens", True),
    "seed": ("gen_ai.request.seed", True),
    "n": ("gen_ai.request.choice.count", True),
}


def name_operation(endpoint: str) -> str:
    """What the conventions call the request of an endpoint.

    >>> name_operation("responses"), name_operation("completions"), name_operation("rerank")
    ('chat', 'text_completion', 'rerank')
    """
    return "chat" if endpoint in _CHATS else OPERATIONS.get(endpoint, endpoint)


def read_request_attributes(values: Mapping[str, Any]) -> Attributes:
    """The settings of a request: numbers and the kind of output, never text.

    >>> read_request_attributes({"temperature": 0, "max_tokens": 5, "n": 1, "seed": "x", "messages": []})
    {'gen_ai.request.temperature': 0.0, 'gen_ai.request.max_tokens': 5}
    """
    found: Attributes = {}
    for field, (attribute, is_whole) in _NUMBERS.items():
        value = values.get(field)
        if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if is_whole and isinstance(value, int) and abs(value) < 1 << 63:
            found[attribute] = value
        elif not is_whole and abs(value) < 1e9:
            found[attribute] = float(value)
    if found.get("gen_ai.request.choice.count") == 1:
        del found["gen_ai.request.choice.count"]
    kind = values.get("response_format")
    if isinstance(kind, dict) and kind.get("type") in ("text", "json_object", "json_schema"):
        found["gen_ai.output.type"] = "text" if kind["type"] == "text" else "json"
    encoding = values.get("encoding_format")
    if encoding in ("float", "base64"):
        found["gen_ai.request.encoding_formats"] = [encoding]
    return found


def build_span_attributes(
    record: ExchangeRecord, facts: AnswerFacts, usage: Mapping[str, Any], model: str, operation: str
) -> Attributes:
    """The outcome of a request; `model` is what the expert was asked for."""
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.request.model": model or None,
        "gen_ai.request.stream": record.stream or None,
        "gen_ai.response.model": facts.model or None,
        "gen_ai.response.id": facts.response_id or None,
        "gen_ai.response.finish_reasons": facts.finish_reasons or None,
        "gen_ai.response.time_to_first_chunk": compute_first_chunk_seconds(record),
        "gen_ai.conversation.id": record.session[:MAX_CHARS] or None,
        **_build_usage_attributes(record, usage),
        "http.response.status_code": record.status or None,
        "ir3de.request_id": record.request_id[:MAX_CHARS],
        "ir3de.asked": record.asked[:MAX_CHARS] or None,
        "ir3de.expert": record.expert or None,
        "ir3de.outcome": record.outcome,
        "ir3de.why": record.why or None,
        "ir3de.stream": record.stream,
        "ir3de.fallbacks": len(record.fallbacks),
        "ir3de.fallback_reasons": [f"{giver}: {reason}" for giver, _, reason in record.fallbacks[:10]] or None,
        "ir3de.replica": record.replica or None,
        "ir3de.retries": record.retries or None,
        "ir3de.resends": record.resends or None,
        "ir3de.queue_seconds": record.queue_seconds,
        "ir3de.ttft_seconds": record.first_seconds,
        "ir3de.cost": record.cost,
        "ir3de.key": record.key or None,
        "ir3de.cache": record.cache or None,
        **build_decision_attributes(record),
    }


def build_decision_attributes(record: ExchangeRecord) -> Attributes:
    """What the router decided."""
    decision = record.decision
    chosen = {"ir3de.router": record.router or None, "ir3de.decided": record.decided}
    instead = {"ir3de.reason": record.instead.text or None, "ir3de.instead": record.instead.kind or None}
    if decision is None:
        return {**chosen, **instead}
    return {
        **chosen,
        **instead,
        "ir3de.confidence": record.confidence,
        "ir3de.expected_score": record.expected_score,
        "ir3de.margin": record.margin,
        "ir3de.abstained": decision.abstained,
        "ir3de.chat_why": None if record.reason is None else record.reason.why,
    }


def _build_usage_attributes(record: ExchangeRecord, usage: Mapping[str, Any]) -> Attributes:
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    cached = _count(usage, "prompt_tokens_details", "cached_tokens")
    if cached is None:
        cached = _count(usage, "input_tokens_details", "cached_tokens")
    thought = _count(usage, "completion_tokens_details", "reasoning_tokens")
    if thought is None:
        thought = _count(usage, "output_tokens_details", "reasoning_tokens")
    return {
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": read if cached is None else cached,
        "gen_ai.usage.cache_creation.input_tokens": written,
        "gen_ai.usage.reasoning.output_tokens": thought,
    }


def compute_first_chunk_seconds(record: ExchangeRecord) -> float | None:
    """From asking the expert to the first piece of its stream."""
    if not record.stream or record.first_seconds is None or record.asked_seconds is None:
        return None
    return max(0.0, record.first_seconds - record.asked_seconds)


def find_error_type(record: ExchangeRecord) -> str | None:
    """Why a request failed, in one of a few words; None if it did not. A client that leaves is no error."""
    return None if record.outcome in ("ok", "cancelled") else record.error or record.outcome


def drop_none(attributes: Mapping[str, Any]) -> Attributes:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def _count(usage: Mapping[str, Any], *path: str) -> int | None:
    found: Any = usage
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 53 else None
