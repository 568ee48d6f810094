"""Ports for processes of others, which cannot choose one themselves and report it."""

import socket
from contextlib import closing


def find_free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
