"""The request path: read the request, choose experts, ask them in turn until one answers, relay the answer."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from itertools import chain
from time import perf_counter
from typing import Any
from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from ir3de.gateway.api_errors import ApiError, ClientDisconnect, build_internal_error, build_type_error
from ir3de.gateway.config.models import RESERVED
from ir3de.gateway.exchange_record import ExchangeRecord
from ir3de.gateway.experts.concurrency import LimitReached
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.experts.upstream import RETRYABLE_STATUSES, UpstreamFailure, UpstreamRequest, UpstreamResponse
from ir3de.gateway.gateway import Gateway
from ir3de.gateway.headers import HeaderList, build_upstream_head, filter_response_headers
from ir3de.gateway.requests.choice import Choice, build_response_pin, choose, route_prompt
from ir3de.gateway.requests.client import DisconnectWatcher, find_connection, read_body
from ir3de.gateway.requests.controls import FIELD, Controls, read_controls
from ir3de.gateway.requests.json_body import JsonBody
from ir3de.gateway.requests.prompt import Endpoint, read_prompt
from ir3de.gateway.responses.client_response import ClientResponse
from ir3de.gateway.responses.event_stream import EventRelay, add_member
from ir3de.gateway.responses.provenance import build_provenance_member

LONG_PROMPT_CHARS = 100_000  # routing these takes 10 ms, so it is done in a thread
_QUERY = "!$&'()*+,-./:;=?@_~%"  # characters of a query that are forwarded unquoted
_RETRY_HEADERS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # kept even if the error itself is not
_log = logging.getLogger("ir3de.gateway")
_WITHOUT_SAMPLING = ("embeddings", "messages/count_tokens")  # endpoints to which an expert's defaults do not apply
_ERROR_CODES = {"connect": "upstream_unreachable", "garbage": "upstream_invalid", "broken": "upstream_broken"}


class InferenceEndpoint:
    """One of OpenAI's endpoints as an ASGI application; experts answer its requests."""

    def __init__(self, gateway: Gateway, endpoint: Endpoint, path: str) -> None:
        self._gateway, self._endpoint, self._path = gateway, endpoint, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = ExchangeRecord(scope["state"]["request_id"], self._endpoint)
        exchange = Exchange(self._gateway, self._endpoint, self._path, scope, record, send)
        try:
            await exchange.run(receive)
        except ClientDisconnect:
            if record.outcome == "ok" and not exchange.is_complete:
                record.outcome, record.status = "cancelled", record.status or 499
        except Exception as error:
            record.outcome = "failed"
            _log.error("request %s failed", record.request_id, exc_info=error)
            if exchange.response.has_begun:
                raise
            await exchange.response.send_error(build_internal_error(record.request_id))
        except BaseException:
            record.outcome, record.status = "cancelled", record.status or 500
            raise
        finally:
            record.total_seconds = perf_counter() - record.clock
            self._gateway.observer.observe(record)
            if exchange.trace is not None:
                exchange.trace.finish(record)


class Exchange:
    """One request and its answer."""

    def __init__(
        self, gateway: Gateway, endpoint: Endpoint, path: str, scope: Scope, record: ExchangeRecord, send: Send
    ) -> None:
        self.gateway, self.endpoint, self.record = gateway, endpoint, record
        self.path = path if not (query := scope["query_string"]) else f"{path}?{quote(query, safe=_QUERY)}"
        self.snapshot: Snapshot = gateway.live.snapshot
        self.received: Mapping[bytes, bytes] = scope["state"]["headers"]
        self.all_received: HeaderList = scope["headers"]
        self.connection = find_connection(scope)
        provenance = self.snapshot.config.routing.provenance
        self.adds_provenance_field = "body" in provenance
        self.response = ClientResponse(send, record, signed="headers" in provenance)
        self.trace = gateway.tracing.begin(self.received) if gateway.tracing is not None else None
        self.relay: EventRelay | None = None
        self.response_id = ""  # of OpenAI's responses: a later request may refer to it

    @property
    def is_complete(self) -> bool:
        """Whether a stream has sent its final event, even if its connection is still open."""
        return self.relay is not None and self.relay.is_done

    async def run(self, receive: Receive) -> None:
        try:
            content = await read_body(receive, self.received, self.snapshot.config.server.limits, self.connection)
        except ApiError as problem:
            self.record.outcome = "client_error"
            await self.response.send_early_error(problem, receive)
            return
        self.record.received_bytes = len(content)
        watcher = self.response.watcher = DisconnectWatcher(receive, self.connection)
        try:
            await self._answer(content)
        except ApiError as problem:
            self.record.outcome = "client_error"
            await self.response.send_error(problem)
        except asyncio.CancelledError:
            if watcher.absorb_cancellation():
                raise ClientDisconnect from None
            raise
        finally:
            watcher.stop()

    async def _answer(self, content: bytes) -> None:
        config, record = self.snapshot.config, self.record
        body = JsonBody.parse(content, config.server.limits.json_depth)
        model, controls = self._read_model(body)
        prompt = read_prompt(self.endpoint, body.values, config.routing.text, config.routing.envelopes)
        routed = None
        if len(prompt.text) > LONG_PROMPT_CHARS and model in RESERVED:
            routed = await asyncio.to_thread(route_prompt, self.snapshot, prompt, controls)
        choice = choose(self.snapshot, model, prompt, controls, self.gateway.pins, routed)
        record.why = choice.why
        if (decision := choice.decision) is not None:
            record.decision, record.route_seconds = decision, choice.route_seconds
            record.confidence, record.expected_score = decision.confidence, decision.expected_score
            record.margin = decision.margin
        record.router, record.text, record.session = self.snapshot.digest, prompt.text, controls.session
        await self._try_experts(choice, body)
        if controls.session and choice.decision is not None and record.outcome == "ok" and choice.why != "shadow":
            self.gateway.pins.put(controls.session, record.expert)
        if self.response_id and record.outcome == "ok":
            self.gateway.pins.put(build_response_pin(self.response_id), record.expert)

    def _read_model(self, body: JsonBody) -> tuple[str, Controls]:
        model, stream = body.values.get("model", "auto"), body.values.get("stream")
        if not isinstance(model, str) or not model:
            raise build_type_error("model", "a name such as 'auto'", model)
        if stream is not None and not isinstance(stream, bool):
            raise build_type_error("stream", "true or false", stream)
        self.record.asked, self.record.stream = model, bool(stream)
        return model, read_controls(body.values.get(FIELD), self.received, self.gateway.session_headers)

    # asking -----------------------------------------------------------------------------------------------------

    async def _try_experts(self, choice: Choice, body: JsonBody) -> None:
        failure: UpstreamFailure | None = None
        for expert in chain((choice.first,), choice.list_fallbacks()):
            if failure is not None:
                self.record.fallbacks.append((self.record.expert, expert.name, failure.reason))
            self.record.expert, self.record.model = expert.name, expert.config.served_model
            try:
                await self._ask_expert(expert, body)
                return
            except UpstreamFailure as found:
                failure = found
        assert failure is not None
        await self._send_failure(failure)

    async def _ask_expert(self, expert: Expert, body: JsonBody) -> None:
        """Ask one expert and relay its answer. After a `UpstreamFailure` before the first byte, others can be asked."""
        await self._acquire(expert)
        started = perf_counter()
        try:
            head, content = self._build_head(expert), self._build_body(expert, body)
            async with UpstreamRequest(self.gateway.connections, expert, self.path, head, content) as answer:
                if answer.status in RETRYABLE_STATUSES or answer.status >= 500:
                    raise await _read_refusal(answer, expert)
                if 300 <= answer.status < 400:
                    raise UpstreamFailure("garbage", f"'{expert.name}' points to another address: correct its base_url")
                await self._relay_answer(answer, expert)
            expert.breaker.record_success()
        except UpstreamFailure as failure:
            if self.is_complete:
                expert.breaker.record_success()
                await self.response.end()
                return
            if failure.is_expert_fault:
                self._record_failure(expert, failure)
            else:
                expert.breaker.record_abandoned()
            if not self.response.has_begun:
                raise
            await self._end_broken_stream(failure)
        except BaseException:
            expert.breaker.record_abandoned()
            raise
        finally:
            self.record.upstream_seconds = perf_counter() - started
            expert.concurrency.release()
            self.gateway.observer.request_ended(expert.name)

    def _record_failure(self, expert: Expert, failure: UpstreamFailure) -> None:
        """Record a failure, and log a warning when it opens the circuit breaker."""
        was_closed = expert.breaker.state == "closed"
        expert.breaker.record_failure()
        if was_closed and expert.breaker.state == "open":
            rest, address = expert.config.breaker.rest, expert.config.base_url
            _log.warning("%s at %s: no requests for %g s, then one is tried", failure.message, address, rest)

    async def _acquire(self, expert: Expert) -> None:
        """Pass the circuit breaker, and wait for the concurrency limit."""
        if not expert.breaker.allow_request():
            wait = expert.breaker.retry_after
            message = f"'{expert.name}' has failed repeatedly; its circuit breaker is open"
            raise UpstreamFailure("resting", message, 503, retry_after=wait, is_expert_fault=False)
        try:
            await expert.concurrency.acquire()
        except LimitReached:
            expert.breaker.record_abandoned()
            message = f"'{expert.name}' has reached its concurrency limit"
            raise UpstreamFailure("busy", message, 429, retry_after=1.0, is_expert_fault=False) from None
        except BaseException:
            expert.breaker.record_abandoned()
            raise
        self.gateway.observer.request_started(expert.name)

    def _build_body(self, expert: Expert, body: JsonBody) -> bytes:
        config = expert.config
        changes: dict[str, Any] = {}
        if config.defaults and self.path.partition("?")[0] not in _WITHOUT_SAMPLING:
            changes = {key: value for key, value in config.defaults.items() if key not in body.values}
        changes["model"] = config.served_model
        first = None
        if config.system_prompt is not None and self.endpoint == "chat":
            roles = {message["role"] for message in body.values["messages"]}
            if not roles & {"system", "developer"}:
                first = {"role": "system", "content": config.system_prompt}
        return body.rewrite(changes, drop=FIELD, first_message=first)

    def _build_head(self, expert: Expert) -> bytes:
        more: dict[str, str] = {}
        if expert.authorization is not None:
            more["authorization"] = expert.authorization
            if self.endpoint == "messages":  # as Anthropic's API has it
                more["x-api-key"] = expert.authorization.removeprefix("Bearer ")
        if self.trace is not None:
            more |= self.trace.forward()
        return build_upstream_head(self.all_received, self.record.request_id, more)

    # passing on -------------------------------------------------------------------------------------------------

    async def _relay_answer(self, answer: UpstreamResponse, expert: Expert) -> None:
        headers = filter_response_headers(answer.headers, is_decompressed=answer.is_decompressed)
        if answer.is_stream:
            if not self.record.stream and "stream" not in expert.config.defaults:
                raise UpstreamFailure(
                    "garbage", f"'{expert.name}' answered with a stream of events, asked for a whole answer"
                )
            await self._stream(answer, expert, headers)
            return
        body = await answer.read_whole()
        if body is None:
            await self._stream_unparsed(answer, headers)
            return
        if answer.status == 200:
            content = _parse_object(body)
            kind = answer.content_type or "something"
            if content is None:
                raise UpstreamFailure("garbage", f"'{expert.name}' answered with {kind} that is not a JSON object")
            if self.record.stream and self.endpoint != "embeddings":
                raise UpstreamFailure("garbage", f"'{expert.name}' answered with {kind}, asked for a stream of events")
            self._count_usage(content.get("usage"), expert)
            if self.endpoint == "responses" and isinstance(content.get("id"), str):
                self.response_id = content["id"]
            if self.adds_provenance_field:
                body = add_member(body, build_provenance_member(self.record))
        elif answer.status >= 400:
            if answer.status == 401 and expert.should_warn():
                variable = expert.config.api_key_env or "none"
                _log.warning("'%s' refuses the gateway's key (api_key_env: %s)", expert.name, variable)
            self.record.outcome, self.record.error = "client_error", f"upstream_{answer.status}"
        self.record.first_seconds = perf_counter() - self.record.clock
        await self.response.send_whole(answer.status, headers, body)

    async def _stream(self, answer: UpstreamResponse, expert: Expert, headers: HeaderList) -> None:
        piece = await answer.read_first_piece()
        if not piece:
            raise UpstreamFailure("broken", f"'{expert.name}' ended its stream before it began")
        relay = self.relay = EventRelay(
            build_provenance_member(self.record) if self.adds_provenance_field else b"", self.endpoint
        )
        self.record.first_seconds = perf_counter() - self.record.clock
        await self.response.start(answer.status, headers)
        try:
            while piece:
                if ready := relay.feed(piece):
                    await self.response.send_piece(ready)
                piece = await answer.read_piece(last=relay.is_ending)
            rest = relay.flush()
            if not relay.is_done:
                raise UpstreamFailure("broken", f"'{expert.name}' ended its stream in the middle")
        finally:
            self._count_usage(relay.find_usage(), expert)
            self.response_id = relay.find_response_id()
        await self.response.end(rest)

    async def _stream_unparsed(self, answer: UpstreamResponse, headers: HeaderList) -> None:
        piece = await answer.read_first_piece()
        await self.response.start(answer.status, headers)
        while piece:
            await self.response.send_piece(piece)
            piece = await answer.read_piece()
        await self.response.end()

    async def _end_broken_stream(self, failure: UpstreamFailure) -> None:
        """End a broken stream with an error event. Other answers are cut off, so that they do not look complete."""
        problem = ApiError(failure.status, failure.message, _ERROR_CODES.get(failure.reason, ""))
        self.record.outcome, self.record.error = "broken_stream", problem.code
        if self.relay is None:
            raise ClientDisconnect from failure
        await self.response.end(self.relay.build_closing(problem.event(self.endpoint)))

    def _count_usage(self, usage: object, expert: Expert) -> None:
        if not isinstance(usage, dict):
            return
        record, price = self.record, expert.config.price
        record.prompt_tokens = _parse_count(usage.get("prompt_tokens", usage.get("input_tokens")))
        record.completion_tokens = _parse_count(usage.get("completion_tokens", usage.get("output_tokens")))
        spent = (record.prompt_tokens or 0) * price.input_per_1m + (record.completion_tokens or 0) * price.output_per_1m
        record.cost = spent / 1e6

    async def _send_failure(self, failure: UpstreamFailure) -> None:
        """No expert answered: send the error of the last one, or say what happened to it."""
        record = self.record
        record.outcome = "unavailable" if failure.reason in ("busy", "resting") else "upstream_error"
        if failure.body is not None:
            record.error = f"upstream_{failure.status}"
            await self.response.send_whole(failure.status, failure.headers, failure.body)
            return
        before = [f"{name} ({reason})" for name, _, reason in record.fallbacks]
        more = f". Asked before: {', '.join(before)}" if before else ""
        problem = ApiError(failure.status, failure.message + more, _ERROR_CODES.get(failure.reason, ""))
        problem.retry_after = failure.retry_after
        await self.response.send_error(
            problem, *(pair for pair in failure.headers if pair[0].startswith(_RETRY_HEADERS))
        )


async def _read_refusal(answer: UpstreamResponse, expert: Expert) -> UpstreamFailure:
    """Turn an error answer into a failure. The expert's body is kept only if it is a JSON object."""
    body = await answer.read_whole()
    reason = str(answer.status) if answer.status in RETRYABLE_STATUSES else "5xx"
    message = f"'{expert.name}' answered with status {answer.status}"
    kept = body if body is not None and _parse_object(body) is not None else None
    headers = filter_response_headers(answer.headers, is_decompressed=answer.is_decompressed)
    return UpstreamFailure(reason, message, answer.status, headers, kept, is_expert_fault=answer.status != 429)


def _parse_object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _parse_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
