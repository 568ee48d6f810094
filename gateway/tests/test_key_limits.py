"""How much a key may use: the sliding minute, days and months, and what several workers count together."""

from __future__ import annotations

import subprocess
from array import array
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf, nan
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from ir3de.errors import InputError
from ir3de_gateway.admin.state import StateFolder
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.keys.account import Account, Accounts, Refusal, Slots
from ir3de_gateway.keys.client_key import Charge, ClientKey, Lease, Spending, build_limit_error
from ir3de_gateway.keys.definitions import KeyLimits
from ir3de_gateway.keys.report import describe_key
from ir3de_gateway.keys.usage import WIDTH, Minute, Totals, Used, find_day, find_month
from ir3de_gateway.requests.pins import create_pins
from ir3de_gateway.workers.folder import create_worker_folder
from ir3de_gateway.workers.number_file import NumberFile

MIDDAY = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self, now: float = MIDDAY) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def open_account(path: Path | None = None, clock: Clock | None = None, name: str = "ada") -> tuple[Account, Clock]:
    file, experts = NumberFile(path, WIDTH), NumberFile(None, WIDTH)
    account = Account(file.find_row(name), Slots(None), experts.find_row)
    account.clock = clock or Clock()  # type: ignore[assignment]
    return account, account.clock  # type: ignore[return-value]


steps = st.lists(st.tuples(st.floats(0, 40), st.integers(1, 4)), max_size=40)


@given(st.integers(0, 6), steps)
@settings(deadline=None)
def test_a_request_is_admitted_exactly_if_fewer_than_the_limit_came_in_the_sixty_seconds_before(
    limit: int, told: list[tuple[float, int]]
) -> None:
    """Against a list of all requests; each step is a pause, and how many requests come then."""
    account, clock = open_account()
    limits, admitted = KeyLimits(requests_per_minute=limit), deque[int]()
    for pause, requests in told:
        clock.now += pause
        second = int(clock.now)
        while admitted and second - admitted[0] >= 60:
            admitted.popleft()
        for _ in range(requests):
            found = account.admit(limits)
            assert isinstance(found, Refusal) == (len(admitted) >= limit)
            if not isinstance(found, Refusal):
                admitted.append(second)
            elif limit:
                assert found.retry_after == pytest.approx(admitted[len(admitted) - limit] + 60 - clock.now)
        rates = account.read_rates(limits).requests
        assert rates is not None and rates.remaining == limit - len(admitted)
        assert rates.reset == pytest.approx(max(0.0, admitted[-1] + 60 - clock.now) if admitted else 0.0)


charges = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 50), st.integers(0, 50)), max_size=30)


@given(st.integers(1, 100), charges)
@settings(deadline=None)
def test_tokens_are_those_that_were_told_at_the_end_and_no_request_below_the_limit_is_refused(
    limit: int, told: list[tuple[float, int, int]]
) -> None:
    """Each request: a pause before it, what it is expected to take, and what it takes."""
    account, clock = open_account()
    limits, used = KeyLimits(tokens_per_minute=limit), deque[tuple[int, int]]()
    for pause, expected, taken in told:
        clock.now += pause
        while used and int(clock.now) - used[0][0] >= 60:
            used.popleft()
        total = sum(tokens for _, tokens in used)
        since = account.admit(limits)
        assert isinstance(since, Refusal) == (total >= limit)
        if isinstance(since, Refusal):
            continue
        assert account.expect(limits, expected, 0.0, since=since) is None
        account.end(taken - expected, 0.0, since=since, is_estimated=False)
        used.append((since, taken))
        rates = account.read_rates(limits).tokens
        assert rates is not None and rates.remaining == max(0, limit - total - taken)


def test_what_is_expected_of_others_counts_and_a_request_refused_for_it_was_not_made() -> None:
    account, _ = open_account()
    limits = KeyLimits(tokens_per_minute=100, requests_per_minute=10)
    first, second = account.admit(limits), account.admit(limits)
    assert isinstance(first, int) and isinstance(second, int)
    assert account.expect(limits, 100, 0.0, since=first) is None
    refusal = account.expect(limits, 1, 0.0, since=second)
    assert refusal is not None and refusal.limit == "tokens_per_minute"
    minute, totals, concurrent = account.read()
    assert (minute.requests, totals.day.requests, totals.month.requests, concurrent) == (1, 1, 1, 2)
    account.end(0, 0.0, since=second, is_estimated=False)
    account.end(5 - 100, 0.0, since=first, is_estimated=True)
    minute, totals, concurrent = account.read()
    assert (minute.tokens, totals.day.tokens, totals.month.tokens, totals.estimated, concurrent) == (5, 5, 5, 1, 0)


def test_budgets_begin_anew_with_the_day_and_the_month() -> None:
    account, clock = open_account(clock=Clock(datetime(2026, 12, 30, 23, 59, tzinfo=UTC).timestamp()))
    limits = KeyLimits(budget_per_day=1.0, budget_per_month=1.5)

    def spend(cost: float) -> Refusal | None:
        since = account.admit(limits)
        if isinstance(since, Refusal):
            return since
        assert account.expect(limits, 10, cost * 2, since=since) is None
        account.end(0, -cost, since=since, is_estimated=False, freed=(10, cost * 2))
        return None

    assert [spend(0.6), spend(0.6)] == [None, None]  # over by less than a request
    assert spend(0.1) == Refusal("budget_per_day", 1.0, 60.0)
    clock.now += 61
    assert spend(0.4) is None
    assert spend(0.1) == Refusal("budget_per_month", 1.5, 86_400 - 1.0)
    clock.now += 86_400
    assert spend(0.1) is None
    _, totals, _ = account.read()
    assert (totals.day.cost, totals.month.cost, totals.month.requests) == (pytest.approx(0.1), pytest.approx(0.1), 1)


def test_a_budget_that_is_used_up_to_the_last_bit_is_used_up() -> None:
    account, _ = open_account()
    limits = KeyLimits(budget_per_day=1.0)
    since = account.admit(limits)
    assert isinstance(since, int)
    account.expect(limits, 10, 1.0, since=since)
    account.end(0, 0.0, since=since, is_estimated=False, freed=(10, 1.0))
    assert account.admit(limits) == Refusal("budget_per_day", 1.0, find_day(MIDDAY).ends - MIDDAY)


def test_a_budget_that_is_used_up_is_told_in_plain_decimals_with_when_it_begins_anew() -> None:
    day = build_limit_error("team", Refusal("budget_per_day", 1e-07, 60.0)).message
    assert "its budget of 0.0000001 for this day: again from 00:00 UTC on" in day
    month = build_limit_error("team", Refusal("budget_per_month", 1_250_000.5, 60.0)).message
    assert "its budget of 1,250,000.5 for this month: again from the 1st, 00:00 UTC on" in month
    assert "of 20 for" in build_limit_error("team", Refusal("budget_per_day", 20.0, 60.0)).message


def test_what_was_used_is_shown_without_noise() -> None:
    assert Used(1, 1, 5.999999999999983e-06).shown_cost == 6e-06


def test_an_estimate_of_yesterday_is_not_taken_back_from_today() -> None:
    account, clock = open_account(clock=Clock(find_day(MIDDAY).ends - 1))
    limits = KeyLimits(budget_per_day=1.0)
    since = account.admit(limits)
    assert isinstance(since, int)
    account.expect(limits, 1_000, 0.9, since=since)
    clock.now += 2
    later = account.admit(limits)
    assert isinstance(later, int)
    account.expect(limits, 100, 0.5, since=later)
    account.end(-900, -0.8, since=since, is_estimated=False)
    assert account.read()[1].day == (1, 100, 0.5)


def test_an_estimate_of_a_minute_ago_is_not_taken_back_from_the_second_that_runs() -> None:
    account, clock = open_account()
    limits = KeyLimits(tokens_per_minute=1_000)
    since = account.admit(limits)
    assert isinstance(since, int)
    account.expect(limits, 100, 0.0, since=since)
    clock.now += 60
    later = account.admit(limits)
    assert isinstance(later, int)
    account.expect(limits, 50, 0.0, since=later)
    account.end(-90, 0.0, since=since, is_estimated=False)
    assert account.read()[0].tokens == 50


def test_estimated_requests_are_those_of_this_month() -> None:
    account, clock = open_account()
    since = account.admit(KeyLimits())
    assert isinstance(since, int)
    account.end(5, 0.0, since=since, is_estimated=True)
    assert account.read()[1].estimated == 1
    clock.now = find_month(clock.now).ends
    assert account.read()[1].estimated == 0


def test_what_is_taken_back_leaves_nothing_below_zero() -> None:
    """Sums of floats depend on their order: 0.1 + 0.7 - 0.7 - 0.1 is below zero."""
    account, _ = open_account()
    limits = KeyLimits(budget_per_day=5.0)
    for cost in (0.1, 0.7):
        assert account.expect(limits, 0, cost, since=int(MIDDAY)) is None
    for cost in (0.7, 0.1):
        account.end(0, -cost, since=int(MIDDAY), is_estimated=False, freed=(0, cost))
    assert account.read()[1].day.cost == account.read()[1].month.cost == 0.0


def test_a_charge_of_last_month_is_not_taken_back_from_this_one() -> None:
    account, clock = open_account()
    before = Charge(2_000, 2_000.0, int(clock.now))
    clock.now = find_month(clock.now).ends
    account.add_for_expert("law", 100, 100.0, is_estimated=False)
    account.add_for_expert("law", 15, 15.0, is_estimated=False, instead=before)
    assert account.read_for_expert("law").month == (1, 100, 100.0)


def test_what_a_dead_worker_had_reserved_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what its requests took. Until it is known to be dead, they count as in flight."""
    with create_worker_folder():
        account = Accounts(tmp_path, 2).find("ada")
        limits = KeyLimits(budget_per_day=5.0)
        since = account.admit(limits)
        assert isinstance(since, int)
        assert account.expect(limits, 10, 9.0, since=since) is None
        refusal = account.admit(limits)
        assert isinstance(refusal, Refusal) and (refusal.reserved, refusal.retry_after) == (9.0, 1.0)
        row = account._slots._row
        assert row is not None

        def clear(slots: Slots) -> bool:  # as another worker does, once this one is dead
            row.clear_worker(row.table.number)
            return True

        monkeypatch.setattr(Slots, "clear_dead_workers", clear)
        refusal = account.admit(limits)
        assert isinstance(refusal, Refusal) and refusal.reserved == 0.0 and refusal.retry_after > 1.0


@given(st.integers(0, 50), st.integers(0, 50), st.booleans())
def test_what_was_used_beyond_the_estimate_of_yesterday_counts_today(expected: int, taken: int, next_day: bool) -> None:
    """Less than was expected is not given back to another day; more than was expected is charged, whenever it ends."""
    account, clock = open_account(clock=Clock(find_day(MIDDAY).ends - 1))
    limits = KeyLimits(budget_per_day=100.0)
    since = account.admit(limits)
    assert isinstance(since, int)
    assert account.expect(limits, expected, float(expected), since=since) is None
    clock.now += 2 * next_day
    account.end(taken - expected, float(taken - expected), since=since, is_estimated=False)
    today = max(0, taken - expected) if next_day else taken
    assert account.read()[1].day[1:] == (today, today)


@pytest.mark.parametrize("jump", [-5, -59])
def test_a_clock_that_is_set_back_a_little_frees_nothing(jump: float) -> None:
    account, clock = open_account()
    limits = KeyLimits(requests_per_minute=1)
    assert account.admit(limits) == int(clock.now)
    clock.now += jump
    assert isinstance(account.admit(limits), Refusal)


def test_a_clock_that_was_far_in_the_future_locks_nobody_out() -> None:
    account, clock = open_account()
    limits = KeyLimits(requests_per_minute=1)
    clock.now += 5_000_000
    assert not isinstance(account.admit(limits), Refusal)
    clock.now -= 5_000_000
    assert not isinstance(account.admit(limits), Refusal)


@given(st.integers(0, 4_000_000_000))
def test_days_and_months_are_those_of_the_calendar(now: int) -> None:
    day, month = find_day(now), find_month(now)
    last, first = (datetime.fromtimestamp(moment, UTC) for moment in (month.ends - 1, month.ends))
    here = datetime.fromtimestamp(now, UTC)
    assert (last.year, last.month) == (here.year, here.month)
    assert (first.day, first.hour, first.minute, first.second) == (1, 0, 0, 0)
    assert 0 < day.ends - now <= 86_400 and day.ends % 86_400 == 0


def test_numbers_of_a_file_outlive_whoever_wrote_them(tmp_path: Path) -> None:
    account, clock = open_account(tmp_path / "numbers")
    limits = KeyLimits(requests_per_minute=2)
    assert isinstance(account.admit(limits), int)
    again, _ = open_account(tmp_path / "numbers", clock)
    other, _ = open_account(tmp_path / "numbers", clock, name="bea")
    assert isinstance(other.admit(limits), int)
    assert isinstance(again.admit(limits), int)
    assert isinstance(again.admit(limits), Refusal) and isinstance(account.admit(limits), Refusal)
    assert (tmp_path / "numbers").stat().st_mode & 0o077 == 0


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another file": lambda content: b"not at all what was written here, but quite long" * 100,
    "no header": lambda content: content[:10],
    "cut off": lambda content: content[:-100],
    "random bytes": lambda content: content[:64] + Random(7).randbytes(len(content) - 64),
    "NaN": lambda content: put_number(content, nan),
    "infinity": lambda content: put_number(content, inf),
    "negative": lambda content: put_number(content, -1.0),
    "half a request": lambda content: put_number(content, 0.5),
}


def put_number(content: bytes, number: float) -> bytes:
    """The file with another number of requests of the day, in its first row."""
    place = 32 + 32 + 8
    return content[:place] + array("d", [number]).tobytes() + content[place + 8 :]


@pytest.mark.parametrize("name", ["keys.numbers", "keys-experts.numbers"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, damage: str, name: str) -> None:
    account = Accounts(tmp_path, 1).find("ada")
    assert isinstance(account.admit(KeyLimits()), int)
    account.add_for_expert("law", 30, 0.25, is_estimated=True)
    file = tmp_path / name
    content = DAMAGES[damage](file.read_bytes())
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        Accounts(tmp_path, 1)
    assert str(file) in str(refused.value) and "Restore it from a backup, or move it away" in str(refused.value)
    assert file.read_bytes() == content and not list(tmp_path.glob("*.damaged"))
    file.unlink()
    assert isinstance(Accounts(tmp_path, 1).find("ada").admit(KeyLimits()), int)


@pytest.mark.parametrize("damage", ["NaN", "infinity", "negative", "random bytes"])
def test_while_a_row_is_damaged_its_key_is_refused_and_its_places_come_back(tmp_path: Path, damage: str) -> None:
    accounts = Accounts(tmp_path, 1)
    key = ClientKey("ada", account=accounts.find("ada"), limits=KeyLimits(requests_per_minute=5, budget_per_day=1))
    lease, other = key.admit(), key.admit()
    assert lease is not None and other is not None
    file = tmp_path / "keys.numbers"
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    for act in (key.admit, lambda: lease.expect(10, 0.1)):
        with pytest.raises(ApiError, match="what the API key 'ada' has used cannot be read") as refused:
            act()
        assert (refused.value.status, refused.value.code) == (503, "usage_unreadable")
    assert lease.read_rates() == (None, None)
    lease.close()
    assert "cannot be read" in describe_key(key, ["law"])["problem"] and "used" not in describe_key(key, ["law"])
    file.write_bytes(whole)
    assert isinstance(key.admit(), Lease)
    assert key.account is not None and key.account.read()[2] == 2


def test_damage_in_the_accounts_of_experts_keeps_no_place_and_no_reservation(tmp_path: Path) -> None:
    key = ClientKey("ada", account=Accounts(tmp_path, 1).find("ada"), limits=KeyLimits(concurrent=2, budget_per_day=1))
    assert key.account is not None
    key.account.add_for_expert("law", 30, 0.25, is_estimated=False)
    file = tmp_path / "keys-experts.numbers"
    file.write_bytes(put_number(file.read_bytes(), nan))
    for _ in range(3):
        lease = key.admit()
        assert lease is not None
        lease.expect(1_000, 0.5)
        lease.measure = lambda: Spending("law", 10, 5, 0.1, is_estimated=False)
        lease.close()
    _, totals, in_flight = key.account.read()
    assert (totals.day.tokens, in_flight) == (45, 0) and totals.day.cost == pytest.approx(0.3)


def test_a_file_that_cannot_be_written_or_shrinks_leaves_the_worker_counting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = KeyLimits(requests_per_minute=2)
    account, _ = open_account(tmp_path / "numbers")
    assert isinstance(account.admit(limits), int)
    (tmp_path / "numbers").write_bytes(b"")
    assert isinstance(account.admit(limits), int)
    assert isinstance(account.admit(limits), Refusal)
    (tmp_path / "file").write_text("no folder")
    nowhere, _ = open_account(tmp_path / "file" / "numbers")
    assert isinstance(nowhere.admit(limits), int) and isinstance(nowhere.admit(limits), int)
    assert isinstance(nowhere.admit(limits), Refusal)
    assert caplog.text.count("counts alone") == 2


def test_what_every_worker_finds_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("a file in the way")
    with create_worker_folder():
        for _ in range(2):  # each as a worker does
            StateFolder(tmp_path / "state").prepare()
            create_pins(60.0, tmp_path / "state")
            Accounts(tmp_path / "state", 2)
        assert [message.partition(str(tmp_path))[0] for message in caplog.messages] == [
            "the state folder ", "pins cannot be stored in ", "what keys use cannot be kept in ",
        ]  # fmt: skip
    StateFolder(tmp_path / "state").prepare()  # without others, one is always the first to say it
    Accounts(tmp_path / "state", 1)  # two files, of which the first says it
    assert len(caplog.messages) == 5 and "Errno" not in caplog.text
    assert "let this user write it, or name another folder (state, --state)" in caplog.messages[3]


def test_experts_have_numbers_of_their_own(tmp_path: Path) -> None:
    ada, bea = (Accounts(tmp_path, 1).find(name) for name in ("ada", "bea"))
    ada.add_for_expert("law", 30, 0.25, is_estimated=True)
    ada.add_for_expert("law", 10, 0.25, is_estimated=False)
    found = Accounts(tmp_path, 1).find("ada").read_for_expert("law")
    assert (found.month, found.day, found.estimated) == ((2, 40, 0.5), (2, 40, 0.5), 1)
    assert ada.read_for_expert("maths").month == bea.read_for_expert("law").month == (0, 0, 0.0)


def test_a_new_row_is_zero() -> None:
    numbers = array("d", bytes(8 * WIDTH))
    assert (Minute(numbers, MIDDAY).requests, Totals(numbers, MIDDAY).month) == (0, (0, 0, 0.0))


COUNTER = """
import sys
from pathlib import Path
from ir3de_gateway.keys.account import Account, Accounts, Refusal
from ir3de_gateway.keys.definitions import KeyLimits
account, limits = Accounts(Path(sys.argv[1]), 1).find("ada"), KeyLimits(requests_per_minute=1500)
account.clock = lambda: 1_790_000_000.0
print(sum(not isinstance(account.admit(limits), Refusal) for _ in range(1000)))
"""


def test_counting_in_three_processes_is_exact(tmp_path: Path) -> None:
    command, environment = tiny.python_command(COUNTER, tmp_path)
    workers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(3)]
    assert sum(int(worker.communicate(timeout=60)[0]) for worker in workers) == 1_500
