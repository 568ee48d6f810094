"""Stage 5, relay: sends an answer to the client, whole or piece by piece; or an error instead.

Headers and the field `ir3de` of the body report its provenance: which expert answered, and why.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from time import perf_counter

from ir3de_gateway.api_errors import ApiError, ClientDisconnect, build_stopping_error, encode_json
from ir3de_gateway.exchange_record import ExchangeRecord, build_server_timing
from ir3de_gateway.experts.retry import UpstreamFailure
from ir3de_gateway.experts.upstream import as_failure
from ir3de_gateway.headers import HeaderList, encode_name
from ir3de_gateway.requests.json_body import FIELD
from ir3de_gateway.stages.stored_responses import store_response
from ir3de_gateway.stages.values import Accepted, Answered, Relayed
from ir3de_gateway.wire.events import EventRelay

ERROR_CODES = {
    "connect": "upstream_unreachable",
    "garbage": "upstream_invalid",
    "broken": "upstream_broken",
    "deadline": "deadline_exceeded",
}
_UNAVAILABLE = frozenset(("busy", "resting", "cooling", "resources"))  # reasons for which no expert got the request
_RETRY_HEADERS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # kept even if the error itself is not
_JSON: HeaderList = [(b"content-type", b"application/json")]

PROVENANCE_HEADERS = (
    "x-ir3de-expert", "x-ir3de-decided", "x-ir3de-model", "x-ir3de-confidence", "x-ir3de-expected-score",
    "x-ir3de-margin", "x-ir3de-router", "x-ir3de-route-us", "x-ir3de-consulted", "x-ir3de-fallbacks",
    "x-ir3de-resends", "x-ir3de-why", "x-ir3de-cache", "age", "x-ir3de-chat", "x-ir3de-switch", "x-ir3de-reason",
    "x-ir3de-instead", "x-ir3de-translated", "x-ir3de-estimated", "x-ir3de-candidate", "x-ir3de-alias", "x-request-id",
)  # fmt: skip


async def relay(answered: Answered) -> Relayed:
    """Send an answer to the client."""
    accepted, record, is_complete = answered.accepted, answered.accepted.progress.record, True
    if record.asked_seconds is not None:  # otherwise no expert got the request
        record.first_seconds = perf_counter() - accepted.clock
    if answered.body is not None:
        headers = add_headers(accepted, answered.headers, answered.hook_seconds)
        await accepted.response.send_whole(answered.status, headers, answered.body)
    else:
        is_complete = await _relay_pieces(answered)
    return Relayed(accepted, answered.session, *((answered.copy, answered.observe) if is_complete else (None, None)))


async def _relay_pieces(answered: Answered) -> bool:
    """Whether the answer came to its end without a failure."""
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
        return False
    except BaseException:
        if attempt is not None:
            attempt.abandon()
        raise
    if attempt is not None:
        attempt.succeed()
    return True


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
                if progress.translation is not None:
                    await store_response(accepted)  # before the client can continue it
                if is_unknown and (response_id := relay.find_response_id()):
                    progress.response_id, is_unknown = response_id, False
                    await accepted.stored_objects.remember("response", response_id, progress.record.expert)
                if accepted.lease is not None and accepted.lease.is_open and relay.has_ended:
                    progress.usage = relay.find_usage() or ({} if source is None else source.find_usage())
                    await accepted.lease.close()  # before the client can notice the end
                await send(ready)
            piece = b"" if source is None else await source.read_piece(last=relay.is_ending)
        rest = relay.flush()
        await store_response(accepted)
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


# provenance --------------------------------------------------------------------------------------------------------


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
        if record.decision is not None and record.decision.consulted:
            found.append((b"x-ir3de-consulted", b"true"))
        if (turn := record.reason) is not None:
            why = b'turn=%d, decided=%d, why="%b"' % (turn.turn, turn.decided, turn.why.encode())
            found.append((b"x-ir3de-chat", why))
        if (switch := record.switch) is not None:
            names = encode_name(switch.before), encode_name(switch.wanted)
            weighed = b'%b; from="%b"; to="%b"; gain=%.6g; price=%.6g'
            found.append((b"x-ir3de-switch", weighed % (switch.outcome.encode(), *names, switch.gain, switch.price)))
    kind, _, reason = record.instead
    if reason:
        found.append((b"x-ir3de-reason", encode_name(reason)))
    if kind:
        found.append((b"x-ir3de-instead", encode_name(kind)))
    if record.why:
        found.append((b"x-ir3de-why", encode_name(record.why)))
    if record.alias:
        found.append((b"x-ir3de-alias", encode_name(record.alias)))
    if (trial := record.trial) is not None:
        found.append((b"x-ir3de-candidate", encode_name(trial.candidate_expert or "")))
    return found


def build_provenance_member(accepted: Accepted) -> bytes:
    """The provenance as a member of a JSON object, because client libraries hide headers; empty if switched off."""
    if "body" not in accepted.snapshot.config.routing.provenance:
        return b""
    record = accepted.progress.record
    text = _format_names(record.expert, record.model, record.router) + f',"decided":{_quote(record.decided)}'
    text += f',"alias":{_quote(record.alias)}' if record.alias else ""
    if record.route_seconds is not None and record.decision is not None:
        confidence = "null" if record.confidence is None else f"{record.confidence:.4f}"
        score = "" if record.expected_score is None else f',"expected_score":{record.expected_score:.4f}'
        margin = "null" if record.margin is None else f"{record.margin:.4f}"
        text += (
            f',"confidence":{confidence}{score},"margin":{margin}'
            f',"abstained":{"true" if record.decision.abstained else "false"}'
            f',"route_us":{record.route_seconds * 1e6:.1f}'
        )
        text += ',"consulted":true' if record.decision.consulted else ""
        if (turn := record.reason) is not None:
            text += f',"chat":{{"turn":{turn.turn},"decided":{turn.decided},"why":"{turn.why}"}}'
        if record.switch is not None:
            text += f',"switch":{json.dumps(record.switch.describe())}'
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
