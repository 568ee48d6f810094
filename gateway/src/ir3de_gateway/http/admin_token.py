"""An admin token for one run on loopback, so that the page works without pasting one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.config.models import Server
from ir3de_gateway.http.access import is_loopback

TOKEN_BYTES = 24  # random ones: nobody guesses 192 bits


@contextmanager
def provide_admin_token(server: Server) -> Iterator[str | None]:
    """Set a random admin token for the block, and give it; None if one is configured, or others can connect.

    It is put where the configured one would be, so that all workers have it. It is never written to a file.
    """
    variable = server.admin_token_env
    if read_variable(variable) or not is_loopback(server.host):
        yield None
        return
    before = os.environ.get(variable)
    os.environ[variable] = token = secrets.token_urlsafe(TOKEN_BYTES)
    try:
        yield token
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def build_page_link(address: str, token: str | None) -> str:
    """The address of the page. The token is in the fragment, which browsers send to nobody."""
    return f"{address}/#token={token}" if token else f"{address}/"
