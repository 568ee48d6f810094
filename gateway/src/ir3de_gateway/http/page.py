"""The page at /: playground, traffic, experts. Its files are part of the package; there is no build step."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.serving import write_variables
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.config.models import Server
from ir3de_gateway.stages.accept import is_loopback

TOKEN_BYTES = 24  # random ones: 192 bits cannot be guessed
PAGE_FOLDER = Path(__file__).parent / "page"
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "cache-control": "no-cache",  # browsers revalidate it, and get 304
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True)
class StaticFile:
    """A file of the page as it is sent."""

    content: bytes
    kind: str
    etag: str


@cache
def load_files() -> dict[str, StaticFile]:
    """Every file of the page by its name, read once; its colours are those of every picture."""
    contents = {path.name: path.read_bytes() for path in sorted(PAGE_FOLDER.iterdir()) if path.suffix in CONTENT_TYPES}
    contents["palette.css"] = write_variables().encode()
    return {
        name: StaticFile(content, CONTENT_TYPES[Path(name).suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
        for name, content in contents.items()
    }


async def serve_page(request: Request) -> Response:
    """The page, or one of its files."""
    name = request.path_params.get("file", "index.html")
    file = load_files().get(name)
    if file is None or (name == "index.html" and "file" in request.path_params):
        raise ApiError(404, f"the page has no file {name[:80]!r}")
    headers = {**HEADERS, "etag": file.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.kind)


routes = [Route("/", serve_page, methods=["GET"]), Route("/page/{file}", serve_page, methods=["GET"])]


# a token for one run on loopback, so that the page works without pasting one ----------------------------------------


@contextmanager
def provide_admin_token(server: Server) -> Iterator[str | None]:
    """Set a random admin token for the block, and give it; None if one is configured, or others can connect.

    It is put where the configured one would be, so that all workers have it. It is never written to a file.
    """
    variable = server.admin_token_env
    if read_variable(variable) or not is_loopback(server.host):
        yield None
        return
    before = os.environ.get(variable)
    os.environ[variable] = token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        yield token
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def build_page_link(address: str, token: str | None) -> str:
    """The address of the page. The token is in the fragment, which browsers never send."""
    return f"{address}/#token={token}" if token else f"{address}/"
