"""Who asks: a key by its name, what it may do, and how much."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from math import inf
from time import time
from typing import TYPE_CHECKING, NamedTuple

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.keys.account import Charge, Refusal
from ir3de_gateway.keys.definitions import SCOPES, KeyLimits
from ir3de_gateway.workers.number_file import DamagedNumbersError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ir3de_gateway.keys.account import Account, Rates

NO_LIMITS = KeyLimits()
_ALL_BUT_ADMIN = frozenset(SCOPES) - {"admin"}


class Spending(NamedTuple):
    """What the answer to a request took."""

    expert: str
    prompt_tokens: int
    answer_tokens: int
    cost: float
    is_estimated: bool  # the expert did not tell its tokens


@dataclass(frozen=True, slots=True, eq=False)
class ClientKey:
    """The key that a request came with; the key itself is not kept."""

    name: str = ""  # for logs, metrics and traces; empty where the gateway asks for no key
    scopes: frozenset[str] = _ALL_BUT_ADMIN
    experts: frozenset[str] | None = None  # that may answer it; None for all
    limits: KeyLimits = NO_LIMITS
    expires_at: float = inf  # seconds since 1970
    is_disabled: bool = False
    account: Account | None = field(default=None, repr=False)  # None where nothing is counted

    def check(self, scope: str) -> None:
        """Raise an `ApiError` if the key no longer works, or may not do that; any key may do what needs no scope."""
        if self.is_disabled:
            raise build_key_error(f"the API key '{self.name}' is switched off: ask the gateway's operator")
        if self.expires_at != inf and time() >= self.expires_at:
            raise build_key_error(f"the API key '{self.name}' has expired: ask the gateway's operator for a new one")
        if scope and scope not in self.scopes:
            may = ", ".join(sorted(self.scopes)) or "nothing"
            message = f"the API key '{self.name}' has no scope '{scope}', only {may}: ask the gateway's operator"
            raise ApiError(403, message, "missing_scope")

    def may_ask(self, expert: str) -> bool:
        return self.experts is None or expert in self.experts

    def admit(self, *, spends: bool = True) -> Lease | None:
        """Count a request that begins, or raise an `ApiError` if a limit has been reached.

        One that spends neither tokens nor money is not refused for them.
        """
        if self.account is None:
            return None
        try:
            found = self.account.admit(self.limits, spends=spends)
        except DamagedNumbersError:
            raise build_unreadable_error(self.name) from None
        if isinstance(found, Refusal):
            raise build_limit_error(self.name, found)
        return Lease(self, self.account, found)


ANYBODY = ClientKey()  # where the gateway asks for no key


class Lease:
    """One request of a key, from its admission to its end, when what it took is charged: once, whatever happens."""

    __slots__ = ("_account", "_key", "_settled", "is_open", "measure", "reserved")

    def __init__(self, key: ClientKey, account: Account, since: int) -> None:
        self._key, self._account = key, account
        self.reserved = Charge(0, 0.0, since)
        self._settled: Charge | None = None  # of an earlier request, whose usage is known only now
        self.is_open = True
        self.measure: Callable[[], Spending | None] | None = None  # asked at the end; None if nothing was answered

    def expect(self, tokens: int, cost: float) -> None:
        """Reserve the most that the request can take, or raise an `ApiError` if a limit was reached meanwhile."""
        try:
            refusal = self._account.expect(self._key.limits, tokens, cost, since=self.reserved.since)
        except DamagedNumbersError:
            raise build_unreadable_error(self._key.name) from None
        if refusal is not None:
            raise build_limit_error(self._key.name, refusal)
        self.reserved = self.reserved._replace(tokens=tokens, cost=cost)

    def settle(self, charge: Charge) -> None:
        """Put what is measured at the end into the place of what an earlier request was charged."""
        self._settled = charge

    def close(self) -> None:
        """Charge what the request took instead of what was reserved. This comes before the last byte is sent."""
        if not self.is_open:
            return
        self.is_open = False
        spent = None if self.measure is None else self.measure()
        self.measure = None
        tokens, cost, is_estimated, reserved = 0, 0.0, False, self.reserved
        charged = reserved
        if spent is not None:
            tokens, cost, is_estimated = spent.prompt_tokens + spent.answer_tokens, spent.cost, spent.is_estimated
            charged = self._settled or reserved
            with suppress(DamagedNumbersError):  # which is in the log
                self._account.add_for_expert(
                    spent.expert, tokens, cost, is_estimated=is_estimated, instead=self._settled
                )
        more, freed = (tokens - charged.tokens, cost - charged.cost), (reserved.tokens, reserved.cost)
        with suppress(DamagedNumbersError):  # whatever became of the expert's row, the key's place is free again
            self._account.end(*more, since=charged.since, is_estimated=is_estimated, freed=freed)

    @property
    def has_rates(self) -> bool:
        """Whether the key has limits that answers tell."""
        limits = self._key.limits
        return limits.requests_per_minute is not None or limits.tokens_per_minute is not None

    def read_rates(self) -> Rates:
        return self._account.read_rates(self._key.limits)


def build_key_error(message: str) -> ApiError:
    """The error for a key that does not work."""
    return ApiError(401, message, headers={"www-authenticate": "Bearer"})


def build_unreadable_error(name: str) -> ApiError:
    """The error for a key whose usage is damaged; the log has more."""
    message = f"what the API key '{name}' has used cannot be read: ask the gateway's operator, whose log has the file"
    return ApiError(503, message, "usage_unreadable")


def build_limit_error(name: str, refusal: Refusal) -> ApiError:
    """The error for a limit that has been reached."""
    limit, value, wait, reserved = refusal
    amount = f"{Decimal(str(value)).normalize():,f}"  # never as 1e-07
    messages = {
        "requests_per_minute": f"has made {value:,.0f} requests within a minute, its limit",
        "tokens_per_minute": f"has used {value:,.0f} tokens within a minute, its limit",
        "concurrent": f"has {value:,.0f} requests at once, its limit: wait for one of them",
        "budget_per_day": f"has used up its budget of {amount} for this day: again from 00:00 UTC on",
        "budget_per_month": f"has used up its budget of {amount} for this month: again from the 1st, 00:00 UTC on",
    }
    problem = ApiError(429, f"the API key '{name}' {messages[limit]}", retry_after=wait)
    if reserved:
        held, what = f"{Decimal(str(round(reserved, 12))).normalize():,f}", limit.replace("_", " ")
        message = f"has requests in flight that reserve {held}, and its {what} is {amount}: wait for one of them to end"
        problem.message = f"the API key '{name}' {message}"
    elif limit.startswith("budget"):  # trying again in a moment is useless, and the official clients would
        problem.code = problem.kind = "insufficient_quota"
        problem.headers["x-should-retry"] = "false"
    return problem
