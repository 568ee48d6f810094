"""Ports for processes of others, which cannot choose one themselves and report it."""

import socket
from contextlib import closing, suppress
from random import SystemRandom

PORTS = range(10_000, 32_768)  # Linux gives none of these to a connection that goes out, so none is taken meanwhile


def find_free_port() -> int:
    for port in SystemRandom().sample(PORTS, 100):
        with closing(socket.socket()) as found, suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port among 100 of {PORTS}")
