"""Make stale results again: each by the command that the catalogue names, one after another, on a quiet machine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ir3de.embedding import packaged_models
from ir3de.encoders import Encoder
from ir3de.errors import IR3DEError
from ir3de_lab.catalogue.entries import NEEDS

QUIET_LOAD = 0.6  # runnable processes for each core: a machine with more is too busy for times
PATIENCE_S = 240  # how long a timed benchmark waits for quiet
REDIS = ("127.0.0.1", 6379)
NGINX_PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
BASE = "qwen2.5-coder-1.5b"
PLACE = re.compile(r"--(?P<option>[a-z]+) (?:DIR|FOLDER|SOURCE)\b")


def find_missing(needs: tuple[str, ...], places: Mapping[str, Path | str | None]) -> str | None:
    """Why a command cannot run here, in words; None if it can."""
    there: dict[str, Callable[[], bool]] = {
        "data": lambda: places.get("data") is not None,
        "encoder": lambda: places.get("encoder") is not None,
        "environments": lambda: places.get("environments") is not None,
        "checkout": lambda: places.get("before") is not None,
        "redis": _has_redis,
        "nginx": lambda: shutil.which("nginx", path=NGINX_PATH) is not None,
        "teacher": _has_teacher,
        "base": lambda: packaged_models.find(BASE) is not None,
        "accelerator": _has_accelerator,
        "browser": lambda: shutil.which("chromium") is not None and find_spec("selenium") is not None,
    }
    missing = [NEEDS[need] for need in needs if not there[need]()]
    return f"needs {', '.join(missing)}" if missing else None


def fill_in(command: str, places: Mapping[str, Path | str | None]) -> list[str]:
    """The arguments of a command, with this machine's folders in place of DIR, FOLDER and SOURCE.

    >>> fill_in("ir3de bench languages --data DIR/sib200", {"data": Path("texts")})[1:]
    ['-m', 'ir3de', 'bench', 'languages', '--data', 'texts/sib200']
    """
    filled = PLACE.sub(lambda found: f"--{found['option']} {shlex.quote(str(places[found['option']]))}", command)
    program, *arguments = shlex.split(filled)
    return [sys.executable, *(["-m", "ir3de"] if program == "ir3de" else []), *arguments]


def wait_for_quiet(patience_s: float = PATIENCE_S) -> bool:
    """Wait until little else runs; False if the machine stays busy."""
    end = time.monotonic() + patience_s
    while os.getloadavg()[0] > QUIET_LOAD * (os.cpu_count() or 1):
        if time.monotonic() > end:
            return False
        time.sleep(5)
    return True


def renew(command: str, places: Mapping[str, Path | str | None]) -> str | None:
    """Run a command; None if it worked, otherwise the end of what it said."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    if data := places.get("data"):
        environment["IR3DE_DATA"] = str(data)
    done = subprocess.run(fill_in(command, places), env=environment, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr or done.stdout)[-600:]


def _has_redis() -> bool:
    try:
        with socket.create_connection(REDIS, timeout=1):
            return True
    except OSError:
        return False


def _has_teacher() -> bool:
    """Without it, a benchmark that can do without would drop figures that are published."""
    try:
        Encoder.load("minilm-l6")
    except IR3DEError:
        return False
    return True


def _has_accelerator() -> bool:
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())
