"""OpenTelemetry's conventions for generative AI: true providers and models, in spans and in metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from starlette.requests import Request
from starlette.responses import Response

import api_answers
import exchange_records as made
import raw_sockets
from ir3de_gateway.telemetry.gen_ai import MAX_MODELS, AnswerFacts, GenAiMetrics
from ir3de_gateway.telemetry.tracing import Tracing
from ir3de_gateway.wire.formats import count_usage
from running_gateway import QUESTIONS, Running, failing

otel = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes  # noqa: E402
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics  # noqa: E402

from collected_telemetry import Collected  # noqa: E402


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with api_answers.serving(tmp_path_factory.mktemp("gen-ai"), routing={"default": "cooking"}) as gateway:
        yield gateway


@pytest.fixture
def collected(gateway: Running) -> Collected:
    api_answers.tell_all(gateway)
    return Collected(gateway)


MESSAGES = [{"role": "user", "content": QUESTIONS["law"]}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": MESSAGES},
    "completions": {"prompt": QUESTIONS["law"]},
    "responses": {"input": QUESTIONS["law"]},
    "messages": {"messages": MESSAGES, "max_tokens": 9},
    "embeddings": {"input": QUESTIONS["law"], "model": "law"},
}
TOLD = {  # the operation, the answer's id whole and streamed, and why it ended
    "chat/completions": ("chat", "chatcmpl-1", "c1", "stop"),
    "completions": ("text_completion", "cmpl-1", "c1", "stop"),
    "responses": ("chat", "resp_1", "resp_1", "completed"),
    "messages": ("chat", "msg_1", "msg_1", "end_turn"),
    "embeddings": ("embeddings", None, None, None),
}
STREAMS = [(path, stream) for path in BODIES for stream in (False, True) if path != "embeddings" or not stream]


@pytest.mark.parametrize(("path", "stream"), STREAMS)
def test_a_span_tells_the_model_that_answered_in_every_format(collected: Collected, path: str, stream: bool) -> None:
    body = {"model": "auto", **BODIES[path], **({"stream": True} if stream else {})}
    assert collected.ask(path, body).status == 200
    operation, whole_id, stream_id, reason = TOLD[path]
    said = collected.said
    assert collected.span.name == f"{operation} law-v1"  # the model that the expert was asked for
    assert (said["gen_ai.operation.name"], said["gen_ai.request.model"]) == (operation, "law-v1")
    assert said["gen_ai.response.model"] == "served"  # and the one that it says it has
    assert said.get("gen_ai.response.id") == (stream_id if stream else whole_id)
    if not (stream and path == "completions"):  # those events tell no reason
        assert said.get("gen_ai.response.finish_reasons") == (None if reason is None else (reason,))
    assert said["gen_ai.usage.input_tokens"] == (1 if path == "embeddings" else 10)
    assert said.get("gen_ai.request.stream") == (True if stream else None)
    assert ("gen_ai.response.time_to_first_chunk" in said) is stream
    address = collected.gateway.gateway.live.snapshot.config.by_name["law"].base_url
    assert address.startswith(f"http://{said['server.address']}:{said['server.port']}/")


def test_every_name_is_one_of_the_conventions_or_our_own(collected: Collected) -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    known |= {"server.address", "server.port", "error.type", "http.response.status_code"}
    with OpenAI(base_url=f"{collected.gateway.url}/v1", api_key="none", max_retries=0) as client:
        client.chat.completions.create(model="auto", messages=MESSAGES, temperature=0.5, n=2, seed=7, max_tokens=9)  # type: ignore[arg-type]
    said = collected.said
    assert {name for name in said if not name.startswith("ir3de.")} <= known
    assert said["gen_ai.request.temperature"] == 0.5 and said["gen_ai.request.max_tokens"] == 9
    assert said["gen_ai.request.choice.count"] == 2 and said["gen_ai.request.seed"] == 7
    metrics = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")}
    assert set(collected.points) <= metrics and "gen_ai.client.operation.duration" in collected.points


def test_a_stream_fills_every_metric_with_the_buckets_of_the_conventions(collected: Collected) -> None:
    assert collected.ask("chat/completions", {"model": "auto", "messages": MESSAGES, "stream": True}).status == 200
    assert raw_sockets.eventually(lambda: len(collected.points) == 6)
    points = collected.points
    firsts = {
        "gen_ai.client.operation.duration": (0.01, 81.92, 14),
        "gen_ai.client.operation.time_to_first_chunk": (0.001, 10.0, 16),
        "gen_ai.client.token.usage": (1, 67108864, 14),
        "gen_ai.server.request.duration": (0.01, 81.92, 14),
        "gen_ai.server.time_to_first_token": (0.001, 10.0, 16),
        "gen_ai.server.time_per_output_token": (0.01, 2.5, 13),
    }
    for name, (first, last, number) in firsts.items():
        bounds = points[name][0].explicit_bounds
        assert (bounds[0], bounds[-1], len(bounds)) == (first, last, number), name
        assert [point.count for point in points[name]] == ([1, 1] if "token.usage" in name else [1])
    sums = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert sums == {"input": 10, "output": 5}
    shared = points["gen_ai.client.operation.duration"][0].attributes
    assert shared["gen_ai.response.model"] == "served" and shared["gen_ai.request.model"] == "law-v1"
    assert shared["server.address"] == "127.0.0.1" and "error.type" not in shared


def test_failures_have_a_type_and_no_time_to_a_first_token(collected: Collected) -> None:
    for name in QUESTIONS:
        collected.upstream.behaviour[name] = failing(503)
    assert collected.ask("chat/completions", {"model": "auto", "messages": MESSAGES}).status == 503
    said = collected.said
    assert said["error.type"] == "upstream_503" and said["ir3de.fallbacks"] == 1
    assert (said["ir3de.decided"], said["ir3de.instead"], said["ir3de.reason"]) == ("law", "default expert", "5xx")
    assert said["ir3de.fallback_reasons"][0] == "law: 5xx"
    points = collected.points
    assert set(points) == {"gen_ai.client.operation.duration", "gen_ai.server.request.duration"}
    assert {point.attributes["error.type"] for one in points.values() for point in one} == {"upstream_503"}
    asked = points["gen_ai.client.operation.duration"]
    counts = {point.attributes["gen_ai.request.model"]: point.count for point in asked}
    assert counts == {"law-v1": 1, "cooking-v1": 1}


def test_an_expert_that_failed_has_a_span_inside_that_of_the_request(collected: Collected) -> None:
    collected.upstream.behaviour["law"] = failing(500)
    assert collected.ask("chat/completions", {"model": "auto", "messages": MESSAGES}).status == 200
    assert raw_sockets.eventually(lambda: len(collected.exporter.get_finished_spans()) == 3)
    failed, _, whole = collected.exporter.get_finished_spans()
    assert failed.name == "chat law-v1" and failed.parent.span_id == whole.context.span_id
    assert failed.attributes["error.type"] == "upstream_500" and failed.attributes["ir3de.expert"] == "law"
    assert whole.start_time <= failed.start_time and failed.end_time <= whole.end_time
    assert "error.type" not in whole.attributes and whole.attributes["ir3de.fallbacks"] == 1
    asked = collected.points["gen_ai.client.operation.duration"]
    assert {point.attributes.get("error.type"): point.count for point in asked} == {"upstream_500": 1, None: 1}


def test_a_request_that_nobody_was_asked_about_is_the_gateways_own(collected: Collected) -> None:
    assert collected.ask("chat/completions", {"model": "nobody", "messages": MESSAGES}).status == 404
    assert collected.span.name == "chat nobody" and collected.said["gen_ai.provider.name"] == "ir3de"
    (point,) = collected.points["gen_ai.server.request.duration"]
    assert "gen_ai.request.model" not in point.attributes  # clients choose it: there is no end of such names
    assert "gen_ai.client.operation.duration" not in collected.points


def test_a_conversation_that_the_client_names_is_told(collected: Collected) -> None:
    body = {"model": "auto", "messages": MESSAGES}
    assert collected.ask("chat/completions", body, **{"x-session-id": "talk-1"}).status == 200
    assert collected.said["gen_ai.conversation.id"] == "talk-1"


@pytest.mark.parametrize(
    ("address", "provider", "server", "told"),
    [
        ("https://api.openai.com/v1", None, "", "openai"),
        ("https://eu.api.openai.com/v1", None, "", "openai"),
        ("https://team.openai.azure.com/openai/v1", None, "", "azure.ai.openai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", None, "", "aws.bedrock"),
        ("https://api.groq.com/openai/v1", None, "cloudflare", "groq"),
        ("https://openai.example.org/v1", None, "", "openai_compatible"),
        ("http://10.0.0.3:8080/v1", None, "llama.cpp", "llama.cpp"),
        ("http://10.0.0.3:8080/v1", None, "uvicorn", "openai_compatible"),
        ("http://10.0.0.3:8080/v1", "vllm", "llama.cpp", "vllm"),
    ],
)
def test_the_provider_is_the_configured_one_or_that_of_the_host_or_what_the_server_says(
    address: str, provider: str | None, server: str, told: str
) -> None:
    exporter, spans = InMemorySpanExporter(), otel.TracerProvider()
    spans.add_span_processor(SimpleSpanProcessor(exporter))
    expert = made.live().snapshot.config.experts[0].model_copy(update={"base_url": address, "provider": provider})
    trace = Tracing(spans).begin({})
    trace.begin_answer([(b"date", b"today"), (b"server", server.encode())])
    trace.finish(made.record(), expert)
    assert exporter.get_finished_spans()[-1].attributes["gen_ai.provider.name"] == told  # type: ignore[index]


def test_the_provider_of_a_running_server_is_what_it_says(collected: Collected) -> None:
    async def like_llama_cpp(request: Request, asked: dict[str, Any]) -> Response:
        return Response(api_answers.CHAT, headers={"server": "llama.cpp", "content-type": "application/json"})

    collected.upstream.behaviour["law"] = like_llama_cpp
    assert collected.ask("chat/completions", {"model": "auto", "messages": MESSAGES}).status == 200
    assert collected.said["gen_ai.provider.name"] == "llama.cpp"


def test_cached_tokens_belong_to_the_input() -> None:
    reader = InMemoryMetricReader()
    trace = Tracing(meters=MeterProvider([reader])).begin({})
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 5}
    prompt, answer = count_usage(usage)
    trace.finish(made.record(prompt_tokens=prompt, completion_tokens=answer), None, usage)
    (metrics,) = reader.get_metrics_data().resource_metrics[0].scope_metrics  # type: ignore[union-attr]
    tokens = next(one for one in metrics.metrics if one.name == "gen_ai.client.token.usage")
    assert sorted(point.sum for point in tokens.data.data_points) == [5, 105]
    assert trace.forward() == {}  # without spans, the client's own trace is passed on unchanged


def test_names_that_experts_invent_do_not_fill_the_memory() -> None:
    metrics = GenAiMetrics(MeterProvider([InMemoryMetricReader()]))
    assert [metrics._limit(f"model-{number}") for number in range(MAX_MODELS + 3)][-3:] == ["other"] * 3
    assert metrics._limit("model-0") == "model-0"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"model": 7, "id": None},
        {"choices": 3},
        {"choices": [None, {"finish_reason": 4}]},
        {"response": []},
        {"message": "x"},
        {"delta": "x"},
        {"object": "response", "status": "completed", "incomplete_details": 1},
    ],
)
def test_answers_of_any_shape_are_read(odd: dict[str, Any]) -> None:
    facts = AnswerFacts()
    facts.read(odd)
    facts.read_events(b"data: {", b"data: " + json.dumps(odd).encode() + b"\n\ndata: [DONE]\n\n")
    assert facts.model == facts.response_id == ""


def test_a_gateway_that_is_not_asked_for_telemetry_has_none(tmp_path: Path, gateway: Running) -> None:
    assert gateway.gateway.observer.tracing is None
