"""Circuit breaker: keeps requests away from an expert that fails, or that is rate limited. See `retry` for the rule."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Literal, TypeAlias

State = Literal["closed", "half-open", "open", "cooling"]

MAX_RETRY_AFTER_S = 60.0
COOLDOWN_S = 1.0

CELLS = 7
Cells: TypeAlias = "list[float] | memoryview[float]"  # of this breaker alone, or those that all workers share
# a time of 0 means never; tickets count openings and probes
_FAILURES, _PROBE_AT, _PROBE_TICKET, _COOL_UNTIL, _ANSWERED_AT, _TICKET, _OPENED = range(CELLS)


class CircuitBreaker:
    """Opens after a number of failures in a row; after `rest` seconds one request probes whether the expert is back.

    An expert that answers 429 is not failing: it cools down for the time of its Retry-After.

    A request takes the `ticket` when it is allowed, and its outcome is recorded with it. Requests that were allowed
    before the breaker opened change nothing any more, and only the last probe can be abandoned. Without a ticket, the
    outcome is that of the last request.

    >>> now = [1.0]
    >>> breaker = CircuitBreaker(failures=2, rest=10, clock=lambda: now[0])
    >>> breaker.record_failure(), breaker.record_failure(), breaker.state
    (None, None, 'open')
    >>> breaker.allow_request()
    False
    >>> now[0] = 11.0
    >>> breaker.allow_request(), breaker.allow_request()      # one probe alone
    (True, False)
    >>> breaker.record_beginning(), breaker.state
    (None, 'closed')
    >>> breaker.cool_down(retry_after=5), breaker.state, breaker.retry_after
    (None, 'cooling', 5.0)
    """

    def __init__(
        self,
        failures: int,
        rest: float,
        *,
        max_retry_after: float = MAX_RETRY_AFTER_S,
        cooldown: float = COOLDOWN_S,
        clock: Callable[[], float] = monotonic,
        cells: Cells | None = None,
        lock: AbstractContextManager[object] | None = None,
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """With `cells` and their `lock`, several workers have one breaker; `clock` must then be the machine's.

        `on_closed` is called when a probe closes it.
        """
        self._allowed, self._rest, self._clock = failures, rest, clock
        self._max_retry_after, self._cooldown = max_retry_after, cooldown
        self._cells: Cells = [0.0] * CELLS if cells is None else cells
        self._lock = nullcontext() if lock is None else lock
        self._on_closed = on_closed
        self._failed_requests: set[int] = set()  # those of the present row of failures
        self._overloads = 0  # in a row

    @property
    def ticket(self) -> int:
        """The ticket of the request that was allowed last."""
        return int(self._cells[_TICKET])

    def _is_current(self, ticket: int | None) -> bool:
        """Whether a request was allowed after the breaker opened the last time."""
        return ticket is None or ticket >= self._cells[_OPENED]

    @property
    def state(self) -> State:
        cells = self._cells
        if cells[_PROBE_AT]:
            if not cells[_PROBE_TICKET] and self._clock() < cells[_PROBE_AT]:
                return "open"
            return "half-open" if self._clock() >= cells[_COOL_UNTIL] else "cooling"
        return "cooling" if cells[_COOL_UNTIL] and self._clock() < cells[_COOL_UNTIL] else "closed"

    @property
    def retry_after(self) -> float:
        """Seconds until a request may try again."""
        return max(0.0, max(self._cells[_PROBE_AT], self._cells[_COOL_UNTIL]) - self._clock())

    def allow_request(self) -> bool:
        """Whether a request may be sent. In the half-open state it is the probe, and its outcome must be recorded."""
        cells = self._cells
        if cells[_COOL_UNTIL] and self._clock() < cells[_COOL_UNTIL]:
            return False
        if not cells[_PROBE_AT]:
            return True
        with self._lock:
            now = self._clock()
            if now < cells[_PROBE_AT]:
                return False
            if cells[_PROBE_AT]:  # another worker may have closed it meanwhile
                cells[_TICKET] += 1.0
                # if its outcome never comes, another follows
                cells[_PROBE_AT], cells[_PROBE_TICKET] = now + self._rest, cells[_TICKET]
            return True

    def record_beginning(self, ticket: int | None = None) -> None:
        """A good answer has begun: the expert is back. If this answer breaks off after all, the breaker opens again."""
        cells = self._cells
        cells[_ANSWERED_AT] = self._clock()
        self._overloads = 0
        if not cells[_PROBE_AT] or not self._is_current(ticket):
            return
        with self._lock:
            cells[_FAILURES] = self._allowed - 1.0
            cells[_PROBE_AT] = cells[_PROBE_TICKET] = 0.0
        self._on_closed()

    def record_success(self, ticket: int | None = None) -> None:
        """A good answer has come to its end. It began long ago, perhaps: an open breaker stays open until its probe."""
        cells = self._cells
        if (cells[_PROBE_TICKET] and self._is_current(ticket)) or (cells[_FAILURES] and not cells[_PROBE_AT]):
            with self._lock:
                cells[_FAILURES] = cells[_PROBE_AT] = cells[_PROBE_TICKET] = 0.0

    def record_failure(self, ticket: int | None = None, *, request: int = 0, waited: float = 0.0) -> None:
        """A request failed. No client can open the breaker alone:

        - `request`, a hash of its body, counts once in a row, for failures that the request itself may cause;
        - after `waited` seconds without an answer, nothing is counted if others were answered meanwhile.
        """
        cells = self._cells
        if not self._is_current(ticket):
            return
        if not cells[_FAILURES]:
            self._failed_requests.clear()
        is_repeated = request != 0 and request in self._failed_requests
        if (is_repeated or (waited and self._clock() - waited < cells[_ANSWERED_AT])) and not cells[_PROBE_AT]:
            return
        if request:
            self._failed_requests.add(request)
        with self._lock:
            cells[_FAILURES] += 1.0
            if cells[_PROBE_TICKET] or cells[_FAILURES] >= self._allowed:
                cells[_PROBE_AT], cells[_PROBE_TICKET] = self._clock() + self._rest, 0.0
                cells[_OPENED] = cells[_TICKET] = cells[_TICKET] + 1.0
                self._failed_requests.clear()

    def cool_down(self, retry_after: float | None = None, ticket: int | None = None) -> None:
        """The expert is rate limited, perhaps for a known time. It gets no requests meanwhile, without a failure."""
        cells = self._cells
        self._overloads += 1
        if retry_after or self._overloads > 1:  # a single one may be about the request, or about one client's quota
            seconds = min(retry_after, self._max_retry_after) if retry_after else self._cooldown
            with self._lock:
                cells[_COOL_UNTIL] = max(cells[_COOL_UNTIL], self._clock() + seconds)
        self.record_abandoned(ticket)

    def close(self) -> None:
        """The expert works, as a health check found: clear its failures."""
        cells = self._cells
        if cells[_PROBE_AT] or cells[_FAILURES]:
            with self._lock:
                cells[_FAILURES] = cells[_PROBE_AT] = cells[_PROBE_TICKET] = 0.0

    @property
    def is_open(self) -> bool:
        """Whether only a probe may pass, now or after its rest."""
        return bool(self._cells[_PROBE_AT])

    def record_abandoned(self, ticket: int | None = None) -> None:
        """The request ended before the expert could answer: if it was the probe, the next one may probe at once."""
        cells = self._cells
        if cells[_PROBE_TICKET]:
            with self._lock:
                if cells[_PROBE_TICKET] and ticket in (None, cells[_PROBE_TICKET]):
                    cells[_PROBE_AT], cells[_PROBE_TICKET] = self._clock(), 0.0
