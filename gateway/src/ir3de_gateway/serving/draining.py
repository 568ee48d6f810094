"""The last request of a connection that was kept: it is answered before the connection is closed.

A client may send a request on a kept connection just when the server stops, or when the connection was idle for too
long. If it were closed at once, the request would be reset, and the client could not know whether it was read. So it
stays open for a moment. A request that comes then is answered, with `connection: close`.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

LAST_REQUEST_S = 0.25  # for requests that are on their way


def close_when_idle(transport: asyncio.Transport, is_busy: Callable[[], bool], close: Callable[[], None]) -> None:
    """Call `close` a little later, and not as long as a request arrives there or is answered."""

    def check() -> None:
        if transport.is_closing():
            return
        if is_busy() or _is_readable(transport):
            loop.call_later(LAST_REQUEST_S, check)
        else:
            close()

    loop = asyncio.get_running_loop()
    loop.call_later(LAST_REQUEST_S, check)


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether something has arrived that the event loop has not read yet."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
