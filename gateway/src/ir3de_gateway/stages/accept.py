"""Stage 1, accept: gives each request an id, and checks its host name, its origin and its key.

What is accepted becomes an `Accepted`: the client, its key, the response to it, and what serves at that moment.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ir3de_gateway.api_errors import ApiError, build_stopping_error, encode_json
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.keys.client_key import (
    ANYBODY,
    RATE_HEADER_PREFIXES,
    RATE_HEADERS,
    ClientKey,
    Lease,
    build_key_error,
    build_rate_headers,
)
from ir3de_gateway.keys.registry import KeyRegistry, hash_key
from ir3de_gateway.requests.client import CONNECTION_EXTENSION, ClientConnection, ClientResponse
from ir3de_gateway.stages.relay import PROVENANCE_HEADERS
from ir3de_gateway.stages.values import Accepted, Progress
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import WireFormat

if TYPE_CHECKING:
    from ir3de_gateway.gateway import Gateway

_is_valid_request_id = re.compile(rb"[!-~]{1,128}").fullmatch
_ALLOWED_HEADERS = b"authorization, content-type, x-session-id, x-request-id, if-match, x-api-key"
_EXPOSED_HEADERS = ", ".join((*PROVENANCE_HEADERS, "server-timing", "etag", "retry-after", *RATE_HEADERS)).encode()
_ALLOWED_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"

OnRefusal = Callable[[Scope, ApiError], None]


def accept(gateway: Gateway, wire: WireFormat, scope: Scope, receive: Receive, send: Send) -> Accepted:
    """The request of an ASGI scope that `AccessControl` has let through."""
    state = scope["state"]
    headers, key, request_id = state["headers"], state["key"], state["request_id"]
    record = ExchangeRecord(request_id, wire.capability, key=key.name, method=wire.method)
    return Accepted(
        gateway,
        gateway.live.snapshot,
        wire,
        key,
        state.get("lease"),
        request_id,
        headers,
        scope["headers"],
        scope["query_string"],
        scope.get("path_params", {}).get("id", ""),
        receive,
        (scope.get("extensions") or {}).get(CONNECTION_EXTENSION),
        ClientResponse(send, gateway.stalls),
        None if gateway.tracing is None else gateway.tracing.begin(headers),
        perf_counter(),
        Progress(record),
    )


class ServerConnection(ClientConnection, Protocol):
    """The connection of a request, where the server is ours."""

    def end_request(self) -> None: ...


# set by our own server while it receives a request; under any other server it stays None
CURRENT_CONNECTION: ContextVar[ServerConnection | None] = ContextVar("CURRENT_CONNECTION", default=None)


class AccessControl:
    """The outermost ASGI application: gives each request an id, checks access, and dispatches.

    Inference endpoints (`direct`) are looked up by path; everything else goes to the application behind.
    """

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        direct: Mapping[str, ASGIApp],
        on_refusal: OnRefusal | None = None,
        keys: KeyRegistry | None = None,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`catch_up` loads what other workers have changed: an unknown key may be new."""
        self._catch_up = catch_up
        self._app, self._direct, self._on_refusal, server = app, direct, on_refusal, config.server
        self._keys = keys or KeyRegistry(server)
        admin = read_variable(server.admin_token_env)
        self._admin = hash_key(admin) if admin else None  # the token itself is not kept
        self._admin_variable = server.admin_token_env
        self._metrics_need_key = server.metrics_need_key
        self._origins = frozenset(server.cors_origins)
        # against DNS rebinding: a foreign page may reach this machine under a name of its own
        self._own_names_only = is_loopback(server.host) and self._keys.is_open and not server.open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if (connection := CURRENT_CONNECTION.get()) is not None:
            scope.setdefault("extensions", {})[CONNECTION_EXTENSION] = connection
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _is_valid_request_id(given) else os.urandom(12).hex()
        scope.setdefault("state", {}).update(request_id=request_id, headers=headers, key=ANYBODY)
        if (origin := headers.get(b"origin")) is not None:
            send = self._add_cors_headers(send, origin.decode("latin-1"), headers)
        path, lease = _get_path(scope), None
        try:
            try:
                self._check_host_and_origin(headers)
                if origin is not None and scope["method"] == "OPTIONS":  # a CORS preflight request has no key
                    await _send_whole(send, 204, [(b"x-request-id", request_id.encode())], b"")
                    return
                lease = await self._check_key(scope, path, headers)
            except ApiError as problem:
                await send_error(send, problem, request_id, path, scope["state"]["key"])
                if self._on_refusal is not None:
                    self._on_refusal(scope, problem)
                return
            if lease is not None:
                send = count_sent(send, lease, is_anthropic=_is_anthropic(path))
            direct = self._direct.get(path) if scope["method"] == "POST" else None
            await (self._answer_other(scope, receive, send, path) if direct is None else direct(scope, receive, send))
        finally:
            if lease is not None:
                await lease.close()
            if connection is not None:
                connection.end_request()

    async def _answer_other(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        """Everything that is not inference, with the request's id. If the gateway stops, the client gets an error."""
        request_id, has_begun = scope["state"]["request_id"], False

        async def send_with_id(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start":
                headers = [pair for pair in message.get("headers", ()) if pair[0] != b"x-request-id"]
                message["headers"] = [*headers, (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except asyncio.CancelledError:
            if not has_begun:
                await send_error(send, build_stopping_error(), request_id, path)
            raise

    def _check_host_and_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Reject unknown host names and origins."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self._own_names_only and host and not _is_loopback_host(host):
            message = "this gateway serves its own machine only: use the address 127.0.0.1, or configure an API key"
            raise ApiError(403, message, "wrong_host")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_known_origin(origin.decode("latin-1"), host):
            shown = origin[:200].decode("latin-1")
            message = f"pages of {shown} may not use this gateway: see server.cors_origins"
            raise ApiError(403, message, "wrong_origin")

    async def _check_key(self, scope: Scope, path: str, headers: Mapping[bytes, bytes]) -> Lease | None:
        """Find the key of a request, and return the lease of one that is counted."""
        state = scope["state"]
        if path.startswith(("/v1/", "/v2/")):
            if _is_feedback(path) and self._is_admin(_get_key(headers)):
                state["is_admin"] = True
                return None
            if self._keys.is_open:
                return None
            given = _get_key(headers)
            key = self._keys.find(given)
            if key is None and given and self._catch_up is not None:
                await self._catch_up()
                key = self._keys.find(given)
            if key is None:
                missing = "the API key is missing: send it as `Authorization: Bearer …` or as `x-api-key`"
                raise build_key_error("unknown API key" if given else missing)
            state["key"] = key
            needed = _find_scope(path)
            key.check(needed)
            if needed in ("inference", "route") and key.store is not None:
                spends = needed == "inference" and _is_spending(scope["method"], path)
                lease = state["lease"] = await key.admit(spends=spends)
                return lease
        elif path == "/metrics" and self._metrics_need_key:
            self._check_metrics(headers, state)
        elif path.startswith("/admin"):
            self._check_admin(headers, state)
        return None

    def _check_metrics(self, headers: Mapping[bytes, bytes], state: dict[str, Any]) -> None:
        """The admin token opens /metrics, and so does a key with the scope for it, or for /admin."""
        given = _get_key(headers)
        if self._is_admin(given):
            return
        key = None if self._keys.is_open else self._keys.find(given)
        if key is None:
            raise build_key_error("/metrics needs a key with the scope 'metrics', or the admin token")
        state["key"] = key
        key.check("admin" if "admin" in key.scopes else "metrics")

    def _check_admin(self, headers: Mapping[bytes, bytes], state: dict[str, Any]) -> None:
        """The admin token opens /admin, and so does a key with the scope for it."""
        name, given = self._admin_variable, _get_key(headers)
        if self._admin is None and not self._keys.has_admins:
            message = f"there is no admin token: set the variable {name}, and restart the gateway"
            raise ApiError(403, message, "no_admin")
        is_token = self._is_admin(given)
        key = None if self._keys.is_open else self._keys.find(given)
        if key is not None and ("admin" in key.scopes or not is_token):
            state["key"] = key
            key.check("admin")
        elif not is_token:
            where = f"it is the value of {name}, or in the link to the page that `ir3de serve` printed at its start"
            message = f"the admin token is {'wrong' if given else 'missing'}: {where}"
            raise ApiError(401, message, "invalid_admin_token", headers={"www-authenticate": "Bearer"})

    def _is_admin(self, given: str) -> bool:
        """Whether it is the admin token, compared in constant time."""
        return self._admin is not None and hmac.compare_digest(hash_key(given), self._admin)

    def _is_known_origin(self, origin: str, host: str) -> bool:
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host != ""

    def _add_cors_headers(self, send: Send, origin: str, headers: Mapping[bytes, bytes]) -> Send:
        if not self._is_known_origin(origin, "") or origin == "null":
            return send
        more = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"vary", b"origin"),
            (b"access-control-expose-headers", _EXPOSED_HEADERS),
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-allow-headers", headers.get(b"access-control-request-headers", _ALLOWED_HEADERS)),
            (b"access-control-max-age", b"600"),
        ]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return send_with_headers


def count_sent(send: Send, lease: Lease, *, is_anthropic: bool) -> Send:
    """Add the headers with the key's limits, and charge the request before the client can notice that it has ended.

    Otherwise a client could send its next request while another worker still counts this one.
    """

    async def send_counted(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", ())
            if any(name == b"content-length" for name, _ in headers):  # a whole answer, which is known by now
                await lease.close()
            if lease.has_rates:
                others = [pair for pair in headers if not pair[0].startswith(RATE_HEADER_PREFIXES)]
                message["headers"] = [*others, *build_rate_headers(await lease.read_rates(), is_anthropic=is_anthropic)]
        elif not message.get("more_body"):
            await lease.close()
        await send(message)

    return send_counted


async def send_error(send: Send, problem: ApiError, request_id: str, path: str = "", key: ClientKey = ANYBODY) -> None:
    """Send an error object, in the format of the API that was called."""
    wire = FORMATS.get(path.removeprefix("/v1/")) or FORMATS["messages" if _is_anthropic(path) else "chat/completions"]
    body = encode_json(wire.build_error(problem))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", request_id.encode()),
        *problem.header_list(),
    ]
    if problem.status == 429 and key.store is not None:
        headers += build_rate_headers(await key.read_rates(), is_anthropic=_is_anthropic(path))
    await _send_whole(send, problem.status, headers, body)


async def _send_whole(send: Send, status: int, headers: HeaderList, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _find_scope(path: str) -> str:
    """What a key must be allowed for that path; empty if any key may."""
    if path.startswith(("/v1/models", "/v1/usage")):
        return "models" if path.startswith("/v1/models") else ""
    return "route" if path.startswith("/v1/route") else "inference"


def _is_feedback(path: str) -> bool:
    return path == "/v1/feedback" or path.startswith("/v1/feedback/")


def _is_spending(method: str, path: str) -> bool:
    """Whether an answer may cost tokens: feedback, and to see, cancel or delete what is stored, cost none."""
    return method == "POST" and not path.endswith("/cancel") and not _is_feedback(path)


def _is_anthropic(path: str) -> bool:
    return path.startswith("/v1/messages")


def _get_path(scope: Scope) -> str:
    """The path as the routes see it, also where the gateway is mounted below another one."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root + "/") else path


def _get_key(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"authorization", b"").decode(errors="replace")
    scheme, _, key = given.partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get(b"x-api-key", b"").decode(errors="replace").strip()


@lru_cache(maxsize=256)
def _is_loopback_host(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # brackets that do not close
        return False


def is_loopback(host: str) -> bool:
    """Whether a host name or address is a loopback one, which only this machine can reach.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
