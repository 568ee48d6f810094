"""The account of a key: what it uses, counted over all workers, and whether a request is within its limits.

A request is refused if a limit has been reached when it comes, and admitted otherwise. What it will take is known only
at its end. Until then the most that it can take is reserved, so that requests which come together cannot all be
admitted on the same remainder: spent <= limit + the bound of one request. A reservation is charged at once: if a worker
dies, it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, NamedTuple

from ir3de_gateway.keys.usage import COSTS, TOTALS_WIDTH, WIDTH, Minute, Totals, find_day, find_month
from ir3de_gateway.workers.number_file import DamagedNumbersError, NumberFile, NumberRow, Numbers, check_numbers
from ir3de_gateway.workers.table import Row, find_worker_row

if TYPE_CHECKING:
    from ir3de_gateway.keys.definitions import KeyLimits

USAGE_FILE, EXPERTS_FILE = "keys.numbers", "keys-experts.numbers"  # in the state folder
IN_FLIGHT_RETRY_S = 1.0  # when to try again where requests in flight take what is left

_IN_FLIGHT, _RESERVED_TOKENS, _RESERVED_COST = range(3)  # of each worker


class Charge(NamedTuple):
    """What a request has been charged so far, and the second since which."""

    tokens: int
    cost: float
    since: int


class Refusal(NamedTuple):
    """A limit that has been reached: which one, its value, and in how many seconds to try again."""

    limit: str  # a field of `KeyLimits`
    value: float
    retry_after: float
    reserved: float = 0.0  # by requests in flight, where less than the limit is spent


class RateState(NamedTuple):
    """A limit of requests or tokens per minute: how much is left, and in how many seconds all of it is there again."""

    limit: int
    remaining: int
    reset: float


class Rates(NamedTuple):
    """The limits of the minute; None where there is none."""

    requests: RateState | None
    tokens: RateState | None


class Slots:
    """Requests of a key in flight, and what they have reserved, over all workers. The account's lock guards it."""

    def __init__(self, row: Row | None) -> None:
        self._row, self._own = row, [0.0, 0.0, 0.0]

    def count(self) -> int:
        return int(self._sum(_IN_FLIGHT))

    @property
    def reserved_tokens(self) -> float:
        return self._sum(_RESERVED_TOKENS)

    @property
    def reserved_cost(self) -> float:
        return self._sum(_RESERVED_COST)

    def add(self, requests: int, tokens: float, cost: float) -> None:
        for place, more in enumerate((requests, tokens, cost)):
            self._own[place] += more
            if self._row is not None:
                self._row.own[place] = self._own[place]

    def _sum(self, place: int) -> float:
        return self._own[place] if self._row is None else sum(self._row.list_all(place))

    def clear_dead_workers(self) -> bool:
        return self._row is not None and self._row.table.clear_dead_workers()


class Account:
    """What one key uses."""

    def __init__(self, row: NumberRow, slots: Slots, find_expert_row: Callable[[str], NumberRow]) -> None:
        self._row, self._slots, self._find_expert_row = row, slots, find_expert_row
        self.clock = time

    def admit(self, limits: KeyLimits, *, spends: bool = True) -> Refusal | int:
        """Count a request that begins: return its second. If a limit has been reached, return which one.

        Limits of tokens and cost are for requests that spend some.
        """
        found = self._row.change(lambda numbers: self._admit(numbers, limits, spends))
        is_for_others = isinstance(found, Refusal) and (found.limit == "concurrent" or found.reserved > 0)
        if is_for_others and self._slots.clear_dead_workers():
            found = self._row.change(lambda numbers: self._admit(numbers, limits, spends))
        return found

    def _admit(self, numbers: Numbers, limits: KeyLimits, spends: bool) -> Refusal | int:
        now = self.clock()
        minute, totals = Minute(numbers, now), Totals(numbers, now)
        refusal = self._find_spent(minute, totals, limits) if spends else None
        if refusal is None and (most := limits.requests_per_minute) is not None and (used := minute.requests) >= most:
            refusal = Refusal("requests_per_minute", most, minute.find_requests_wait(used - most + 1))
        if refusal is None and limits.concurrent is not None and self._slots.count() >= limits.concurrent:
            refusal = Refusal("concurrent", limits.concurrent, IN_FLIGHT_RETRY_S)
        if refusal is not None:
            return refusal
        minute.add_request()
        totals.add_request()
        self._slots.add(1, 0, 0.0)
        return minute.second

    def expect(self, limits: KeyLimits, tokens: int, cost: float, *, since: int) -> Refusal | None:
        """Reserve the most that a request can take. If others have reached a limit meanwhile, it has not been made."""

        def charge(numbers: Numbers) -> Refusal | None:
            now = self.clock()
            minute, totals = Minute(numbers, now), Totals(numbers, now)
            refusal = self._find_spent(minute, totals, limits)
            if refusal is None:
                minute.add_tokens(tokens, since=since)
                totals.add(tokens, cost, since=since)
                self._slots.add(0, tokens, cost)
            else:
                minute.take_request_back(since)
                totals.take_request_back(since)
            return refusal

        return self._row.change(charge)

    def end(
        self, tokens: int, cost: float, *, since: int, is_estimated: bool, freed: tuple[float, float] = (0, 0.0)
    ) -> None:
        """A request has ended, and took so much more than was charged (or less: then the numbers are negative).

        What it had reserved, of tokens and cost, is freed.
        """

        def settle(numbers: Numbers) -> None:
            now = self.clock()
            Minute(numbers, now).add_tokens(tokens, since=since)
            totals = Totals(numbers, now)
            totals.add(tokens, cost, since=since)
            if is_estimated:
                totals.add_estimated()

        try:
            self._row.change(settle)
        finally:
            self._slots.add(-1, -freed[0], -freed[1])

    def add_for_expert(
        self, expert: str, tokens: int, cost: float, *, is_estimated: bool, instead: Charge | None = None
    ) -> None:
        """What an expert's answer to the key took, instead of what it was charged before."""

        def add(numbers: Numbers) -> None:
            totals = Totals(numbers, self.clock())
            if instead is None:
                totals.add_request()
                totals.add(tokens, cost, since=totals.now)
            else:
                totals.add(tokens - instead.tokens, cost - instead.cost, since=instead.since)
            if is_estimated:
                totals.add_estimated()

        self._find_expert_row(expert).change(add)

    def read_rates(self, limits: KeyLimits) -> Rates:
        """How much of the minute is left."""
        try:
            minute = Minute(self._row.read(), self.clock())
        except DamagedNumbersError:
            return Rates(None, None)
        requests = tokens = None
        if (most := limits.requests_per_minute) is not None:
            used = minute.requests
            requests = RateState(most, max(0, most - used), minute.find_requests_reset())
        if (most := limits.tokens_per_minute) is not None:
            used = minute.tokens
            tokens = RateState(most, max(0, most - used), minute.find_tokens_reset())
        return Rates(requests, tokens)

    def read(self) -> tuple[Minute, Totals, int]:
        """The numbers as they are now, and the requests in flight."""
        self._slots.clear_dead_workers()
        numbers, now = self._row.read(), self.clock()
        return Minute(numbers, now), Totals(numbers, now), self._slots.count()

    def read_for_expert(self, expert: str) -> Totals:
        return Totals(self._find_expert_row(expert).read(), self.clock())

    def _find_spent(self, minute: Minute, totals: Totals, limits: KeyLimits) -> Refusal | None:
        """The limit of cost or tokens that has been reached; of several, the one for which the wait is longest."""
        now, in_flight = totals.now, self._slots
        if (most := limits.budget_per_month) is not None and (cost := totals.month.cost) >= most:
            return _refuse("budget_per_month", most, cost, in_flight.reserved_cost, find_month(now).ends - now)
        if (most := limits.budget_per_day) is not None and (cost := totals.day.cost) >= most:
            return _refuse("budget_per_day", most, cost, in_flight.reserved_cost, find_day(now).ends - now)
        if (limit := limits.tokens_per_minute) is not None and (used := minute.tokens) >= limit:
            wait = minute.find_tokens_wait(used - limit + 1)
            return _refuse("tokens_per_minute", limit, used, in_flight.reserved_tokens, wait)
        return None


def _refuse(limit: str, value: float, used: float, reserved: float, wait: float) -> Refusal:
    """A refusal until the next period; if requests in flight have reserved the rest, until one of them has ended."""
    if used - reserved >= value:
        return Refusal(limit, value, wait)
    return Refusal(limit, value, min(wait, IN_FLIGHT_RETRY_S), reserved)


def check_usage_files(folder: Path) -> None:
    """Raise an `InputError` if a file of a state folder that has what keys have used is damaged."""
    for name, width in ((USAGE_FILE, WIDTH), (EXPERTS_FILE, TOTALS_WIDTH)):
        if (file := folder / name).is_file() and (content := file.read_bytes()):
            check_numbers(file, content, width, COSTS)


class Accounts:
    """The accounts of all keys, in two files of the state folder; without a folder they end with the process."""

    def __init__(self, folder: Path | None, workers: int) -> None:
        self._workers = workers
        self._file = NumberFile(None if folder is None else folder / USAGE_FILE, WIDTH, COSTS)
        folder = folder if self._file.is_kept else None  # what the one cannot do, the other need not try and tell
        self._by_expert = NumberFile(None if folder is None else folder / EXPERTS_FILE, TOTALS_WIDTH, COSTS)
        self._accounts: dict[str, Account] = {}

    def find(self, name: str) -> Account:
        """The account of the key of that name."""
        found = self._accounts.get(name)
        if found is None:
            slots = Slots(find_worker_row(f"key {name}", self._workers))
            found = self._accounts[name] = Account(
                self._file.find_row(name), slots, lambda expert: self._by_expert.find_row(f"{name}\0{expert}")
            )
        return found

    def close(self) -> None:
        self._file.close()
        self._by_expert.close()
