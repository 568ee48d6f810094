"""Stage 5, relay: sends an answer to the client, whole or piece by piece, with provenance; or an error instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from ir3de_gateway.api_errors import ApiError, ClientDisconnect, build_stopping_error, encode_json
from ir3de_gateway.experts.retry import UpstreamFailure
from ir3de_gateway.experts.upstream import as_failure
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.stages.provenance import add_headers
from ir3de_gateway.wire.event_relay import EventRelay

if TYPE_CHECKING:
    from ir3de_gateway.stages.accept import Accepted
    from ir3de_gateway.stages.ask import Answered
    from ir3de_gateway.stages.cache import AnswerCopy
    from ir3de_gateway.stages.hooked import Observe

ERROR_CODES = {
    "connect": "upstream_unreachable",
    "garbage": "upstream_invalid",
    "broken": "upstream_broken",
    "deadline": "deadline_exceeded",
}
_UNAVAILABLE = frozenset(("busy", "resting", "cooling", "resources"))  # reasons for which no expert got the request
_RETRY_HEADERS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # kept even if the error itself is not
_JSON: HeaderList = [(b"content-type", b"application/json")]


class Relayed(NamedTuple):
    """The client has its answer."""

    accepted: Accepted
    session: str
    copy: AnswerCopy | None
    observe: Observe | None


async def relay(answered: Answered) -> Relayed:
    """Send an answer to the client."""
    accepted, record = answered.accepted, answered.accepted.progress.record
    if record.asked_seconds is not None:  # otherwise no expert got the request
        record.first_seconds = perf_counter() - accepted.clock
    if answered.body is not None:
        headers = add_headers(accepted, answered.headers, answered.hook_seconds)
        await accepted.response.send_whole(answered.status, headers, answered.body)
    else:
        await _relay_pieces(answered)
    return Relayed(accepted, answered.session, answered.copy, answered.observe)


async def _relay_pieces(answered: Answered) -> None:
    accepted, attempt = answered.accepted, answered.attempt
    progress, response = accepted.progress, accepted.response
    try:
        if attempt is not None:
            response.stall_limit = attempt.expert.config.timeouts.idle
        await response.start(answered.status, add_headers(accepted, answered.headers))
        await response.end(await read_pieces(answered, response.send_piece))
    except (UpstreamFailure, OSError) as error:  # of the expert: one of the client is a ClientDisconnect
        assert attempt is not None
        if progress.is_complete:
            attempt.succeed()
            await response.end()
        else:
            failure = as_failure(error, attempt.expert).drop_frames()
            attempt.fail(failure)
            await _end_broken(accepted, failure)
    except BaseException:
        if attempt is not None:
            attempt.abandon()
        raise
    else:
        if attempt is not None:
            attempt.succeed()


async def read_pieces(answered: Answered, send: Callable[[bytes], Awaitable[None]]) -> bytes:
    """Read an answer piece by piece, and send each of them on; the rest, with which the answer ends, is returned."""
    accepted, source, relay, copy = answered.accepted, answered.source, answered.relay, answered.copy
    progress, piece = accepted.progress, answered.first
    if relay is None:
        while piece:
            if answered.watch is not None:
                answered.watch(piece)
            await send(piece)
            piece = b"" if source is None else await source.read_piece()
        return b""
    is_unknown = accepted.wire.stores_answers  # others may request it before it is complete, or cancel it
    try:
        while piece:
            if copy is not None:
                copy.add(piece)
            if ready := relay.feed(piece):
                if is_unknown and (response_id := relay.find_response_id()):
                    progress.response_id, is_unknown = response_id, False
                    accepted.stored_objects.remember("response", response_id, progress.record.expert)
                await send(ready)
            piece = b"" if source is None else await source.read_piece(last=relay.is_ending)
        rest = relay.flush()
        if relay.has_error:  # the client has it from the expert itself
            progress.record.outcome, progress.record.error = "broken_stream", "upstream_error"
        elif not relay.is_done_at_end:
            raise UpstreamFailure("broken", f"'{progress.record.expert}' ended its stream in the middle")
        return rest
    finally:
        progress.usage = relay.find_usage() or ({} if source is None else source.find_usage())
        if accepted.trace is not None:
            accepted.trace.read_events(relay.head, relay.tail)


async def _end_broken(accepted: Accepted, failure: UpstreamFailure) -> None:
    """End a broken stream with an error event. Other answers are cut off, so that they do not look complete."""
    progress = accepted.progress
    problem = ApiError(failure.status, failure.message, ERROR_CODES.get(failure.reason, ""))
    progress.record.outcome, progress.record.error = "broken_stream", problem.code
    if progress.relay is None:
        raise ClientDisconnect from failure
    await _close_stream(accepted, progress.relay, problem)


async def _close_stream(accepted: Accepted, relay: EventRelay, problem: ApiError) -> None:
    """End a stream that is not complete with an error event, unless the expert has sent one itself."""
    event = b"" if relay.has_error else relay.build_closing(accepted.wire.build_error_event(problem))
    await accepted.response.end(event)


# errors instead of an answer -----------------------------------------------------------------------------------------


async def send_error(accepted: Accepted, problem: ApiError, *more: tuple[bytes, bytes], is_early: bool = False) -> None:
    """An error instead of an answer; `is_early`: the rest of the request may still be on its way."""
    accepted.progress.record.error = problem.code
    headers = [*add_headers(accepted, [*_JSON, *problem.header_list()]), *more]
    body = encode_json(accepted.wire.build_error(problem))
    if is_early:
        await accepted.response.send_early(problem.status, headers, body, accepted.receive)
    else:
        await accepted.response.send_whole(problem.status, headers, body)


async def send_failure(accepted: Accepted, failure: UpstreamFailure) -> None:
    """No expert answered: send the error of the last one, or describe what happened to it."""
    record = accepted.progress.record
    record.outcome = "unavailable" if failure.reason in _UNAVAILABLE else "upstream_error"
    if failure.body is not None:
        record.error = f"upstream_{failure.status}"
        await accepted.response.send_whole(failure.status, add_headers(accepted, failure.headers), failure.body)
        return
    problem = ApiError(failure.status, failure.message, ERROR_CODES.get(failure.reason, ""))
    problem.retry_after = failure.retry_after
    await send_error(accepted, problem, *(pair for pair in failure.headers if pair[0].startswith(_RETRY_HEADERS)))


async def send_stop(accepted: Accepted) -> None:
    """The gateway stops, and the client has no answer yet, or only a part of one."""
    problem, progress, response = build_stopping_error(), accepted.progress, accepted.response
    with suppress(ClientDisconnect):
        if not response.status:
            await send_error(accepted, problem)
        elif progress.relay is not None and not progress.is_complete and not response.has_ended:
            progress.record.error = problem.code
            await _close_stream(accepted, progress.relay, problem)
