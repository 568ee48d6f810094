"""The response cache on the way of a request: finds the answer to an equal request."""

from __future__ import annotations

import re
from time import perf_counter

from ir3de_gateway.experts.upstream import UpstreamResponse
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.answer_cache import AnswerCache, CacheControl, CachedAnswer, build_key
from ir3de_gateway.stages.attempt import sign, translate
from ir3de_gateway.stages.call_hooks import show_answer
from ir3de_gateway.stages.charge import build_relay
from ir3de_gateway.stages.relay import build_provenance_member
from ir3de_gateway.stages.values import Answered, Chosen

# headers that experts get as a rule, and on which no answer depends: the client's software, and traces
_is_ignored = re.compile(
    rb"user-agent|idempotency-key|traceparent|tracestate|baggage|x-(?:stainless|b3|datadog|envoy|ot)-.*"
    rb"|x-(?:amzn-trace-id|cloud-trace-context|correlation-id|request-start)"
).fullmatch


async def find_cached(chosen: Chosen) -> tuple[Chosen, Answered | None]:
    """The answer to an equal request; otherwise the request, with the key to cache its answer with."""
    accepted = chosen.accepted
    cache, control = accepted.gateway.get_cache(accepted.snapshot), CacheControl.from_headers(accepted.headers)
    if cache is None or not control.may_store or not _is_cacheable(chosen, cache):
        return chosen, None
    key = _build_key(chosen, cache)
    found = cache.get(key, control.max_age) if control.may_read else None
    record = accepted.progress.record
    record.cache = "miss" if found is None else "hit"
    accepted.gateway.observer.metrics.count_cache(record.cache)
    if found is None:
        return chosen._replace(cache_key=key), None
    record.cache_age = cache.get_age(found)
    return chosen, await _answer_again(chosen, found)


def _is_cacheable(chosen: Chosen, cache: AnswerCache) -> bool:
    """Whether the answer to such a request may be given twice: one that is stored has an id of its own."""
    wire = chosen.accepted.wire
    return wire.capability in cache.config.endpoints and not wire.is_opaque and chosen.body.is_repeatable


def _build_key(chosen: Chosen, cache: AnswerCache) -> bytes:
    """The expert that would answer, and the body that it would get; the path, some headers, and the client's key."""
    accepted, config, expert = chosen.accepted, cache.config, chosen.choice.first
    key = "" if config.shared else accepted.key.name
    parts = (accepted.wire.path, accepted.query.decode("latin-1"), expert.name, key)
    forwarded = compile_header_filter(accepted.snapshot.config.routing.forward_headers)
    named, sessions = compile_header_filter(config.headers), accepted.gateway.session_headers

    def is_compared(name: bytes) -> bool:
        return named.keeps(name) or (forwarded.keeps(name) and name not in sessions and not _is_ignored(name))

    return build_key(parts, accepted.header_list, is_compared, bytes(chosen.body.build(expert)))


async def _answer_again(chosen: Chosen, found: CachedAnswer) -> Answered:
    accepted, expert = chosen.accepted, chosen.choice.first
    progress = accepted.progress
    progress.begin_expert(chosen.choice, expert)
    progress.record.asked_seconds = perf_counter() - accepted.clock
    if accepted.wire.capability in expert.translated:  # the answer is in the client's format, but has a header for it
        translated = await translate(chosen, expert)
        progress.translation = None if isinstance(translated, Answered) else translated
    source = _CachedSource(found)
    answered = Answered(accepted, 200, source.headers, chosen.session)
    if found.is_stream:
        member = build_provenance_member(accepted)
        relay = progress.relay = build_relay(accepted, member, adds_usage=found.adds_usage)
        answered = answered._replace(first=found.content, relay=relay)
    else:
        answered = answered._replace(body=await sign(accepted, found.content, source.content_type, expert))
    return await show_answer(answered, source, expert) if accepted.snapshot.has_after_hooks else answered


class _CachedSource(UpstreamResponse):
    """The head of an answer that was cached."""

    def __init__(self, found: CachedAnswer) -> None:
        self.status, self.resends, self.is_decompressed = 200, 0, False
        self.headers = [(b"content-type", found.kind)]
        self.content_type = found.kind.partition(b";")[0].strip().lower().decode("latin-1")
        self.is_stream = found.is_stream
