"""Traces: two spans a request in the client's trace, the expert's inside them; nothing where nobody collects."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import aiohttp
import pytest

import exchange_records as made
import running_gateway
import tiny
from ir3de_gateway.telemetry.tracing import Trace, Tracing, create_tracing

otel = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import StatusCode  # noqa: E402

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter: InMemorySpanExporter) -> Tracing:
    provider = otel.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Tracing(provider, owned=[provider])


def begun(tracing: Tracing) -> Trace:
    return tracing.begin({b"traceparent": TRACEPARENT.encode(), b"tracestate": b"vendor=1"})


def test_spans_lie_in_the_clients_trace_and_the_experts_in_them(
    tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    trace = begun(tracing)
    forwarded = trace.forward()
    trace.finish(made.record(asked="auto", started=1_000.0, key="research"))
    route, chat = exporter.get_finished_spans()
    assert (route.name, chat.name) == ("route", "chat law-7b")
    assert f"{chat.context.trace_id:032x}" == TRACE and f"{chat.parent.span_id:016x}" == PARENT
    assert route.parent.span_id == chat.context.span_id
    assert forwarded["traceparent"] == f"00-{TRACE}-{chat.context.span_id:016x}-01"
    assert forwarded["tracestate"] == "vendor=1"
    assert (route.start_time, route.end_time - route.start_time) == (1_000 * 10**9, 30_000)
    said = dict(chat.attributes)
    assert said["gen_ai.operation.name"] == "chat" and said["gen_ai.request.model"] == "law-7b"
    assert said["ir3de.asked"] == "auto" and said["ir3de.expert"] == "law" and said["ir3de.key"] == "research"
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (10, 5)
    assert route.attributes["ir3de.confidence"] == said["ir3de.confidence"] == made.decided().confidence
    assert chat.status.status_code is StatusCode.UNSET


def test_a_request_joins_the_trace_of_its_client(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    for headers in ({b"traceparent": TRACEPARENT.encode()}, {b"traceparent": b"\xff"}, {}):
        tracing.begin(headers).finish(made.record())
    chats = [span for span in exporter.get_finished_spans() if span.name != "route"]
    assert [f"{span.context.trace_id:032x}" == TRACE for span in chats] == [True, False, False]


@pytest.mark.parametrize("outcome", ["upstream_error", "unavailable", "broken_stream", "client_error"])
def test_what_failed_is_marked(outcome: str, tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    nothing = {"decision": None, "route_seconds": None, "prompt_tokens": None}
    begun(tracing).finish(made.record(outcome=outcome, error="upstream_503", **nothing))
    (chat,) = exporter.get_finished_spans()
    assert chat.status.status_code is StatusCode.ERROR and chat.attributes["error.type"] == "upstream_503"


def test_no_prompt_is_told(tracing: Tracing, exporter: InMemorySpanExporter) -> None:
    begun(tracing).finish(made.record(text="sk-Geheim"))
    assert not any("sk-Geheim" in span.to_json() for span in exporter.get_finished_spans())


def test_nothing_is_traced_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    assert create_tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert create_tracing() is None


def test_an_exporter_that_is_not_installed_is_a_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "pigeon")
    assert create_tracing() is None
    assert "no telemetry" in caplog.text and "pigeon" in caplog.text
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    caplog.clear()
    assert create_tracing() is None and caplog.text == ""


def test_the_environment_or_the_embedding_program_turns_spans_on() -> None:
    script = """
import json, os, sys
from ir3de_gateway.telemetry.tracing import create_tracing
from ir3de_gateway.exchange_record import ExchangeRecord
before = create_tracing() is None and "opentelemetry.trace" not in sys.modules  # nothing is even loaded
os.environ["OTEL_TRACES_EXPORTER"] = "console"
tracing = create_tracing()
tracing.begin({}).finish(ExchangeRecord("r", "chat", model="m"))
sys.stdout.write("[")
tracing.close()
del os.environ["OTEL_TRACES_EXPORTER"]
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
sys.stdout.write("," + json.dumps([before, create_tracing() is not None]) + "]")
"""
    command, environment = tiny.python_command(script)
    environment = {name: value for name, value in environment.items() if not name.startswith("OTEL_")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    span, found = json.loads(done.stdout)
    assert span["name"] == "chat m" and span["resource"]["attributes"]["service.name"] == "ir3de"
    assert found == [True, True]


@pytest.mark.parametrize("traced", [True, False])
def test_a_gateway_hands_the_trace_on(
    traced: bool, tmp_path: Path, tracing: Tracing, exporter: InMemorySpanExporter
) -> None:
    async def ask(url: str) -> int:
        body = {"model": "auto", "messages": [{"role": "user", "content": "Is my contract void?"}]}
        async with (
            aiohttp.ClientSession(headers={"traceparent": TRACEPARENT}) as session,
            session.post(f"{url}/v1/chat/completions", json=body) as answer,
        ):
            return answer.status

    with running_gateway.running(tmp_path) as running:
        running.gateway.tracing = tracing if traced else None
        assert asyncio.run(ask(running.url)) == 200
        (sent,) = running.upstream.headers
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == (["route", "chat law"] if traced else [])
    inside = f"00-{TRACE}-{spans[-1].context.span_id:016x}-01" if traced else TRACEPARENT
    assert sent["traceparent"] == inside
