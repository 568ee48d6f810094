"""The header `Server-Timing`: how long each phase of a request took, as the developer tools of browsers show it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from ir3de_gateway.exchange_record import ExchangeRecord


def build_server_timing(record: ExchangeRecord, seconds: float, *, hooks: float = 0.0) -> bytes:
    """The value of the header, for an answer that begins that many seconds after its request. Times are in ms.

    The phases are in their order: `read` the body, `route` to an expert, `fallback` for experts that failed before,
    `queue` for a place at the expert, `upstream` until its answer (of a stream: until its first byte), `hooks`
    if they held the answer for that many seconds, and the `total`. An answer of the cache has the phase `cache` instead
    of `queue` and `upstream`.
    """
    parts = []
    if record.read_seconds is not None:
        parts.append(f"read;dur={record.read_seconds * 1e3:.3f}")
    if record.route_seconds is not None:
        parts.append(f"route;dur={record.route_seconds * 1e3:.3f}")
    asked, queue = record.asked_seconds, record.queue_seconds or 0.0
    if record.fallbacks:
        failed = (seconds if asked is None else asked - queue) - (record.read_seconds or 0.0)
        parts.append(f'fallback;desc="{_describe(record.fallbacks[0][0])}";dur={max(0.0, failed) * 1e3:.3f}')
    if asked is not None and record.cache == "hit":
        parts.append(f"cache;dur={(seconds - asked) * 1e3:.3f}")
    elif asked is not None:
        parts.append(f"queue;dur={queue * 1e3:.3f}")
        parts.append(f'upstream;desc="{_describe(record.expert)}";dur={(seconds - asked - hooks) * 1e3:.3f}')
    if hooks:
        parts.append(f"hooks;dur={hooks * 1e3:.3f}")
    parts.append(f"total;dur={seconds * 1e3:.3f}")
    return ", ".join(parts).encode()


@lru_cache(maxsize=4096)
def _describe(name: str) -> str:
    """A name that may stand between quotes in a header."""
    return quote(name, safe=" !#$&'()*+,/:;=?@[]~")
