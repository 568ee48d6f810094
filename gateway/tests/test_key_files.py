"""The files of what keys have used: their format, their damage, and disks that cannot be written."""

from __future__ import annotations

import hashlib
import struct
from array import array
from asyncio import run
from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from random import Random
from time import time

import pytest

from ir3de.errors import InputError
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.keys.client_key import ClientKey, Lease
from ir3de_gateway.keys.registry import describe_key
from ir3de_gateway.store.embedded import EmbeddedLimits
from ir3de_gateway.store.limits import Charge, FileLimits, Limits, Rejection, Spending, check_usage_files
from test_key_limits import MIDDAY, Account


def test_the_files_of_earlier_versions_are_read_and_written_in_their_format(tmp_path: Path) -> None:
    """The format of 0.1: a header; rows of the name's SHA-256 and 136 numbers, or 12 for each expert of a key."""

    def write(name: str, width: int, key: str, numbers: dict[int, float]) -> None:
        cells = array("d", [numbers.get(place, 0.0) for place in range(width)])
        row = hashlib.sha256(key.encode()).digest() + cells.tobytes()
        (tmp_path / name).write_bytes(struct.pack("<16sQQ", b"ir3de numbers 1\n", width, 0) + row)

    day, month, second = int(MIDDAY // 86_400), 2026 * 12 + 10, int(MIDDAY)
    totals = {0: day, 1: 3, 2: 30, 3: 0.5, 4: month, 5: 7, 6: 70, 7: 1.25, 8: 2}
    minute = {12: second, 16 + second % 60: 1, 16 + (second - 59) % 60: 2, 76 + second % 60: 9}
    write("keys.numbers", 136, "ada", totals | minute)
    write("keys-experts.numbers", 12, "ada\0law", totals)
    account = Account(tmp_path)
    used, _, by_expert = account.read()
    assert (used.day, used.month, used.estimated) == ((3, 30, 0.5), (7, 70, 1.25), 2)
    assert (used.requests, used.tokens, by_expert["law"].month) == (3, 9, (7, 70, 1.25))
    account.settle(10, 0.25, account.admitted(Limits()))
    content = (tmp_path / "keys.numbers").read_bytes()
    assert array("d", content[64:])[:9].tolist() == [day, 4, 40, 0.75, month, 8, 80, 1.5, 2]
    assert len(content) == 32 + 32 + 8 * 136


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
def test_a_damaged_file_is_an_error_and_stays_as_it_is(tmp_path: Path, damage: str, name: str) -> None:
    account = Account(tmp_path)
    account.settle(30, 0.25, account.admitted(Limits()), is_estimated=True)
    file = tmp_path / name
    content = DAMAGES[damage](file.read_bytes())
    file.write_bytes(content)
    for check in (lambda: FileLimits(tmp_path, 1), lambda: check_usage_files(tmp_path)):
        with pytest.raises(InputError) as refused:
            check()
        assert str(file) in str(refused.value) and "Restore it from a backup, or move it away" in str(refused.value)
    assert file.read_bytes() == content and not list(tmp_path.glob("*.damaged"))
    file.unlink()
    assert isinstance(Account(tmp_path).admit(Limits()), Charge)


@pytest.mark.parametrize("damage", ["NaN", "infinity", "negative", "random bytes"])
def test_while_a_row_is_damaged_its_key_is_rejected_and_its_places_come_back(tmp_path: Path, damage: str) -> None:
    store = FileLimits(tmp_path, 1)
    key = ClientKey("ada", store=EmbeddedLimits(store), limits=Limits(requests_per_minute=5, budget_per_day=1))
    lease, other = run(key.admit()), run(key.admit())
    assert lease is not None and other is not None
    file = tmp_path / "keys.numbers"
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    for act in (key.admit, lambda: lease.expect(10, 0.1)):
        with pytest.raises(ApiError, match="the usage of the API key 'ada' cannot be read") as refused:
            run(act())
        assert (refused.value.status, refused.value.code) == (503, "usage_unreadable")
    assert run(lease.read_rates()) == (None, None)
    run(lease.close())
    described = run(describe_key(key, ["law"]))
    assert "cannot be read" in described["problem"] and "used" not in described
    file.write_bytes(whole)
    assert isinstance(run(key.admit()), Lease)
    assert store.read_usage("ada", time()).in_flight == 2


def test_damage_in_the_accounts_of_experts_keeps_no_place_and_no_reservation(tmp_path: Path) -> None:
    store = FileLimits(tmp_path, 1)
    key = ClientKey("ada", store=EmbeddedLimits(store), limits=Limits(concurrent=2, budget_per_day=1))
    lease = run(key.admit())
    assert lease is not None

    def measure() -> Spending:
        return Spending("law", 10, 5, 0.1, is_estimated=False)

    store.settle("ada", key.limits, lease.reserved, Spending("law", 30, 0, 0.25, is_estimated=False), 0.0)
    file = tmp_path / "keys-experts.numbers"
    file.write_bytes(put_number(file.read_bytes(), nan))
    for _ in range(3):
        lease = run(key.admit())
        assert lease is not None
        run(lease.expect(1_000, 0.5))
        lease.measure = measure
        run(lease.close())
    usage, in_flight, _ = store.read_usage("ada", time())
    assert (usage.day.tokens, in_flight) == (45, 0) and usage.day.cost == pytest.approx(0.3)


def test_a_file_that_cannot_be_written_or_shrinks_leaves_the_worker_counting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(requests_per_minute=2)
    account = Account(tmp_path)
    assert isinstance(account.admit(limits), Charge)
    (tmp_path / "keys.numbers").write_bytes(b"")
    assert isinstance(account.admit(limits), Charge)
    assert isinstance(account.admit(limits), Rejection)
    (tmp_path / "file").write_text("no folder")
    nowhere = Account(tmp_path / "file")
    assert isinstance(nowhere.admit(limits), Charge) and isinstance(nowhere.admit(limits), Charge)
    assert isinstance(nowhere.admit(limits), Rejection)
    assert caplog.text.count("counts alone") == 2
