"""OpenTelemetry spans: `chat {model}` with `route` inside it. Off unless a collector is configured."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from ir3de.gateway.exchange_record import ExchangeRecord

OPERATIONS = {"completions": "text_completion", "embeddings": "embeddings"}  # all others are chats
NANOSECONDS_PER_S = 1_000_000_000

_log = logging.getLogger(__name__)


class Tracing:
    """Makes a `Trace` for each request."""

    def __init__(self, provider: TracerProvider, *, owned: bool = False) -> None:
        self._tracer: Tracer = provider.get_tracer("ir3de.gateway")
        self._provider = provider if owned else None

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace:
        """Start the span of a request, as a part of the client's trace if it has one."""
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind

        parent = propagate.extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})
        span = self._tracer.start_span("chat", context=parent, kind=SpanKind.CLIENT)
        return Trace(self._tracer, span, parent)

    def close(self) -> None:
        """Send the remaining spans; a provider that somebody else made is not closed."""
        shutdown = getattr(self._provider, "shutdown", None)
        if shutdown is not None:
            shutdown()


class Trace:
    """The span of one request, to be finished exactly once."""

    __slots__ = ("_context", "_span", "_tracer")

    def __init__(self, tracer: Tracer, span: Span, parent: Context) -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer, self._span = tracer, span
        self._context = set_span_in_context(span, parent)

    def forward(self) -> dict[str, str]:
        """Headers for the expert, so that its spans become children of this one."""
        from opentelemetry import propagate

        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=self._context)
        return carrier

    def finish(self, record: ExchangeRecord) -> None:
        """End the span with the outcome of the request. Prompts and answers are not included."""
        from opentelemetry.trace import Status, StatusCode

        span = self._span
        if not span.is_recording():
            span.end()
            return
        operation = OPERATIONS.get(record.endpoint, "chat")
        span.update_name(f"{operation} {record.model or record.asked[:100]}".strip())
        span.set_attributes(_drop_none(_request_attributes(record, operation)))
        if record.route_seconds is not None:
            self._route(record, record.route_seconds)
        if record.outcome not in ("ok", "cancelled"):
            span.set_attribute("error.type", record.error or record.outcome)
            span.set_status(Status(StatusCode.ERROR, record.outcome))
        span.end()

    def _route(self, record: ExchangeRecord, seconds: float) -> None:
        began = int(record.started * NANOSECONDS_PER_S)
        span = self._tracer.start_span("route", context=self._context, start_time=began)
        span.set_attributes(_drop_none(_decision_attributes(record)))
        span.end(end_time=began + int(seconds * NANOSECONDS_PER_S))


def create_tracing() -> Tracing | None:
    """Spans where OTEL_* asks for them, or where the embedding program has set up a provider; otherwise None."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if "opentelemetry.trace" in sys.modules:  # otherwise nobody can have set one up
        from opentelemetry import trace

        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider):
            return Tracing(provider)
    name = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if name == "none" or not (name or _get_endpoint()):
        return None
    try:
        return Tracing(_create_provider(name or "otlp"), owned=True)
    except ImportError as error:
        _log.warning("no traces: %s. pip install 'ir3de[otel]', or unset the OTEL_* variables", error)
        return None


def _get_endpoint() -> str | None:
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")


def _create_provider(name: str) -> TracerProvider:
    """A provider as OpenTelemetry's variables describe it."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if name == "otlp":
        grpc = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip().lower() == "grpc"
        name = "otlp_proto_grpc" if grpc else "otlp_proto_http"
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise ImportError(f"OpenTelemetry has no exporter {name!r} here")
    service = os.environ.get("OTEL_SERVICE_NAME") or "ir3de"
    provider = SdkProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    return provider


def _request_attributes(record: ExchangeRecord, operation: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "openai",  # whose API it is
        "gen_ai.request.model": record.asked[:100] or None,
        "gen_ai.response.model": record.model or None,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "http.response.status_code": record.status or None,
        "ir3de.request_id": record.request_id[:100],
        "ir3de.expert": record.expert or None,
        "ir3de.outcome": record.outcome,
        "ir3de.why": record.why or None,
        "ir3de.stream": record.stream,
        "ir3de.fallbacks": len(record.fallbacks),
        "ir3de.ttft_seconds": record.first_seconds,
        "ir3de.cost": record.cost,
        "ir3de.key": record.key or None,
        **_decision_attributes(record),
    }


def _decision_attributes(record: ExchangeRecord) -> dict[str, Any]:
    decision = record.decision
    if decision is None:
        return {"ir3de.router": record.router or None}
    return {
        "ir3de.router": record.router or None,
        "ir3de.decided": decision.expert,
        "ir3de.confidence": record.confidence,
        "ir3de.expected_score": record.expected_score,
        "ir3de.margin": record.margin,
        "ir3de.abstained": decision.abstained,
    }


def _drop_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}
