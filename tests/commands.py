"""Running the commands, for people and for programs."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import tiny
from ir3de.cli import SECTIONS, cli
from ir3de.corpora.examples import path_of

ROOT = Path(__file__).parent.parent
LAW, CODING, HISTORY = (str(path_of(name)) for name in ("law", "coding", "history"))
HELD_OUT = path_of("law").parent / "held_out"
PROMPT = "Is this contract void?\nThe contract is 你好 🙂"
COMMANDS = [
    one if isinstance(one, str) else str(one.name) for commands in SECTIONS.values() for one in commands
]  # a string names a command of the gateway


def run(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], input=stdin, prog_name="ir3de")
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def run_json(*arguments: str | Path, stdin: str | None = None, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", stdin=stdin, code=code).stdout)


def complaint(*arguments: str | Path, stdin: str | None = None) -> str:
    """The one line an error is told in."""
    result = run(*arguments, stdin=stdin, code=1)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def wrong_call(*arguments: str | Path) -> str:
    return " ".join(run(*arguments, code=2).stderr.split())


@cache
def quick() -> tuple[str, ...]:
    """Options of `fit`, for tests of everything around it: the closed form, on an embedding of a few columns."""
    folder = Path(tempfile.mkdtemp(prefix="ir3de-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return ("--scorer", "blend", "--embedding", str(tiny.embedding().save(folder / "embedding")))


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "ir3de", *map(str, arguments)],
        env=environment, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False, **options,
    )  # fmt: skip
