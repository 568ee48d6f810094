"""A gateway whose spans and metrics of OpenTelemetry stay in memory, for tests to read."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import raw_sockets
from ir3de_gateway.telemetry.tracing import Tracing
from running_gateway import Running


class Collected:
    """A gateway whose spans and metrics stay in memory."""

    def __init__(self, gateway: Running) -> None:
        self.gateway = gateway
        self.upstream = gateway.upstream
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        gateway.gateway.tracing = Tracing(provider, MeterProvider([self.reader]))

    def ask(self, path: str, body: dict[str, Any], **headers: str) -> raw_sockets.Got:
        return raw_sockets.ask(self.gateway.url, body, f"/v1/{path}", **headers)

    @property
    def span(self) -> ReadableSpan:
        """The only span of a request so far, without those inside it."""

        def find() -> list[ReadableSpan]:
            return [span for span in self.exporter.get_finished_spans() if span.parent is None]

        assert raw_sockets.eventually(lambda: bool(find()))  # it ends after the answer
        (span,) = find()
        return span

    @property
    def said(self) -> dict[str, Any]:
        return dict(self.span.attributes or {})

    @property
    def points(self) -> dict[str, list[HistogramDataPoint]]:
        """The points of each metric, as they are collected now."""
        found = self.reader.get_metrics_data()
        scopes = [] if found is None else [scope for one in found.resource_metrics for scope in one.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}
