"""What a key has used within the last minute, this day and this month: the numbers of a row, and what changes them.

The minute is a sliding window of sixty steps, each a whole second of the clock: the current second and the 59 before.
Usage leaves the window sixty seconds after its second began. Days and months are those of UTC.
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from ir3de_gateway.store.numbers import Numbers

WINDOW_S = 60

# places of a row: which day it is and its numbers, which month it is and its numbers, and the seconds of the minute
DAY, DAY_REQUESTS, DAY_TOKENS, DAY_COST, MONTH, MONTH_REQUESTS, MONTH_TOKENS, MONTH_COST, ESTIMATED = range(9)
COSTS = (DAY_COST, MONTH_COST)  # all others are counts
TOTALS_WIDTH = 12
SECOND = 12  # the last one of the window
REQUESTS = 16  # of the seconds of the window
TOKENS = REQUESTS + WINDOW_S
WIDTH = TOKENS + WINDOW_S


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

    __slots__ = ("now", "numbers", "periods")

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of a day or a month that is over become zero."""
        self.numbers, self.now = numbers, now
        self.periods = day, month = _find_periods(int(now // 3_600))
        if numbers[DAY] != day.number:
            numbers[DAY:MONTH] = array("d", (day.number, 0.0, 0.0, 0.0))
        if numbers[MONTH] != month.number:
            numbers[MONTH : ESTIMATED + 1] = array("d", (month.number, 0.0, 0.0, 0.0, 0.0))

    @property
    def day(self) -> Used:
        requests, tokens, cost = self.numbers[DAY_REQUESTS:MONTH]
        return Used(int(requests), int(tokens), cost)

    @property
    def month(self) -> Used:
        requests, tokens, cost = self.numbers[MONTH_REQUESTS:ESTIMATED]
        return Used(int(requests), int(tokens), cost)

    @property
    def estimated(self) -> int:
        """Requests of this month whose tokens were estimated."""
        return int(self.numbers[ESTIMATED])

    def add_request(self) -> None:
        self.numbers[DAY_REQUESTS] += 1.0
        self.numbers[MONTH_REQUESTS] += 1.0

    def cancel_request(self, since: float) -> None:
        """Uncount a request of the second `since` that was rejected after all."""
        for place, now, then in zip((DAY_REQUESTS, MONTH_REQUESTS), self.periods, find_periods(since), strict=True):
            if now == then:
                self.numbers[place] = max(0.0, self.numbers[place] - 1.0)

    def add(self, tokens: float, cost: float, *, since: float, is_estimated: bool = False) -> None:
        """Add tokens and cost of a request of the second `since`; negative numbers give back what was reserved.

        What was reserved in a day or a month that is over is not given back to the current one.
        """
        numbers, (day, month) = self.numbers, self.periods
        is_today = since // 86_400 == day.number
        is_this_month = is_today or find_periods(since)[1].number == month.number
        for place, more, is_current in (
            (DAY_TOKENS, tokens, is_today), (MONTH_TOKENS, tokens, is_this_month),
            (DAY_COST, cost, is_today), (MONTH_COST, cost, is_this_month),
        ):  # fmt: skip
            if is_current or more > 0:
                total = numbers[place] + more
                numbers[place] = total if total > 0.0 else 0.0  # sums of floats depend on their order
        if is_estimated:
            numbers[ESTIMATED] += 1.0


class Usage(Totals):
    """The same, and requests and tokens of the last sixty seconds."""

    __slots__ = ("second",)

    def __init__(self, numbers: Numbers, now: float) -> None:
        """Numbers of seconds that have left the window become zero."""
        Totals.__init__(self, numbers, now)
        second, last = int(now), int(numbers[SECOND])
        self.second = last if 0 < last - second < WINDOW_S else second  # the clock may be set back a little
        if self.second == last:
            return
        if not 0 < second - last < WINDOW_S:
            numbers[REQUESTS:] = array("d", bytes(16 * WINDOW_S))
        for gone in range(max(last, second - WINDOW_S) + 1, second + 1):
            numbers[REQUESTS + gone % WINDOW_S] = numbers[TOKENS + gone % WINDOW_S] = 0.0
        numbers[SECOND] = second

    @property
    def requests(self) -> int:
        """Requests of the minute."""
        return int(sum(self.numbers[REQUESTS:TOKENS]))

    @property
    def tokens(self) -> int:
        """Tokens of the minute, with those that requests in flight have reserved."""
        return int(sum(self.numbers[TOKENS:WIDTH]))

    def add_request(self) -> None:
        Totals.add_request(self)
        self.numbers[REQUESTS + self.second % WINDOW_S] += 1.0

    def cancel_request(self, since: float) -> None:
        Totals.cancel_request(self, since)
        if 0 <= self.second - since < WINDOW_S:
            place = REQUESTS + int(since) % WINDOW_S
            self.numbers[place] = max(0.0, self.numbers[place] - 1.0)

    def add(self, tokens: float, cost: float, *, since: float, is_estimated: bool = False) -> None:
        """What a request of more than a minute used beyond its reservation counts in the current second."""
        Totals.add(self, tokens, cost, since=since, is_estimated=is_estimated)
        is_within = 0 <= self.second - since < WINDOW_S
        if is_within or tokens > 0:
            place = TOKENS + int(since if is_within else self.second) % WINDOW_S
            self.numbers[place] = max(0.0, self.numbers[place] + tokens)

    def find_reset(self, first: int) -> float:
        """Seconds until all requests, or all tokens, have left the window; `first` is `REQUESTS` or `TOKENS`."""
        for second in range(self.second, self.second - WINDOW_S, -1):
            if self.numbers[first + second % WINDOW_S]:
                return max(0.0, second + WINDOW_S - self.now)
        return 0.0

    def find_wait(self, first: int, least: int) -> float:
        """Seconds until at least so many of them have left the window."""
        moment = self.now
        for second in range(self.second - WINDOW_S + 1, self.second + 1):
            if least <= 0:
                break
            if number := self.numbers[first + second % WINDOW_S]:
                least -= int(number)
                moment = second + WINDOW_S
        return max(0.0, moment - self.now)
