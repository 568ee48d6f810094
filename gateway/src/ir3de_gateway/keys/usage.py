"""What a key has used: within the last minute, this day and this month. Plain numbers of a row, and what changes them.

The minute is a sliding window of sixty steps, each a whole second of the clock: the second that runs and the 59 before.
What was used leaves the window sixty seconds after its second began. Days and months are those of UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from math import floor
from typing import NamedTuple

from ir3de_gateway.workers.number_file import Numbers

WINDOW_S = 60

_DAY, _DAY_REQUESTS, _DAY_TOKENS, _DAY_COST = range(4)  # which day it is, and its numbers
_MONTH, _MONTH_REQUESTS, _MONTH_TOKENS, _MONTH_COST = range(4, 8)
_ESTIMATED = 8  # requests of this month whose tokens the expert did not tell
COSTS = (_DAY_COST, _MONTH_COST)  # all others are counts
TOTALS_WIDTH = 12
_SECOND = 12  # the last one of the window
_REQUESTS = 16  # of the seconds of the window
_TOKENS = _REQUESTS + WINDOW_S
WIDTH = _TOKENS + WINDOW_S


class Period(NamedTuple):
    """The day or the month that runs: which one it is, and when it ends."""

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


def find_day(now: float) -> Period:
    return _find_periods(int(now // 3_600))[0]


def find_month(now: float) -> Period:
    """The month of a moment.

    >>> find_month(0.0).number == 1970 * 12, find_month(0.0).ends / 86_400
    (True, 31.0)
    """
    return _find_periods(int(now // 3_600))[1]


class Totals:
    """Requests, tokens and cost of this day and this month. Whoever changes them has the row's lock."""

    __slots__ = ("_numbers", "now")

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of a day or a month that is over become zero."""
        self._numbers, self.now = numbers, now
        day, month = find_day(now).number, find_month(now).number
        if numbers[_DAY] != day:
            _clear(numbers, _DAY_REQUESTS, _DAY_COST + 1)
            numbers[_DAY] = day
        if numbers[_MONTH] != month:
            _clear(numbers, _MONTH_REQUESTS, _ESTIMATED + 1)
            numbers[_MONTH] = month

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
        """Requests of this month whose tokens the expert did not tell."""
        return int(self._numbers[_ESTIMATED])

    def add_request(self) -> None:
        self._numbers[_DAY_REQUESTS] += 1.0
        self._numbers[_MONTH_REQUESTS] += 1.0

    def take_request_back(self, since: float) -> None:
        """A request that came at `since` was refused after all."""
        for find_period, place in ((find_day, _DAY_REQUESTS), (find_month, _MONTH_REQUESTS)):
            if find_period(since).number == find_period(self.now).number:
                self._numbers[place] = max(0.0, self._numbers[place] - 1.0)

    def add_estimated(self) -> None:
        self._numbers[_ESTIMATED] += 1.0

    def add(self, tokens: float, cost: float, *, since: float) -> None:
        """Add tokens and cost of a request that came at `since`; negative numbers take back what was expected.

        What was expected in a day or a month that is over cannot be taken back from the one that runs.
        """
        for find_period, first in ((find_day, _DAY_TOKENS), (find_month, _MONTH_TOKENS)):
            runs = find_period(since).number == find_period(self.now).number
            for place, more in ((first, tokens), (first + 1, cost)):
                if runs or more > 0:
                    self._numbers[place] = max(0.0, self._numbers[place] + more)


class Minute:
    """Requests and tokens of the last sixty seconds. Whoever changes them has the row's lock."""

    __slots__ = ("_numbers", "now", "second")

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of seconds that have left the window become zero."""
        self._numbers, self.now, self.second = numbers, now, floor(now)
        last = int(numbers[_SECOND])
        if 0 < last - self.second < WINDOW_S:  # the clock was set back a little
            self.second = last
        if not 0 <= self.second - last < WINDOW_S:
            _clear(numbers, _REQUESTS, _TOKENS + WINDOW_S)
        for second in range(max(last, self.second - WINDOW_S) + 1, self.second + 1):
            numbers[_REQUESTS + second % WINDOW_S] = numbers[_TOKENS + second % WINDOW_S] = 0.0
        numbers[_SECOND] = self.second

    @property
    def requests(self) -> int:
        return int(sum(self._numbers[_REQUESTS : _REQUESTS + WINDOW_S]))

    @property
    def tokens(self) -> int:
        """Of requests in flight, those that are expected."""
        return int(sum(self._numbers[_TOKENS : _TOKENS + WINDOW_S]))

    def add_request(self) -> None:
        self._numbers[_REQUESTS + self.second % WINDOW_S] += 1.0

    def take_request_back(self, since: int) -> None:
        """A request that came in the second `since` was refused after all."""
        if 0 <= self.second - since < WINDOW_S:
            place = _REQUESTS + since % WINDOW_S
            self._numbers[place] = max(0.0, self._numbers[place] - 1.0)

    def add_tokens(self, tokens: int, *, since: int) -> None:
        """Add tokens of a request that came in the second `since`; a negative number takes back what was expected.

        What a request that took longer than a minute used beyond the estimate counts now.
        """
        if 0 <= self.second - since < WINDOW_S:
            place = _TOKENS + since % WINDOW_S
            self._numbers[place] = max(0.0, self._numbers[place] + tokens)
        elif tokens > 0:
            self._numbers[_TOKENS + self.second % WINDOW_S] += tokens

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


def _clear(numbers: Numbers, first: int, end: int) -> None:
    for place in range(first, end):
        numbers[place] = 0.0
