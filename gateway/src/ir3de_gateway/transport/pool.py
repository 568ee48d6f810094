"""The transport: connections to experts by destination, kept for the next call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from ir3de_gateway.transport import ConnectionClosedError, Destination, NoConnectionError, UpstreamAnswer, UpstreamCall
from ir3de_gateway.transport.connecting import Connector, Origin
from ir3de_gateway.transport.http1 import Http1Connection

if TYPE_CHECKING:
    from ir3de_gateway.transport.http2 import Http2Connection

CLOSE_DETECTION_S = 1.0  # a call is sent again only if its kept connection closes within this time
SWEEP_S = 2.0  # between two looks at idle connections


class HttpTransport:
    """Sends calls over HTTP/1.1 or HTTP/2. It opens as many connections as there are concurrent calls, which
    `ConcurrencyLimit` bounds.
    """

    def __init__(self) -> None:
        self._connector = Connector()
        self._pools: dict[Destination, ConnectionPool] = {}
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, call: UpstreamCall) -> UpstreamAnswer:
        """Send a call and wait for the head of its answer."""
        pool = self._pools.get(call.destination)
        if pool is None:
            pool = ConnectionPool(call.destination, self._connector, self._schedule_sweep)
            self._pools[call.destination] = pool
        return await pool.send(call)

    def close(self) -> None:
        """Close idle connections; calls in flight complete."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for pool in self._pools.values():
            pool.close_idle(all_of_them=True)

    def _schedule_sweep(self, keep_alive: float) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(min(keep_alive / 2, SWEEP_S), self._close_idle)

    def _close_idle(self) -> None:
        self._sweep = None
        for pool in self._pools.values():
            pool.close_idle()
            if not pool.is_empty:
                self._schedule_sweep(pool.destination.keep_alive)


class ConnectionPool:
    """The connections to one destination.

    With `max_connections`, further calls over HTTP/1.1 wait, first come, first served. A connection is opened only if
    none is idle, so there are never more connections than concurrent calls, and it is calls that are counted.
    """

    def __init__(self, destination: Destination, connector: Connector, schedule_sweep: Callable[[float], None]) -> None:
        self.destination, self._connector, self._schedule_sweep = destination, connector, schedule_sweep
        self._origin = Origin.parse(destination.base_url)
        self._build_lines = lru_cache(maxsize=64)(self._build_lines_of)
        self._idle: deque[Http1Connection] = deque()
        self._shared: list[Http2Connection] = []
        self._opening: asyncio.Lock | None = None  # of HTTP/2: one connection serves all waiting calls
        self._is_http1 = not destination.http2  # or the server has chosen it
        limit = destination.max_connections
        self._places = None if limit is None else asyncio.Semaphore(limit)

    @property
    def is_empty(self) -> bool:
        return not self._idle and not self._shared

    async def send(self, call: UpstreamCall) -> UpstreamAnswer:
        """Send a call over HTTP/1.1, or over HTTP/2 if the server has it."""
        if not self._is_http1:
            return await self._send_http2(call)
        return await (self._send_http1(call) if self._places is None else self._send_in_turn(call, self._places))

    async def _send_in_turn(self, call: UpstreamCall, places: asyncio.Semaphore) -> UpstreamAnswer:
        """Wait for one of the connections that there may be, and send a call."""
        try:
            async with asyncio.timeout(_limit_connecting(call)):
                await places.acquire()
        except TimeoutError:
            raise NoConnectionError("all connections are in use") from None
        try:
            return await self._send_http1(call)  # `_finish` frees the place
        except BaseException:
            places.release()
            raise

    async def _send_http1(self, call: UpstreamCall) -> UpstreamAnswer:
        """Send a call on an idle connection if there is one.

        An expert may close an idle connection just as a request is sent. The request is then sent again, once, on a new
        connection: but only if nothing was received and the connection closed soon, so that no POST is executed twice.
        """
        resends = 0
        kept = self._take_idle(self.destination.keep_alive if call.is_repeatable else self.destination.keep_alive / 2)
        if kept is not None:
            sent = kept.loop.time()
            try:
                return await self._exchange(kept, call)
            except ConnectionClosedError as error:
                if kept.has_received_data or kept.loop.time() - sent > CLOSE_DETECTION_S or not call.may_resend:
                    raise
                resends = 1
                error.with_traceback(None)  # the connection keeps the error, whose frames would keep the request
        fresh: Http1Connection = await self._connector.connect(
            self._origin, self.destination.tls, lambda: Http1Connection(self._finish), _limit_connecting(call)
        )
        await self._exchange(fresh, call)
        fresh.resends = resends
        return fresh

    async def _exchange(self, connection: Http1Connection, call: UpstreamCall) -> Http1Connection:
        try:
            connection.write(self._build_head(call), call.body)
            await connection.wait_for_head(call.deadline)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _send_http2(self, call: UpstreamCall) -> UpstreamAnswer:
        """Send a call over HTTP/2, if the server has it.

        A request that the server refuses to process is sent again, once. So is one sent as an idle connection closes.
        """
        from ir3de_gateway.transport.http2 import RefusedError

        for resends in (0, 1):
            connection = await self._find_shared(call)
            if connection is None:
                return await self.send(call)
            path, authority = self._origin.build_path(call.path), self._origin.host_header
            was_kept, sent = connection.is_kept, connection.loop.time()
            try:
                answer = await connection.send(authority, path, call.head, call.body, call.deadline, call.method)
            except ConnectionClosedError as error:
                has_closed = was_kept and connection.transport.is_closing()
                has_closed = has_closed and connection.loop.time() - sent <= CLOSE_DETECTION_S
                if resends or not call.may_resend or not (has_closed or isinstance(error, RefusedError)):
                    raise
                error.with_traceback(None)
            else:
                answer.resends = resends
                return answer
        raise AssertionError("unreachable")

    async def _find_shared(self, call: UpstreamCall) -> Http2Connection | None:
        """A connection with HTTP/2 that can take a call; None if the server has chosen HTTP/1.1."""
        from ir3de_gateway.transport.http2 import Http2Connection, NegotiatedConnection

        if self._opening is None:
            self._opening = asyncio.Lock()
        async with asyncio.timeout_at(call.deadline), self._opening:
            self._shared = [one for one in self._shared if not one.transport.is_closing()]
            for connection in self._shared:
                if connection.is_usable:
                    return connection
            if self._is_http1:  # found by the previous holder of the lock
                return None
            negotiated: NegotiatedConnection = await self._connector.connect(
                self._origin,
                self.destination.tls,
                lambda: NegotiatedConnection(self._finish),
                _limit_connecting(call),
                http2=True,
            )
            chosen = negotiated.chosen
            if isinstance(chosen, Http2Connection):
                self._shared.append(chosen)
                self._schedule_sweep(self.destination.keep_alive)
                return chosen
            self._is_http1 = True
            chosen.idle_since = chosen.loop.time()
            self._idle.append(chosen)
            return None

    def _finish(self, connection: Http1Connection, is_reusable: bool) -> None:
        """Take back the connection of an answer that was closed."""
        if self._places is not None:
            self._places.release()
        if is_reusable:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)
            self._schedule_sweep(self.destination.keep_alive)

    def close_idle(self, *, all_of_them: bool = False) -> None:
        """Close connections that were idle for too long."""
        now = asyncio.get_running_loop().time() if not all_of_them else float("inf")
        oldest = now - self.destination.keep_alive
        while self._idle and (self._idle[0].transport.is_closing() or self._idle[0].idle_since <= oldest):
            self._idle.popleft().abort()
        for connection in self._shared:
            if connection.is_idle and connection.idle_since <= oldest:
                connection.transport.close()
        self._shared = [one for one in self._shared if not one.transport.is_closing()]

    def _take_idle(self, seconds: float) -> Http1Connection | None:
        """A connection that was used within the last `seconds`."""
        while self._idle:
            connection = self._idle.pop()  # the one that was used last
            is_fresh = connection.loop.time() - connection.idle_since < seconds
            if is_fresh and not connection.transport.is_closing():
                return connection
            connection.abort()
        return None

    def _build_head(self, call: UpstreamCall) -> bytes:
        is_post = call.method == "POST"
        # clients choose the query, so it is not cached
        build = self._build_lines if is_post and "?" not in call.path else self._build_lines_of
        length = b"content-length: %d\r\n" % len(call.body) if is_post or call.body else b""
        return b"%b%b%b\r\n" % (build(call.path, call.method), call.head, length)

    def _build_lines_of(self, path: str, method: str) -> bytes:
        """The first lines of a request, which are the same each time."""
        origin = self._origin
        lines = f"{method} {origin.build_target(path)} HTTP/1.1\r\nhost: {origin.host_header}\r\n".encode()
        return lines + (origin.proxy.authorization if origin.proxy is not None and origin.is_forwarded else b"")


def _limit_connecting(call: UpstreamCall) -> float:
    """Seconds that opening a connection may take."""
    return min(call.connect_seconds, call.deadline - asyncio.get_running_loop().time())
