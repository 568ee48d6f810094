"""A test that stands still fails after a time, and the report shows where each thread stood."""

import subprocess
import sys
from pathlib import Path

import pytest

from commands import ROOT

STANDS_STILL = """
import threading

def wait_in_a_thread(): threading.Event().wait()

def test_it():
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
    wait_in_the_test()

def wait_in_the_test(): threading.Event().wait()

def test_the_next_one(): pass
"""


def test_every_test_has_a_timeout(pytestconfig: pytest.Config) -> None:
    first, second = float(pytestconfig.getini("timeout")), float(pytestconfig.getini("faulthandler_timeout"))
    assert 0 < first < second <= 600


@pytest.mark.nightly
@pytest.mark.slow
def test_a_test_that_stands_still_fails_with_all_stacks_and_the_next_one_runs(tmp_path: Path) -> None:
    file = tmp_path / "test_still.py"
    file.write_text(STANDS_STILL)
    options = ["-n", "1", "-o", "timeout=1", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "wait_in_the_test()" in done.stdout and "in wait_in_a_thread" in done.stdout
