"""The response cache: an answer that was given before is relayed as if its expert gave it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy
from time import perf_counter
from typing import Any

from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange.hooked import relay_hooked
from ir3de_gateway.exchange.preparing import prepare_translation
from ir3de_gateway.exchange.relaying import relay_stream, relay_whole
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.experts.upstream import UpstreamResponse
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.answer_cache import AnswerCache, KeptAnswer, build_key, read_wishes
from ir3de_gateway.requests.choice import Choice

# headers that experts get as a rule, and on which no answer depends: who asks with what, and traces
_is_ignored = re.compile(
    rb"user-agent|idempotency-key|traceparent|tracestate|baggage|x-(?:stainless|b3|datadog|envoy|ot)-.*"
    rb"|x-(?:amzn-trace-id|cloud-trace-context|correlation-id|request-start)"
).fullmatch


async def answer_from_cache(exchange: Exchange, choice: Choice) -> bool:
    """Whether an equal request was answered before, and the client has that answer now."""
    cache, wishes = exchange.gateway.get_cache(exchange.snapshot), read_wishes(exchange.received)
    if cache is None or not wishes.may_keep or not _is_repeatable(exchange, cache):
        return False
    key = _build_key(exchange, choice, cache)
    found = cache.get(key, wishes.max_age) if wishes.may_take else None
    exchange.record.cache = "miss" if found is None else "hit"
    exchange.gateway.observer.metrics.count_cache(exchange.record.cache)
    if found is None:
        exchange.cache_key = key
        return False
    await _relay_again(exchange, choice, cache, found)
    return True


def _is_repeatable(exchange: Exchange, cache: AnswerCache) -> bool:
    """Whether the answer to such a request may be given twice: one that is stored has an id of its own."""
    is_kept = exchange.wire.capability in cache.config.endpoints and not exchange.wire.is_opaque
    return is_kept and exchange.body is not None and exchange.body.is_repeatable


def _build_key(exchange: Exchange, choice: Choice, cache: AnswerCache) -> bytes:
    """The expert that would answer, and what it would get; the path, some headers, and who asks."""
    assert exchange.body is not None
    config, expert = cache.config, choice.first
    who = "" if config.shared else exchange.key.name
    parts = (exchange.wire.path, exchange.query.decode("latin-1"), expert.name, who)
    body = exchange.body.build(expert)
    forwarded = compile_header_filter(exchange.snapshot.config.routing.forward_headers)
    named, sessions = compile_header_filter(config.headers), exchange.gateway.session_headers

    def is_compared(name: bytes) -> bool:
        return named.keeps(name) or (forwarded.keeps(name) and name not in sessions and not _is_ignored(name))

    return build_key(parts, exchange.all_received, is_compared, bytes(body))


async def _relay_again(exchange: Exchange, choice: Choice, cache: AnswerCache, found: KeptAnswer) -> None:
    expert = exchange.expert = choice.first
    record = exchange.record
    record.expert, record.model = expert.name, expert.config.served_model
    record.cache_age = cache.get_age(found)
    record.asked_seconds = perf_counter() - exchange.clock
    exchange.adds_usage = found.adds_usage
    if exchange.wire.capability in expert.translated:  # the answer is the client's already, but its headers say so
        await prepare_translation(exchange, expert)
    unasked = copy(expert)  # it says nothing about the expert's health
    unasked.breaker = CircuitBreaker(**expert.config.breaker.model_dump())
    answer, relay = AgainResponse(found), relay_stream if found.is_stream else relay_whole
    if exchange.snapshot.has_after_hooks:
        await relay_hooked(exchange, answer, unasked, relay)
    else:
        await relay(exchange, answer, unasked)


class AgainResponse(UpstreamResponse):
    """An answer that was kept, as if it came now."""

    def __init__(self, kept: KeptAnswer) -> None:
        self.status, self.resends, self.is_decompressed = 200, 0, False
        self.headers = [(b"content-type", kept.kind)]
        self.content_type = kept.kind.partition(b";")[0].strip().lower().decode("latin-1")
        self.is_stream = kept.is_stream
        self._content = kept.content

    def find_usage(self) -> Mapping[str, Any]:
        return {}

    async def read_whole(self) -> bytes | None:
        return self._content

    async def read_first_piece(self) -> bytes:
        return await self.read_piece()

    async def read_piece(self, *, last: bool = False) -> bytes:
        content, self._content = self._content, b""
        return content


class CopiedResponse(UpstreamResponse):
    """An answer whose content is copied while it is relayed, to be kept when it is complete."""

    def __init__(self, inner: UpstreamResponse, exchange: Exchange, most_bytes: int) -> None:
        self._inner, self._exchange, self._most_bytes = inner, exchange, most_bytes
        self.status, self.resends, self.is_decompressed = inner.status, inner.resends, inner.is_decompressed
        self.headers, self.content_type, self.is_stream = inner.headers, inner.content_type, inner.is_stream
        self._pieces: list[bytes] | None = []  # None if there is too much
        self._size = 0

    def find_usage(self) -> Mapping[str, Any]:
        return self._inner.find_usage()

    async def read_whole(self) -> bytes | None:
        return self._copy(await self._inner.read_whole())

    async def read_first_piece(self) -> bytes:
        return self._copy(await self._inner.read_first_piece()) or b""

    async def read_piece(self, *, last: bool = False) -> bytes:
        return self._copy(await self._inner.read_piece(last=last)) or b""

    def _copy(self, piece: bytes | None) -> bytes | None:
        self._size += len(piece or b"")
        if piece is None or self._size > self._most_bytes:
            self._pieces = None
        elif self._pieces is not None:
            self._pieces.append(piece)
        return piece

    def keep(self) -> None:
        """Keep the answer, which is complete, if it was the first choice's and a good one."""
        exchange = self._exchange
        cache = exchange.gateway.get_cache(exchange.snapshot)
        is_good = exchange.record.outcome == "ok" and self.status == 200 and not exchange.record.fallbacks
        if cache is None or self._pieces is None or not is_good:
            return
        content, kind = b"".join(self._pieces), dict(self.headers).get(b"content-type", b"application/json")
        kept = KeptAnswer(content, kind, self.is_stream, exchange.adds_usage, cache.clock())
        cache.put(exchange.cache_key, kept)
