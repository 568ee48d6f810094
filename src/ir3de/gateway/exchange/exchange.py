"""One request's way through the gateway, from its first byte to the last byte of its answer.

    read      the body, within limits                                 requests/client, requests/json_body
    choose    the experts that may answer, in their order             requests/prompt, controls, choice
    ask       one after the other, until one of them answers          asking, experts/upstream
    relay     its answer, whole or as a stream, with provenance       relaying, wire/, provenance
    record    what happened, once, at the end                         exchange_record, telemetry

`Exchange` holds what is known of a request on this way. One thing alone cancels its task from outside: the client that
disconnects (or the server that stops).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope, Send

from ir3de.gateway.api_errors import ApiError, ClientDisconnect, build_internal_error, build_type_error, encode_json
from ir3de.gateway.exchange.asking import ask_in_turn
from ir3de.gateway.exchange.relaying import ERROR_CODES
from ir3de.gateway.exchange_record import ExchangeRecord, read_usage
from ir3de.gateway.experts.snapshot import Expert, Snapshot
from ir3de.gateway.experts.upstream import (
    UpstreamFailure,
    UpstreamResponse,
)
from ir3de.gateway.gateway import Gateway
from ir3de.gateway.headers import HeaderList, filter_response_headers
from ir3de.gateway.keys.client_key import ClientKey
from ir3de.gateway.provenance import build_provenance_headers, build_provenance_member
from ir3de.gateway.requests.choice import Choice, build_response_pin, choose
from ir3de.gateway.requests.client import DisconnectWatcher, find_connection, read_body
from ir3de.gateway.requests.client_response import ClientResponse
from ir3de.gateway.requests.controls import FIELD, NO_CONTROLS, Controls, read_controls
from ir3de.gateway.requests.forwarding import OutgoingBody
from ir3de.gateway.requests.json_body import read_json, read_values
from ir3de.gateway.requests.prompt import read_prompt
from ir3de.gateway.wire.event_stream import EventRelay
from ir3de.gateway.wire.format import WireFormat

MAX_LOGGED_CHARS = 100_000  # of a prompt, where the decision log has prompts: routing reads a thousand tokens
_RETRY_HEADERS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # kept even if the error itself is not
_UNAVAILABLE = frozenset(("busy", "resting", "cooling", "resources"))  # reasons for which nobody was asked
_JSON: HeaderList = [(b"content-type", b"application/json")]
_log = logging.getLogger("ir3de.gateway")


class InferenceEndpoint:
    """An endpoint that experts answer, as an ASGI application."""

    def __init__(self, gateway: Gateway, wire: WireFormat) -> None:
        self._gateway, self._wire = gateway, wire

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return Exchange(self._gateway, self._wire, scope, receive, send).run()


class Exchange:
    """One request and its answer."""

    def __init__(self, gateway: Gateway, wire: WireFormat, scope: Scope, receive: Receive, send: Send) -> None:
        self.gateway, self.wire, self.receive = gateway, wire, receive
        self.clock = perf_counter()
        self.request_id: str = scope["state"]["request_id"]
        self.record = ExchangeRecord(self.request_id, wire.capability)
        self.key: ClientKey = scope["state"]["key"]
        self.received: Mapping[bytes, bytes] = scope["state"]["headers"]
        self.all_received: HeaderList = scope["headers"]
        self.query: bytes = scope["query_string"]
        self.connection = find_connection(scope)
        self.snapshot: Snapshot = gateway.live.snapshot
        self.response = ClientResponse(send, gateway.stalls)
        self.trace = gateway.tracing.begin(self.received) if gateway.tracing is not None else None
        # what becomes known on the way
        self.content = b""  # as it came
        self.body: OutgoingBody | None = None  # to be sent to experts; None once an answer has begun
        self.controls: Controls = NO_CONTROLS
        self.choice: Choice | None = None
        self.expert: Expert | None = None  # who answers, or was asked last
        self.relay: EventRelay | None = None
        self.response_id = ""  # a later request may refer to it
        self.usage: Mapping[str, Any] = {}

    async def run(self) -> None:
        """The whole way. Whatever happens, it is recorded."""
        try:
            await self._answer()
        except ClientDisconnect:
            if self.record.outcome == "ok" and not self.is_complete:
                self.record.outcome = "cancelled"
        except Exception as error:
            self.record.outcome = "failed"
            _log.error("request %s failed", self.request_id, exc_info=error)
            if self.response.status:
                raise
            await self.send_error(build_internal_error(self.request_id))
        except BaseException:
            self.record.outcome, self.response.status = "cancelled", self.response.status or 500
            raise
        finally:
            self._finish_record()

    async def _answer(self) -> None:
        if not await self._read():
            return
        watcher = self.response.watcher = DisconnectWatcher(self.receive, self.connection)
        try:
            self.choice = await self._choose()
            await ask_in_turn(self, self.choice)
            self._pin(self.choice)
        except ApiError as problem:
            self.record.outcome = "client_error"
            await self.send_error(problem)
        except asyncio.CancelledError:
            if watcher.absorb_cancellation():
                raise ClientDisconnect from None
            raise
        finally:
            self.response.stop()

    # read ----------------------------------------------------------------------------------------------------------

    async def _read(self) -> bool:
        """Read the body. If it is refused before it has come, the client is told so."""
        try:
            self.content = await read_body(
                self.receive, self.received, self.snapshot.config.server.limits, self.connection
            )
        except ApiError as problem:
            self.record.outcome, self.record.error = "client_error", problem.code
            headers, refusal = self.build_error(problem)
            await self.response.send_early(problem.status, headers, refusal, self.receive)
            return False
        self.record.received_bytes = len(self.content)
        return True

    # choose --------------------------------------------------------------------------------------------------------

    async def _choose(self) -> Choice:
        """The experts that may answer, and which of them comes first."""
        snapshot, routing = self.snapshot, self.snapshot.config.routing
        body = await read_json(self.content, snapshot.config.server.limits.json_depth)
        self.content, values = b"", body.values
        self._read_model(values)
        prompt = await read_values(
            body,
            lambda values: read_prompt(
                self.wire, values, routing.text, routing.envelopes, counts_tokens=snapshot.has_context_windows
            ),
        )
        self.body = OutgoingBody.from_request(self.wire, body)
        if snapshot.config.logs.prompts:
            self.record.text = prompt.text[:MAX_LOGGED_CHARS]
        choice = choose(snapshot, self.record.asked, prompt, self.controls, self.gateway.pins)
        self.record.add_choice(choice)
        return choice

    def _read_model(self, values: Mapping[str, Any]) -> None:
        model, stream = values.get("model", "auto"), values.get("stream")
        if not isinstance(model, str) or not model:
            raise build_type_error("model", "a name such as 'auto'", model)
        if stream is not None and not isinstance(stream, bool):
            raise build_type_error("stream", "true or false", stream)
        self.record.asked, self.record.stream = model, bool(stream) and self.wire.can_stream
        self.controls = read_controls(values.get(FIELD), self.received, self.gateway.session_headers)
        self.record.session = self.controls.session

    # answer --------------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether a stream has sent its final event, even if its connection is still open."""
        return self.relay is not None and self.relay.is_done

    async def send_failure(self, failure: UpstreamFailure) -> None:
        """No expert answered: send the error of the last one, or say what happened to it."""
        self.record.outcome = "unavailable" if failure.reason in _UNAVAILABLE else "upstream_error"
        if failure.body is not None:
            self.record.error = f"upstream_{failure.status}"
            await self.response.send_whole(failure.status, self.add_headers(failure.headers), failure.body)
            return
        before = [f"{name} ({reason})" for name, _, reason in self.record.fallbacks]
        more = f". Asked before: {', '.join(before)}" if before else ""
        problem = ApiError(failure.status, failure.message + more, ERROR_CODES.get(failure.reason, ""))
        problem.retry_after = failure.retry_after
        await self.send_error(problem, *(pair for pair in failure.headers if pair[0].startswith(_RETRY_HEADERS)))

    async def send_error(self, problem: ApiError, *more: tuple[bytes, bytes]) -> None:
        """An error instead of an answer."""
        self.record.error = problem.code
        headers, body = self.build_error(problem)
        await self.response.send_whole(problem.status, [*headers, *more], body)

    def build_error(self, problem: ApiError) -> tuple[HeaderList, bytes]:
        headers = self.add_headers([*_JSON, *problem.header_list()])
        return headers, encode_json(self.wire.build_error(problem))

    def build_headers(self, answer: UpstreamResponse) -> HeaderList:
        return self.add_headers(filter_response_headers(answer.headers, is_decompressed=answer.is_decompressed))

    def add_headers(self, headers: HeaderList) -> HeaderList:
        """The request's id, and the provenance if an expert was asked."""
        headers = [*headers, (b"x-request-id", self.request_id.encode())]
        has_provenance = "headers" in self.snapshot.config.routing.provenance
        if self.choice is not None and self.expert is not None and has_provenance:
            headers += build_provenance_headers(self.choice, self.expert, self.record.fallbacks, self.record.resends)
        return headers

    def build_member(self, expert: Expert) -> bytes:
        """The provenance for the body, unless it is switched off."""
        if self.choice is None or "body" not in self.snapshot.config.routing.provenance:
            return b""
        return build_provenance_member(self.choice, expert, self.record.fallbacks, self.request_id)

    # record --------------------------------------------------------------------------------------------------------

    def _pin(self, choice: Choice) -> None:
        """Remember which expert a conversation is with, and who gave an answer that later requests may refer to."""
        if self.record.outcome != "ok" or self.expert is None:
            return
        if self.controls.session and choice.routed is not None and choice.why != "shadow":
            self.gateway.pins.put(self.controls.session, self.expert.name)
        if self.response_id:
            self.gateway.pins.put(build_response_pin(self.response_id), self.expert.name)

    def _finish_record(self) -> None:
        """Fill in what is known at the end, and hand the record to metrics, logs and traces."""
        record, response = self.record, self.response
        record.status = response.status or (499 if record.outcome == "cancelled" else 0)
        record.sent_bytes = response.sent_bytes
        record.total_seconds = perf_counter() - self.clock
        if self.usage and self.expert is not None:
            prompt, answer = record.prompt_tokens, record.completion_tokens = read_usage(self.usage)
            record.cost = self.expert.config.price.compute_cost(prompt or 0, answer or 0)
        self.gateway.observer.observe(record)
        if self.trace is not None:
            self.trace.finish(record)
