"""An external processor for Envoy: reads the body of a request, and sets the header that Envoy routes by.

Envoy sends the head of a request, then its body: whole (body mode BUFFERED or BUFFERED_PARTIAL), or in pieces that wait
here until all are there (FULL_DUPLEX_STREAMED). In mode STREAMED the head has left when the body comes, so nothing can
be routed. Envoy does the proxying. What cannot be routed passes, with the reason in a header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import perf_counter
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.integrations import envoy_messages as api
from ir3de_gateway.integrations.decider import Decider, Verdict, build_error_headers, find_wire
from ir3de_gateway.requests.client import build_too_large_error, check_head
from ir3de_gateway.requests.json_body import JsonBody, read_json
from ir3de_gateway.wire.formats import WireFormat

Message = Any  # of `envoy_messages`, whose classes are made when they are imported
NAMESPACE = "ir3de"  # of the dynamic metadata
OWN_PREFIX = "x-ir3de-"  # headers that only this processor may set: routes depend on them
PIECE_BYTES = 62_000  # of a body that is sent back in pieces: Envoy takes up to 64 KiB of a message
ROUTE_BUCKETS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1)

_log = logging.getLogger("ir3de.gateway")


@dataclass(frozen=True)
class Rules:
    """How requests are treated."""

    header: str = "x-ir3de-expert"  # that Envoy's routes match
    rewrites_model: bool = False  # whether `model` becomes that of the expert
    fails_open: bool = True  # whether requests that cannot be routed pass
    body_bytes: int = 4_000_000  # the longest body that is read
    json_depth: int = 100


class Metrics:
    """What Prometheus reads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ir3de_ext_proc_requests",
            "Requests, by what became of them.",
            ("expert", "outcome"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "ir3de_ext_proc_seconds", "Time from the whole body to the decision.",
            buckets=ROUTE_BUCKETS, registry=self.registry,
        )  # fmt: skip


@dataclass
class Exchange:
    """One request of Envoy's, and its answer."""

    wire: WireFormat | None = None  # None if it is not routed
    is_duplex: bool = False  # its body comes, and goes back, in pieces
    waits: bool = False  # its head waits until the body is there
    removed: tuple[str, ...] = ()  # headers of the client's that only this processor may set
    body: bytearray = field(default_factory=bytearray)
    shown: Sequence[tuple[str, bytes]] = ()  # the headers that its answer gets


class Processor:
    """Envoy's service `ExternalProcessor`."""

    def __init__(self, decider: Decider, rules: Rules, metrics: Metrics | None = None) -> None:
        self._decider, self._rules, self._metrics = decider, rules, metrics or Metrics()
        self._has_warned = False

    async def take(self, exchange: Exchange, message: Message) -> list[Message]:
        """The answers to a message of a request, in their order."""
        if message.HasField("protocol_config"):
            exchange.is_duplex = message.protocol_config.request_body_mode == api.FULL_DUPLEX_STREAMED
            self._check_mode(message.protocol_config.request_body_mode)
        kind = message.WhichOneof("kind")
        if kind == "request_headers":
            return self._take_head(exchange, message.request_headers)
        if kind == "request_body":
            return await self._take_body(exchange, message.request_body)
        if kind == "request_trailers":
            return await self._take_trailers(exchange)
        return [_answer_rest(exchange, kind)]

    def end(self, exchange: Exchange) -> None:
        if exchange.waits:  # the client went before the body was whole
            self._metrics.requests.labels("", "incomplete").inc()

    # a request -------------------------------------------------------------------------------------------------------

    def _take_head(self, exchange: Exchange, head: Message) -> list[Message]:
        headers = {one.key: one.raw_value or one.value.encode() for one in head.headers.headers}
        exchange.removed = tuple(name for name in headers if name.startswith(OWN_PREFIX) or name == self._rules.header)
        wire = find_wire(headers.get(":path", b"").decode("latin-1")) if headers.get(":method") == b"POST" else None
        exchange.wire = None if head.end_of_stream else wire
        if exchange.wire is None:
            self._metrics.requests.labels("", "not routed").inc()
            return [_answer_head(exchange, ())]
        try:
            check_head({name.encode(): value for name, value in headers.items()}, self._rules.body_bytes)
        except ApiError as error:
            return [self._give_up(exchange, error, _answer_head)]
        exchange.waits = True
        return [] if exchange.is_duplex else [_answer_head(exchange, ())]

    async def _take_body(self, exchange: Exchange, body: Message) -> list[Message]:
        if not exchange.waits:  # it is not routed, or was decided on
            return [_answer_piece(exchange, body.body, is_last=body.end_of_stream)]
        exchange.body += body.body
        is_too_large = len(exchange.body) > self._rules.body_bytes
        if exchange.is_duplex and not body.end_of_stream and not is_too_large:
            return []
        return await self._decide(exchange, is_too_large=is_too_large, is_last=body.end_of_stream)

    async def _take_trailers(self, exchange: Exchange) -> list[Message]:
        is_end = exchange.waits and exchange.is_duplex  # they end the body
        found = await self._decide(exchange, is_too_large=False, is_last=False) if is_end else []
        return [*found, api.ProcessingResponse(request_trailers=api.TrailersResponse())]

    async def _decide(self, exchange: Exchange, *, is_too_large: bool, is_last: bool) -> list[Message]:
        """The answer to the head, if it waits, and to the body."""
        exchange.waits, started = False, perf_counter()
        answer_first = _answer_head if exchange.is_duplex else _answer_body
        content = bytes(exchange.body)
        try:
            if is_too_large:
                raise build_too_large_error(self._rules.body_bytes)
            body = await read_json(content, self._rules.json_depth)
            if self._decider.wants(body.values):
                assert exchange.wire is not None
                verdict = await self._decider.decide(exchange.wire, body.values)
                self._metrics.seconds.observe(perf_counter() - started)
                found = [self._apply(exchange, verdict, answer_first, body)]
                if exchange.is_duplex and self._rules.rewrites_model and verdict.model:
                    content = body.rewrite({"model": verdict.model})
            else:
                self._metrics.requests.labels("", "named").inc()
                found = [answer_first(exchange, ())]
        except ApiError as error:
            found = [self._give_up(exchange, error, answer_first)]
        return [*found, *_cut(exchange, content, is_last=is_last)] if exchange.is_duplex else found

    def _apply(self, exchange: Exchange, verdict: Verdict, answer: Answer, body: JsonBody) -> Message:
        self._metrics.requests.labels(verdict.expert or "", verdict.why or "routed").inc()
        headers = verdict.list_headers()
        exchange.shown = headers
        if self._rules.header != "x-ir3de-expert" and verdict.model is not None:
            headers = [*headers, (self._rules.header, verdict.model.encode())]
        rewritten = None
        if not exchange.is_duplex and self._rules.rewrites_model and verdict.model is not None:
            rewritten = body.rewrite({"model": verdict.model})
        found = answer(exchange, headers, rewritten)
        # access logs and other filters of Envoy can read it
        found.dynamic_metadata.update({NAMESPACE: verdict.signal})
        return found

    def _give_up(self, exchange: Exchange, error: ApiError, answer: Answer) -> Message:
        """Let a request pass that cannot be routed, or refuse it."""
        self._metrics.requests.labels("", error.code).inc()
        exchange.shown = build_error_headers(error)
        if self._rules.fails_open:
            return answer(exchange, exchange.shown)
        status = api.HttpStatus(code=error.status)
        refusal = api.ImmediateResponse(status=status, body=error.body(), details="ir3de")
        refusal.headers.CopyFrom(_mutate([("content-type", b"application/json"), *exchange.shown], ()))
        return api.ProcessingResponse(immediate_response=refusal)

    def _check_mode(self, mode: int) -> None:
        if mode in (api.NONE, api.STREAMED):
            self._warn(
                f"Envoy sends bodies in mode {api.MODES[mode]}, in which no request can be routed: set "
                "request_body_mode in processing_mode of the filter to BUFFERED or FULL_DUPLEX_STREAMED"
            )

    def _warn(self, message: str) -> None:
        """Log a warning that each request would repeat, once."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s", message)


# answers to Envoy ----------------------------------------------------------------------------------------------------


class Answer(Protocol):
    """The type of `_answer_head` and `_answer_body`."""

    def __call__(
        self, exchange: Exchange, headers: Sequence[tuple[str, bytes]], body: bytes | None = None
    ) -> Message: ...


def _mutate(headers: Sequence[tuple[str, bytes]], removed: Sequence[str]) -> Message:
    names = {name for name, _ in headers}
    options = [_build_option(*one) for one in headers]
    return api.HeaderMutation(set_headers=options, remove_headers=[name for name in removed if name not in names])


@lru_cache(maxsize=1_000)  # most headers have few values
def _build_option(name: str, value: bytes) -> Message:
    header = api.HeaderValue(key=name, raw_value=value)
    return api.HeaderValueOption(header=header, append_action=api.OVERWRITE_IF_EXISTS_OR_ADD)


def _build_common(exchange: Exchange, headers: Sequence[tuple[str, bytes]]) -> Message:
    # the route was chosen before the headers were there
    return api.CommonResponse(header_mutation=_mutate(headers, exchange.removed), clear_route_cache=True)


def _answer_head(exchange: Exchange, headers: Sequence[tuple[str, bytes]], body: bytes | None = None) -> Message:
    return api.ProcessingResponse(request_headers=api.HeadersResponse(response=_build_common(exchange, headers)))


def _answer_body(exchange: Exchange, headers: Sequence[tuple[str, bytes]], body: bytes | None = None) -> Message:
    if body is not None:  # Envoy refuses a body of another length than the head has
        headers = [*headers, ("content-length", b"%d" % len(body))]
    common = _build_common(exchange, headers)
    if body is not None:
        common.body_mutation.body = body
    return api.ProcessingResponse(request_body=api.BodyResponse(response=common))


def _answer_piece(exchange: Exchange, content: bytes, *, is_last: bool) -> Message:
    """A piece of a body as it came."""
    common = api.CommonResponse()
    if exchange.is_duplex:
        common.body_mutation.streamed_response.body = content
        common.body_mutation.streamed_response.end_of_stream = is_last
    return api.ProcessingResponse(request_body=api.BodyResponse(response=common))


def _cut(exchange: Exchange, content: bytes, *, is_last: bool) -> Iterator[Message]:
    starts = range(0, max(1, len(content)), PIECE_BYTES)
    for start in starts:
        piece = content[start : start + PIECE_BYTES]
        yield _answer_piece(exchange, piece, is_last=is_last and start == starts[-1])


def _answer_rest(exchange: Exchange, kind: str | None) -> Message:
    """The answer to what Envoy shows of an expert's answer, if it does: its head gets the provenance headers."""
    if kind == "response_headers":
        common = api.CommonResponse(header_mutation=_mutate(exchange.shown, ()))
        return api.ProcessingResponse(response_headers=api.HeadersResponse(response=common))
    if kind == "response_trailers":
        return api.ProcessingResponse(response_trailers=api.TrailersResponse())
    return api.ProcessingResponse(response_body=api.BodyResponse())
