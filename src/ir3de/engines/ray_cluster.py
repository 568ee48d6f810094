"""Connects to a Ray cluster: the one Ray is initialised with, one by its address, or one of this machine's own.

Ray waits minutes for a cluster that is not there, so this module first checks that a server answers there which
speaks Ray's protocol.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from ir3de.errors import EngineError, InputError, MissingExtraError

CONNECT_TIMEOUT_S = 10.0  # seconds to wait for an answer at the address
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2, and no settings
_SETTINGS = 4  # the type of the frame that an HTTP/2 server begins with
_ADVICE = (
    "Start one with `ray start --head`, give the address that it prints, or leave the address out to use the cores of "
    "this machine"
)

_ours: tuple[object, object] | None = None  # the request, and the connection that was made for it


def connect(address: str | None, workers: int | None, runtime_env: dict[str, Any] | None) -> ModuleType:
    """Ray, connected; what a caller had initialised is used as it is, and stays as it is."""
    global _ours
    ray = import_ray()
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    request = wanted, workers if wanted == "local" else None, repr(runtime_env)
    if ray.is_initialized() and _ours is not None and _ours[1] == _connection(ray) and _ours[0] != request:
        ray.shutdown()  # it was made here, for another job
    if not ray.is_initialized():
        check_address(wanted)
        _initialise(ray, wanted, workers, runtime_env)
        _ours = request, _connection(ray)
    elif _ours is None or _ours[1] != _connection(ray):
        _check_given(ray, address, runtime_env)
    if ray.cluster_resources().get("CPU", 0) < 1:
        raise EngineError(f"the Ray cluster at {wanted} has no CPU to count with: start a worker node, or wait for one")
    return ray


def _connection(ray: ModuleType) -> tuple[str, str]:
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


def import_ray() -> ModuleType:
    """Ray with Ray Data."""
    if "ray" not in sys.modules:  # it prints them to standard output, which may carry JSON
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed|Task .* will be retried")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray Data warns of settings that it makes itself
            import ray.data

            ray.data.DataContext.get_current()
    except ImportError as error:
        raise MissingExtraError(error.name or "ray", "ray", "The engine ray") from error
    module: ModuleType = ray
    return module


def is_client(ray: ModuleType) -> bool:
    """Whether the connection is one of `ray://`."""
    return bool(ray.util.client.ray.is_connected())


def _initialise(ray: ModuleType, address: str, workers: int | None, runtime_env: dict[str, Any] | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": runtime_env}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options |= {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address=address, **options)
    except Exception as error:  # of many classes
        what = (
            "no Ray cluster can be started here"
            if address == "local"
            else f"the Ray cluster at {address} cannot be used"
        )
        raise EngineError(f"{what}: {_reason(error)}. {_ADVICE}") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def _reason(error: BaseException) -> str:
    """Ray's own reason, which is the cause of less specific errors."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[-1].partition(". ")[0].rstrip(".")
    if "AuthToken" in reason:
        reason += " (name the cluster's token with RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=…)"
    return reason


def _check_given(ray: ModuleType, address: str | None, runtime_env: dict[str, Any] | None) -> None:
    """The caller has initialised Ray, and wants nothing else of this engine."""
    if runtime_env is not None:
        raise InputError("Ray is initialised already: give the runtime_env to ray.init, or let the engine connect")
    found = "ray://" if is_client(ray) else ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", found) and not (address.startswith("ray://") and found == "ray://"):
        raise InputError(
            f"Ray is initialised already, with the cluster at {found}, and the address is {address}: leave the "
            "address out, or call ray.shutdown() before"
        )


def check_address(address: str) -> None:
    """Reject an address where no Ray cluster answers, within seconds."""
    if address in ("local", "auto"):
        return
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in ("", "ray") or not host or port is None:
        raise InputError(f"the address of a Ray cluster is HOST:PORT, ray://HOST:PORT or auto, found {address!r}")
    try:
        with socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except OSError as error:
        raise EngineError(f"no Ray cluster at {address}: {error.strerror or error}. {_ADVICE}") from error
    if answer[3:4] != bytes((_SETTINGS,)):
        raise EngineError(f"the server at {address} is not a Ray cluster, it answered {answer!r}. {_ADVICE}")
