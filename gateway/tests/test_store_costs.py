"""The measurement of the store: what it measures in SQLite are the same limits."""

from pathlib import Path
from time import time

import pytest

import measure_store


def test_limits_in_sqlite_are_the_same_limits(tmp_path: Path) -> None:
    for is_sqlite in (False, True):
        folder = tmp_path / str(is_sqlite)
        runs = [measure_store.open_limits(folder, is_sqlite=is_sqlite) for _ in range(2)]
        for number in range(10):
            runs[number % 2]()
    stores = [measure_store.open_store(tmp_path / str(is_sqlite), is_sqlite=is_sqlite) for is_sqlite in (False, True)]
    found = [store.read_usage("key", time(), ["law"]) for store in stores]
    assert [(one.usage.month, one.by_expert["law"].month.tokens) for one in found] == [
        ((10, 150, pytest.approx(0.1)), 150)
    ] * 2
