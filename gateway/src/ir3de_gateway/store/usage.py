"""What a key has used within the last minute, this day and this month: the numbers of a row, and what changes them.

The minute is a sliding window of sixty steps, each a whole second of the clock: the current second and the 59 before.
Usage leaves the window sixty seconds after its second began. Days and months are those of UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from ir3de_gateway.store.numbers import Numbers

WINDOW_S = 60

_DAY, _DAY_REQUESTS, _DAY_TOKENS, _DAY_COST = range(4)  # which day it is, and its numbers
_MONTH, _MONTH_REQUESTS, _MONTH_TOKENS, _MONTH_COST = range(4, 8)
_ESTIMATED = 8  # requests of this month whose tokens were estimated
COSTS = (_DAY_COST, _MONTH_COST)  # all others are counts
TOTALS_WIDTH = 12
_SECOND = 12  # the last one of the window
_REQUESTS = 16  # of the seconds of the window
_TOKENS = _REQUESTS + WINDOW_S
WIDTH = _TOKENS + WINDOW_S


class Period(NamedTuple):
    """A day or a month: its number, and when it ends."""

    number: int
    ends: float  # seconds since 1970


class Used(NamedTuple):
    """Requests, tokens and cost of a day or a month."""

    requests: int
    tokens: int
    cost: float

    @property
    def shown_cost(self) -> float:
        """The cost without the noise of adding floats."""
        return round(self.cost, 12)


@lru_cache(maxsize=16)
def _find_periods(hour: int) -> tuple[Period, Period]:
    now = datetime.fromtimestamp(hour * 3_600, UTC)
    month = now.year * 12 + now.month - 1
    next_month = datetime((month + 1) // 12, (month + 1) % 12 + 1, 1, tzinfo=UTC)
    return Period(hour // 24, (hour // 24 + 1) * 86_400.0), Period(month, next_month.timestamp())


def find_periods(now: float) -> tuple[Period, Period]:
    """The day and the month of a moment.

    >>> day, month = find_periods(0.0)
    >>> day.ends / 86_400, month.number == 1970 * 12, month.ends / 86_400
    (1.0, True, 31.0)
    """
    return _find_periods(int(now // 3_600))


class Totals:
    """Requests, tokens and cost of this day and this month."""

    __slots__ = ("_numbers", "_periods", "now")

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of a day or a month that is over become zero."""
        self._numbers, self.now = numbers, now
        self._periods = day, month = _find_periods(int(now // 3_600))
        if numbers[_DAY] != day.number:
            numbers[_DAY : _DAY_COST + 1] = type(numbers)("d", (day.number, 0.0, 0.0, 0.0))
        if numbers[_MONTH] != month.number:
            numbers[_MONTH : _ESTIMATED + 1] = type(numbers)("d", (month.number, 0.0, 0.0, 0.0, 0.0))

    @property
    def day(self) -> Used:
        requests, tokens, cost = self._numbers[_DAY_REQUESTS : _DAY_COST + 1]
        return Used(int(requests), int(tokens), cost)

    @property
    def month(self) -> Used:
        requests, tokens, cost = self._numbers[_MONTH_REQUESTS : _MONTH_COST + 1]
        return Used(int(requests), int(tokens), cost)

    @property
    def estimated(self) -> int:
        """Requests of this month whose tokens were estimated."""
        return int(self._numbers[_ESTIMATED])

    @property
    def day_ends(self) -> float:
        return self._periods[0].ends

    @property
    def month_ends(self) -> float:
        return self._periods[1].ends

    @property
    def day_cost(self) -> float:
        return self._numbers[_DAY_COST]

    @property
    def month_cost(self) -> float:
        return self._numbers[_MONTH_COST]

    def add_request(self) -> None:
        self._numbers[_DAY_REQUESTS] += 1.0
        self._numbers[_MONTH_REQUESTS] += 1.0

    def cancel_request(self, since: float) -> None:
        """Uncount a request of the second `since` that was rejected after all."""
        for place in self._list_current(since, _DAY_REQUESTS, _MONTH_REQUESTS):
            self._add_at(place, -1.0)

    def add_estimated(self) -> None:
        self._numbers[_ESTIMATED] += 1.0

    def add(self, tokens: float, cost: float, *, since: float) -> None:
        """Add tokens and cost of a request of the second `since`; negative numbers give back what was reserved.

        What was reserved in a day or a month that is over is not given back to the current one.
        """
        if tokens:
            places = (_DAY_TOKENS, _MONTH_TOKENS)
            for place in places if tokens > 0 else self._list_current(since, *places):
                self._add_at(place, tokens)
        if cost:
            for place in COSTS if cost > 0 else self._list_current(since, *COSTS):
                self._add_at(place, cost)

    def _add_at(self, place: int, more: float) -> None:
        total = self._numbers[place] + more
        self._numbers[place] = total if total > 0.0 else 0.0  # sums of floats depend on their order

    def _list_current(self, since: float, of_day: int, of_month: int) -> tuple[int, ...]:
        """Those of the two places whose period has not changed since a moment."""
        day, month = self._periods
        if since // 86_400 == day.number:
            return of_day, of_month
        return (of_month,) if find_periods(since)[1].number == month.number else ()


class Usage(Totals):
    """The same, and requests and tokens of the last sixty seconds."""

    __slots__ = ("second",)

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of seconds that have left the window become zero."""
        super().__init__(numbers, now)
        second, last = int(now // 1), int(numbers[_SECOND])
        self.second = second
        if second == last:
            return
        if 0 < last - second < WINDOW_S:  # the clock was set back a little
            self.second = last
            return
        if not 0 <= second - last < WINDOW_S:
            numbers[_REQUESTS:] = type(numbers)("d", bytes(16 * WINDOW_S))
        else:
            for gone in range(last + 1, second + 1):
                numbers[_REQUESTS + gone % WINDOW_S] = numbers[_TOKENS + gone % WINDOW_S] = 0.0
        numbers[_SECOND] = second

    @property
    def requests(self) -> int:
        """Requests of the minute."""
        return int(sum(self._numbers[_REQUESTS:_TOKENS]))

    @property
    def tokens(self) -> int:
        """Tokens of the minute, with those that requests in flight have reserved."""
        return int(sum(self._numbers[_TOKENS:WIDTH]))

    def add_request(self) -> None:
        super().add_request()
        self._numbers[_REQUESTS + self.second % WINDOW_S] += 1.0

    def cancel_request(self, since: float) -> None:
        super().cancel_request(since)
        if 0 <= self.second - since < WINDOW_S:
            self._add_at(_REQUESTS + int(since) % WINDOW_S, -1.0)

    def add(self, tokens: float, cost: float, *, since: float) -> None:
        """What a request of more than a minute used beyond its reservation counts in the current second."""
        super().add(tokens, cost, since=since)
        if 0 <= self.second - since < WINDOW_S:
            self._add_at(_TOKENS + int(since) % WINDOW_S, tokens)
        elif tokens > 0:
            self._add_at(_TOKENS + self.second % WINDOW_S, tokens)

    def find_requests_wait(self, least: int) -> float:
        """Seconds until at least so many requests have left the window."""
        return self._find_wait(_REQUESTS, least)

    def find_tokens_wait(self, least: int) -> float:
        """Seconds until at least so many tokens have left the window."""
        return self._find_wait(_TOKENS, least)

    def find_requests_reset(self) -> float:
        """Seconds until all requests have left the window."""
        return self._find_reset(_REQUESTS)

    def find_tokens_reset(self) -> float:
        """Seconds until all tokens have left the window."""
        return self._find_reset(_TOKENS)

    def _find_reset(self, first: int) -> float:
        for second in range(self.second, self.second - WINDOW_S, -1):
            if self._numbers[first + second % WINDOW_S]:
                return max(0.0, second + WINDOW_S - self.now)
        return 0.0

    def _find_wait(self, first: int, least: int) -> float:
        moment = self.now
        for second in range(self.second - WINDOW_S + 1, self.second + 1):
            if least <= 0:
                break
            if number := self._numbers[first + second % WINDOW_S]:
                least -= int(number)
                moment = second + WINDOW_S
        return max(0.0, moment - self.now)
