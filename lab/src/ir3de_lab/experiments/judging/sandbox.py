"""Runs a generated program in a process of its own, within limits, and tells whether it came to its end.

A guard against the mistakes of models, not against an attacker. What holds where:

- Everywhere: a process and session of its own, none of our environment, no input, output thrown away, an empty folder
  as working directory that is deleted afterwards; limits on time, memory and the size of files; the whole group is
  killed at the end. Python's audit events refuse other processes, signals to others, connections, and changes to files
  outside of that folder. Those events come from Python's own functions: what is called with ctypes has none, nor has
  multiprocessing's spawn.
- Linux as root (not in most containers), or where user namespaces are allowed: whatever is called, there is no network
  but an empty one, and every process that was started, also one that left the group, dies with the program.
- Linux elsewhere: an ordinary user's program can start no process or thread at all; root's is held by the audit events
  alone. There a process that was started around them, and left the group, would survive.
- macOS: as root on Linux elsewhere; and the system does not hold to the limit on memory.

Files elsewhere can be read. The number of files is not limited, only the size of each.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ir3de.errors import IR3DEError

_INSIDE = Path(__file__).with_name("sandbox_inside.py")
_REPORT = 4096  # bytes read of what the program's end is reported with
_DYING = 5.0  # seconds to wait for processes that were killed


@dataclass(frozen=True)
class Limits:
    """What a program may use; `namespaces=False` does without Linux namespaces, as where they are not allowed."""

    seconds: float = 10.0
    memory: int = 1 << 30
    file_bytes: int = 1 << 20
    open_files: int = 64
    namespaces: bool = True


@dataclass(frozen=True)
class Outcome:
    """Whether every part ran to its end, and if not, why."""

    passed: bool
    reason: str


def run(*parts: str, limits: Limits | None = None) -> Outcome:
    """Run the parts one after another as one module; passed only if the last of them came to its end.

    >>> run("def double(x): return 2 * x", "assert double(2) == 4")
    Outcome(passed=True, reason='passed')
    >>> run("import sys; sys.exit(0)", "assert 1 == 2")
    Outcome(passed=False, reason='failed: SystemExit: 0')
    """
    limits = limits or Limits()
    nonce = secrets.token_hex(16)
    order = {"parts": parts, "nonce": nonce, "cpu_seconds": math.ceil(limits.seconds) + 1, **asdict(limits)}
    with (
        tempfile.TemporaryDirectory(prefix="ir3de-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as stdin,
    ):
        stdin.write(json.dumps(order).encode())
        stdin.seek(0)
        report = _report(folder, stdin.fileno(), limits.seconds)
    if report is None:
        return Outcome(False, "timed out")
    if report == nonce:
        return Outcome(True, "passed")
    return Outcome(False, report or "killed")


def check() -> None:
    """Refuse to judge where not even an empty program comes to its end: every answer would be called wrong."""
    outcome = run("pass")
    if not outcome.passed:
        raise IR3DEError(
            f"the sandbox cannot run even an empty program with {sys.executable} ({outcome.reason}), so that programs"
            " cannot be judged on this machine: judge them on another"
        )


def _report(folder: str, stdin: int, seconds: float) -> str | None:
    """What the program's end was reported with, empty if with nothing; None if it did not come in time."""
    reader, writer = os.pipe()
    try:
        # stdout goes nowhere, so that neither a flood of output nor a process that keeps a pipe open can hold us up
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_INSIDE), str(writer)],
            cwd=folder,
            env={},
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writer,),
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        return _first_words(reader, time.monotonic() + seconds)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: no permission where all are gone
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _closed(reader)
        os.close(reader)


def _first_words(reader: int, deadline: float) -> str | None:
    """The first line in the pipe; it is short, so that it comes in one piece."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        return None
    return os.read(reader, _REPORT).decode("utf-8", "replace").partition("\n")[0]


def _closed(reader: int) -> None:
    """Wait until the last process that was killed has let go of the pipe, so that none is seen after its verdict."""
    poll = select.poll()
    poll.register(reader, 0)  # a hang-up is always told
    poll.poll(_DYING * 1000)
