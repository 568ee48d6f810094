"""The folder that the workers of one gateway share, and which of them are alive."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client reads it when it is imported


@contextmanager
def create_worker_folder() -> Iterator[Path]:
    """A new folder that the workers share, for as long as their parent lives: enter before they start.

    Where the variable names a folder already, the new one is made inside it.
    """
    before = os.environ.get(VARIABLE) or None
    if before is not None:
        Path(before).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="ir3de-", dir=before, ignore_cleanup_errors=True) as folder:
        os.environ[VARIABLE] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before


def get_worker_folder() -> Path | None:
    """The folder that this worker shares with the others; None if it serves alone."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named and Path(named).is_dir() else None


def is_process_alive(pid: int) -> bool:
    """Whether a process of that number runs; where that cannot be asked (Windows), yes."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
