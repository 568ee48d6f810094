"""The door: who may come in, from which page, and by which number the request is known."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ir3de.gateway.api_errors import Problem
from ir3de.gateway.config.models import Config, Server, secret
from ir3de.gateway.responses.provenance import HEADERS

_sane_id = re.compile(rb"[!-~]{1,128}").fullmatch
_ALLOWED_HEADERS = b"authorization, content-type, x-session-id, x-request-id, if-match, x-api-key"
_ALLOWED_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"


OnRefusal = Callable[[Scope, Problem], None]


class Keys:
    """Keys as hashes: compared in constant time, and not to be found in memory.

    >>> keys = Keys(["sesame"])
    >>> keys.admit("sesame"), keys.admit("sesam")
    (True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = [_hash(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def admit(self, key: str) -> bool:
        found = _hash(key)
        matches = [hmac.compare_digest(found, known) for known in self._hashes]  # all of them, whichever fits
        return any(matches)


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()


def client_keys(server: Server) -> list[str]:
    """Clients' keys from the environment: those of the variables that are named, or IR3DE_API_KEY."""
    found = [secret(variable) for variable in server.api_keys_env or ("IR3DE_API_KEY",)]
    return [key.strip() for several in found if several for key in several.split(",") if key.strip()]


class Guard:
    """The outermost application: numbers requests, lets them in, and shows them the way.

    What most requests want, `direct`, is looked up by path; everything else is for the application behind.
    """

    def __init__(
        self, app: ASGIApp, config: Config, direct: Mapping[str, ASGIApp], on_refusal: OnRefusal | None = None
    ) -> None:
        self._app = app
        self._direct = direct
        self._on_refusal = on_refusal
        server = config.server
        self._keys = Keys(client_keys(server))
        admin = secret(server.admin_token_env)
        self._admin = Keys([admin] if admin else [])
        self._origins = frozenset(server.cors_origins)
        # a page that calls itself by another name may have been pointed at this machine (DNS rebinding)
        self._own_names_only = is_loopback(server.host) and not self._keys and not server.open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        number = given.decode() if _sane_id(given) else os.urandom(12).hex()
        scope.setdefault("state", {}).update(request_id=number, headers=headers)
        origin = headers.get(b"origin")
        if origin is not None:
            send = self._with_cors(send, origin.decode("latin-1"), headers)
        try:
            self._admit_caller(headers)
            if origin is not None and scope["method"] == "OPTIONS":  # browsers ask without a key whether they may
                await send(
                    {"type": "http.response.start", "status": 204, "headers": [(b"x-request-id", number.encode())]}
                )
                await send({"type": "http.response.body", "body": b""})
                return
            path = _path(scope)
            self._admit_key(path, headers)
        except Problem as problem:
            await respond(send, problem, number)
            if self._on_refusal is not None:
                self._on_refusal(scope, problem)
            return
        direct = self._direct.get(path) if scope["method"] == "POST" else None
        if direct is not None:
            await direct(scope, receive, send)
        else:
            await self._app(scope, receive, _numbered(send, number))

    def _admit_caller(self, headers: Mapping[bytes, bytes]) -> None:
        """By its own name, and from a page that is known."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self._own_names_only and host and not _names_loopback(host):
            raise Problem(
                403,
                "this gateway serves its own machine and was called by another name: call 127.0.0.1, or give it a key",
                "wrong_host",
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._knows(origin.decode("latin-1"), host):
            raise Problem(
                403,
                f"pages of {origin[:200].decode('latin-1')} may not call this gateway: see server.cors_origins",
                "wrong_origin",
            )

    def _admit_key(self, path: str, headers: Mapping[bytes, bytes]) -> None:
        if path.startswith("/v1/"):
            if self._keys and not self._keys.admit(_key(headers)):
                raise Problem(
                    401, "the API key is missing or not one of this gateway's", headers={"www-authenticate": "Bearer"}
                )
        elif path.startswith("/admin"):
            self._admit_admin(headers)

    def _admit_admin(self, headers: Mapping[bytes, bytes]) -> None:
        if not self._admin:
            raise Problem(
                403, "there is no admin token: set the variable that server.admin_token_env names", "no_admin"
            )
        if not self._admin.admit(_key(headers)):
            raise Problem(
                401,
                "the admin token is missing or wrong",
                "invalid_admin_token",
                headers={"www-authenticate": "Bearer"},
            )

    def _knows(self, origin: str, host: str) -> bool:
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host != ""

    def _with_cors(self, send: Send, origin: str, headers: Mapping[bytes, bytes]) -> Send:
        if not self._knows(origin, "") or origin == "null":
            return send
        more = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"origin"),
            (b"access-control-expose-headers", ", ".join((*HEADERS, "etag", "retry-after")).encode()),
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-allow-headers", headers.get(b"access-control-request-headers", _ALLOWED_HEADERS)),
            (b"access-control-max-age", b"600"),
        ]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return sending


def _numbered(send: Send, number: str) -> Send:
    """Every answer says which request it is for."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message.get("headers", ()) if pair[0] != b"x-request-id"]
            message["headers"] = [*headers, (b"x-request-id", number.encode())]
        await send(message)

    return sending


async def respond(send: Send, problem: Problem, number: str) -> None:
    """Send an error object."""
    body = problem.body()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", number.encode()),
        *problem.header_list(),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _path(scope: Scope) -> str:
    """The path as the routes see it, also where the gateway is mounted below another one."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _key(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"authorization", b"").decode(errors="replace")
    scheme, _, key = given.partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get(b"x-api-key", b"").decode(errors="replace").strip()


@lru_cache(maxsize=256)
def _names_loopback(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # brackets that do not close
        return False


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own, seen from itself alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
