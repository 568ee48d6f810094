"""Serves the external processor over gRPC, with a health service and metrics, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import start_http_server

from ir3de.errors import InputError, IR3DEError
from ir3de_gateway.background import repeat
from ir3de_gateway.integrations import envoy_messages as api
from ir3de_gateway.integrations.decider import Decider
from ir3de_gateway.integrations.ext_proc import Metrics, Processor, Rules

RELOAD_CHECK_S = 10.0  # between two looks for a new router
DRAIN_S = 5.0  # that open requests have to end
MESSAGE_OVERHEAD_BYTES = 1_000_000  # of a message besides the body: its headers

_log = logging.getLogger("ir3de.gateway")


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
    metrics, checks = Metrics(), health.aio.HealthServicer()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", rules.body_bytes + MESSAGE_OVERHEAD_BYTES)])
    process = grpc.stream_stream_rpc_method_handler(
        Processor(decider, rules, metrics).Process,
        request_deserializer=api.ProcessingRequest.FromString,
        response_serializer=api.ProcessingResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(api.SERVICE, {"Process": process})
    server.add_generic_rpc_handlers((handler,))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise InputError(f"cannot listen on {address}: it is taken, or it is not an address of this machine") from error
    async with AsyncExitStack() as stack:
        if metrics_address is not None:
            httpd, thread = _serve_metrics(metrics_address, metrics)
            stack.callback(thread.join)
            stack.callback(httpd.shutdown)
        await server.start()
        for service in ("", api.SERVICE):
            await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
        following = asyncio.create_task(repeat(decider.reload, lambda: RELOAD_CHECK_S))
        stack.callback(following.cancel)
        loop.add_signal_handler(signal.SIGHUP, lambda: stack.callback(asyncio.create_task(_reload(decider)).cancel))
        ready(address if port in (0, 1) else f"{address.rpartition(':')[0]}:{port}")
        await stop.wait()
        await checks.enter_graceful_shutdown()
        await server.stop(DRAIN_S)


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
