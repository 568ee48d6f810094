"""Provenance: headers and the body's field `ir3de` say which expert answered, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from ir3de.serving import TurnReason
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.headers import HeaderList, encode_name
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.requests.substitution import Handover

PROVENANCE_HEADERS = (
    "x-ir3de-expert",
    "x-ir3de-decided",
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
    if choice.decided is not None:
        found.append((b"x-ir3de-decided", encode_name(choice.decided)))
    if (routed := choice.routed) is not None:
        confidence, score, margin = routed.find_standing(expert.name)
        figures = ((b"x-ir3de-confidence", confidence), (b"x-ir3de-expected-score", score), (b"x-ir3de-margin", margin))
        found += ((name, b"%.4f" % value) for name, value in figures if value is not None)
        found.append((b"x-ir3de-route-us", b"%.1f" % (routed.seconds * 1e6)))
        if routed.reason is not None:
            found.append((b"x-ir3de-chat", b'turn=%d, decided=%d, why="%b"' % _encode_reason(routed.reason)))
    kind, _, reason = choice.explain_instead(expert.name, handovers)
    if reason:
        found.append((b"x-ir3de-reason", encode_name(reason)))
    if kind:
        found.append((b"x-ir3de-instead", encode_name(kind)))
    if why := choice.explain_why(expert.name):
        found.append((b"x-ir3de-why", encode_name(why)))
    return found


def build_provenance_member(choice: Choice, expert: Expert, handovers: Sequence[Handover], request_id: str) -> bytes:
    """The provenance as a member of a JSON object, because client libraries hide headers."""
    text = _format_names(expert.name, expert.config.served_model, choice.snapshot.digest)
    text += f',"decided":{_quote(choice.decided)}'
    if (routed := choice.routed) is not None:
        confidence, score, margin = routed.find_standing(expert.name)
        text += f',"confidence":{_format(confidence)}' + ("" if score is None else f',"expected_score":{score:.4f}')
        text += (
            f',"margin":{_format(margin)},"abstained":{"true" if routed.decision.abstained else "false"}'
            f',"route_us":{routed.seconds * 1e6:.1f}'
        )
        if routed.reason is not None:
            turn, decided, why = routed.reason
            text += f',"chat":{{"turn":{turn},"decided":{decided},"why":"{why}"}}'
    kind, _, reason = choice.explain_instead(expert.name, handovers)
    text += f',"reason":{_quote(reason)}' if reason else ""
    text += f',"instead":{_quote(kind)}' if kind else ""
    before = [{"from": one, "to": other, "reason": reason} for one, other, reason in handovers]
    decider = choice.explain_why(expert.name) or "routed"
    text += f',"why":{_quote(decider)},"fallbacks":{json.dumps(before) if before else "[]"}'
    return f'{text},"request_id":{_quote_once(request_id)}}}'.encode()


def _format(value: float | None) -> str:
    return "null" if value is None else f"{value:.4f}"


def _encode_reason(reason: TurnReason) -> tuple[int, int, bytes]:
    return reason.turn, reason.decided, reason.why.encode()


# There are few names, so their formatted forms are cached.


@lru_cache(maxsize=4096)
def _format_names(expert: str, model: str, router: str) -> str:
    return f'"{FIELD}":{{"expert":{_quote(expert)},"model":{_quote(model)},"router":"{router[:16]}"'


@lru_cache(maxsize=4096)
def _build_name_headers(expert: str, model: str, router: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-ir3de-expert", encode_name(expert)),
        (b"x-ir3de-model", encode_name(model)),
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
