"""Circuit breaker: keeps requests away from a failing expert until a probe succeeds."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Literal

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """Opens after a number of failures in a row; after `rest` seconds one request probes whether the expert is back.

    >>> now = [0.0]
    >>> breaker = CircuitBreaker(failures=2, rest=10, clock=lambda: now[0])
    >>> breaker.record_failure(), breaker.record_failure(), breaker.state
    (None, None, 'open')
    >>> breaker.allow_request()
    False
    >>> now[0] = 10.0
    >>> breaker.allow_request(), breaker.allow_request()      # one probe, and nobody else
    (True, False)
    >>> breaker.record_success(), breaker.state
    (None, 'closed')
    """

    def __init__(self, failures: int, rest: float, clock: Callable[[], float] = monotonic) -> None:
        self._allowed, self._rest, self._clock = failures, rest, clock
        self._failures = 0
        self._opened: float | None = None  # when it opened, or when the last probe set out
        self._probing = False

    @property
    def state(self) -> State:
        if self._opened is None:
            return "closed"
        return "half-open" if self._probing or self._clock() - self._opened >= self._rest else "open"

    @property
    def retry_after(self) -> float:
        """Seconds until a request may try again."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._rest - self._clock())

    def allow_request(self) -> bool:
        """Whether a request may be sent. In the half-open state it is the probe, and its outcome must be recorded."""
        if self._opened is None:
            return True
        if self._clock() - self._opened < self._rest:
            return False
        self._opened, self._probing = self._clock(), True  # if its outcome is never recorded, another follows
        return True

    def record_success(self) -> None:
        self._failures, self._opened, self._probing = 0, None, False

    def record_failure(self) -> None:
        self._failures += 1
        if self._probing or self._failures >= self._allowed:
            self._opened, self._probing = self._clock(), False

    def record_abandoned(self) -> None:
        """The request ended before the expert could answer: the next one may probe at once."""
        if self._probing:
            self._opened, self._probing = self._clock() - self._rest, False
