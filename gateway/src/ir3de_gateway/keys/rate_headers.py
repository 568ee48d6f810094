"""The headers that tell a client what is left of its key's limits, as OpenAI and as Anthropic write them."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time

from ir3de_gateway.headers import HeaderList
from ir3de_gateway.keys.account import Rates, RateState

BEGINNINGS = (b"x-ratelimit-", b"anthropic-ratelimit-")  # an expert's own are about the gateway's key
RATE_HEADERS = tuple(
    f"x-ratelimit-{part}-{what}" for what in ("requests", "tokens") for part in ("limit", "remaining", "reset")
)


def build_rate_headers(rates: Rates, *, is_anthropic: bool = False, now: float | None = None) -> HeaderList:
    """The headers for the limits that the key has."""
    moment = time() if now is None else now
    found: HeaderList = []
    for what, state in (("requests", rates.requests), ("tokens", rates.tokens)):
        if state is not None:
            found += _write_anthropic(what, state, moment) if is_anthropic else _write_openai(what, state)
    return found


def _write_openai(what: str, state: RateState) -> HeaderList:
    return [
        (f"x-ratelimit-limit-{what}".encode(), str(state.limit).encode()),
        (f"x-ratelimit-remaining-{what}".encode(), str(state.remaining).encode()),
        (f"x-ratelimit-reset-{what}".encode(), format_duration(state.reset).encode()),
    ]


def _write_anthropic(what: str, state: RateState, now: float) -> HeaderList:
    reset = datetime.fromtimestamp(now + state.reset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        (f"anthropic-ratelimit-{what}-limit".encode(), str(state.limit).encode()),
        (f"anthropic-ratelimit-{what}-remaining".encode(), str(state.remaining).encode()),
        (f"anthropic-ratelimit-{what}-reset".encode(), reset.encode()),
    ]


def format_duration(seconds: float) -> str:
    """Seconds as OpenAI writes them.

    >>> format_duration(0.0), format_duration(0.25), format_duration(12.3456), format_duration(60.0)
    ('0s', '250ms', '12.346s', '1m0s')
    """
    milliseconds = round(seconds * 1_000)
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return (f"{minutes}m" if minutes else "") + f"{rest / 1_000:g}s"
