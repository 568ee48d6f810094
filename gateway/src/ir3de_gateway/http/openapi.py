"""GET /openapi.json: the endpoints as an OpenAPI 3.1 document. `scripts/generate_openapi.py` writes openapi.json."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de import __version__
from ir3de_gateway.config.models import Server
from ir3de_gateway.keys.registry import list_environment_keys

DOCUMENT = Path(__file__).parent / "openapi.json"


def build_document(server: Server) -> dict[str, Any]:
    """The document of a gateway: /v1 is marked as needing a key only where the gateway demands one."""
    return _build_document(server.keys_file is not None or bool(list_environment_keys(server)))


@lru_cache(maxsize=2)
def _build_document(needs_key: bool) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    if not needs_key:
        for path, operations in document["paths"].items():
            if path.startswith(("/v1/", "/v2/")):
                for operation in operations.values():
                    del operation["security"]
    return document


async def show_document(request: Request) -> Response:
    return JSONResponse(build_document(request.app.state.gateway.live.snapshot.config.server))


routes = [Route("/openapi.json", show_document, methods=["GET"])]
