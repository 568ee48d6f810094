"""Experts that store responses, files and batches, make images and speech, and keep what they were sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from api_answers import RESPONSE, RESPONSE_EVENTS
from running_gateway import TEXTS, Running, running, served

OBJECTS = (
    "chat", "responses", "images", "audio_speech", "audio_transcriptions", "audio_translations", "rerank",
    "moderations", "files", "batches",
)  # fmt: skip
SPEECH = bytes(range(256)) * 1_000


@dataclass
class ObjectServer:
    """All experts behind one socket: /NAME/v1/…. `seen` has what came: expert, method, path and query, and the body."""

    seen: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)  # content types of the bodies
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)  # by expert and id
    contents: dict[str, bytes] = field(default_factory=dict)
    made: int = 0

    def app(self) -> Starlette:
        methods = ["GET", "POST", "DELETE"]
        return Starlette(routes=[Route("/{expert}/v1/{path:path}", self.answer, methods=methods)])

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Whom, and for what."""
        return [(expert, f"{method} {path}") for expert, method, path, _ in self.seen]

    async def answer(self, request: Request) -> Response:
        expert, path = request.path_params["expert"], request.path_params["path"]
        content = await request.body()
        query = f"?{request.url.query}" if request.url.query else ""
        self.seen.append((expert, request.method, path + query, content))
        self.kinds.append(request.headers.get("content-type", ""))
        kind, *rest = path.split("/")
        if kind in ("responses", "files", "batches"):
            return self._store(expert, kind, rest, request, content)
        if path == "audio/speech":
            return Response(SPEECH, media_type="audio/mpeg")
        if path == "audio/transcriptions" and b"stream" in content:
            said = [b'data: {"type":"transcript.text.delta","delta":"hello"}\n\n', b"data: [DONE]\n\n"]
            return _stream(said)
        if kind == "audio":
            return JSONResponse({"text": "hello"})
        if kind == "images":
            return JSONResponse({"created": 1, "data": [{"b64_json": "AAAA"}], "usage": {"input_tokens": 3}})
        if kind == "rerank":
            return JSONResponse({"id": "rr", "results": [{"index": 1, "relevance_score": 0.9}]})
        return JSONResponse({"id": "modr", "model": "m", "results": [{"flagged": False}]})

    def _store(self, expert: str, kind: str, rest: list[str], request: Request, content: bytes) -> Response:
        if not rest and request.method == "GET":
            mine = [one for name, one in self.objects.items() if name.startswith(f"{expert}/{kind}/")]
            ends = {"first_id": mine[0]["id"], "last_id": mine[-1]["id"]} if mine else {}
            return JSONResponse({"object": "list", "data": mine, "has_more": False, **ends})
        if not rest:
            return self._make(expert, kind, request, content)
        found = self.objects.get(f"{expert}/{kind}/{rest[0]}")
        if found is None:
            return JSONResponse({"error": {"message": f"{expert} has no {rest[0]}", "type": "t", "code": None}}, 404)
        if request.method == "DELETE":
            del self.objects[f"{expert}/{kind}/{rest[0]}"]
            return JSONResponse({"id": rest[0], "object": found["object"], "deleted": True})
        if rest[1:] == ["content"]:
            return Response(self.contents.get(rest[0], b""), media_type="application/octet-stream")
        if rest[1:] == ["input_items"]:
            return JSONResponse({"object": "list", "data": [], "has_more": False})
        if rest[1:] == ["cancel"]:
            found["status"] = "cancelled"
        if request.query_params.get("stream") == "true":
            if found.get("status") == "failed":
                event = json.dumps({"type": "response.failed", "response": found}).encode()
                return _stream([b"event: response.failed\ndata: " + event + b"\n\n"])
            return _stream([event.replace(b"resp_1", rest[0].encode()) for event in RESPONSE_EVENTS])
        return JSONResponse(found)

    def _make(self, expert: str, kind: str, request: Request, content: bytes) -> Response:
        self.made += 1
        if kind == "responses":
            asked, name = json.loads(content), f"resp_{expert}_{self.made}"
            made = {**json.loads(RESPONSE), "id": name}
            if asked.get("background"):
                made |= {"status": "queued", "output": [], "usage": None}
            self.objects[f"{expert}/responses/{name}"] = made
            if asked.get("stream"):
                return _stream([event.replace(b"resp_1", name.encode()) for event in RESPONSE_EVENTS])
        elif kind == "files":
            name = f"file-{expert}-{self.made}"
            made = {"id": name, "object": "file", "bytes": len(content), "created_at": 1, "filename": "x"}
            made |= {"purpose": "batch", "status": "processed"}
            self.contents[name] = content
        else:
            asked, name = json.loads(content), f"batch_{expert}_{self.made}"
            output = self._make(expert, "files", request, b'{"custom_id": "1"}')
            made = {"id": name, "object": "batch", "endpoint": "/v1/chat/completions", "status": "validating"}
            made |= {"input_file_id": asked["input_file_id"], "completion_window": "24h", "created_at": 1}
            made |= {"output_file_id": json.loads(bytes(output.body))["id"]}
        self.objects[f"{expert}/{kind}/{name}"] = made
        return JSONResponse(made)


def _stream(events: list[bytes]) -> Response:
    async def one_by_one() -> AsyncIterator[bytes]:
        for event in events:
            yield event
            await asyncio.sleep(0)

    return StreamingResponse(one_by_one(), media_type="text/event-stream")


@contextmanager
def serving_objects(
    folder: Path, experts: tuple[str, ...] = ("law",), server_options: Any = None, **changes: Any
) -> Iterator[tuple[Running, ObjectServer]]:
    """A gateway in front of such experts; only those named have what is not a chat."""
    server = ObjectServer()
    with served(server.app()) as url:
        special = {
            name: {
                "base_url": f"{url}/{name}/v1",
                "model": f"{name}-v1",
                **({"capabilities": OBJECTS} if name in experts else {"capabilities": ("chat", "responses")}),
            }
            for name in TEXTS
        }
        with running(folder, server_options, experts=special, **changes) as gateway:
            yield gateway, server
