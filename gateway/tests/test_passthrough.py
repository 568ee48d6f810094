"""Images, audio, rerank, moderations, files and batches, with OpenAI's own client, through the gateway."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import openai
import pytest

from ir3de_gateway.requests import forms as upload
from ir3de_gateway.serving.request_filter import RequestFilter
from ir3de_gateway.wire.formats import PASSTHROUGH_FORMATS
from object_servers import SPEECH, ObjectServer, serving_objects
from raw_sockets import ask, dial, eventually
from running_gateway import Running

Served = tuple[Running, ObjectServer]


@pytest.fixture(scope="module", params=[{"http": RequestFilter}, {}], ids=["our server", "any server"])
def all_served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = {"limits": {"upload_bytes": 6_000_000, "body_bytes": 1_000_000}}
    with serving_objects(tmp_path_factory.mktemp("objects"), ("law", "maths"), request.param, server=limits) as found:
        yield found


@pytest.fixture
def found(all_served: Served) -> Served:
    all_served[1].seen.clear()
    all_served[1].kinds.clear()
    return all_served


@pytest.fixture
def client(found: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{found[0].url}/v1", api_key="any", max_retries=0) as client:
        yield client


def read_form(server: ObjectServer, place: int = -1) -> dict[str, bytes]:
    """The fields of a form, as another reader understands it."""
    head = f"content-type: {server.kinds[place]}\r\n\r\n".encode()
    parts: list[Message] = message_from_bytes(head + server.seen[place][3]).get_payload()  # type: ignore[assignment]
    return {
        str(part.get_param("name", header="content-disposition")): bytes(part.get_payload(decode=True))
        for part in parts
    }


def test_the_model_names_the_expert_and_is_renamed(found: Served, client: Any) -> None:
    _, server = found
    image = client.images.generate(model="law", prompt="a court")
    assert image.data[0].b64_json == "AAAA"
    client.moderations.create(model="auto", input="a text")
    client.moderations.create(input="a text")
    answer = client.post("/rerank", cast_to=object, body={"query": "q", "documents": ["a", "b"], "model": "law"})
    assert answer["results"][0]["index"] == 1
    assert [(expert, path) for expert, path in server.asked] == [
        ("law", "POST images/generations"),
        ("maths", "POST moderations"),  # the first one that has them
        ("maths", "POST moderations"),
        ("law", "POST rerank"),
    ]
    assert [json.loads(body)["model"] for *_, body in server.seen] == ["law-v1", "maths-v1", "maths-v1", "law-v1"]


def test_v2_rerank_is_the_same(found: Served) -> None:
    gateway, server = found
    got = ask(gateway.url, {"query": "q", "documents": ["a"], "model": "law", "ir3de": {"session": "s"}}, "/v2/rerank")
    assert (got.status, got.headers["x-ir3de-expert"]) == (200, "law")
    assert json.loads(server.seen[0][3]) == {"query": "q", "documents": ["a"], "model": "law-v1"}


def test_speech_is_relayed_as_it_comes(found: Served, client: Any) -> None:
    with client.audio.speech.with_streaming_response.create(model="law", voice="a", input="hello") as answer:
        assert answer.headers["content-type"] == "audio/mpeg"
        assert answer.headers["x-ir3de-expert"] == "law"
        assert b"".join(answer.iter_bytes()) == SPEECH


def test_a_form_keeps_every_field_but_the_model(found: Served, client: Any) -> None:
    _, server = found
    said = client.audio.transcriptions.create(
        model="law", file=("a.wav", SPEECH), language="de", timestamp_granularities=["word"]
    )
    assert said.text == "hello"
    assert read_form(server) == {
        "model": b"law-v1",
        "language": b"de",
        "timestamp_granularities[]": b"word",
        "file": SPEECH,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the client, about its models
        client.audio.translations.create(model="auto", file=("a.wav", b"x"))
    assert server.seen[-1][0] == "maths"
    events = client.audio.transcriptions.create(model="law", file=("a.wav", b"x"), stream=True)
    assert [event.delta for event in events] == ["hello"]
    client.images.edit(model="law", image=[b"one", b"two"], prompt="more")
    assert server.asked[-1] == ("law", "POST images/edits")


def test_a_large_file_goes_through_the_disk(found: Served, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, server = found
    content, written = bytes(range(251)) * 20_000, []
    write = upload.Upload._write
    monkeypatch.setattr(upload.Upload, "_write", lambda self: (written.append(self._unwritten_bytes), write(self)))
    client.audio.transcriptions.create(model="law", file=("a.wav", content))
    form = read_form(server)
    assert form["file"] == content
    assert form["model"] == b"law-v1"
    assert len(written) > 3
    assert max(written) < 2 * upload.MEMORY_BYTES
    assert eventually(lambda: upload._in_use == 0)


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"x" * 7_000_000, "multipart/form-data; boundary=b", 413, "request_too_large"),
        (b"{}", "application/json", 415, "unsupported_media_type"),
        (b"--b\r\n\r\nx\r\n--b--", "multipart/form-data; boundary=b", 400, "invalid_form"),
        (b"--b\r\n", "multipart/form-data; boundary=b", 400, "invalid_form"),
        (b"--c--\r\n", "multipart/form-data; boundary=b", 400, "invalid_form"),
    ],
)
def test_forms_that_cannot_be_used(found: Served, body: bytes, kind: str, status: int, code: str) -> None:
    gateway, server = found
    got = ask(gateway.url, body, "/v1/files", content_type=kind)
    assert (got.status, got.error["code"]) == (status, code)
    assert server.seen == []
    assert ask(gateway.url, {"input": "x"}, "/v1/moderations").status == 200
    assert eventually(lambda: upload._in_use == 0)


def test_a_client_that_leaves_while_it_uploads(found: Served) -> None:
    gateway, server = found
    line = dial(gateway.url)
    line.sendall(b"POST /v1/files HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=b\r\n")
    line.sendall(b"content-length: 20000000\r\n\r\n--b\r\n" + b"x" * 1_000)
    line.close()
    assert eventually(lambda: upload._in_use == 0)
    assert server.seen == []


def test_uploads_are_bounded_together(found: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, server = found
    monkeypatch.setattr(upload, "_in_use", 24_000_000)  # four times the largest one
    got = ask(gateway.url, b"--b--\r\n", "/v1/files", content_type="multipart/form-data; boundary=b")
    assert (got.status, got.headers["retry-after"]) == (503, "5")
    assert eventually(lambda: upload._in_use == 24_000_000)
    assert server.seen == []


def test_an_upload_that_does_not_come(found: Served) -> None:
    gateway, _ = found
    live = gateway.gateway.live
    before, config = live.snapshot, live.snapshot.config
    limits = config.server.limits.model_copy(update={"upload_seconds": 0.05})
    server = config.server.model_copy(update={"limits": limits})
    live.swap(replace(before, config=config.model_copy(update={"server": server})))
    try:
        line = dial(gateway.url)
        line.sendall(b"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 20\r\n")
        line.sendall(b"content-type: multipart/form-data; boundary=b\r\n\r\n--b")
        assert line.recv(12) == b"HTTP/1.1 408"
        line.close()
    finally:
        live.swap(before)


def test_every_path_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_API_KEY", "sesame")
    with serving_objects(tmp_path) as (gateway, server):
        for wire in PASSTHROUGH_FORMATS:
            for path in filter(None, (f"/v1/{wire.path}", wire.also_at)):
                got = ask(gateway.url, None, path.replace("{id}", "x"), wire.method)
                assert (got.status, got.error["code"]) == (401, "invalid_api_key")
        assert server.seen == []


def test_files_and_batches_stay_with_their_expert(found: Served, client: Any) -> None:
    _, server = found
    with pytest.raises(openai.BadRequestError, match="x-ir3de-allow"):
        client.files.create(file=("b.jsonl", b"{}"), purpose="batch")
    there = {"extra_headers": {"x-ir3de-allow": "law"}}
    file = client.files.create(file=("b.jsonl", b'{"a": 1}'), purpose="batch", **there)
    assert read_form(server) == {"purpose": b"batch", "file": b'{"a": 1}'}
    assert client.files.retrieve(file.id).id == file.id
    assert b'{"a": 1}' in client.files.content(file.id).read()
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    assert client.batches.retrieve(batch.id).status == "validating"
    assert client.files.content(batch.output_file_id).read() == b'{"custom_id": "1"}'
    assert client.batches.cancel(batch.id).status == "cancelled"
    assert file.id in [one.id for one in client.files.list(**there)]
    assert [one.id for one in client.batches.list(**there)] == [batch.id]
    assert client.files.delete(file.id).deleted
    assert {expert for expert, _ in server.asked} == {"law"}
    assert json.loads(server.seen[3][3]) == {
        "input_file_id": file.id,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    with pytest.raises(openai.NotFoundError, match="no file"):  # two experts could have it
        client.files.retrieve("file-nobody")


def test_a_model_names_the_expert_for_a_file_and_is_not_sent(found: Served, client: Any) -> None:
    _, server = found
    client.files.create(file=("b", b"{}"), purpose="batch", extra_body={"model": "maths"})
    assert server.seen[0][0] == "maths"
    assert read_form(server) == {"purpose": b"batch", "file": b"{}"}
    body = {"input_file_id": "file-x", "model": "law", "ir3de": {"allow": ["law"]}, "endpoint": "e"}
    assert ask(found[0].url, body, "/v1/batches").status == 200
    assert json.loads(server.seen[1][3]) == {"input_file_id": "file-x", "endpoint": "e"}


def test_a_capability_that_nobody_has_is_explained(tmp_path: Path) -> None:
    with serving_objects(tmp_path, ()) as (gateway, server):
        got = ask(gateway.url, {"prompt": "x"}, "/v1/images/generations")
        assert (got.status, got.error["code"]) == (404, "no_capable_expert")
        for part in ("/v1/images/generations", "no expert has images", "law has chat, responses"):
            assert part in got.error["message"]
        assert ask(gateway.url, path="/v1/files").status == 404
        assert server.seen == []


def test_a_name_that_cannot(found: Served) -> None:
    gateway, _ = found
    for model, code in (("cooking", "no_capable_expert"), ("nobody", "model_not_found")):
        got = ask(gateway.url, {"prompt": "x", "model": model}, "/v1/images/generations")
        assert (got.status, got.error["code"]) == (404, code)
        assert "law" in got.error["message"]
    got = ask(gateway.url, {"model": 1}, "/v1/rerank")
    assert (got.status, got.error["param"]) == (400, "model")
    got = ask(gateway.url, path="/v1/rerank")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    for strange in ("..%2f..%2fadmin", "%2e%2e", "a%0ab", "a%3fb", "x" * 300):
        assert ask(gateway.url, path=f"/v1/files/{strange}").status == 404


def test_requests_are_counted_and_logged_once(tmp_path: Path) -> None:
    log = tmp_path / "access"
    prices = {"input_per_1m": 1_000_000}
    with serving_objects(tmp_path, logs={"access": str(log)}) as (gateway, _):
        experts = gateway.gateway.live.snapshot.experts
        law = experts["law"]
        law.config = law.config.model_copy(update={"price": law.config.price.model_copy(update=prices)})
        ask(gateway.url, {"prompt": "x"}, "/v1/images/generations")
        ask(gateway.url, path="/v1/files/file-x")
        said = ask(gateway.url, path="/metrics").body.decode()
    assert 'ir3de_requests_total{expert="law",outcome="ok"} 1' in said
    assert 'ir3de_requests_total{expert="law",outcome="client_error"} 1' in said
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    images, files = [line for line in lines if line["endpoint"] in ("images", "files")]
    assert (images["expert"], images["cost"], images["why"]) == ("law", 3.0, "the first with images")
    assert (files["method"], files["status"], files["error"]) == ("GET", 404, "upstream_404")
