"""How much a key may use: the sliding minute, days and months, and what several workers count together."""

from __future__ import annotations

import subprocess
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from ir3de_gateway.admin.state import StateFolder
from ir3de_gateway.keys.client_key import build_limit_error
from ir3de_gateway.store.limits import (
    Charge,
    FileLimits,
    KeyUsage,
    Limits,
    Rates,
    Rejection,
    Spending,
)
from ir3de_gateway.store.numbers import WorkerTable
from ir3de_gateway.store.pins import create_pins
from ir3de_gateway.store.usage import Period, Used, find_periods
from ir3de_gateway.store.workers import create_worker_folder

MIDDAY = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


class Account:
    """One key of a store, and its clock."""

    def __init__(self, folder: Path | None = None, now: float = MIDDAY, name: str = "ada", workers: int = 1) -> None:
        self.store, self.now, self.name = FileLimits(folder, workers), now, name

    def admit(self, limits: Limits) -> Rejection | Charge:
        return self.store.admit(self.name, limits, self.now)

    def admitted(self, limits: Limits) -> Charge:
        found = self.admit(limits)
        assert isinstance(found, Charge)
        return found

    def reserve(self, limits: Limits, tokens: int, cost: float, admitted: Charge) -> Rejection | None:
        return self.store.reserve(self.name, limits, Charge(tokens, cost, admitted.since), self.now)

    def reserved(self, limits: Limits, tokens: int, cost: float, admitted: Charge) -> Charge:
        assert self.reserve(limits, tokens, cost, admitted) is None
        return Charge(tokens, cost, admitted.since)

    def settle(
        self, tokens: int, cost: float, reserved: Charge, *, is_estimated: bool = False, instead: Charge | None = None
    ) -> None:
        spent = Spending("law", tokens, 0, cost, is_estimated)
        self.store.settle(self.name, Limits(), reserved, spent, self.now, instead=instead)

    def read(self, expert: str = "law") -> KeyUsage:
        return self.store.read_usage(self.name, self.now, [expert])

    def read_rates(self, limits: Limits) -> Rates:
        return self.store.read_rates(self.name, limits, self.now)


def find_day(now: float) -> Period:
    return find_periods(now)[0]


def find_month(now: float) -> Period:
    return find_periods(now)[1]


steps = st.lists(st.tuples(st.floats(0, 40), st.integers(1, 4)), max_size=40)


@given(st.integers(0, 6), steps)
@settings(deadline=None)
def test_a_request_is_admitted_exactly_if_fewer_than_the_limit_came_in_the_sixty_seconds_before(
    limit: int, told: list[tuple[float, int]]
) -> None:
    """Against a list of all requests; each step is a pause, and how many requests come then."""
    account = Account()
    limits, admitted = Limits(requests_per_minute=limit), deque[int]()
    for pause, requests in told:
        account.now += pause
        second = int(account.now)
        while admitted and second - admitted[0] >= 60:
            admitted.popleft()
        for _ in range(requests):
            found = account.admit(limits)
            assert isinstance(found, Rejection) == (len(admitted) >= limit)
            if not isinstance(found, Rejection):
                admitted.append(second)
            elif limit:
                assert found.retry_after == pytest.approx(admitted[len(admitted) - limit] + 60 - account.now)
        rates = account.read_rates(limits).requests
        assert rates is not None and rates.remaining == limit - len(admitted)
        assert rates.reset == pytest.approx(max(0.0, admitted[-1] + 60 - account.now) if admitted else 0.0)


charges = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 50), st.integers(0, 50)), max_size=30)


@given(st.integers(1, 100), charges)
@settings(deadline=None)
def test_tokens_are_those_reported_at_the_end_and_no_request_below_the_limit_is_rejected(
    limit: int, told: list[tuple[float, int, int]]
) -> None:
    """Each request: a pause before it, what it reserves, and what it takes."""
    account = Account()
    limits, used = Limits(tokens_per_minute=limit), deque[tuple[int, int]]()
    for pause, expected, taken in told:
        account.now += pause
        while used and int(account.now) - used[0][0] >= 60:
            used.popleft()
        total = sum(tokens for _, tokens in used)
        since = account.admit(limits)
        assert isinstance(since, Rejection) == (total >= limit)
        if isinstance(since, Rejection):
            continue
        account.settle(taken, 0.0, account.reserved(limits, expected, 0.0, since))
        used.append((since.since, taken))
        rates = account.read_rates(limits).tokens
        assert rates is not None and rates.remaining == max(0, limit - total - taken)


def test_reservations_of_others_count_and_a_request_rejected_for_them_was_not_made() -> None:
    account = Account()
    limits = Limits(tokens_per_minute=100, requests_per_minute=10)
    first, second = account.admitted(limits), account.admitted(limits)
    reserved = account.reserved(limits, 100, 0.0, first)
    rejection = account.reserve(limits, 1, 0.0, second)
    assert rejection is not None and rejection.limit == "tokens_per_minute"
    used, in_flight, _ = account.read()
    assert (used.requests, used.day.requests, used.month.requests, in_flight) == (1, 1, 1, 2)
    account.store.settle("ada", limits, second, None, account.now)
    account.settle(5, 0.0, reserved, is_estimated=True)
    used, in_flight, _ = account.read()
    assert (used.tokens, used.day.tokens, used.month.tokens, used.estimated, in_flight) == (5, 5, 5, 1, 0)


def test_budgets_begin_anew_with_the_day_and_the_month() -> None:
    account = Account(now=datetime(2026, 12, 30, 23, 59, tzinfo=UTC).timestamp())
    limits = Limits(budget_per_day=1.0, budget_per_month=1.5)

    def spend(cost: float) -> Rejection | None:
        found = account.admit(limits)
        if isinstance(found, Rejection):
            return found
        account.settle(10, cost, account.reserved(limits, 10, cost * 2, found))
        return None

    assert [spend(0.6), spend(0.6)] == [None, None]  # over by less than a request
    assert spend(0.1) == Rejection("budget_per_day", 1.0, 60.0)
    account.now += 61
    assert spend(0.4) is None
    assert spend(0.1) == Rejection("budget_per_month", 1.5, 86_400 - 1.0)
    account.now += 86_400
    assert spend(0.1) is None
    used = account.read().usage
    assert (used.day.cost, used.month.cost, used.month.requests) == (pytest.approx(0.1), pytest.approx(0.1), 1)


def test_a_budget_that_is_used_up_to_the_last_bit_is_used_up() -> None:
    account, limits = Account(), Limits(budget_per_day=1.0)
    account.settle(10, 1.0, account.reserved(limits, 10, 1.0, account.admitted(limits)))
    assert account.admit(limits) == Rejection("budget_per_day", 1.0, find_day(MIDDAY).ends - MIDDAY)


def test_a_used_up_budget_is_reported_in_plain_decimals_with_when_it_begins_anew() -> None:
    day = build_limit_error("team", Rejection("budget_per_day", 1e-07, 60.0)).message
    assert "its budget of 0.0000001 for this day: again from 00:00 UTC on" in day
    month = build_limit_error("team", Rejection("budget_per_month", 1_250_000.5, 60.0)).message
    assert "its budget of 1,250,000.5 for this month: again from the 1st, 00:00 UTC on" in month
    assert "of 20 for" in build_limit_error("team", Rejection("budget_per_day", 20.0, 60.0)).message


def test_what_was_used_is_shown_without_noise() -> None:
    assert Used(1, 1, 5.999999999999983e-06).shown_cost == 6e-06


def test_a_reservation_of_yesterday_is_not_given_back_to_today() -> None:
    account, limits = Account(now=find_day(MIDDAY).ends - 1), Limits(budget_per_day=1.0)
    reserved = account.reserved(limits, 1_000, 0.9, account.admitted(limits))
    account.now += 2
    account.reserved(limits, 100, 0.5, account.admitted(limits))
    account.settle(100, 0.1, reserved)
    assert account.read().usage.day == (1, 100, 0.5)


def test_a_reservation_of_a_minute_ago_is_not_given_back_to_the_current_second() -> None:
    account, limits = Account(), Limits(tokens_per_minute=1_000)
    reserved = account.reserved(limits, 100, 0.0, account.admitted(limits))
    account.now += 60
    account.reserved(limits, 50, 0.0, account.admitted(limits))
    account.settle(10, 0.0, reserved)
    assert account.read().usage.tokens == 50


def test_estimated_requests_are_those_of_this_month() -> None:
    account = Account()
    account.settle(5, 0.0, account.admitted(Limits()), is_estimated=True)
    assert account.read().usage.estimated == 1
    account.now = find_month(account.now).ends
    assert account.read().usage.estimated == 0


def test_what_is_given_back_leaves_nothing_below_zero() -> None:
    """Sums of floats depend on their order: 0.1 + 0.7 - 0.7 - 0.1 is below zero."""
    account, limits = Account(), Limits(budget_per_day=5.0)
    reserved = {cost: account.reserved(limits, 0, cost, account.admitted(limits)) for cost in (0.1, 0.7)}
    for cost in (0.7, 0.1):
        account.settle(0, 0.0, reserved[cost])
    assert account.read().usage.day.cost == account.read().usage.month.cost == 0.0


def test_a_charge_of_last_month_is_not_given_back_to_this_one() -> None:
    account = Account()
    before = Charge(2_000, 2_000.0, int(account.now))
    account.now = find_month(account.now).ends
    account.settle(100, 100.0, account.admitted(Limits()))
    account.settle(15, 15.0, account.admitted(Limits()), instead=before)
    used, _, by_expert = account.read()
    assert by_expert["law"].month == (1, 100, 100.0) and used.month == (2, 100, 100.0)


def test_what_a_dead_worker_had_reserved_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its requests took is unknown. Until it is known to be dead, they count as in flight."""
    with create_worker_folder():
        account, limits = Account(tmp_path, workers=2), Limits(budget_per_day=5.0)
        account.reserved(limits, 10, 9.0, account.admitted(limits))
        rejection = account.admit(limits)
        assert isinstance(rejection, Rejection) and (rejection.reserved, rejection.retry_after) == (9.0, 1.0)
        row = account.store._accounts["ada"].slots

        def clear(table: WorkerTable) -> bool:  # as another worker does, once this one is dead
            row.clear_worker(table.number)
            return True

        monkeypatch.setattr(WorkerTable, "clear_dead_workers", clear)
        rejection = account.admit(limits)
        assert isinstance(rejection, Rejection) and rejection.reserved == 0.0 and rejection.retry_after > 1.0


@given(st.integers(0, 50), st.integers(0, 50), st.booleans())
@settings(deadline=None)
def test_what_was_used_beyond_the_reservation_of_yesterday_counts_today(
    expected: int, taken: int, next_day: bool
) -> None:
    """Less than was reserved is not given back to another day; more is charged, whenever the request ends."""
    account, limits = Account(now=find_day(MIDDAY).ends - 1), Limits(budget_per_day=100.0)
    reserved = account.reserved(limits, expected, float(expected), account.admitted(limits))
    account.now += 2 * next_day
    account.settle(taken, float(taken), reserved)
    today = max(0, taken - expected) if next_day else taken
    assert account.read().usage.day[1:] == (today, today)


@pytest.mark.parametrize("jump", [-5, -59])
def test_a_clock_that_is_set_back_a_little_frees_nothing(jump: float) -> None:
    account = Account()
    limits = Limits(requests_per_minute=1)
    assert account.admitted(limits).since == int(account.now)
    account.now += jump
    assert isinstance(account.admit(limits), Rejection)


def test_a_clock_that_was_far_in_the_future_locks_nobody_out() -> None:
    account = Account()
    limits = Limits(requests_per_minute=1)
    account.now += 5_000_000
    assert not isinstance(account.admit(limits), Rejection)
    account.now -= 5_000_000
    assert not isinstance(account.admit(limits), Rejection)


@given(st.integers(0, 4_000_000_000))
def test_days_and_months_are_those_of_the_calendar(now: int) -> None:
    day, month = find_day(now), find_month(now)
    last, first = (datetime.fromtimestamp(moment, UTC) for moment in (month.ends - 1, month.ends))
    here = datetime.fromtimestamp(now, UTC)
    assert (last.year, last.month) == (here.year, here.month)
    assert (first.day, first.hour, first.minute, first.second) == (1, 0, 0, 0)
    assert 0 < day.ends - now <= 86_400 and day.ends % 86_400 == 0


def test_numbers_of_a_file_outlive_the_process_that_wrote_them(tmp_path: Path) -> None:
    account, again, other = Account(tmp_path), Account(tmp_path), Account(tmp_path, name="bea")
    limits = Limits(requests_per_minute=2)
    assert isinstance(account.admit(limits), Charge)
    assert isinstance(other.admit(limits), Charge)
    assert isinstance(again.admit(limits), Charge)
    assert isinstance(again.admit(limits), Rejection) and isinstance(account.admit(limits), Rejection)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_what_every_worker_finds_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with create_worker_folder():
        for _ in range(2):  # each as a worker does
            StateFolder(tmp_path / "state").prepare()
            create_pins(60.0, tmp_path / "state")
            FileLimits(tmp_path / "state", 2)
        assert [message.partition(str(tmp_path))[0] for message in caplog.messages] == [
            "the state folder ", "pins cannot be stored in ", "what keys use cannot be kept in ",
        ]  # fmt: skip
    StateFolder(tmp_path / "state").prepare()  # alone, a worker is always the first
    FileLimits(tmp_path / "state", 1)  # two files, of which the first is reported
    assert len(caplog.messages) == 5 and "Errno" not in caplog.text
    assert "let this user write it, or name another folder (state, --state)" in caplog.messages[3]


def test_experts_have_numbers_of_their_own(tmp_path: Path) -> None:
    ada, bea = Account(tmp_path), Account(tmp_path, name="bea")
    ada.settle(30, 0.25, ada.admitted(Limits()), is_estimated=True)
    ada.settle(10, 0.25, ada.admitted(Limits()))
    found = Account(tmp_path).read().by_expert["law"]
    assert (found.month, found.day, found.estimated) == ((2, 40, 0.5), (2, 40, 0.5), 1)
    assert ada.read("maths").by_expert["maths"].month == bea.read().by_expert["law"].month == (0, 0, 0.0)


COUNTER = """
import sys
from pathlib import Path
from ir3de_gateway.store.limits import Charge, FileLimits, Limits
store, limits = FileLimits(Path(sys.argv[1]), 1), Limits(requests_per_minute=1500)
print(sum(isinstance(store.admit("ada", limits, 1_790_000_000.0), Charge) for _ in range(1000)))
"""


def test_counting_in_three_processes_is_exact(tmp_path: Path) -> None:
    command, environment = tiny.python_command(COUNTER, tmp_path)
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(worker.communicate(timeout=60)[0]) for worker in workers) == 1_500
