"""Servers on this machine: the model with both APIs, and a gateway with two experts that have one of them each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de_lab.benchmarks.translation import chat_side, messages_side
from ir3de_lab.benchmarks.translation.model import ModelError, answer

TEXTS = {
    "by-chat": ["Is this contract void?", "May my landlord evict me?"],
    "by-messages": ["Solve x + 3 = 10.", "7 · 8?"],
}
CAPABILITIES = {"by-chat": ["chat", "tools", "vision"], "by-messages": ["messages", "tools", "vision"]}


def build_app() -> Any:
    """The model, at /v1/chat/completions and /v1/messages."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    def serve_side(side: Any) -> Any:
        async def reply(request: Request) -> Response:
            body = await request.json()
            try:
                said = answer(side.read(body))
            except ModelError as error:
                return JSONResponse(side.write_error(error.status, str(error)), error.status)
            if body.get("stream"):
                return StreamingResponse(side.stream(said, body), media_type="text/event-stream")
            return JSONResponse(side.write(said))

        return reply

    return Starlette(
        routes=[
            Route("/v1/chat/completions", serve_side(chat_side), methods=["POST"]),
            Route("/v1/messages", serve_side(messages_side), methods=["POST"]),
        ]
    )


@contextmanager
def both_servers(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of the model and of the gateway, without /v1."""
    from ir3de_gateway import Config, Gateway, create_app

    Router.fit(TEXTS).save(folder / "router")
    with served(build_app()) as model:
        experts = [
            {
                "name": name,
                "base_url": f"{model}/v1",
                "capabilities": able,
                "breaker": {"failures": 1000, "cooldown": 1e-6},
            }
            for name, able in CAPABILITIES.items()
        ]
        config = {"router": {"path": str(folder / "router")}, "experts": experts, "logs": {"access": None}}
        gateway = Gateway.open(Config.model_validate(config))
        with served(create_app(gateway)) as address:
            yield model, address


@contextmanager
def served(app: Any) -> Iterator[str]:
    """An application on a free port."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the server did not start")
            threading.Event().wait(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
