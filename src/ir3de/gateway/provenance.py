"""Provenance: headers and the body's field `ir3de` say which expert answered, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote

from ir3de.gateway.exchange_record import Handover
from ir3de.gateway.experts.snapshot import Expert
from ir3de.gateway.headers import HeaderList
from ir3de.gateway.requests.choice import Choice
from ir3de.gateway.requests.controls import FIELD
from ir3de.routing.turn_explanation import TurnReason

PROVENANCE_HEADERS = (
    "x-ir3de-expert",
    "x-ir3de-model",
    "x-ir3de-confidence",
    "x-ir3de-expected-score",
    "x-ir3de-margin",
    "x-ir3de-router",
    "x-ir3de-route-us",
    "x-ir3de-fallbacks",
    "x-ir3de-resends",
    "x-ir3de-why",
    "x-ir3de-cache",
    "age",
    "x-ir3de-chat",
    "x-ir3de-reason",
    "x-ir3de-instead",
    "x-ir3de-translated",
    "x-ir3de-estimated",
    "x-request-id",
)


def build_provenance_headers(
    choice: Choice, expert: Expert, handovers: Sequence[Handover], resends: int = 0
) -> HeaderList:
    """The provenance as headers."""
    found = [
        *_build_name_headers(expert.name, expert.config.served_model, choice.snapshot.digest),
        _build_fallback_header(len(handovers)),
    ]
    if resends:
        found.append((b"x-ir3de-resends", b"%d" % resends))
    if (routed := choice.routed) is not None:
        if routed.confidence is not None:
            found.append((b"x-ir3de-confidence", b"%.4f" % routed.confidence))
        if routed.expected_score is not None:
            found.append((b"x-ir3de-expected-score", b"%.4f" % routed.expected_score))
        found += (
            (b"x-ir3de-margin", b"%.4f" % routed.margin),
            (b"x-ir3de-route-us", b"%.1f" % (routed.seconds * 1e6)),
        )
        if routed.reason is not None:
            found.append((b"x-ir3de-chat", b'turn=%d, decided=%d, why="%b"' % _encode_reason(routed.reason)))
        if routed.decision.abstained:
            found.append((b"x-ir3de-reason", routed.decision.reason.encode()))
            found += [(b"x-ir3de-instead", choice.instead.encode())] if choice.instead else []
    if choice.why:
        found.append((b"x-ir3de-why", _encode_header(choice.why)))
    return found


def build_provenance_member(choice: Choice, expert: Expert, handovers: Sequence[Handover], request_id: str) -> bytes:
    """The provenance as a member of a JSON object, because client libraries hide headers."""
    text = _format_names(expert.name, expert.config.served_model, choice.snapshot.digest)
    if (routed := choice.routed) is not None:
        if routed.expected_score is None:
            value = f"{routed.confidence:.4f}"
        else:
            value = f'null,"expected_score":{routed.expected_score:.4f}'
        text += (
            f',"decided":{_quote(routed.decision.expert)},"confidence":{value},"margin":{routed.margin:.4f}'
            f',"abstained":{"true" if routed.decision.abstained else "false"},"route_us":{routed.seconds * 1e6:.1f}'
        )
        if routed.reason is not None:
            turn, decided, why = routed.reason
            text += f',"chat":{{"turn":{turn},"decided":{decided},"why":"{why}"}}'
        if routed.decision.abstained:
            text += f',"reason":{_quote(routed.decision.reason)}'
            text += f',"instead":{_quote(choice.instead)}' if choice.instead else ""
    before = [{"from": one, "to": other, "reason": reason} for one, other, reason in handovers]
    text += f',"why":{_quote(choice.why or "routed")},"fallbacks":{json.dumps(before) if before else "[]"}'
    return f'{text},"request_id":{_quote_once(request_id)}}}'.encode()


def _encode_reason(reason: TurnReason) -> tuple[int, int, bytes]:
    return reason.turn, reason.decided, reason.why.encode()


# There are few names, so their formatted forms are cached.


@lru_cache(maxsize=4096)
def _format_names(expert: str, model: str, router: str) -> str:
    return f'"{FIELD}":{{"expert":{_quote(expert)},"model":{_quote(model)},"router":"{router[:16]}"'


@lru_cache(maxsize=4096)
def _build_name_headers(expert: str, model: str, router: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-ir3de-expert", _encode_header(expert)),
        (b"x-ir3de-model", _encode_header(model)),
        (b"x-ir3de-router", router[:16].encode()),
    )


@lru_cache(maxsize=256)
def _build_fallback_header(fallbacks: int) -> tuple[bytes, bytes]:
    return b"x-ir3de-fallbacks", str(fallbacks).encode()


@lru_cache(maxsize=4096)
def _quote(value: str | None) -> str:
    return json.dumps(value)


def _quote_once(value: str) -> str:
    return f'"{value}"' if value.isalnum() else json.dumps(value)


@lru_cache(maxsize=4096)
def _encode_header(value: str) -> bytes:
    """A name as a header value: characters beyond ASCII are percent-encoded."""
    return quote(value, safe=" !#$&'()*+,/:;=?@[]~").encode()
