"""Ctrl-C, wherever the command line is: no traceback, and the exit code that a shell gives an interrupted command."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from commands import ROOT

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

# Runs the command line as its console script does, and interrupts it when a module is about to be imported. A
# background job of a shell ignores the signal, and so would this process without the second line.
INTERRUPTED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.{handler})
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from ir3de.__main__ import main
main()
"""


# The same in a callback, as importlib has one for each module: Python drops what is raised there.
DROPPED = INTERRUPTED.replace("os.kill(", "weakref.finalize(type('Gone', (), {{}})(), os.kill, ").replace(
    "import os", "import weakref, os", 1
)


def interrupt(
    module: str, *arguments: str, handler: str = "default_int_handler", program: str = INTERRUPTED, **options: Any
) -> tuple[int, str, str]:
    program = program.format(module=module, handler=handler)
    command, environment = [sys.executable, "-c", program, *arguments], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["ir3de.cli", "click", "ir3de.cli.commands.audit", "ir3de.router", "numpy", "rich"])
def test_ctrl_c_during_an_import_is_quiet(module: str, fitted: Path) -> None:
    assert interrupt(module, "route", str(fitted), "Is this contract void?") == (130, "", "")


def test_ctrl_c_in_a_callback_is_not_lost(fitted: Path) -> None:
    """The command waits for its input, which does not come."""
    reading, writing = os.pipe()
    try:
        found = interrupt("ir3de.corpora", "route", str(fitted), "-", program=DROPPED, stdin=reading)
    finally:
        os.close(reading), os.close(writing)
    assert found == (130, "", "")


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """As in `nohup ir3de … &`."""
    code, shown, said = interrupt("click", "--version", handler="SIG_IGN")
    assert (code, said) == (0, "") and shown.startswith("ir3de ")


def test_the_console_script_is_the_quiet_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"ir3de": "ir3de.__main__:main"}
