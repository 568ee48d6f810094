"""The key of a request: what it may do, how much it may use, and the headers that report what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from time import time
from typing import Literal

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.keys.keys_file import SCOPES
from ir3de_gateway.store.contract import LimitStore, StoreUnavailableError
from ir3de_gateway.store.limits import Charge, Limits, Rates, Rejection, Spending
from ir3de_gateway.store.numbers import DamagedNumbersError

NO_LIMITS = Limits()
NO_RATES = Rates(None, None)
RATE_HEADER_PREFIXES = (b"x-ratelimit-", b"anthropic-ratelimit-")  # those of an expert are about the gateway's key
_PARTS = ("limit", "remaining", "reset")
_OPENAI_HEADERS = {
    what: tuple(f"x-ratelimit-{part}-{what}".encode() for part in _PARTS) for what in ("requests", "tokens")
}
_ANTHROPIC_HEADERS = {
    what: tuple(f"anthropic-ratelimit-{what}-{part}".encode() for part in _PARTS) for what in ("requests", "tokens")
}
RATE_HEADERS = tuple(name.decode() for names in _OPENAI_HEADERS.values() for name in names)
_ALL_BUT_ADMIN = frozenset(SCOPES) - {"admin"}


@dataclass(frozen=True, slots=True, eq=False)
class ClientKey:
    """The key that a request came with; the key itself is not kept."""

    name: str = ""  # for logs, metrics and traces; empty where the gateway needs no key
    scopes: frozenset[str] = _ALL_BUT_ADMIN
    experts: frozenset[str] | None = None  # that may answer it; None for all
    limits: Limits = NO_LIMITS
    expires_at: float = inf  # seconds since 1970
    is_disabled: bool = False
    store: LimitStore | None = field(default=None, repr=False)  # None where nothing is counted
    is_replaced: bool = False  # the request came with the secret before a rotation
    previous_expires_at: float | None = None  # when that secret ends, if there is one
    origin: Literal["environment", "file", "admin"] = "environment"

    def check(self, scope: str) -> None:
        """Raise an `ApiError` if the key is no longer valid or lacks the scope; an empty scope needs none."""
        if self.is_disabled:
            raise build_key_error(f"the API key '{self.name}' is disabled: contact the gateway's operator")
        if self.expires_at != inf and time() >= self.expires_at:
            what = "was replaced by a new one" if self.is_replaced else "has expired"
            advice = "contact the gateway's operator for a new one"
            raise build_key_error(f"the API key '{self.name}' {what}: {advice}")
        if scope and scope not in self.scopes:
            may = ", ".join(sorted(self.scopes)) or "nothing"
            message = f"the API key '{self.name}' has no scope '{scope}', only {may}: contact the gateway's operator"
            raise ApiError(403, message, "missing_scope")

    def may_ask(self, expert: str) -> bool:
        return self.experts is None or expert in self.experts

    async def admit(self, *, spends: bool = True) -> Lease | None:
        """Count a request that begins, or raise an `ApiError` if a limit has been reached.

        A request that spends neither tokens nor money is not rejected for them.
        """
        if self.store is None:
            return None
        try:
            found = await self.store.admit(self.name, self.limits, spends=spends)
        except DamagedNumbersError:
            raise build_unreadable_error(self.name) from None
        except StoreUnavailableError:
            raise build_away_error() from None
        if isinstance(found, Rejection):
            raise build_limit_error(self.name, found)
        return Lease(self, self.store, found)

    async def read_rates(self) -> Rates:
        """What is left of the limits of the minute."""
        with suppress(DamagedNumbersError):
            if self.store is not None:
                return await self.store.read_rates(self.name, self.limits)
        return NO_RATES


ANYBODY = ClientKey()  # where the gateway needs no key


class Lease:
    """One request of a key, from its admission to its end, when its usage is charged: exactly once."""

    __slots__ = ("_end", "_rates", "_store", "_take", "_write", "is_open", "key", "measure", "reserved")

    def __init__(self, key: ClientKey, store: LimitStore, admitted: Charge) -> None:
        self.key, self._store, self.reserved = key, store, admitted
        self._rates: Rates | None = None
        self._take: Callable[[], Awaitable[Charge | None]] | None = None  # what an earlier request was charged
        self._write: Callable[[], Awaitable[None]] | None = None  # what is to be written before the charge
        self._end: asyncio.Task[None] | None = None  # the charge, where it waits for one of these
        self.is_open = True
        self.measure: Callable[[], Spending | None] | None = None  # called at the end

    async def expect(self, tokens: int, cost: float) -> None:
        """Reserve the most that the request can take, or raise an `ApiError` if a limit was reached meanwhile."""
        bound = self.reserved._replace(tokens=tokens, cost=cost)
        try:
            rejection = await self._store.reserve(self.key.name, self.key.limits, bound)
        except DamagedNumbersError:
            raise build_unreadable_error(self.key.name) from None
        except StoreUnavailableError:
            raise build_away_error() from None
        if rejection is not None:
            raise build_limit_error(self.key.name, rejection)
        self.reserved = bound

    def settle(self, take: Callable[[], Awaitable[Charge | None]]) -> None:
        """At the end, replace what an earlier request was charged: what `take` gives to one request alone."""
        self._take = take

    def write_first(self, write: Callable[[], Awaitable[None]]) -> None:
        """At the end, call this before the request is charged."""
        self._write = write

    async def close(self) -> None:
        """Charge what the request took instead of what was reserved. This comes before the last byte is sent.

        It is completed even if the client leaves meanwhile: the key would never get the request's place back.
        """
        if self.is_open:
            self.is_open = False
            take, self._take = self._take, None
            spent = self._measure() if take is None else None
            if take is not None:
                self._end = asyncio.create_task(self._replace(take))
            elif self._write is not None:
                self._end = asyncio.create_task(self._charge(spent))
            else:  # stores complete what has begun, so this needs no task
                await self._charge(spent)
        if self._end is not None:
            await asyncio.shield(self._end)

    def _measure(self) -> Spending | None:
        measure, self.measure = self.measure, None
        return None if measure is None else measure()

    async def _replace(self, take: Callable[[], Awaitable[Charge | None]]) -> None:
        """What the request took is known only when `take` has answered."""
        instead = None
        try:
            instead = await take()
        finally:
            await self._charge(self._measure(), instead)

    async def _charge(self, spent: Spending | None, instead: Charge | None = None) -> None:
        if self._write is not None:
            await self._write()
            self._write = None
        with suppress(DamagedNumbersError):  # which is in the log
            key = self.key
            self._rates = await self._store.settle(key.name, key.limits, self.reserved, spent, instead=instead)

    @property
    def has_rates(self) -> bool:
        """Whether the key has limits that responses report."""
        limits = self.key.limits
        return limits.requests_per_minute is not None or limits.tokens_per_minute is not None

    async def read_rates(self) -> Rates:
        """What is left of the limits of the minute, as of the end of the request, or now."""
        return await self.key.read_rates() if self._rates is None else self._rates


# errors ---------------------------------------------------------------------------------------------------------


def build_key_error(message: str) -> ApiError:
    """The error for a key that is not valid."""
    return ApiError(401, message, headers={"www-authenticate": "Bearer"})


def build_unreadable_error(name: str) -> ApiError:
    """The error for a key whose usage is damaged; the log names the file."""
    message = f"the usage of the API key '{name}' cannot be read: contact the gateway's operator, whose log has details"
    return ApiError(503, message, "usage_unreadable")


def build_away_error() -> ApiError:
    """The error while the store that machines share is away, where the configuration demands it."""
    message = "this gateway cannot count requests now, because its store does not answer: retry in a moment"
    return ApiError(503, message, "state_unavailable", retry_after=1.0)


def build_limit_error(name: str, rejection: Rejection) -> ApiError:
    """The error for a limit that has been reached."""
    limit, value, wait, reserved = rejection
    amount = f"{Decimal(str(value)).normalize():,f}"  # never as 1e-07
    messages = {
        "requests_per_minute": f"has made {value:,.0f} requests within a minute, its limit",
        "tokens_per_minute": f"has used {value:,.0f} tokens within a minute, its limit",
        "concurrent": f"has {value:,.0f} concurrent requests, its limit: wait for one of them",
        "budget_per_day": f"has used up its budget of {amount} for this day: again from 00:00 UTC on",
        "budget_per_month": f"has used up its budget of {amount} for this month: again from the 1st, 00:00 UTC on",
    }
    problem = ApiError(429, f"the API key '{name}' {messages[limit]}", retry_after=wait)
    if reserved:
        held, what = f"{Decimal(str(round(reserved, 12))).normalize():,f}", limit.replace("_", " ")
        message = f"has requests in flight that reserve {held}, and its {what} is {amount}: wait for one of them to end"
        problem.message = f"the API key '{name}' {message}"
    elif limit.startswith("budget"):  # a retry is useless, and the official clients would try
        problem.code = problem.kind = "insufficient_quota"
        problem.headers["x-should-retry"] = "false"
    return problem


# headers --------------------------------------------------------------------------------------------------------


def build_rate_headers(rates: Rates, *, is_anthropic: bool = False, now: float | None = None) -> HeaderList:
    """The headers for the limits that the key has, as OpenAI or as Anthropic writes them."""
    moment = time() if now is None else now
    found: HeaderList = []
    for what, state in (("requests", rates.requests), ("tokens", rates.tokens)):
        if state is None:
            continue
        if is_anthropic:
            reset = datetime.fromtimestamp(moment + state.reset, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            limit, remaining, resets = _ANTHROPIC_HEADERS[what]
        else:
            reset = format_duration(state.reset)
            limit, remaining, resets = _OPENAI_HEADERS[what]
        found += [(limit, b"%d" % state.limit), (remaining, b"%d" % state.remaining), (resets, reset.encode())]
    return found


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
