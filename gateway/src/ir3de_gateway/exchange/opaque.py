"""Relays an answer that is passed through: as it comes, or whole if it tells of stored objects or tokens."""

from __future__ import annotations

from time import perf_counter

from ir3de_gateway.api_errors import encode_json
from ir3de_gateway.exchange.accounting import build_retrieval_watch, settle_retrieved
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.relaying import note_refusal, relay_unparsed
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamFailure, UpstreamResponse, parse_object
from ir3de_gateway.wire.event_relay import find_usage
from ir3de_gateway.wire.passthrough import PassthroughFormat

MAX_PARSED_BYTES = 8 << 20  # of a list of objects
_TAIL_BYTES = 1 << 13  # in which it is


async def relay_opaque(exchange: Exchange, answer: UpstreamResponse, expert: Expert) -> None:
    """An answer of any kind."""
    if answer.status >= 400:
        note_refusal(exchange, answer, expert)
    is_json = answer.content_type in ("application/json", "text/json")
    body = await answer.read_whole() if is_json else None
    if body is None:
        watch = build_retrieval_watch(exchange) if answer.is_stream and _retrieves(exchange) else None
        await relay_unparsed(exchange, answer, expert, watch)
        return
    if answer.status < 300:
        body = _note_content(exchange, body, expert)
    exchange.body = None
    expert.breaker.record_beginning(exchange.ticket)
    exchange.record.first_seconds = perf_counter() - exchange.clock
    await exchange.response.send_whole(answer.status, exchange.build_headers(answer), body)


def _retrieves(exchange: Exchange) -> bool:
    """Whether the answer is a stored response, which may have to be charged."""
    wire = exchange.wire
    assert isinstance(wire, PassthroughFormat)
    return exchange.lease is not None and wire.finds == "response"


def _note_content(exchange: Exchange, body: bytes, expert: Expert) -> bytes:
    """Remember who has the objects that an answer tells of, and what it cost. Lists are of the key's own objects."""
    wire = exchange.wire
    assert isinstance(wire, PassthroughFormat)
    if wire.counts_usage:
        exchange.usage = find_usage(body[-_TAIL_BYTES:]) or {}
    if _retrieves(exchange) and (found := parse_object(body)) is not None:
        settle_retrieved(exchange, found)
    if wire.makes is None:
        return body
    content = parse_object(body) if len(body) <= MAX_PARSED_BYTES else None
    if content is None:
        raise UpstreamFailure("garbage", f"'{expert.name}' did not answer with a JSON object, or with a very large one")
    objects = exchange.stored_objects
    if not isinstance(content.get("data"), list):
        objects.remember_answer(wire.makes, content, expert.name)
        return body
    if not exchange.key.name:
        for one in content["data"]:
            if isinstance(one, dict):
                objects.remember_answer(wire.makes, one, expert.name)
        return body
    return encode_json(objects.keep_own(wire.makes, content))
