"""One attempt of stage 4, ask: sends the request to one expert or replica, and waits until its answer begins."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping

from ir3de_gateway.api_errors import encode_json
from ir3de_gateway.experts.retry import RETRYABLE_STATUSES, UpstreamFailure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import (
    UpstreamResponse,
    as_failure,
    list_client_headers,
    parse_object,
    read_failure,
    send_request,
)
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.forwarding import OutgoingBody, build_head, build_path
from ir3de_gateway.requests.json_body import FIELD, SMALL_BYTES, offload
from ir3de_gateway.stages.call_hooks import show_answer
from ir3de_gateway.stages.charge import build_relay, build_retrieval_watch, settle_retrieved
from ir3de_gateway.stages.read import count_tokens
from ir3de_gateway.stages.relay import build_provenance_member
from ir3de_gateway.stages.stored_responses import may_store, store_response
from ir3de_gateway.stages.values import Accepted, AnswerCopy, Answered, Attempt, Chosen, Outcome
from ir3de_gateway.translation import UntranslatableError
from ir3de_gateway.translation.translation import TRANSLATIONS, ResponsesByChat, TranslatedResponse, Translation
from ir3de_gateway.wire.answer_facts import read_answer_id
from ir3de_gateway.wire.events import add_member, find_usage, remove_member
from ir3de_gateway.wire.formats import PassthroughFormat

MAX_PARSED_BYTES = 8 << 20  # of a list of objects
_TAIL_BYTES = 1 << 13  # of an answer, with its usage
_log = logging.getLogger("ir3de.gateway")


async def attempt(
    chosen: Chosen, expert: Expert, ticket: int, started: float, source: UpstreamResponse | None = None
) -> Outcome:
    """Send the request to one expert or replica that has admitted it, and wait until its answer begins.

    `source` is its answer, if that has come already.
    """
    accepted = chosen.accepted
    tried = Attempt(accepted, expert, ticket, started)
    try:
        tried.source = source = source or await send(chosen, expert)
        answered = await _begin(chosen, tried, source)
    except (UpstreamFailure, OSError) as error:
        failure = as_failure(error, expert).drop_frames()
        tried.fail(failure, chosen.deadline, chosen.body.digest)
        accepted.progress.is_sent = False
        return failure
    except BaseException:
        tried.abandon()
        raise
    if answered.body is not None:
        tried.succeed()
    return answered


def send(chosen: Chosen, expert: Expert) -> Awaitable[UpstreamResponse]:
    """Send the request as this expert gets it."""
    accepted, body = chosen.accepted, chosen.body
    more: Mapping[str, str] = {} if accepted.trace is None else accepted.trace.forward()
    forwarded = compile_header_filter(accepted.snapshot.config.routing.forward_headers)
    wire, path = accepted.wire, accepted.wire.path
    if (translation := accepted.progress.translation) is not None:
        wire, path, more = translation.wire, translation.wire.path, {**more, **translation.headers}
    elif accepted.query:
        path = build_path(path, accepted.query)
    head = build_head(wire, expert, accepted.header_list, accepted.request_id, more, forwarded, body.kinds)
    return send_request(
        accepted.gateway.transport,
        expert,
        path,
        head,
        body.build(expert, adds_usage=adds_usage(chosen, expert)) if translation is None else translation.content,
        is_repeatable=body.is_repeatable,
        method=accepted.wire.method,
        deadline=chosen.deadline,
    )


def adds_usage(chosen: Chosen, expert: Expert) -> bool:
    """Whether the gateway adds the option for the usage of a stream, which the client has not set."""
    body, wanted = chosen.body, expert.config.stream_usage
    if not isinstance(body, OutgoingBody) or body.usage_options is None or "stream_options" in expert.config.defaults:
        return False
    if chosen.accepted.progress.translation is not None:
        return False
    return expert.asks_usage or (chosen.accepted.lease is not None and wanted is not False)


async def _begin(chosen: Chosen, tried: Attempt, source: UpstreamResponse) -> Answered:
    """The answer in the client's format, as far as it must be known before anything is sent."""
    accepted, expert, status = chosen.accepted, tried.expert, source.status
    progress = accepted.progress
    if accepted.trace is not None:
        accepted.trace.begin_answer(source.headers)
    if progress.translation is not None:
        source = TranslatedResponse(source, progress.translation, accepted.wire, expert.name)
    if source.resends:
        progress.record.resends += source.resends
        accepted.gateway.observer.metrics.resends[expert.name] += source.resends
    if status in RETRYABLE_STATUSES:
        raise await read_failure(source, expert)
    if 300 <= status < 400:
        raise UpstreamFailure("garbage", f"'{expert.name}' redirects to another address: correct its base_url")
    if accepted.wire.is_opaque:
        answered = await _begin_opaque(chosen, tried, source)
    elif source.is_stream:
        answered = await _begin_stream(chosen, tried, source)
    else:
        answered = await _begin_whole(chosen, tried, source)
    expert.breaker.record_beginning(tried.ticket)
    if accepted.snapshot.has_after_hooks:
        answered = await show_answer(answered, source, expert)
    return answered


async def _begin_whole(chosen: Chosen, tried: Attempt, source: UpstreamResponse) -> Answered:
    """A whole answer. One that is too large to be held is relayed piece by piece."""
    accepted, status = chosen.accepted, source.status
    body = await source.read_whole()
    if body is None:
        return await _begin_unread(chosen, tried, source)
    headers = list_client_headers(source)
    copy = None
    if status == 200:
        if chosen.cache_key:
            copy = AnswerCopy(chosen, source, adds_usage=False)
            copy.add(body)
        body = await sign(accepted, body, source.content_type, tried.expert)
    elif status >= 400:
        _note_rejection(accepted, status, tried.expert)
    return Answered(accepted, status, headers, chosen.session, body, copy=copy)


async def _begin_stream(chosen: Chosen, tried: Attempt, source: UpstreamResponse) -> Answered:
    """A stream of events, of which the first piece has come."""
    accepted, expert = chosen.accepted, tried.expert
    if not accepted.progress.record.stream and "stream" not in expert.config.defaults:
        raise UpstreamFailure("garbage", f"'{expert.name}' answered with a stream of events instead of a whole answer")
    first = await source.read_first_piece()
    if not first:
        raise UpstreamFailure("broken", f"'{expert.name}' ended its stream before it began")
    is_added = adds_usage(chosen, expert)
    member = build_provenance_member(accepted)
    relay = accepted.progress.relay = build_relay(accepted, member, adds_usage=is_added)
    copy = AnswerCopy(chosen, source, adds_usage=is_added) if chosen.cache_key else None
    headers = list_client_headers(source)
    return Answered(
        accepted, source.status, headers, chosen.session, None, first, source, tried, relay=relay, copy=copy
    )


async def _begin_unread(
    chosen: Chosen, tried: Attempt, source: UpstreamResponse, watch: Callable[[bytes], None] | None = None
) -> Answered:
    """An answer that is relayed as it comes; `watch` is called with each piece before it is sent."""
    first = await source.read_first_piece()
    headers = list_client_headers(source)
    return Answered(chosen.accepted, source.status, headers, chosen.session, None, first, source, tried, watch=watch)


async def _begin_opaque(chosen: Chosen, tried: Attempt, source: UpstreamResponse) -> Answered:
    """An answer of any kind: as it comes, or whole if it reports stored objects or tokens."""
    accepted = chosen.accepted
    if source.status >= 400:
        _note_rejection(accepted, source.status, tried.expert)
    is_json = source.content_type in ("application/json", "text/json")
    body = await source.read_whole() if is_json else None
    if body is None:
        watch = build_retrieval_watch(accepted) if source.is_stream and _retrieves(accepted) else None
        return await _begin_unread(chosen, tried, source, watch)
    if source.status < 300:
        body = await _note_content(accepted, body, tried.expert)
    headers = list_client_headers(source)
    return Answered(accepted, source.status, headers, body=body)


def _retrieves(accepted: Accepted) -> bool:
    """Whether the answer is a stored response, which may have to be charged."""
    wire = accepted.wire
    assert isinstance(wire, PassthroughFormat)
    return accepted.lease is not None and wire.finds == "response"


async def _note_content(accepted: Accepted, body: bytes, expert: Expert) -> bytes:
    """Remember the owner of the objects that an answer lists, and its usage. Lists are of the key's own objects."""
    wire = accepted.wire
    assert isinstance(wire, PassthroughFormat)
    if wire.counts_usage:
        accepted.progress.usage = find_usage(body[-_TAIL_BYTES:]) or {}
    if _retrieves(accepted) and (found := parse_object(body)) is not None:
        settle_retrieved(accepted, found)
    if wire.makes is None:
        return body
    content = parse_object(body) if len(body) <= MAX_PARSED_BYTES else None
    if content is None:
        raise UpstreamFailure("garbage", f"'{expert.name}' did not answer with a JSON object, or with a very large one")
    objects = accepted.stored_objects
    if not isinstance(content.get("data"), list):
        await objects.remember_answer(wire.makes, content, expert.name)
        return body
    if not accepted.key.name:
        for one in content["data"]:
            if isinstance(one, dict):
                await objects.remember_answer(wire.makes, one, expert.name)
        return body
    return encode_json(await objects.keep_own(wire.makes, content))


async def sign(accepted: Accepted, body: bytes, content_type: str, expert: Expert) -> bytes:
    """A whole answer with provenance; its usage and id are recorded. A provenance of the expert's own is removed."""
    progress, wire = accepted.progress, accepted.wire
    content, kind = parse_object(body), content_type or "something"
    if content is None:
        raise UpstreamFailure("garbage", f"'{expert.name}' answered with {kind} that is not a JSON object")
    if progress.record.stream:  # it cannot stream, which is not a failure
        message = f"'{expert.name}' answered with {kind} instead of a stream of events"
        raise UpstreamFailure("garbage", message, is_expert_fault=False)
    progress.usage = usage if isinstance(usage := content.get("usage"), dict) else {}
    if wire.stores_answers and (response_id := wire.read_response_id(content)):
        progress.response_id = response_id
        await accepted.stored_objects.remember("response", response_id, expert.name)
        await store_response(accepted)
    elif accepted.snapshot.keeps_journal:
        progress.record.response_id = read_answer_id(content)
    progress.answer_bytes = len(body)
    if accepted.trace is not None:
        accepted.trace.read_answer(content)
    if not (member := build_provenance_member(accepted)):
        return body
    if FIELD in content or not content:
        return add_member(remove_member(body, FIELD), member)
    end = body.rindex(b"}")
    return b"".join((body[:end], b",", member, body[end:]))


def _note_rejection(accepted: Accepted, status: int, expert: Expert) -> None:
    """The expert rejects the request, which the client must correct, or the operator if it is about the key."""
    if status == 401 and expert.should_warn():
        variable = expert.config.api_key_env or "none"
        _log.warning("'%s' rejects the gateway's key (api_key_env: %s)", expert.name, variable)
    record = accepted.progress.record
    record.outcome, record.error = "client_error", f"upstream_{status}"


async def translate(chosen: Chosen, expert: Expert) -> Translation | Answered:
    """The request for an expert of the other format; or an estimate of its tokens, which OpenAI's API cannot count."""
    accepted, body = chosen.accepted, chosen.body
    assert isinstance(body, OutgoingBody)
    content, translation = body.body.content, TRANSLATIONS.get(accepted.wire.path)

    def work(content: bytes) -> Translation | int:
        values = json.loads(content)
        return count_tokens(values) if translation is None else translation(values, expert.config)

    try:
        found = work(content) if len(content) <= SMALL_BYTES else await offload(work, content)
    except UntranslatableError as error:
        experts, capability = accepted.snapshot.experts.values(), accepted.wire.capability
        able = [one.name for one in experts if capability in one.config.capabilities]
        error.message += f". These experts need no translation: {', '.join(able)}" if able else ""
        raise
    if isinstance(found, ResponsesByChat):
        found.prepare(accepted.progress.continued, may_store=may_store(accepted))
    if isinstance(found, Translation):
        return found
    answer = add_member(encode_json({"input_tokens": found}), build_provenance_member(accepted))
    headers = [(b"content-type", b"application/json"), (b"x-ir3de-estimated", b"true")]
    return Answered(accepted, 200, headers, chosen.session, answer)
