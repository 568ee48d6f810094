"""OpenTelemetry for each request: the spans `chat {model}` and `route` inside it, and the metrics of its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ir3de_gateway.telemetry import gen_ai
from ir3de_gateway.telemetry.answer_facts import AnswerFacts
from ir3de_gateway.telemetry.gen_ai_metrics import GenAiMetrics
from ir3de_gateway.telemetry.providers import UNKNOWN_PROVIDER, find_provider_of_headers, find_provider_of_host

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from ir3de_gateway.config.experts import ExpertConfig
    from ir3de_gateway.exchange_record import ExchangeRecord

NANOSECONDS_PER_S = 1_000_000_000


class Tracing:
    """Makes a `Trace` for each request: with spans, with metrics, or with both."""

    def __init__(
        self, provider: TracerProvider | None = None, meters: MeterProvider | None = None, *, owned: Iterable[Any] = ()
    ) -> None:
        """`owned` are the providers that are shut down at the end; others belong to somebody else."""
        self._tracer: Tracer | None = None if provider is None else provider.get_tracer("ir3de_gateway")
        self.metrics = None if meters is None else GenAiMetrics(meters)
        self._owned = tuple(owned)

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace:
        """Start the span of a request, as a part of the client's trace if it has one."""
        if self._tracer is None:
            return Trace(self.metrics)
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        parent = propagate.extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})
        span = self._tracer.start_span("chat", context=parent, kind=SpanKind.CLIENT)
        return SpanTrace(self.metrics, self._tracer, span, parent)

    def close(self) -> None:
        """Send what remains."""
        for provider in self._owned:
            provider.shutdown()


class Trace:
    """What is known of one request for OpenTelemetry, to be finished exactly once."""

    __slots__ = ("_facts", "_has_failed", "_headers", "_metrics", "_request")

    def __init__(self, metrics: GenAiMetrics | None) -> None:
        self._metrics, self._facts = metrics, AnswerFacts()
        self._request: gen_ai.Attributes = {}
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._has_failed = False  # whoever was asked last, which has been recorded

    def forward(self) -> dict[str, str]:
        """Headers for the expert, so that its spans become children of this one."""
        return {}

    def read_request(self, values: Mapping[str, Any]) -> None:
        """The settings of the request."""
        self._request = gen_ai.read_request_attributes(values)

    def begin_answer(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """An expert has begun to answer; what another one said before is forgotten."""
        self._headers, self._facts, self._has_failed = headers, AnswerFacts(), False

    def add_failure(self, record: ExchangeRecord, expert: ExpertConfig, error: str, seconds: float) -> None:
        """Whoever was asked failed, after so many seconds; others may be asked."""
        self._has_failed = True
        if self._metrics is not None:
            self._metrics.record_failure(seconds, self._describe_failure(record, expert, error))

    def _describe_failure(self, record: ExchangeRecord, expert: ExpertConfig, error: str) -> gen_ai.Attributes:
        server = find_server(expert.base_url)
        return {
            "gen_ai.operation.name": gen_ai.name_operation(record.endpoint),
            "gen_ai.provider.name": self._name_provider(expert, server),
            "gen_ai.request.model": expert.served_model,
            **server,
            "error.type": error,
        }

    def read_answer(self, answer: Mapping[str, Any]) -> None:
        """A whole answer."""
        self._facts.read(answer)

    def read_events(self, head: bytes, tail: bytes) -> None:
        """The first and the last events of a stream."""
        self._facts.read_events(head, tail)

    def finish(self, record: ExchangeRecord, expert: ExpertConfig | None = None, usage: Mapping[str, Any] = {}) -> None:
        """Record the outcome of the request. Prompts and answers are not included."""
        if self._metrics is not None:
            server, known = self._describe(record, expert, usage)
            self._metrics.record(record, known, server, has_failed=self._has_failed)

    def _describe(
        self, record: ExchangeRecord, expert: ExpertConfig | None, usage: Mapping[str, Any]
    ) -> tuple[gen_ai.Attributes, gen_ai.Attributes]:
        """Where the expert is, and everything that is known of the request."""
        server = {} if expert is None else find_server(expert.base_url)
        operation, model = gen_ai.name_operation(record.endpoint), record.model or record.asked[: gen_ai.MAX_CHARS]
        known = gen_ai.build_span_attributes(record, self._facts, usage, model, operation)
        known["gen_ai.provider.name"] = self._name_provider(expert, server)
        return server, gen_ai.drop_none(known)

    def _name_provider(self, expert: ExpertConfig | None, server: Mapping[str, Any]) -> str:
        if expert is None:  # nobody was asked
            return "ir3de"
        return (
            expert.provider
            or find_provider_of_host(server["server.address"])
            or find_provider_of_headers(self._headers)
            or UNKNOWN_PROVIDER
        )


class SpanTrace(Trace):
    """The same with a span."""

    __slots__ = ("_context", "_span", "_tracer")

    def __init__(self, metrics: GenAiMetrics | None, tracer: Tracer, span: Span, parent: Context) -> None:
        from opentelemetry.trace import set_span_in_context

        super().__init__(metrics)
        self._tracer, self._span = tracer, span
        self._context = set_span_in_context(span, parent)

    def forward(self) -> dict[str, str]:
        from opentelemetry import propagate

        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=self._context)
        return carrier

    def add_failure(self, record: ExchangeRecord, expert: ExpertConfig, error: str, seconds: float) -> None:
        """A span of its own inside the request's."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        super().add_failure(record, expert, error, seconds)
        said, ended = self._describe_failure(record, expert, error), time_ns()
        span = self._tracer.start_span(
            f"{said['gen_ai.operation.name']} {said['gen_ai.request.model']}",
            context=self._context,
            kind=SpanKind.CLIENT,
            start_time=ended - int(seconds * NANOSECONDS_PER_S),
        )
        span.set_attributes({**said, "ir3de.expert": expert.name})
        span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_time=ended)

    def finish(self, record: ExchangeRecord, expert: ExpertConfig | None = None, usage: Mapping[str, Any] = {}) -> None:
        span = self._span
        if not span.is_recording():
            super().finish(record, expert, usage)
            span.end()
            return
        server, known = self._describe(record, expert, usage)
        if self._metrics is not None:
            self._metrics.record(record, known, server, has_failed=self._has_failed)
        name = f"{known['gen_ai.operation.name']} {known.get('gen_ai.request.model', '')}"
        span.update_name(name.strip())
        span.set_attributes({**self._request, **known, **server})
        if record.route_seconds is not None:
            self._add_route_span(record, record.route_seconds)
        if (error := gen_ai.find_error_type(record)) is not None:
            from opentelemetry.trace import Status, StatusCode

            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, record.outcome))
        span.end()

    def _add_route_span(self, record: ExchangeRecord, seconds: float) -> None:
        began = int(record.started * NANOSECONDS_PER_S)
        span = self._tracer.start_span("route", context=self._context, start_time=began)
        span.set_attributes(gen_ai.drop_none(gen_ai.build_decision_attributes(record)))
        span.end(end_time=began + int(seconds * NANOSECONDS_PER_S))


def find_server(base_url: str) -> gen_ai.Attributes:
    """The address and port of an expert.

    >>> find_server("https://api.openai.com/v1")
    {'server.address': 'api.openai.com', 'server.port': 443}
    """
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname or "", "server.port": port}
