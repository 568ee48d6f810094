"""Stage 4, ask: sends the request to the experts of the choice, one after the other, until an answer begins.

When the next expert gets it, and when an expert gets none for a while, is the rule of `experts/retry`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ir3de_gateway.api_errors import encode_json
from ir3de_gateway.experts.concurrency import ConcurrencyLimit
from ir3de_gateway.experts.retry import RETRYABLE_STATUSES, UpstreamFailure, admit, record_failure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import (
    UpstreamResponse,
    as_failure,
    list_client_headers,
    parse_object,
    read_failure,
    send_request,
)
from ir3de_gateway.headers import HeaderList, compile_header_filter
from ir3de_gateway.requests.forwarding import OutgoingBody, build_head, build_path
from ir3de_gateway.requests.json_body import FIELD, SMALL_BYTES, offload
from ir3de_gateway.stages.accept import Accepted
from ir3de_gateway.stages.call_hooks import Observe, show_answer
from ir3de_gateway.stages.charge import build_relay
from ir3de_gateway.stages.choose import Chosen
from ir3de_gateway.stages.read import count_tokens
from ir3de_gateway.stages.relay import build_provenance_member
from ir3de_gateway.translation import UntranslatableError
from ir3de_gateway.translation.translation import TRANSLATIONS, TranslatedResponse, Translation
from ir3de_gateway.wire.events import EventRelay, add_member, remove_member

if TYPE_CHECKING:
    from ir3de_gateway.stages.cache import AnswerCopy

CLOCK_STEP_S = 0.001  # of uvloop: its timers are rounded to it, so they may end a little before their time
SLOW_CLIENT_S = 1.0  # an expert may break off an answer that the client does not read for that long
_log = logging.getLogger("ir3de.gateway")


class Attempt:
    """A request that an expert, or one of its replicas, has. It ends with `succeed`, `fail` or `abandon`."""

    __slots__ = ("_accepted", "expert", "place", "source", "started", "ticket")

    def __init__(self, accepted: Accepted, expert: Expert, ticket: int, started: float) -> None:
        self._accepted, self.expert, self.ticket, self.started = accepted, expert, ticket, started
        self.source: UpstreamResponse | None = None
        self.place: ConcurrencyLimit | None = None  # of all replicas together, to be released at the end
        progress = accepted.progress
        progress.expert, progress.is_sent = expert, True
        progress.record.asked_seconds = started - accepted.clock
        accepted.gateway.observer.request_started(expert.name)

    def succeed(self) -> None:
        self.expert.breaker.record_success(self.ticket)
        self._end()
        if (record := self._accepted.progress.record).replica:
            count_replica(self._accepted, record.replica, has_failed=record.outcome == "broken_stream")

    def abandon(self) -> None:
        """The request ended before the expert could answer, which is not its fault."""
        self.expert.breaker.record_abandoned(self.ticket)
        self._end()

    def fail(self, failure: UpstreamFailure, deadline: float = inf, digest: int = 0) -> None:
        note_failure(self._accepted, self.expert, failure, self.ticket, perf_counter() - self.started, deadline, digest)
        self._end()
        if label := self._accepted.progress.record.replica:
            count_replica(self._accepted, label, has_failed=True)

    def _end(self) -> None:
        if self.source is not None:
            self.source.close()
        self._accepted.progress.record.upstream_seconds = perf_counter() - self.started
        self.expert.leave()
        if self.place is not None:
            self.place.release()
        self._accepted.gateway.observer.request_ended(self.expert.name)


def count_replica(accepted: Accepted, label: str, *, has_failed: bool) -> None:
    """Count a request to a replica."""
    name, counted = accepted.progress.record.expert, accepted.gateway.observer.metrics.replicas.requests
    counted[name, label, "failed" if has_failed else "ok"] += 1


class Answered(NamedTuple):
    """An answer that has begun, of which nothing was sent yet. The attempt of a whole one has ended."""

    accepted: Accepted
    status: int
    headers: HeaderList  # of the expert, as far as clients get them
    session: str = ""  # to pin to the expert
    body: bytes | None = None  # of a whole answer; None for one that is relayed piece by piece:
    first: bytes = b""  # its first piece
    source: UpstreamResponse | None = None  # for the other pieces; None if there are none
    attempt: Attempt | None = None
    relay: EventRelay | None = None  # of a stream of events
    watch: Callable[[bytes], None] | None = None  # called with each piece before it is sent
    copy: AnswerCopy | None = None
    hook_seconds: float = 0.0
    observe: Observe | None = None  # called when the client has its answer


Outcome = Answered | UpstreamFailure


async def ask(chosen: Chosen) -> Outcome:
    """Send the request to the first expert, and if that fails before its answer begins, to its fallbacks."""
    accepted, choice = chosen.accepted, chosen.choice
    if accepted.snapshot.caches_answers:
        from ir3de_gateway.stages.cache import find_cached

        chosen, answered = await find_cached(chosen)
        if answered is not None:
            return answered
    if (seconds := accepted.snapshot.config.routing.deadline) is not None:
        now = asyncio.get_running_loop().time()
        chosen = chosen._replace(deadline=now + seconds - (perf_counter() - accepted.clock))
    found = await _ask_expert(chosen, choice.first)
    if not isinstance(found, UpstreamFailure):
        return found
    record = accepted.progress.record
    for expert in choice.list_fallbacks():
        if is_overdue(chosen.deadline):
            break
        record.fallbacks.append((record.expert, expert.name, found.reason))
        record.replica, record.retries = "", 0  # those were of the expert before
        found = await _ask_expert(chosen, expert)
        if not isinstance(found, UpstreamFailure):
            return found
    if is_overdue(chosen.deadline):
        found = UpstreamFailure("deadline", f"no answer has begun within {seconds:g} s", 504)
    if record.fallbacks:
        found.message += f". Tried before: {', '.join(f'{name} ({reason})' for name, _, reason in record.fallbacks)}"
    if choice.refusal is not None and choice.refusal.text:
        found.message += f". {choice.decided} was chosen: {choice.refusal.text}"
    return found


async def _ask_expert(chosen: Chosen, expert: Expert) -> Outcome:
    """Send the request to one expert, or to one of its replicas."""
    accepted = chosen.accepted
    progress = accepted.progress
    progress.begin_expert(chosen.choice, expert)
    if accepted.wire.capability in expert.translated:
        translated = await translate(chosen, expert)
        if isinstance(translated, Answered):
            return translated
        progress.translation = translated
    if expert.replicas:
        from ir3de_gateway.stages.ask_replicas import ask_replicas

        return await ask_replicas(chosen, expert)
    arrived = perf_counter()
    try:
        ticket = await admit(expert, chosen.deadline)
    except UpstreamFailure as failure:
        return failure.drop_frames()
    started = perf_counter()
    progress.record.queue_seconds = started - arrived
    return await attempt(chosen, expert, ticket, started)


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
        from ir3de_gateway.stages.passthrough import begin_opaque

        answered = await begin_opaque(chosen, tried, source)
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
        return await begin_unread(chosen, tried, source)
    headers = list_client_headers(source)
    copy = None
    if status == 200:
        if chosen.cache_key:
            copy = copy_answer(chosen, source)
            copy.add(body)
        body = sign(accepted, body, source.content_type, tried.expert)
    elif status >= 400:
        note_rejection(accepted, status, tried.expert)
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
    relay = accepted.progress.relay = build_relay(
        accepted, build_provenance_member(accepted), source, adds_usage=is_added
    )
    copy = copy_answer(chosen, source, adds_usage=is_added) if chosen.cache_key else None
    headers = list_client_headers(source)
    return Answered(
        accepted, source.status, headers, chosen.session, None, first, source, tried, relay=relay, copy=copy
    )


async def begin_unread(
    chosen: Chosen, tried: Attempt, source: UpstreamResponse, watch: Callable[[bytes], None] | None = None
) -> Answered:
    """An answer that is relayed as it comes; `watch` is called with each piece before it is sent."""
    first = await source.read_first_piece()
    headers = list_client_headers(source)
    return Answered(chosen.accepted, source.status, headers, chosen.session, None, first, source, tried, watch=watch)


def copy_answer(chosen: Chosen, source: UpstreamResponse, *, adds_usage: bool = False) -> AnswerCopy:
    from ir3de_gateway.stages.cache import AnswerCopy

    return AnswerCopy(chosen, source, adds_usage=adds_usage)


def sign(accepted: Accepted, body: bytes, content_type: str, expert: Expert) -> bytes:
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
        accepted.stored_objects.remember("response", response_id, expert.name)
    progress.answer_bytes = len(body)
    if accepted.trace is not None:
        accepted.trace.read_answer(content)
    if not (member := build_provenance_member(accepted)):
        return body
    if FIELD in content or not content:
        return add_member(remove_member(body, FIELD), member)
    end = body.rindex(b"}")
    return b"".join((body[:end], b",", member, body[end:]))


def note_rejection(accepted: Accepted, status: int, expert: Expert) -> None:
    """The expert rejects the request, which the client must correct, or the operator if it is about the key."""
    if status == 401 and expert.should_warn():
        variable = expert.config.api_key_env or "none"
        _log.warning("'%s' rejects the gateway's key (api_key_env: %s)", expert.name, variable)
    record = accepted.progress.record
    record.outcome, record.error = "client_error", f"upstream_{status}"


def is_overdue(deadline: float) -> bool:
    """Whether an answer should have begun by now."""
    return deadline < inf and asyncio.get_running_loop().time() + CLOCK_STEP_S >= deadline


def note_failure(
    accepted: Accepted,
    expert: Expert,
    failure: UpstreamFailure,
    ticket: int,
    seconds: float,
    deadline: float,
    digest: int,
) -> None:
    """Let the failure act on the expert's circuit breaker. That the whole request took too long is not its fault."""
    if failure.status == 504 and is_overdue(deadline):
        failure.is_expert_fault = False
    if accepted.trace is not None:
        error = f"upstream_{failure.status}" if failure.reason in ("408", "429", "5xx") else failure.reason
        accepted.trace.add_failure(accepted.progress.record, expert.config, error, seconds)
    response = accepted.response
    has_begun, is_client_slow = response.status != 0, response.longest_stall >= SLOW_CLIENT_S
    record_failure(
        expert, failure, ticket, request=digest, seconds=seconds, has_begun=has_begun, is_client_slow=is_client_slow
    )


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
    if isinstance(found, Translation):
        return found
    answer = add_member(encode_json({"input_tokens": found}), build_provenance_member(accepted))
    headers = [(b"content-type", b"application/json"), (b"x-ir3de-estimated", b"true")]
    return Answered(accepted, 200, headers, chosen.session, answer)
