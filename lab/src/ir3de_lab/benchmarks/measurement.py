"""How a figure is measured: side by side with what it is compared to, in one run, and kept with its circumstances."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from ir3de.kernel import engine


@dataclass(frozen=True)
class Figure:
    """One measured figure, the bar it is held against, and the raw numbers behind it."""

    name: str
    value: float
    unit: str
    bar: float | None
    higher_is_better: bool = True
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value >= self.bar if self.higher_is_better else self.value <= self.bar

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reached": self.reached}


def side_by_side(*actions: Callable[[], object], rounds: int = 7) -> list[list[float]]:
    """Seconds of each action in each round; the actions take turns, so noise falls on all of them alike."""
    seconds: list[list[float]] = [[] for _ in actions]
    for action in actions:  # warm up
        action()
    for _ in range(rounds):
        for action, measured in zip(actions, seconds, strict=True):
            begin = time.perf_counter()
            action()
            measured.append(time.perf_counter() - begin)
    return seconds


def median_ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median over the rounds of one action's time over another's."""
    return median(a / b for a, b in zip(numerator, denominator, strict=True))


class Watch:
    """Seconds of each thing done, round by round."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._rounds: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begin = self._clock()
        yield
        self._rounds.setdefault(what, []).append(self._clock() - begin)

    @property
    def medians(self) -> dict[str, float]:
        return {what: median(seconds) for what, seconds in self._rounds.items()}

    def to_dict(self) -> dict[str, Any]:
        return {**{f"{what}_s": seconds for what, seconds in self.medians.items()}, "rounds_s": self._rounds}


def peak_memory() -> float:
    """The most memory this process has had, in megabytes."""
    try:  # ru_maxrss, on Linux, also remembers the process that started this one
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # bytes, where there is no /proc


def circumstances() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: package_version(name) for name in ("ir3de", "numpy", "tokenizers", "tokie", "torch")},
        "kernel": engine.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def usable_cores() -> int:
    """Count the cores that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
