"""Connects to a Ray cluster: the one Ray is initialised with, one by its address, or one of this machine's own.

Ray waits minutes for a cluster that is not there, so the address is asked first whether anyone is listening who
speaks as Ray does.
"""

from __future__ import annotations

import logging
import os
import socket
import warnings
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from ir3de.errors import EngineError, InputError, MissingExtraError

PATIENCE = 10.0  # seconds to wait for an answer at the address
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # HTTP/2, and no settings
_SETTINGS = 4  # the type of the frame that an HTTP/2 server begins with
_ADVICE = (
    "Start one with `ray start --head`, give the address that it prints, or leave the address out to use the cores of "
    "this machine"
)

_ours: tuple[str, int | None] | None = None  # address and workers of the cluster that was connected to here


def connect(address: str | None, workers: int | None, runtime_env: dict[str, Any] | None) -> ModuleType:
    """Ray, connected; what a caller had initialised is used as it is, and stays as it is."""
    global _ours
    ray = imported()
    wanted = address or os.environ.get("RAY_ADDRESS") or "local"
    if ray.is_initialized() and _ours is not None and _ours != (wanted, workers if wanted == "local" else None):
        ray.shutdown()  # it was for another job
    if not ray.is_initialized():
        _ours = None
        check_address(wanted)
        _initialise(ray, wanted, workers, runtime_env)
        _ours = (wanted, workers if wanted == "local" else None)
    elif _ours is None:
        _check_given(ray, address, runtime_env)
    if ray.cluster_resources().get("CPU", 0) < 1:
        raise EngineError(f"the Ray cluster at {wanted} has no CPU to count with: start a worker node, or wait for one")
    return ray


def imported() -> ModuleType:
    """Ray with Ray Data."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray Data warns of settings that it makes itself
            import ray.data

            ray.data.DataContext.get_current()
    except ImportError as error:
        raise MissingExtraError(error.name or "ray", "ray", "The engine ray") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
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
        where = "on this machine" if address == "local" else f"at {address}"
        raise EngineError(f"there is no Ray cluster {where} to work with: {_innermost(error)}. {_ADVICE}") from error


def _innermost(error: BaseException) -> str:
    """Ray's own reason, which lies below others that say only that something failed."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return next(iter(reversed(str(error).strip().splitlines())), type(error).__name__).rstrip(".")


def _check_given(ray: ModuleType, address: str | None, runtime_env: dict[str, Any] | None) -> None:
    """The caller has initialised Ray, and wants nothing else of this engine."""
    if runtime_env is not None:
        raise InputError("Ray is initialised already: give the runtime_env to ray.init, or let the engine connect")
    found = "ray://" if is_client(ray) else ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", found) and not (address.startswith("ray://") and found == "ray://"):
        raise InputError(
            f"Ray is initialised already, with the cluster at {found}, and the address says {address}: leave the "
            "address out, or call ray.shutdown() before"
        )


def check_address(address: str) -> None:
    """Refuse an address where nobody answers as Ray does, within seconds."""
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
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except OSError as error:
        raise EngineError(f"there is no Ray cluster at {address}: {error.strerror or error}. {_ADVICE}") from error
    if answer[3:4] != bytes((_SETTINGS,)):
        raise EngineError(f"what listens at {address} is no Ray cluster, it answered {answer!r}. {_ADVICE}")
