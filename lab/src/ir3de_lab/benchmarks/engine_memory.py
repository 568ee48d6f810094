"""The peak memory of counting files on several processes.

    python -m ir3de_lab.benchmarks.engine_memory 2 16 FILE...

A process of its own, so that nothing else is in the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ir3de.engines import Files, Pool, collect_files
from ir3de.statistics import Recipe
from ir3de_lab.benchmarks.measurement import peak_memory

OFTEN = 0.2  # seconds between two looks at the workers


def peaks(paths: Sequence[Path], *, workers: int, subsample: int, shard_bytes: int) -> dict[str, Any]:
    """Megabytes of the process that starts the others and of the largest of those, and the digest of what they found.

    What the others take is None where there is no /proc to tell it.
    """
    options = map(str, (workers, subsample, shard_bytes))
    command = [sys.executable, "-P", "-m", __name__, *options, *map(str, paths)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def main() -> None:
    workers, subsample, shard_bytes = map(int, sys.argv[1:4])
    with _largest_child() as largest:
        done = collect_files(
            Files(sys.argv[4:]), recipe=Recipe(subsample=subsample), engine=Pool(workers), shard_bytes=shard_bytes
        )
    found = {"megabytes": done.bytes / 1e6, "driver_mb": peak_memory(), "worker_mb": largest[-1]}
    sys.stdout.write(json.dumps({**found, "digest": done.statistics.digest}))


@contextmanager
def _largest_child() -> Iterator[list[float | None]]:
    """The most memory, in megabytes, that any process started meanwhile has had: the last of the list."""
    largest: list[float | None] = [None]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(OFTEN):
            largest[-1] = max(filter(None, (largest[-1], *_children())), default=None)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield largest
    finally:
        over.set()
        thread.join()


def _children() -> Iterator[float]:
    """The most memory that each child of this process has had so far, in megabytes."""
    own = str(os.getpid())
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
            told = dict(line.split(":", 1) for line in lines if line.startswith(("PPid:", "VmHWM:")))
            if told["PPid"].strip() == own and "VmHWM" in told:  # one that is ending has none
                yield int(told["VmHWM"].split()[0]) / 1024


if __name__ == "__main__":
    main()
