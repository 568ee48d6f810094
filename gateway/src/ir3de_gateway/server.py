"""Runs the gateway: one process, or several behind one socket. They finish their requests before they stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from ir3de.errors import InputError, IR3DEError, name_some
from ir3de_gateway.admin.administration import RESTART_NEEDED
from ir3de_gateway.background import collect_garbage_rarely
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.load import Source
from ir3de_gateway.serving.connections import choose_backlog, choose_connection_limit, raise_descriptor_limit
from ir3de_gateway.serving.request_filter import build_request_filter
from ir3de_gateway.serving.supervisor import PATIENCE_S, WAITING, Supervisor, handle_signals
from ir3de_gateway.store.workers import create_worker_folder
from ir3de_gateway.telemetry.counts import PROCESS_COUNTS
from ir3de_gateway.telemetry.logs import StandardErrorHandler
from ir3de_gateway.validation import find_host_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp

FACTORY = "ir3de_gateway.server:application"
KEEP_ALIVE_S = 75  # longer than that of load balancers, so that they close idle connections first
STARTUP_FAILURE_EXIT_CODE = 3  # exit code of a process that cannot serve, also uvicorn's own
RESTART_FIELDS = ("host", "port", "workers", "drain")  # the supervisor's own
CANCELLING = "Cancel %s running task(s), timeout graceful shutdown exceeded"  # uvicorn's message
LEVELS = ("debug", "info", "warning", "error")

logger = logging.getLogger("ir3de.gateway")


def serve(source: Source, *, ready: Callable[[str], None] | None = None, factory: str = FACTORY) -> bool:
    """Serve until stopped; `ready` is called with the address. True if requests in flight could finish."""
    config = source.read()
    if refused := find_host_error(config):
        raise InputError(f"server.host: {refused}")
    source.to_environment()
    raise_descriptor_limit()
    configure_logging(read_log_level(config))
    listening = bind_socket(config.server.host, config.server.port)
    ended = threading.Event()
    if ready is not None:
        threading.Thread(target=_announce, args=(listening, ready, ended), daemon=True).start()
    try:
        if config.server.workers == 1:
            return _serve_alone(LoneServer(build_uvicorn_config(config, factory), config.server.drain), listening)
        with create_worker_folder():
            return Supervisor(
                partial(run_worker, factory),
                listening,
                workers=config.server.workers,
                drain_seconds=config.server.drain,
                on_replaced=partial(_warn_about_restart, config, source),
            ).serve()
    finally:
        ended.set()
        listening.close()


def _warn_about_restart(runs: Config, source: Source) -> None:
    """Warn about changes of the file that new workers cannot apply."""
    try:
        wanted = source.read()
    except IR3DEError:  # it has become invalid since they started
        return
    changed = [name for name in RESTART_FIELDS if getattr(wanted.server, name) != getattr(runs.server, name)]
    if changed:
        logger.warning(RESTART_NEEDED, name_some([f"server.{name}" for name in changed]))


class LoneServer(uvicorn.Server):
    """A server without a supervisor: at Ctrl-C it logs what it waits for."""

    def __init__(self, settings: uvicorn.Config, drain_seconds: float) -> None:
        super().__init__(settings)
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; at a second interrupt, stop waiting."""
        if sig == signal.SIGINT and not self.should_exit:
            threading.Thread(target=self._explain_waiting, daemon=True).start()
        super().handle_exit(sig, frame)

    def _explain_waiting(self) -> None:
        sleep(PATIENCE_S)  # by then, connections without a request are closed
        if (waiting := PROCESS_COUNTS.connections_open) and not self.force_exit:
            what = "1 request" if waiting == 1 else f"{waiting} requests"
            logger.info(WAITING, f"waiting for {what} to finish", self._drain_seconds)


def _serve_alone(server: uvicorn.Server, listening: socket.socket) -> bool:
    # raised at the end, or if it cannot start
    with handle_signals(_ignore, signal.SIGTERM), suppress(KeyboardInterrupt, SystemExit):
        server.run(sockets=[listening])
    if not server.started:
        raise InputError("the gateway did not start: see the messages above")
    return not server.force_exit


def _ignore(number: int, frame: FrameType | None) -> None:
    """uvicorn raises a signal again after it has stopped: that must not end the process."""


def run_worker(factory: str, reports: Connection, listening: socket.socket) -> None:
    """Serve in a worker process, until the supervisor stops it or has ended."""
    try:
        config = Source.from_environment().read()
        configure_logging(read_log_level(config))
        server = uvicorn.Server(build_uvicorn_config(config, factory))
        threading.Thread(target=_follow_supervisor, args=(server, reports), daemon=True).start()
        with handle_signals(
            _ignore, signal.SIGTERM, signal.SIGINT
        ):  # the terminal sends SIGINT to all, the supervisor as well
            server.run(sockets=[listening])
    except IR3DEError as error:
        with suppress(OSError):  # the supervisor has ended
            reports.send(str(error))
        sys.exit(STARTUP_FAILURE_EXIT_CODE)


def _follow_supervisor(server: uvicorn.Server, reports: Connection) -> None:
    """Report to the supervisor when the worker serves, and stop when the supervisor has ended, even if killed."""
    supervisor = multiprocessing.parent_process()
    assert supervisor is not None
    while not server.started and supervisor.is_alive():
        supervisor.join(0.05)
    with suppress(OSError):
        reports.send(None)
    supervisor.join()
    server.should_exit = True


def application() -> ASGIApp:
    """The application of one worker, from the configuration that `serve` put into the environment."""
    from ir3de_gateway.app import create_app
    from ir3de_gateway.gateway import Gateway

    source = Source.from_environment()
    app = create_app(Gateway.open(source.read(), config_path=source.path, reread=source.read))
    collect_garbage_rarely()
    return app


def build_uvicorn_config(config: Config, factory: str = FACTORY) -> uvicorn.Config:
    """The settings of uvicorn."""
    limits, descriptors = config.server.limits, raise_descriptor_limit()
    possible = choose_connection_limit(descriptors)
    if limits.connections is not None and limits.connections > possible:
        logger.warning(
            "server.limits.connections is %d, but %d open files allow %d: raise the limit (ulimit -n)",
            limits.connections,
            descriptors,
            possible,
        )
    return uvicorn.Config(
        factory,
        factory=True,
        interface="asgi3",
        http=build_request_filter(limits.header_seconds, limits.connections or possible),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing is decided by the client's address
        server_header=False,
        backlog=choose_backlog(descriptors),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=config.server.drain,  # type: ignore[arg-type] # seconds, also parts of them
    )


def read_log_level(config: Config) -> str:
    """IR3DE_LOG_LEVEL, else the level of the configuration."""
    given = (os.environ.get("IR3DE_LOG_LEVEL") or config.logs.level).lower()
    if given not in LEVELS:
        raise InputError(f"IR3DE_LOG_LEVEL is {given!r}: choose one of {', '.join(LEVELS)}")
    return given


def configure_logging(level: str) -> None:
    """Log to standard error: our messages from `level` on, uvicorn's from warnings on."""
    handler = StandardErrorHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z"))
    handler.addFilter(CancellationFilter())
    others = {"debug": "DEBUG", "error": "ERROR"}.get(level, "WARNING")
    for name, threshold in (("ir3de", level.upper()), ("uvicorn", others)):
        own = logging.getLogger(name)
        own.handlers, own.propagate = [handler], False
        own.setLevel(threshold)


class CancellationFilter(logging.Filter):
    """Rewords uvicorn's message about requests cancelled at shutdown, and drops their tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == CANCELLING:
            record.msg = "server.drain is over: cancelled requests: %s"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, asyncio.CancelledError) and "CancelledError" not in str(record.msg)


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket bound to that address. It does not listen yet, so connections are refused until a worker serves."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host!r}: {error.strerror or error}; correct server.host (--host)"
        ) from error
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        is_elsewhere = error.errno == errno.EADDRNOTAVAIL  # no interface of this machine has the address
        advice = "correct server.host (--host)" if is_elsewhere else "choose another with --port, 0 takes a free one"
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror or error}; {advice}") from error
    made.set_inheritable(True)
    return made


def format_address(listening: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port = _find_local_address(listening)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _find_local_address(listening: socket.socket) -> tuple[str, int]:
    host, port = listening.getsockname()[:2]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def _announce(listening: socket.socket, ready: Callable[[str], None], ended: threading.Event) -> None:
    """Call `ready` with the address as soon as a worker accepts connections there."""
    while not ended.wait(0.05):
        with socket.socket(listening.family, socket.SOCK_STREAM) as trial:
            if trial.connect_ex(_find_local_address(listening)) == 0:
                ready(format_address(listening))
                return
