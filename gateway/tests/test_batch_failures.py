"""Batch files with several experts where one fails, is away or is slow: nothing is lost, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import openai
import pytest
from starlette.responses import JSONResponse

from client_keys import bearer
from ir3de_gateway.requests.client import ClientResponse
from object_servers import serving_objects
from raw_sockets import eventually, sent
from routed_batches import CHATS, Found, client, found, line, one, put, write  # noqa: F401 - two of them are fixtures
from running_gateway import QUESTIONS


def test_what_was_done_before_a_failure_is_taken_back(found: Found) -> None:
    server = found[1]
    file = put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))
    parts = [name for name in server.objects if "/files/" in name][-2:]
    del server.objects[parts[1]]
    server.seen.clear()
    original = server._make

    def refuse(expert: str, kind: str, request: Any, content: bytes) -> Any:
        if expert == "maths":
            return JSONResponse({"error": {"message": "no such file", "type": "t"}}, 404)
        return original(expert, kind, request, content)

    server._make = refuse  # type: ignore[method-assign]
    try:
        with pytest.raises(openai.NotFoundError, match="'maths': no such file"):
            client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
        assert [asked for _, asked in server.asked if asked.endswith("/cancel")]
        with pytest.raises(openai.NotFoundError, match="'maths'"):
            put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))
        assert [asked for _, asked in server.asked if asked.startswith("DELETE files/")]
    finally:
        server._make = original  # type: ignore[method-assign]


@pytest.mark.parametrize("waits_for", ["law", "maths"])
@pytest.mark.parametrize("kind", ["files", "batches"])
def test_what_was_done_before_the_client_left_is_taken_back(
    found: Found, monkeypatch: pytest.MonkeyPatch, kind: str, waits_for: str
) -> None:
    """Also what the expert makes that has the request when the client leaves; the others are not asked any more."""
    gateway, server = found
    lines = line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"])
    has_begun, has_left, make, disconnect = Event(), Event(), server._make, ClientResponse.disconnect

    def make_late(expert: str, kind: str, request: Any, content: bytes) -> Any:
        if expert == waits_for:
            has_begun.set()
            assert has_left.wait(60)
        return make(expert, kind, request, content)

    def note(response: ClientResponse) -> None:
        disconnect(response)
        has_left.set()

    content, headers = build_form(*lines), {"content-type": "multipart/form-data; boundary=b"}
    if kind == "batches":
        content, headers = json.dumps({"input_file_id": put(found, *lines).id, **CHATS}).encode(), {}
    before = set(server.objects)
    monkeypatch.setattr(server, "_make", make_late)
    monkeypatch.setattr(ClientResponse, "disconnect", note)
    server.seen.clear()
    with sent(gateway.url, content, f"/v1/{kind}", **headers, **bearer("a")):
        assert has_begun.wait(60)
    assert has_left.wait(60)
    undone = "DELETE files/" if kind == "files" else "/cancel"
    asked = ["law"] if waits_for == "law" else ["law", "maths"]
    assert eventually(lambda: [expert for expert, what in server.asked if undone in what] == asked)
    assert [expert for expert, what in server.asked if what == f"POST {kind}"] == asked
    left = [server.objects[name] for name in server.objects.keys() - before if f"/{kind}/" in name]
    assert all(one["status"] == "cancelled" for one in left if kind == "batches") and (kind == "batches" or not left)


def build_form(*lines: object) -> bytes:
    purpose = b'--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    file = b'--b\r\ncontent-disposition: form-data; name="file"; filename="b.jsonl"\r\n\r\n'
    return purpose + file + write(*lines) + b"\r\n--b--\r\n"


@pytest.mark.parametrize("status", [401, 500, 503])
def test_a_file_that_an_expert_still_has_is_not_reported_as_deleted(
    found: Found, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    server, original = found[1], found[1]._store
    file = put(found, line(1, QUESTIONS["law"]), line(2, QUESTIONS["maths"]))
    parts = [name for name in server.objects if "/files/" in name][-2:]

    def refuse(expert: str, kind: str, rest: list[str], request: Any, content: bytes) -> Any:
        if (expert, request.method) == ("maths", "DELETE"):
            return JSONResponse({"error": {"message": "not now", "type": "t"}}, status)
        return original(expert, kind, rest, request, content)

    monkeypatch.setattr(server, "_store", refuse)
    for _ in range(2):
        with pytest.raises(openai.APIStatusError, match="'maths': not now") as caught:
            client(found).files.delete(file.id)
        assert caught.value.status_code == status
        assert client(found).files.retrieve(file.id).id == file.id
    monkeypatch.undo()
    assert client(found).files.delete(file.id).deleted  # though law has deleted its part before
    assert not server.objects.keys() & set(parts)
    with pytest.raises(openai.NotFoundError):
        client(found).files.retrieve(file.id)


def test_an_expert_that_is_gone_is_named(tmp_path: Path) -> None:
    state = {"state": str(tmp_path / "state")}
    with serving_objects(tmp_path, ("law", "maths"), **state) as found:
        file = put(found, line(1, QUESTIONS["law"]))
        batch = client(found).batches.create(input_file_id=file.id, **CHATS)  # type: ignore[arg-type]
        snapshot = found[0].gateway.live.snapshot
        law = snapshot.experts["law"]
        kept = {name: one for name, one in snapshot.experts.items() if name != "law"}
        object.__setattr__(snapshot, "experts", kept)
        with pytest.raises(openai.InternalServerError, match="'law' has a part of this, and is not configured"):
            client(found).batches.retrieve(batch.id)
        with pytest.raises(openai.InternalServerError, match="'law' has a part of this, and is not configured"):
            client(found).files.delete(file.id)
        object.__setattr__(snapshot, "experts", {**kept, "law": law})
        assert client(found).files.delete(file.id).deleted and found[1].asked[-1][1].startswith("DELETE files/")
