"""A real gateway on a real socket for the tests, in front of experts that do what a test tells them."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from ir3de import Router
from ir3de_gateway.app import create_app
from ir3de_gateway.config.document import Config
from ir3de_gateway.gateway import Gateway

TEXTS = {
    "maths": ["What is 12 times 7?", "Solve x + 3 = 10 for x.", "Prove that the sum of two odd integers is even."],
    "law": ["Is this contract void?", "Can my landlord evict me?", "What does the statute say about tenants?"],
    "cooking": ["How long do I boil an egg?", "A recipe for bread, please.", "Why does my dough not rise?"],
}
QUESTIONS = {"maths": "Solve 3x = 12.", "law": "Is my contract void?", "cooking": "How do I boil an egg?"}
ANSWER = ["Well", ", ", "it ", "depends", "."]

Behaviour = Callable[[Request, dict[str, Any]], Awaitable[Response]]


@cache
def small_router() -> Router:
    return Router.fit(TEXTS)


@cache
def _saved_router() -> Path:
    """That router, saved once; to save it takes longer than to copy it."""
    folder = Path(tempfile.mkdtemp(prefix="ir3de-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return small_router().save(folder / "router")


@cache
def outcome_router() -> Router:
    """Each model scores 2 on prompts of its own name, 0 on others."""
    named = [(name, text) for name, texts in TEXTS.items() for text in texts]
    return Router.fit_outcomes(
        {"text": text, "task": name, "scores": {model: 2.0 * (model == name) for model in TEXTS}}
        for name, text in named
    )


def save_small_router(folder: Path) -> None:
    """A copy of that router, unless there is one."""
    if not folder.exists():
        shutil.copytree(_saved_router(), folder)


class QuickServer(uvicorn.Server):
    """uvicorn checks ten times a second whether it can stop; this one stops at once."""

    async def startup(self, sockets: Any = None) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._ended.wait()

    async def shutdown(self, sockets: Any = None) -> None:
        if self.config.timeout_graceful_shutdown is not None:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(0.005)
        await self.lifespan.shutdown()

    def stop(self) -> None:
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._ended.set)


@contextmanager
def served(app: ASGIApp, **options: Any) -> Iterator[str]:
    """The application on a free port of this machine: its address."""
    server = QuickServer(uvicorn.Config(app, log_level="critical", access_log=False, **{"port": 0, **options}))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            threading.Event().wait(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@dataclass
class Upstream:
    """Every expert behind one socket: /NAME/v1/…; keeps what it was sent, and does as `behave` says."""

    behaviour: dict[str, Behaviour] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # experts, in the order they were asked
    left: list[str] = field(default_factory=list)  # experts whose client hung up
    url: str = ""

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{expert}/v1/{path:path}", self._answer, methods=["GET", "POST"])])

    async def _answer(self, request: Request) -> Response:
        content, expert = await request.body(), request.path_params["expert"]
        self.bodies.append(content)
        self.headers.append(request.headers)
        self.asked.append(expert)
        return await self.behaviour.get(expert, answer)(request, json.loads(content or b"{}"))


async def answer(request: Request, asked: dict[str, Any]) -> Response:
    """A chat completion as OpenAI's servers give it, whole or as a stream."""
    model = asked.get("model")
    if asked.get("stream"):
        return StreamingResponse(_events(model), media_type="text/event-stream")
    if "input" in asked and "embeddings" in str(request.url):
        rows = [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}]
        return JSONResponse(
            {"object": "list", "data": rows, "model": model, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        )
    message: dict[str, Any] = {"role": "assistant", "content": "".join(ANSWER)}
    if asked.get("tools"):
        call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    if "json_schema" in json.dumps(asked.get("response_format", {})):
        message["content"] = '{"value": 4}'
    choice = {"index": 0, "message": message, "finish_reason": "stop", "text": "".join(ANSWER), "logprobs": None}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return JSONResponse(
        {"id": "x", "object": "chat.completion", "created": 1, "model": model, "choices": [choice], "usage": usage}
    )


async def _events(model: Any, pause: float = 0.0) -> Any:
    for word in ANSWER:
        choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        yield event({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]})
        await asyncio.sleep(pause)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    yield event(
        {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [last], "usage": usage}
    )
    yield b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def failing(status: int, **headers: str) -> Behaviour:
    """An expert that answers with an error object."""

    async def fail(request: Request, asked: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": "no", "type": "t", "code": "c"}}, status, headers)

    return fail


def config_for(upstream: str, router: Path, /, **changes: Any) -> Config:
    """A configuration with the three experts; `experts={"law": {…}}` changes one of them."""
    special = changes.pop("experts", {})
    patient = {"timeouts": {"connect": 60}}  # however busy this machine is
    experts = [
        {"name": name, "base_url": f"{upstream}/{name}/v1", **patient, **special.get(name, {})} for name in TEXTS
    ]
    given: dict[str, Any] = {"router": {"path": str(router)}, "experts": experts, "logs": {"access": None}}
    return Config.model_validate({**given, **changes})


@dataclass
class Running:
    """A gateway that runs, and the experts behind it."""

    url: str
    upstream: Upstream
    gateway: Gateway


@contextmanager
def running(folder: Path, server_options: Mapping[str, Any] | None = None, **changes: Any) -> Iterator[Running]:
    """The whole thing: experts and gateway, each on its own port."""
    upstream, router = Upstream(), folder / "router"
    save_small_router(router)
    with served(upstream.app()) as experts:
        gateway = Gateway.open(config_for(experts, router, **changes))
        with served(create_app(gateway), **(server_options or {})) as url:
            yield Running(url, upstream, gateway)
