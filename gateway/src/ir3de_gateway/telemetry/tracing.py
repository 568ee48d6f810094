"""OpenTelemetry: its variables (OTEL_*), or the embedding program, decide whether requests have spans and metrics.

Each request has the span `chat {model}`, with the span `route` inside it, and metrics at its end.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

from ir3de import __version__
from ir3de.serving import name_extra
from ir3de_gateway.telemetry import gen_ai
from ir3de_gateway.telemetry.gen_ai import AnswerFacts, GenAiMetrics

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from ir3de_gateway.config.experts import ExpertConfig
    from ir3de_gateway.exchange_record import ExchangeRecord

NANOSECONDS_PER_S = 1_000_000_000

_log = logging.getLogger("ir3de.gateway")


class Tracing:
    """Makes a `Trace` for each request: with spans, with metrics, or with both."""

    def __init__(
        self, provider: TracerProvider | None = None, meters: MeterProvider | None = None, *, owned: Iterable[Any] = ()
    ) -> None:
        """`owned` are the providers that are shut down at the end; others belong to the embedding program."""
        self._tracer: Tracer | None = None if provider is None else provider.get_tracer("ir3de_gateway")
        self.metrics = None if meters is None else GenAiMetrics(meters)
        self._owned = tuple(owned)

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace:
        """Start the span of a request, as a part of the client's trace if it has one."""
        if self._tracer is None:
            return Trace(self.metrics)
        from opentelemetry import propagate

        parent = propagate.extract({name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()})
        return Trace(self.metrics, self._tracer, parent)

    def close(self) -> None:
        """Export what remains."""
        for provider in self._owned:
            provider.shutdown()


class Trace:
    """One request for OpenTelemetry: its metrics, and a span where spans are recorded. Finish it exactly once."""

    __slots__ = ("_context", "_facts", "_has_failed", "_headers", "_metrics", "_request", "_span", "_tracer")

    def __init__(
        self, metrics: GenAiMetrics | None, tracer: Tracer | None = None, parent: Context | None = None
    ) -> None:
        self._metrics, self._tracer, self._facts = metrics, tracer, AnswerFacts()
        self._request: gen_ai.Attributes = {}
        self._headers: Iterable[tuple[bytes, bytes]] = ()
        self._has_failed = False  # the failure of the last expert has been recorded
        self._span: Span | None = None
        if tracer is not None:
            from opentelemetry.trace import SpanKind, set_span_in_context

            self._span = tracer.start_span("chat", context=parent, kind=SpanKind.CLIENT)
            self._context = set_span_in_context(self._span, parent)

    def forward(self) -> dict[str, str]:
        """Headers for the expert, so that its spans become children of this one."""
        carrier: dict[str, str] = {}
        if self._span is not None:
            from opentelemetry import propagate

            propagate.inject(carrier, context=self._context)
        return carrier

    def read_request(self, values: Mapping[str, Any]) -> None:
        """Read the settings of the request."""
        self._request = gen_ai.read_request_attributes(values)

    def begin_answer(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """An expert begins to answer. Facts about earlier answers are dropped."""
        self._headers, self._facts, self._has_failed = headers, AnswerFacts(), False

    def read_answer(self, answer: Mapping[str, Any]) -> None:
        """Read a whole answer."""
        self._facts.read(answer)

    def read_events(self, head: bytes, tail: bytes) -> None:
        """Read the first and the last events of a stream."""
        self._facts.read_events(head, tail)

    def add_failure(self, record: ExchangeRecord, expert: ExpertConfig, error: str, seconds: float) -> None:
        """Record a request to an expert that failed after this many seconds. Other experts may follow."""
        self._has_failed = True
        server, operation = find_server(expert.base_url), gen_ai.name_operation(record.endpoint)
        known = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._name_provider(expert, server),
            "gen_ai.request.model": expert.served_model,
            **server,
            "error.type": error,
        }
        if self._metrics is not None:
            self._metrics.record_failure(seconds, known)
        if self._tracer is not None:
            from opentelemetry.trace import SpanKind

            ended, name = time_ns(), f"{operation} {expert.served_model}"
            began = ended - int(seconds * NANOSECONDS_PER_S)
            span = self._tracer.start_span(name, context=self._context, kind=SpanKind.CLIENT, start_time=began)
            span.set_attributes({**known, "ir3de.expert": expert.name})
            _set_error(span, error)
            span.end(end_time=ended)

    def finish(self, record: ExchangeRecord, expert: ExpertConfig | None = None, usage: Mapping[str, Any] = {}) -> None:
        """Record the outcome of the request. Prompts and answers are not included."""
        span, is_recording = self._span, self._span is not None and self._span.is_recording()
        if self._metrics is not None or is_recording:
            server = {} if expert is None else find_server(expert.base_url)
            operation, model = gen_ai.name_operation(record.endpoint), record.model or record.asked[: gen_ai.MAX_CHARS]
            found = gen_ai.build_span_attributes(record, self._facts, usage, model, operation)
            known = gen_ai.drop_empty({**found, "gen_ai.provider.name": self._name_provider(expert, server)})
            if self._metrics is not None:
                self._metrics.record(record, known, server, has_failed=self._has_failed)
            if span is not None and is_recording:
                span.update_name(f"{operation} {model}".strip())
                span.set_attributes({**self._request, **known, **server})
                self._finish_span(span, record)
        if span is not None:
            span.end()

    def _finish_span(self, span: Span, record: ExchangeRecord) -> None:
        if self._tracer is not None and record.route_seconds is not None:
            began = int(record.started * NANOSECONDS_PER_S)
            route = self._tracer.start_span("route", context=self._context, start_time=began)
            route.set_attributes(gen_ai.drop_empty(gen_ai.build_decision_attributes(record)))
            route.end(end_time=began + int(record.route_seconds * NANOSECONDS_PER_S))
        if (error := gen_ai.find_error_type(record)) is not None:
            span.set_attribute("error.type", error)
            _set_error(span, record.outcome)

    def _name_provider(self, expert: ExpertConfig | None, server: Mapping[str, Any]) -> str:
        if expert is None:
            return "ir3de"
        known = expert.provider or gen_ai.find_provider_of_host(server["server.address"])
        return known or gen_ai.find_provider_of_headers(self._headers) or gen_ai.UNKNOWN_PROVIDER


def _set_error(span: Span, text: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, text))


def find_server(base_url: str) -> gen_ai.Attributes:
    """The address and port of an expert.

    >>> find_server("https://api.openai.com/v1")
    {'server.address': 'api.openai.com', 'server.port': 443}
    """
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname or "", "server.port": port}


# the variables of OpenTelemetry -------------------------------------------------------------------------------------


def create_tracing() -> Tracing | None:
    """Spans and metrics, if OTEL_* variables request them or the embedding program has set up a provider."""
    if _read("OTEL_SDK_DISABLED") == "true":
        return None
    spans, meters = _find_tracer_provider(), _find_meter_provider()
    owned: list[Any] = []
    try:
        if spans is None and (exporter := _choose_exporter("traces")):
            owned.append(spans := _create_tracer_provider(exporter))
        if meters is None and (exporter := _choose_exporter("metrics")):
            owned.append(meters := _create_meter_provider(exporter))
    except ImportError as error:
        _log.warning("no telemetry: %s. Unset the OTEL_* variables, or %s", error, name_extra("otel", "ir3de-gateway"))
    return None if spans is None and meters is None else Tracing(spans, meters, owned=owned)


def _find_tracer_provider() -> TracerProvider | None:
    """The provider of the embedding program."""
    if "opentelemetry.trace" not in sys.modules:  # none can have been set up
        return None
    from opentelemetry import trace

    found = trace.get_tracer_provider()
    return None if isinstance(found, trace.ProxyTracerProvider) else found


def _find_meter_provider() -> MeterProvider | None:
    if "opentelemetry.metrics" not in sys.modules:
        return None
    from opentelemetry import metrics
    from opentelemetry.metrics import NoOpMeterProvider

    found = metrics.get_meter_provider()
    is_proxy = type(found).__name__ == "_ProxyMeterProvider"  # it has no public name
    return None if is_proxy or isinstance(found, NoOpMeterProvider) else found


def _choose_exporter(signal: str) -> str:
    """The exporter that the variables name for traces or metrics; empty if there is none."""
    name = _read(f"OTEL_{signal.upper()}_EXPORTER")
    endpoint = _read(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT") or _read("OTEL_EXPORTER_OTLP_ENDPOINT")
    return "" if name == "none" else name or ("otlp" if endpoint else "")


def _create_tracer_provider(exporter: str) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider as SdkProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    make = _load_exporter("traces", exporter)
    provider = SdkProvider(resource=_describe_resource())
    provider.add_span_processor(BatchSpanProcessor(make()))
    return provider


def _create_meter_provider(exporter: str) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider as SdkProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    make = _load_exporter("metrics", exporter)
    return SdkProvider([PeriodicExportingMetricReader(make())], resource=_describe_resource())


def _load_exporter(signal: str, name: str) -> Any:
    if name == "otlp":
        protocol = _read(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or _read("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"
    found = list(entry_points(group=f"opentelemetry_{signal}_exporter", name=name))
    if not found:
        raise ImportError(f"the OpenTelemetry exporter {name!r} for {signal} is not installed")
    return found[0].load()


def _describe_resource() -> Resource:
    """The resource: each worker is an instance of its own, so that their numbers are added up and not mixed."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": "ir3de",
        "service.version": __version__,
        "service.instance.id": str(uuid4()),
        **OTELResourceDetector().detect().attributes,  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
    }
    return Resource.create(ours)


def _read(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()
