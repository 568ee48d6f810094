"""Provenance: headers and the body's field `ir3de` report which expert answered, and why."""

from __future__ import annotations

import json
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING

from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.headers import HeaderList, encode_name
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.telemetry.server_timing import build_server_timing

if TYPE_CHECKING:
    from ir3de_gateway.stages.accept import Accepted

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


def add_headers(accepted: Accepted, headers: HeaderList, hook_seconds: float = 0.0) -> HeaderList:
    """The headers of a response with the request's id, and the provenance if an expert got the request."""
    progress, config = accepted.progress, accepted.snapshot.config
    record = progress.record
    headers = [*headers, (b"x-request-id", accepted.request_id.encode())]
    if progress.expert is not None and "headers" in config.routing.provenance:
        headers += build_provenance_headers(record)
    if record.cache:
        headers.append((b"x-ir3de-cache", record.cache.encode()))
        if record.cache == "hit":
            headers.append((b"age", b"%d" % record.cache_age))
    if progress.translation is not None:
        headers += progress.translation.build_headers(accepted.request_id)
    if config.server.timing:
        seconds = perf_counter() - accepted.clock
        headers.append((b"server-timing", build_server_timing(record, seconds, hooks=hook_seconds)))
    return headers


def build_provenance_headers(record: ExchangeRecord) -> HeaderList:
    """The provenance as headers."""
    found = [
        *_build_name_headers(record.expert, record.model, record.router),
        (b"x-ir3de-fallbacks", b"%d" % len(record.fallbacks)),
    ]
    if record.resends:
        found.append((b"x-ir3de-resends", b"%d" % record.resends))
    if record.decided is not None:
        found.append((b"x-ir3de-decided", encode_name(record.decided)))
    if record.route_seconds is not None:
        if record.confidence is not None:
            found.append((b"x-ir3de-confidence", b"%.4f" % record.confidence))
        if record.expected_score is not None:
            found.append((b"x-ir3de-expected-score", b"%.4f" % record.expected_score))
        if record.margin is not None:
            found.append((b"x-ir3de-margin", b"%.4f" % record.margin))
        found.append((b"x-ir3de-route-us", b"%.1f" % (record.route_seconds * 1e6)))
        if (turn := record.reason) is not None:
            why = b'turn=%d, decided=%d, why="%b"' % (turn.turn, turn.decided, turn.why.encode())
            found.append((b"x-ir3de-chat", why))
    kind, _, reason = record.instead
    if reason:
        found.append((b"x-ir3de-reason", encode_name(reason)))
    if kind:
        found.append((b"x-ir3de-instead", encode_name(kind)))
    if record.why:
        found.append((b"x-ir3de-why", encode_name(record.why)))
    return found


def build_provenance_member(accepted: Accepted) -> bytes:
    """The provenance as a member of a JSON object, because client libraries hide headers; empty if switched off."""
    if "body" not in accepted.snapshot.config.routing.provenance:
        return b""
    record = accepted.progress.record
    text = _format_names(record.expert, record.model, record.router) + f',"decided":{_quote(record.decided)}'
    if record.route_seconds is not None and record.decision is not None:
        confidence = "null" if record.confidence is None else f"{record.confidence:.4f}"
        score = "" if record.expected_score is None else f',"expected_score":{record.expected_score:.4f}'
        margin = "null" if record.margin is None else f"{record.margin:.4f}"
        text += (
            f',"confidence":{confidence}{score},"margin":{margin}'
            f',"abstained":{"true" if record.decision.abstained else "false"}'
            f',"route_us":{record.route_seconds * 1e6:.1f}'
        )
        if (turn := record.reason) is not None:
            text += f',"chat":{{"turn":{turn.turn},"decided":{turn.decided},"why":"{turn.why}"}}'
    kind, _, reason = record.instead
    text += f',"reason":{_quote(reason)}' if reason else ""
    text += f',"instead":{_quote(kind)}' if kind else ""
    before = "[]"
    if record.fallbacks:
        before = json.dumps([{"from": one, "to": other, "reason": why} for one, other, why in record.fallbacks])
    text += f',"why":{_quote(record.why or "routed")},"fallbacks":{before}'
    return f'{text},"request_id":{json.dumps(accepted.request_id)}}}'.encode()


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


@lru_cache(maxsize=4096)
def _quote(value: str | None) -> str:
    return json.dumps(value)
