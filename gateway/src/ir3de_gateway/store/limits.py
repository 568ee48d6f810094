"""Limits and budgets of keys, counted over all workers.

A request is rejected if a limit has been reached when it comes, and admitted otherwise. Its usage is known only at its
end. Until then the most that it can take is reserved, so that concurrent requests cannot all be admitted on the same
remainder: spent <= limit + the bound of one request. A reservation is charged at once and stays if a worker dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from ir3de_gateway.store.numbers import NumberFile, NumberRow, Row, check_numbers, find_worker_row
from ir3de_gateway.store.usage import (
    COSTS,
    DAY_COST,
    MONTH_COST,
    REQUESTS,
    TOKENS,
    TOTALS_WIDTH,
    WIDTH,
    Totals,
    Usage,
)  # fmt: skip

USAGE_FILE, EXPERTS_FILE = "keys.numbers", "keys-experts.numbers"  # in the state folder
IN_FLIGHT_RETRY_S = 1.0  # when to retry where requests in flight have reserved the rest

IN_FLIGHT, RESERVED_TOKENS, RESERVED_COST = range(3)  # of each worker


class Limits(NamedTuple):
    """How much a key may use; None for no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None
    budget_per_day: float | None = None
    budget_per_month: float | None = None


class Charge(NamedTuple):
    """What a request has been charged so far, and since which second."""

    tokens: int
    cost: float
    since: int
    lease: str = ""  # the request's name in a store over the network


class Spending(NamedTuple):
    """What the answer to a request took."""

    expert: str
    prompt_tokens: int
    answer_tokens: int
    cost: float
    is_estimated: bool  # the expert did not report its tokens

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.answer_tokens


class Rejection(NamedTuple):
    """A limit that has been reached: which one, its value, and in how many seconds to retry."""

    limit: str  # a field of `Limits`
    value: float
    retry_after: float
    reserved: float = 0.0  # by requests in flight, where less than the limit is spent


class RateState(NamedTuple):
    """A limit of requests or tokens per minute: how much is left, and in how many seconds all of it is free again."""

    limit: int
    remaining: int
    reset: float


class Rates(NamedTuple):
    """The limits of the minute; None where there is none."""

    requests: RateState | None
    tokens: RateState | None


class KeyUsage(NamedTuple):
    """What a key has used, its requests in flight, and what the answers of each expert took."""

    usage: Usage
    in_flight: int
    by_expert: dict[str, Totals]


class _Account:
    """Where the numbers of one key are."""

    __slots__ = ("by_expert", "row", "slots")

    def __init__(self, row: NumberRow, slots: Row) -> None:
        self.row, self.slots = row, slots
        self.by_expert: dict[str, NumberRow] = {}

    def sum(self, kind: int) -> float:
        """Over all workers."""
        return sum(self.slots.every[kind])

    def add(self, requests: int, tokens: float, cost: float) -> None:
        """Count requests in flight here, and what they have reserved."""
        own = self.slots.own
        own[IN_FLIGHT] += requests
        own[RESERVED_TOKENS] += tokens
        own[RESERVED_COST] += cost


class FileLimits:
    """Counts what keys use, in two files of the state folder; without a folder, the numbers end with the process.

    Each operation is atomic, is one round trip, and gets the time in seconds since 1970. On damaged numbers it raises a
    `DamagedNumbersError`. What requests in flight have reserved is in the memory that workers share: it ends with its
    worker.
    """

    def __init__(self, folder: Path | None, workers: int) -> None:
        self._workers = workers
        self._file = NumberFile(None if folder is None else folder / USAGE_FILE, WIDTH, COSTS)
        folder = folder if self._file.is_kept else None  # one warning is enough
        self._expert_file = NumberFile(None if folder is None else folder / EXPERTS_FILE, TOTALS_WIDTH, COSTS)
        self._accounts: dict[str, _Account] = {}

    def admit(self, key: str, limits: Limits, now: float, *, spends: bool = True) -> Rejection | Charge:
        """Count a request that begins, or return the limit that has been reached.

        Limits of tokens and cost are for requests that spend some.
        """
        account = self._accounts.get(key) or self._open_account(key)
        found = self._admit(account, limits, now, spends)
        is_by_others = isinstance(found, Rejection) and (found.reserved > 0 or found.limit == "concurrent")
        if is_by_others and account.slots.table.clear_dead_workers():
            return self._admit(account, limits, now, spends)
        return found

    def _admit(self, account: _Account, limits: Limits, now: float, spends: bool) -> Rejection | Charge:
        with self._file.lock:
            numbers = self._file.read(account.row)
            usage = Usage(numbers, now)
            if (rejection := find_rejection(usage, account, limits, spends=spends)) is not None:
                return rejection
            usage.add_request()
            self._file.write(account.row, numbers)
            account.add(1, 0, 0.0)
            return Charge(0, 0.0, usage.second)

    def reserve(self, key: str, limits: Limits, bound: Charge, now: float) -> Rejection | None:
        """Reserve the most that an admitted request can take; if a limit was reached meanwhile, uncount the request."""
        account = self._accounts.get(key) or self._open_account(key)
        with self._file.lock:
            numbers = self._file.read(account.row)
            usage = Usage(numbers, now)
            rejection = find_spent(usage, account, limits)
            if rejection is None:
                usage.add(bound.tokens, bound.cost, since=bound.since)
                account.add(0, bound.tokens, bound.cost)
            else:
                usage.cancel_request(bound.since)
            self._file.write(account.row, numbers)
            return rejection

    def settle(
        self,
        key: str,
        limits: Limits,
        reserved: Charge,
        spent: Spending | None,
        now: float,
        *,
        instead: Charge | None = None,
    ) -> Rates:
        """End a request: charge what it took in place of its reservation, or of an earlier charge (`instead`).

        The result is how much of the minute is left.
        """
        account = self._accounts.get(key) or self._open_account(key)
        charged = instead if instead is not None and spent is not None else reserved
        tokens, cost = (0, 0.0) if spent is None else (spent.tokens, spent.cost)
        with self._file.lock:
            account.add(-1, -reserved.tokens, -reserved.cost)
            try:
                numbers = self._file.read(account.row)
                usage = Usage(numbers, now)
                is_estimated = spent is not None and spent.is_estimated
                more = tokens - charged.tokens, cost - charged.cost
                usage.add(*more, since=charged.since, is_estimated=is_estimated)
                self._file.write(account.row, numbers)
            finally:
                if spent is not None:
                    self._charge_expert(key, account, spent, now, instead)
        return find_rates(usage, limits)

    def _charge_expert(self, key: str, account: _Account, spent: Spending, now: float, instead: Charge | None) -> None:
        row = account.by_expert.get(spent.expert) or self._find_expert(key, account, spent.expert)
        numbers = self._expert_file.read(row)
        totals = Totals(numbers, now)
        if instead is None:
            totals.add_request()
        before = instead or Charge(0, 0.0, int(now))
        more = spent.tokens - before.tokens, spent.cost - before.cost
        totals.add(*more, since=before.since, is_estimated=spent.is_estimated)
        self._expert_file.write(row, numbers)

    def read_rates(self, key: str, limits: Limits, now: float) -> Rates:
        """How much of the minute is left."""
        account = self._accounts.get(key) or self._open_account(key)
        with self._file.lock:
            usage = Usage(self._file.read(account.row), now)
        return find_rates(usage, limits)

    def read_usage(self, key: str, now: float, experts: Iterable[str] = ()) -> KeyUsage:
        account = self._accounts.get(key) or self._open_account(key)
        account.slots.table.clear_dead_workers()
        with self._file.lock:
            usage = Usage(self._file.read(account.row), now)
            rows = {name: account.by_expert.get(name) or self._find_expert(key, account, name) for name in experts}
            by_expert = {name: Totals(self._expert_file.read(row), now) for name, row in rows.items()}
            return KeyUsage(usage, int(account.sum(IN_FLIGHT)), by_expert)

    def close(self) -> None:
        self._file.close()
        self._expert_file.close()

    def _open_account(self, key: str) -> _Account:
        slots = find_worker_row(f"key {key}", self._workers)
        with self._file.lock:
            found = self._accounts[key] = _Account(self._file.find_row(key), slots)
        return found

    def _find_expert(self, key: str, account: _Account, expert: str) -> NumberRow:
        found = account.by_expert[expert] = self._expert_file.find_row(f"{key}\0{expert}")
        return found


def find_rates(usage: Usage, limits: Limits) -> Rates:
    requests = tokens = None
    if (most := limits.requests_per_minute) is not None:
        used = usage.requests
        requests = RateState(most, max(0, most - used), usage.find_reset(REQUESTS) if used else 0.0)
    if (most := limits.tokens_per_minute) is not None:
        used = usage.tokens
        tokens = RateState(most, max(0, most - used), usage.find_reset(TOKENS) if used else 0.0)
    return Rates(requests, tokens)


class InFlight(Protocol):
    """What the requests in flight of one key hold."""

    def sum(self, kind: int) -> float:
        """Over all of them: `IN_FLIGHT`, `RESERVED_TOKENS` or `RESERVED_COST`."""
        ...


def find_rejection(usage: Usage, account: InFlight, limits: Limits, *, spends: bool) -> Rejection | None:
    """The limit that rejects a request which begins."""
    if spends and (rejection := find_spent(usage, account, limits)) is not None:
        return rejection
    if (most := limits.requests_per_minute) is not None and usage.requests >= most:
        return Rejection("requests_per_minute", most, usage.find_wait(REQUESTS, usage.requests - most + 1))
    if (most := limits.concurrent) is not None and account.sum(IN_FLIGHT) >= most:
        return Rejection("concurrent", most, IN_FLIGHT_RETRY_S)
    return None


def find_spent(usage: Usage, account: InFlight, limits: Limits) -> Rejection | None:
    """The limit of cost or tokens that has been reached; of several, the one with the longest wait."""
    numbers, (day, month), now = usage.numbers, usage.periods, usage.now
    if (most := limits.budget_per_month) is not None and (cost := numbers[MONTH_COST]) >= most:
        return _reject("budget_per_month", most, cost, account.sum(RESERVED_COST), month.ends - now)
    if (most := limits.budget_per_day) is not None and (cost := numbers[DAY_COST]) >= most:
        return _reject("budget_per_day", most, cost, account.sum(RESERVED_COST), day.ends - now)
    if (limit := limits.tokens_per_minute) is not None and (used := usage.tokens) >= limit:
        wait = usage.find_wait(TOKENS, used - limit + 1)
        return _reject("tokens_per_minute", limit, used, account.sum(RESERVED_TOKENS), wait)
    return None


def _reject(limit: str, value: float, used: float, reserved: float, wait: float) -> Rejection:
    """Reject until the next period, or where requests in flight have reserved the rest, until one of them ends."""
    if used - reserved >= value:
        return Rejection(limit, value, wait)
    return Rejection(limit, value, min(wait, IN_FLIGHT_RETRY_S), reserved)


def check_usage_files(folder: Path) -> None:
    """Raise a `DamagedNumbersError` if a file of what keys have used is damaged."""
    for name, width in ((USAGE_FILE, WIDTH), (EXPERTS_FILE, TOTALS_WIDTH)):
        if (file := folder / name).is_file() and (content := file.read_bytes()):
            check_numbers(file, content, width, COSTS)
