"""Spans and metrics on their way to a collector: a real gateway, and a server that reads OTLP over HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import raw_sockets
from running_gateway import QUESTIONS, Running, running

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = pytest.mark.slow


class Collector:
    """What was received: spans by name, and metrics by name; and who sent it."""

    def __init__(self) -> None:
        self.spans: dict[str, dict[str, Any]] = {}
        self.metrics: dict[str, list[dict[str, Any]]] = {}
        self.resource: dict[str, Any] = {}
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = read(resource.resource.attributes)
                spans = [span for scope in resource.scope_spans for span in scope.spans]
                self.spans |= {span.name: read(span.attributes) for span in spans}
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    points = [{**read(one.attributes), "count": one.count} for one in metric.histogram.data_points]
                    self.metrics[metric.name] = points


def read(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    collected = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collected.take(self.path, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collected.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collected
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def exporting(folder: Path, collected: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A gateway that the environment's variables tell where to send to."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with running(folder, experts={"law": {"provider": "vllm", "model": "law-7b"}}) as gateway:
        yield gateway


def test_a_collector_gets_spans_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as collected:
        with exporting(tmp_path, collected, monkeypatch) as gateway:
            for extra in ({}, {"stream": True}):
                assert raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"], **extra)).status == 200
            assert raw_sockets.eventually(lambda: len(collected.metrics) == 6)
            assert raw_sockets.eventually(lambda: bool(collected.spans))
        said = collected.spans["chat law-7b"]
    assert said["gen_ai.provider.name"] == "vllm" and said["gen_ai.response.model"] == "law-7b"
    assert "route" in collected.spans
    assert collected.resource["service.name"] == "ir3de" and collected.resource["service.instance.id"]
    assert collected.resource["deployment.environment.name"] == "test"
    metrics = collected.metrics
    assert [point["count"] for point in metrics["gen_ai.server.request.duration"]] == [2]
    assert {point["gen_ai.token.type"] for point in metrics["gen_ai.client.token.usage"]} == {"input", "output"}


def test_a_collector_that_is_away_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = Collector()
    nobody.url = "http://127.0.0.1:1"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    with exporting(tmp_path, nobody, monkeypatch) as gateway:
        for _ in range(3):
            assert raw_sockets.ask(gateway.url, raw_sockets.chat(QUESTIONS["law"])).status == 200
