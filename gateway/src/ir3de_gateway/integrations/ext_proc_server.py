"""Serves the external processor over gRPC, with a health service and metrics, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from prometheus_client import start_http_server

from ir3de.errors import InputError, IR3DEError
from ir3de_gateway.background import repeat
from ir3de_gateway.integrations import envoy_messages as api
from ir3de_gateway.integrations.decider import Decider
from ir3de_gateway.integrations.ext_proc import Exchange, Metrics, Processor, Rules
from ir3de_gateway.integrations.grpc_call import Handler
from ir3de_gateway.integrations.grpc_connection import GrpcConnection

RELOAD_CHECK_S = 10.0  # between two looks for a new router
DRAIN_S = 5.0  # that open requests have to end
MESSAGE_OVERHEAD_BYTES = 1_000_000  # of a message besides the body: its headers
LARGEST_PORT = 65_535
SERVING = b"\x08\x01"  # gRPC's HealthCheckResponse with the status SERVING

_log = logging.getLogger("ir3de.gateway")


class EnvoyCall:
    """A call of Envoy's: one request."""

    def __init__(self, processor: Processor) -> None:
        self._processor, self._exchange = processor, Exchange()

    async def take(self, message: bytes) -> Sequence[bytes]:
        answers = await self._processor.take(self._exchange, api.ProcessingRequest.FromString(message))
        return [one.SerializeToString() for one in answers]

    def end(self) -> None:
        self._processor.end(self._exchange)


class HealthCall:
    """A call of gRPC's health service: it serves as long as it answers."""

    async def take(self, message: bytes) -> Sequence[bytes]:
        return [SERVING]

    def end(self) -> None:
        pass


async def serve(
    decider: Decider,
    rules: Rules,
    address: str,
    metrics_address: tuple[str, int] | None = None,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until SIGINT or SIGTERM. `ready` gets the address, with the port that was chosen for port 0."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    metrics = Metrics()
    processor, connections = Processor(decider, rules, metrics), set[GrpcConnection]()
    methods: dict[bytes, Callable[[], Handler]] = {
        f"/{api.SERVICE}/Process".encode(): lambda: EnvoyCall(processor),
        b"/grpc.health.v1.Health/Check": HealthCall,
    }
    message_bytes = rules.body_bytes + MESSAGE_OVERHEAD_BYTES
    server = await listen(address, lambda: GrpcConnection(methods, message_bytes, connections))
    async with AsyncExitStack() as stack:
        stack.callback(server.close)
        if metrics_address is not None:
            httpd, thread = _serve_metrics(metrics_address, metrics)
            stack.callback(thread.join)
            stack.callback(httpd.shutdown)
        following = asyncio.create_task(repeat(decider.reload, lambda: RELOAD_CHECK_S))
        stack.callback(following.cancel)
        loop.add_signal_handler(signal.SIGHUP, lambda: stack.callback(asyncio.create_task(_reload(decider)).cancel))
        ready(_name_address(address, server))
        await stop.wait()
        server.close()
        await _drain(connections)


async def listen(address: str, create: Callable[[], GrpcConnection]) -> asyncio.Server:
    """Accept connections at an address and port, or at a Unix socket."""
    loop, is_path = asyncio.get_running_loop(), address.startswith("unix:")
    host, _, port = address.rpartition(":")
    if not is_path and not (host and port.isdecimal() and int(port) <= LARGEST_PORT):
        raise InputError(f"{address!r} is not an address and a port, such as 127.0.0.1:9002, or unix:/path/of/socket")
    try:
        if is_path:
            return await loop.create_unix_server(create, address.removeprefix("unix:"))
        return await loop.create_server(create, host.strip("[]"), int(port))
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error


def _name_address(address: str, server: asyncio.Server) -> str:
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{server.sockets[0].getsockname()[1]}"


async def _drain(connections: set[GrpcConnection]) -> None:
    """Let open requests end, for a while."""
    waiting = [asyncio.ensure_future(one.is_idle.wait()) for one in connections]
    for connection in list(connections):
        connection.leave()
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=DRAIN_S)
        for one in late:
            one.cancel()
    for connection in list(connections):
        connection.abort()


def _serve_metrics(address: tuple[str, int], metrics: Metrics):  # type: ignore[no-untyped-def]  # as its library has it
    try:
        return start_http_server(address[1], address[0], metrics.registry)
    except OSError as error:
        raise InputError(f"cannot serve metrics on {address[0]}:{address[1]}: {error.strerror or error}") from error


async def _reload(decider: Decider) -> None:
    try:
        if not await decider.reload():
            _log.info("there is no new router: %s stays", decider.digest[:12])
    except IR3DEError as error:
        _log.warning("%s", error)
