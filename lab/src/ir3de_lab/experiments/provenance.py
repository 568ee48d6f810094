"""How a result came about: the command, the commit and the machine, kept in every raw file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ir3de_lab.benchmarks.measurement import circumstances


def this_process() -> dict[str, Any]:
    """The command, the commit and the machine."""
    return {"command": command(), "commit": commit(), **circumstances()}


def command(arguments: Sequence[str] | None = None) -> str:
    """The command line of this process, without what is particular to this machine's folders.

    >>> command(["bench", "outcomes", "--data", "../texts", "--experts", "/home/ada/models/clm"])
    'ir3de bench outcomes --data DIR --experts models/clm'
    """
    given = sys.argv[1:] if arguments is None else arguments
    shown = ["DIR" if before == "--data" else _short(argument) for before, argument in pairwise(["", *given])]
    return " ".join(["ir3de", *shown])


def commit() -> str | None:
    """The commit this code is of: that of its checkout, or what IR3DE_COMMIT says where there is none."""
    if given := os.environ.get("IR3DE_COMMIT"):
        return given
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _short(argument: str) -> str:
    path = Path(argument)
    return "/".join(path.parts[-2:]).lstrip("/") if path.is_absolute() else argument
