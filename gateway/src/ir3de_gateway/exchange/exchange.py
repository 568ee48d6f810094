"""One request and its answer: what is known of them, and the headers and errors that follow from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import perf_counter
from typing import Any

from starlette.types import Receive, Scope, Send

from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.experts.upstream import UpstreamFailure, UpstreamResponse
from ir3de_gateway.gateway import Gateway
from ir3de_gateway.headers import HeaderList, filter_response_headers
from ir3de_gateway.keys.client_key import ClientKey, Lease
from ir3de_gateway.provenance import build_provenance_headers, build_provenance_member
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.requests.client import find_connection
from ir3de_gateway.requests.client_response import ClientResponse
from ir3de_gateway.requests.controls import NO_CONTROLS, Controls
from ir3de_gateway.requests.forwarding import RequestContent
from ir3de_gateway.store.pins import StoredObjects
from ir3de_gateway.telemetry.server_timing import build_server_timing
from ir3de_gateway.translation.translation import Translation
from ir3de_gateway.wire.event_relay import EventRelay
from ir3de_gateway.wire.formats import WireFormat

_RETRY_HEADERS = (b"retry-after", b"x-should-retry", b"x-ratelimit-")  # kept even if the error itself is not
CLOCK_STEP_S = 0.001  # of uvloop: its timers are rounded to it, so they may end a little before their time
_UNAVAILABLE = frozenset(("busy", "resting", "cooling", "resources"))  # reasons for which nobody was asked
ERROR_CODES = {
    "connect": "upstream_unreachable",
    "garbage": "upstream_invalid",
    "broken": "upstream_broken",
    "deadline": "deadline_exceeded",
}
_JSON: HeaderList = [(b"content-type", b"application/json")]


class Exchange:
    """One request and its answer."""

    def __init__(self, gateway: Gateway, wire: WireFormat, scope: Scope, receive: Receive, send: Send) -> None:
        self.gateway, self.wire, self.receive = gateway, wire, receive
        self.clock = perf_counter()
        self.request_id: str = scope["state"]["request_id"]
        self.record = ExchangeRecord(self.request_id, wire.capability)
        self.key: ClientKey = scope["state"]["key"]
        self.lease: Lease | None = scope["state"].get("lease")  # None where the key's requests are not counted
        self.record.key = self.key.name
        self.received: Mapping[bytes, bytes] = scope["state"]["headers"]
        self.all_received: HeaderList = scope["headers"]
        self.query: bytes = scope["query_string"]
        self.connection = find_connection(scope)
        self.snapshot: Snapshot = gateway.live.snapshot
        self.response = ClientResponse(send, gateway.stalls)
        self.trace = gateway.tracing.begin(self.received) if gateway.tracing is not None else None
        # what becomes known on the way
        self.content = b""  # as it came
        self.body: RequestContent | None = None  # to be sent to experts; None once an answer has begun
        self.controls: Controls = NO_CONTROLS
        self.choice: Choice | None = None
        self.expert: Expert | None = None  # who answers, or was asked last
        self.is_sent = False  # whether that expert, or a replica of it, has the request and has not failed
        self.ticket = 0  # of that expert's circuit breaker
        self.translation: Translation | None = None  # where the expert speaks another format than the client
        self.deadline = inf  # when an answer must have begun, as a time of the event loop
        self.cache_key = b""  # to keep the answer with
        self.keeper = ""  # the replica that has what the request is about
        self.relay: EventRelay | None = None
        self.usage: Mapping[str, Any] = {}
        self.answer_bytes = 0  # of a whole answer
        self.expected_prompt_tokens = 0  # an estimate, for a lease
        self.longest_answer_tokens = 0  # of all answers together, for a lease
        self.is_background = False  # whether the expert answers before it has written anything
        self.response_id = ""  # of an answer that the expert stores
        self.afterwards: Callable[[], Awaitable[object]] | None = None  # to be done when the client has its answer
        self.adds_usage = False  # whether the expert was asked for the usage of a stream, and the client did not ask

    @property
    def stored_objects(self) -> StoredObjects:
        """What experts store for the key that asks."""
        seconds = self.snapshot.config.routing.pinning.stored_ttl
        return StoredObjects(self.gateway.pins, self.key.name, seconds, self.record.replica)

    @property
    def is_complete(self) -> bool:
        """Whether a stream has sent its final event, even if its connection is still open."""
        return self.relay is not None and self.relay.is_done

    @property
    def is_overdue(self) -> bool:
        """Whether an answer should have begun by now."""
        return self.deadline < inf and asyncio.get_running_loop().time() + CLOCK_STEP_S >= self.deadline

    async def send_failure(self, failure: UpstreamFailure) -> None:
        """No expert answered: send the error of the last one, or say what happened to it."""
        self.record.outcome = "unavailable" if failure.reason in _UNAVAILABLE else "upstream_error"
        if failure.body is not None:
            self.record.error = f"upstream_{failure.status}"
            await self.response.send_whole(failure.status, self.add_headers(failure.headers), failure.body)
            return
        before = [f"{name} ({reason})" for name, _, reason in self.record.fallbacks]
        more = f". Asked before: {', '.join(before)}" if before else ""
        if self.choice is not None and self.choice.refusal is not None and self.choice.refusal.text:
            more += f". {self.choice.decided} was chosen: {self.choice.refusal.text}"
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
        if self.record.cache:
            headers.append((b"x-ir3de-cache", self.record.cache.encode()))
            if self.record.cache == "hit":
                headers.append((b"age", b"%d" % self.record.cache_age))
        if self.translation is not None:
            headers += self.translation.build_headers(self.request_id)
        if self.snapshot.config.server.timing:
            headers.append((b"server-timing", build_server_timing(self.record, perf_counter() - self.clock)))
        return headers

    def build_member(self, expert: Expert) -> bytes:
        """The provenance for the body, unless it is switched off."""
        if self.choice is None or "body" not in self.snapshot.config.routing.provenance:
            return b""
        return build_provenance_member(self.choice, expert, self.record.fallbacks, self.request_id)
