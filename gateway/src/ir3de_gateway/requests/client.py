"""The client's side of a request: its body within limits, its controls, a disconnect, and the response."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any, Protocol
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, WithJsonSchema
from starlette.types import Message, Receive, Send

from ir3de.errors import InputError
from ir3de.policies import COSTS, Cost
from ir3de_gateway.api_errors import ApiError, ClientDisconnect, build_type_error, validate
from ir3de_gateway.config.document import Limits
from ir3de_gateway.config.experts import Part
from ir3de_gateway.headers import HeaderList, text
from ir3de_gateway.requests.json_body import FIELD

CONNECTION_EXTENSION = "ir3de.connection"  # ASGI extension of our own server: its `ClientConnection`
DISCARD_TIMEOUT_S = 2.0  # that the rest of a rejected body is read
STALL_CHECK_S = 1.0  # between two checks of the clients that read nothing
MAX_WEIGHT = 1e12  # with more, costs of ordinary units would be larger than any number
PRICE_PATTERN = r"^\d{1,12}(\.\d{1,12})?$"  # of the header's value
CONTROL_HEADERS = {
    b"x-ir3de-allow": "allow",
    b"x-ir3de-deny": "deny",
    b"x-ir3de-max-price": "max_price",
    b"x-ir3de-skip": "skip",
    b"x-ir3de-session": "session",
}


class ClientConnection(Protocol):
    """The connection of a request, where the server is ours."""

    def is_body_complete(self) -> bool: ...
    def add_disconnect_callback(self, callback: Callable[[], None]) -> None: ...
    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None: ...


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limits: Limits, connection: ClientConnection | None = None
) -> bytes:
    """The whole body, or an `ApiError`: too large, too slow, or compressed."""
    check_head(headers, limits.body_bytes)
    if connection is not None and connection.is_body_complete():  # nothing to wait for: no timer is needed
        return await _read_pieces(receive, limits.body_bytes)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _read_pieces(receive, limits.body_bytes)
    except TimeoutError:
        raise build_late_error("request", limits.body_seconds) from None


def check_head(headers: Mapping[bytes, bytes], limit_bytes: int) -> None:
    """Reject a body that is compressed, or that announces too many bytes."""
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        shown = coding[:50].decode("latin-1")
        raise ApiError(415, f"the request is compressed ({shown}): send it without content-encoding")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise build_too_large_error(limit_bytes)


async def _read_pieces(receive: Receive, limit_bytes: int) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit_bytes:
            raise build_too_large_error(limit_bytes)
        if not message.get("more_body"):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _discard_body(receive: Receive) -> None:
    """Read and drop the rest of the body: many clients read the response only after they have sent everything."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_TIMEOUT_S):
            while (message := await receive())["type"] != "http.disconnect" and message.get("more_body"):
                pass


def build_too_large_error(limit_bytes: int) -> ApiError:
    message = f"the request is larger than the limit of {limit_bytes:,} bytes"
    return ApiError(413, message, headers={"connection": "close"})


def build_late_error(what: str, seconds: float) -> ApiError:
    return ApiError(408, f"the {what} did not arrive within {seconds:g} s", headers={"connection": "close"})


class StallWatch:
    """Treats clients that read nothing for too long as disconnected. One timer serves all of them."""

    def __init__(self) -> None:
        self._sending: dict[ClientResponse, float] = {}  # since when
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, response: ClientResponse, now: float) -> None:
        """A piece is being sent."""
        self._sending[response] = now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STALL_CHECK_S, self._check)

    def end(self, response: ClientResponse) -> None:
        """The client has read it, or has disconnected."""
        self._sending.pop(response, None)

    def _check(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for response, since in list(self._sending.items()):
            if loop.time() - since >= response.stall_limit:
                response.disconnect()
        if self._sending:
            self._timer = loop.call_later(STALL_CHECK_S, self._check)


class ClientResponse:
    """The response to one request. Once `watch` is called, a disconnect of the client cancels the request's task."""

    __slots__ = (
        "_connection", "_has_left", "_loop", "_send", "_stalls", "_task", "_watch", "has_ended", "longest_stall",
        "sent_bytes", "stall_limit", "status", "was_watched",
    )  # fmt: skip

    def __init__(self, send: Send, stalls: StallWatch) -> None:
        self._send, self._stalls = send, stalls
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None  # the one to cancel; None unless it is watched now
        self._connection: ClientConnection | None = None
        self._watch: asyncio.Future[None] | None = None
        self._has_left = False
        self.was_watched = False  # the body was read, so that the client may disconnect at any time
        self.stall_limit = inf  # seconds that a client may read nothing
        self.status = self.sent_bytes = 0  # the status is 0 until the head was sent
        self.has_ended = False  # nothing may be sent after that
        self.longest_stall = 0.0  # seconds that the client read nothing

    # a client that disconnects ---------------------------------------------------------------------------------------

    def watch(self, receive: Receive, connection: ClientConnection | None) -> None:
        """Cancel the current task when the client disconnects."""
        self._task, self._connection, self.was_watched = asyncio.current_task(), connection, True
        if connection is not None:
            connection.add_disconnect_callback(self.disconnect)
        else:
            self._watch = asyncio.ensure_future(self._wait(receive))

    async def _wait(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.disconnect()

    def disconnect(self) -> None:
        """The client has disconnected, or reads nothing."""
        if self._task is not None:
            self._has_left = True
            self._task.cancel()

    def stop_watching(self) -> None:
        """The response is complete, or there will be none: a disconnect is normal from here on."""
        self.stall_limit = inf
        if self._task is None:
            return
        if self._connection is not None:
            self._connection.remove_disconnect_callback(self.disconnect)
        elif self._watch is not None:
            self._watch.cancel()
        if not self._has_left:
            self._task = self._watch = None

    def absorb_cancellation(self) -> bool:
        """Whether the disconnect caused the cancellation; if so, the cancellation is undone."""
        if self._has_left and self._task is not None:
            self._task.uncancel()
        return self._has_left

    # what is sent ----------------------------------------------------------------------------------------------------

    def also_send_to(self, other: Send) -> None:
        """From now on another callable gets the same."""
        client = self._send

        async def send_to_both(message: Message) -> None:
            await client(message)
            await other(message)

        self._send = send_to_both

    async def send_whole(self, status: int, headers: HeaderList, body: bytes) -> None:
        """A response in one piece."""
        self.status = status
        headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})
        await self.end(body)

    async def send_early(self, status: int, headers: HeaderList, body: bytes, receive: Receive) -> None:
        """The same while the client still sends its request: the rest of that is read and dropped."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.send_piece(body)
        await _discard_body(receive)
        await self.end()

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of a response."""
        self.status = status
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})

    async def send_piece(self, content: bytes) -> None:
        self.sent_bytes += len(content)
        await self._pass({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self, content: bytes = b"") -> None:
        self.stop_watching()
        self.has_ended = True
        self.sent_bytes += len(content)
        await self._pass({"type": "http.response.body", "body": content, "more_body": False})

    async def _pass(self, message: Message) -> None:
        loop = self._loop
        since = loop.time()
        is_watched = self.stall_limit != inf
        if is_watched:
            self._stalls.begin(self, since)
        try:
            await self._send(message)
        except OSError:  # ASGI servers raise it when the client has disconnected
            raise ClientDisconnect from None
        finally:
            if is_watched:
                self._stalls.end(self)
            if (stall := loop.time() - since) > self.longest_stall:
                self.longest_stall = stall


@dataclass(frozen=True, slots=True)
class Controls:
    """Which experts may answer, at which price, whether to route at all, and which conversation it is."""

    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    max_price: float | None = None  # of a million tokens, of prompt or answer
    skip: bool = False  # do not route: use the default expert
    session: str = ""
    weights: Mapping[str, float] | None = None  # what a unit of cost is worth, instead of the router's own
    of_key: frozenset[str] | None = None  # the experts that the client's key may use; None: all

    @property
    def is_unrestricted(self) -> bool:
        """Whether every expert may answer."""
        return self.allow is None and not self.deny and self.max_price is None and self.of_key is None


NO_CONTROLS = Controls()


def _check_weights(given: Any) -> Any:
    weights = Cost.of(given)
    for name in COSTS:
        if (weight := getattr(weights, name)) > MAX_WEIGHT:
            raise InputError(f"{name} must be a number from 0 to {MAX_WEIGHT:g}, found {weight:g}")
    return given


def _limit_integer(given: Any) -> Any:
    """JSON has integers that are larger than any float."""
    return min(given, sys.float_info.max) if type(given) is int else given


_COST = {"type": "number", "minimum": 0, "maximum": MAX_WEIGHT}
_COSTS = {"type": "object", "properties": dict.fromkeys(COSTS, _COST), "additionalProperties": False}
CostWeights = Annotated[dict[str, Any], BeforeValidator(_check_weights), WithJsonSchema(_COSTS)]


class ControlsField(Part, strict=True):
    """How a client controls the routing of one request."""

    allow: list[str] | None = None
    """Experts that may answer; otherwise all."""
    deny: list[str] | None = None
    """Experts that may not answer."""
    max_price: Annotated[float, BeforeValidator(_limit_integer), Field(ge=0)] | None = None
    """The highest price of a million tokens, of prompt or answer."""
    skip: bool | None = None
    """Do not route: use the default expert."""
    session: str | None = None
    """The conversation, which stays with its expert."""
    weights: CostWeights | None = None
    """What a unit of cost is worth, instead of the router's own."""


def read_controls(given: object, headers: Mapping[bytes, bytes], session_headers: tuple[bytes, ...]) -> Controls:
    """The controls of a request; the body's field comes before the headers."""
    found: dict[str, Any] = {}
    for header, name in CONTROL_HEADERS.items():
        if header in headers:
            found[name] = _from_header(name, text(headers[header]).strip(), header.decode())
    if given is not None:
        found |= _from_body(given)
    if "session" not in found:
        for header in session_headers:
            if value := headers.get(header):
                found["session"] = value.decode("latin-1")
                break
    return Controls(**found) if found else NO_CONTROLS


def _from_header(name: str, value: str, header: str) -> Any:
    if name in ("allow", "deny"):
        return frozenset(unquote(one.strip()) for one in value.split(",") if one.strip())  # as x-ir3de-expert has them
    if name == "skip":
        if value.lower() not in ("true", "false", "1", "0"):
            raise build_type_error(header, "true or false", value)
        return value.lower() in ("true", "1")
    if name == "max_price":
        if re.fullmatch(PRICE_PATTERN, value, re.ASCII) is None:
            raise build_type_error(header, "a number such as 0.5", value)
        return float(value)
    return value


def _from_body(given: object) -> dict[str, Any]:
    field = validate(ControlsField, given, FIELD, status=400, shows_found=True)
    found = {name: value for name, value in field if value is not None}
    return found | {name: frozenset(found[name]) for name in ("allow", "deny") if name in found}
