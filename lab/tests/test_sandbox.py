"""Generated programs are run apart, within limits, and leave nothing behind."""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ir3de_lab.experiments.judging.sandbox import Limits, Outcome, check, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="limits and process groups are POSIX")

LIMITS = [Limits(seconds=5), Limits(seconds=5, namespaces=False)]
BOTH = pytest.mark.parametrize("limits", LIMITS, ids=["namespaces", "hooks alone"])
SHORT = Limits(seconds=1)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of this test's programs are made."""
    folder = tmp_path_factory.mktemp("sandboxes").resolve()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def alive(home: Path) -> list[str]:
    """The processes whose working directory is, or was, in there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if (process / "cmdline").read_bytes() and (process / "cwd").readlink().is_relative_to(home):
                found.append(process.name)
    return found


def test_an_empty_program_runs_on_this_machine() -> None:
    check()


@BOTH
def test_parts_share_a_module(limits: Limits) -> None:
    parts = ("import math\ndef area(r): return math.pi * r * r", "assert 3 < area(1) < 4")
    assert run(*parts, limits=limits) == Outcome(True, "passed")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("assert 1 == 2, 'no'", "failed: AssertionError: no"),
        ("nothing", "failed: NameError"),
        ("def f(:", "failed: SyntaxError"),
        ("class E(Exception):\n    def __str__(self): raise E\nraise E", "failed: E"),
        ("import sys; sys.exit(0)", "failed: SystemExit"),
        ("raise KeyboardInterrupt", "failed: KeyboardInterrupt"),
        ("import os; os._exit(0)", "exited early"),
        ("input()", "failed: EOFError"),
        ("def f(n): return f(n + 1)\nf(0)", "failed: RecursionError"),
        ("import ctypes; ctypes.string_at(0)", "killed (SIGSEGV)"),
        ("x = 'a' * (1 << 40)", "killed (memory)"),
        ("open('large', 'wb').write(b'x' * (1 << 24))", "failed: OSError"),
        ("\0\1\2", "failed: "),
        ("\ud800", "failed: UnicodeEncodeError"),
        ("(" * 100_000, "failed: "),
    ],
)
@BOTH
def test_what_fails_says_why(program: str, reason: str, limits: Limits) -> None:
    outcome = run(program, "assert True", limits=limits)
    assert not outcome.passed
    assert outcome.reason.startswith(reason)


@BOTH
def test_a_later_part_is_never_swallowed_by_an_earlier_one(limits: Limits) -> None:
    assert not run("text = '''", "'''\nassert True", limits=limits).passed


@pytest.mark.parametrize("loop", ["while True: pass", "import time\nwhile True: time.sleep(1)"])
def test_a_loop_without_end_is_stopped(loop: str, home: Path) -> None:
    assert run(loop, limits=SHORT) == Outcome(False, "timed out")
    assert not alive(home)


@BOTH
def test_data_that_grows_without_end_is_stopped(limits: Limits) -> None:
    program = "data = []\nwhile True: data.append('x' * 1_000_000 + str(len(data)))"
    assert run(program, limits=Limits(30, 256 << 20, namespaces=limits.namespaces)).reason == "killed (memory)"


@pytest.mark.parametrize(
    "fork",
    [
        "import os\nwhile True: os.fork()",
        "import os\nos.system('true')",
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nos.execv('/bin/true', ['true'])",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import os\nos.kill(os.getppid(), 9)",
        "import os\nos.kill(-1, 0)",
    ],
)
@BOTH
def test_other_processes_are_refused(fork: str, limits: Limits) -> None:
    assert run(fork, limits=limits).reason.startswith("failed: PermissionError")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")
def test_who_is_alive_can_be_seen(home: Path) -> None:
    program = "import time\ntime.sleep(2)"
    with ThreadPoolExecutor() as pool:
        outcome = pool.submit(run, program, limits=LIMITS[0])
        while not outcome.done() and not alive(home):
            pass
        assert not outcome.done()
        assert outcome.result().passed
    assert not alive(home)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_fork_bomb_around_the_hooks_is_killed_whole(namespaces: bool, home: Path) -> None:
    bomb = "import ctypes, time\nfor _ in range(4): ctypes.CDLL(None).fork()\nwhile True: time.sleep(1)"
    assert not run(bomb, limits=Limits(1, namespaces=namespaces)).passed
    assert not alive(home)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are looked up in /proc")
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_grandchild_that_keeps_every_pipe_open_holds_nobody_up(namespaces: bool, home: Path) -> None:
    child = "import ctypes, os, time\nif ctypes.CDLL(None).fork() == 0: time.sleep(600)\n"
    limits = Limits(5, namespaces=namespaces)
    assert run(child, limits=limits) == Outcome(True, "passed")
    assert run(child + "os._exit(0)", limits=limits).reason == "exited early (status 0)"
    assert not alive(home)


@BOTH
def test_files_outside_are_not_written(limits: Limits, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    changes = [
        f"open({str(tmp_path / 'new')!r}, 'w')",
        f"open({str(kept)!r}, 'a')",
        f"import os; os.open({str(kept)!r}, os.O_RDWR)",
        f"import os; os.remove({str(kept)!r})",
        f"import os; os.rename({str(kept)!r}, 'here')",
        f"import os; os.mkdir({str(tmp_path / 'new')!r})",
        f"import os; os.chdir({str(tmp_path)!r}); open('new', 'w')",
        f"import os; os.chdir({str(tmp_path)!r}); os.symlink('kept', 'new')",
        f"import os; os.symlink({str(kept)!r}, 'link'); open('link', 'w')",
        f"import os; os.remove('kept', dir_fd=os.open({str(tmp_path)!r}, os.O_RDONLY))",
        f"import shutil; shutil.rmtree({str(tmp_path)!r})",
        f"import pathlib; pathlib.Path({str(kept)!r}).write_text('')",
    ]
    for change in changes:
        assert run(change, limits=limits).reason.startswith("failed: PermissionError"), change
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "mine"


@BOTH
def test_the_own_folder_is_empty_writable_and_deleted(limits: Limits, home: Path) -> None:
    program = """
import os, pathlib, shutil, tempfile
assert os.listdir() == []
pathlib.Path("a").mkdir()
pathlib.Path("a/b").write_text("c")
os.rename("a/b", "d")
assert pathlib.Path("d").read_text() == "c"
with tempfile.TemporaryDirectory(dir=".") as folder:
    pathlib.Path(folder, "e").touch()
shutil.rmtree("a")
open(os.devnull, "w").write("f")
"""
    assert run(program, limits=limits) == Outcome(True, "passed")
    assert list(home.iterdir()) == []


@BOTH
def test_the_network_is_refused(limits: Limits) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for call in (
            f"socket.create_connection(('127.0.0.1', {port}))",
            f"socket.socket().connect(('127.0.0.1', {port}))",
        ):
            assert run(f"import socket\n{call}", limits=limits).reason.startswith("failed: PermissionError")
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


@BOTH
def test_the_environment_is_not_handed_on(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_SECRET", "secret")
    program = "import os\nassert not {'IR3DE_SECRET', 'HOME', 'PATH', 'PYTHONPATH'} & set(os.environ)"
    assert run(program, limits=limits) == Outcome(True, "passed")


@BOTH
def test_a_flood_of_output_goes_nowhere(limits: Limits, capfd: pytest.CaptureFixture[str]) -> None:
    flood = "import sys\nfor _ in range(1000): print('x' * 100_000); print('y' * 100_000, file=sys.stderr)"
    assert run(flood, limits=limits) == Outcome(True, "passed")
    assert capfd.readouterr() == ("", "")


def test_the_report_cannot_be_guessed() -> None:
    program = (
        "import os\nfor fd in range(3, 99):\n    try: os.write(fd, b'passed\\n')\n    except OSError: pass\nos._exit(0)"
    )
    assert run(program, limits=SHORT) == Outcome(False, "passed")


def test_programs_run_side_by_side() -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda n: run(f"assert {n} % 2", limits=LIMITS[0]), range(4)))
    assert [outcome.passed for outcome in outcomes] == [False, True, False, True]
