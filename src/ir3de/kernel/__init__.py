"""The native kernel: the few inner loops that numpy does badly, in C; and which engine runs, and why.

`native` is the module compiled from the C files beside this one, or None. Then numpy does the same, with the same bits
for tallies and counts. Everything else asks here: nothing else imports the compiled module. An object that was made
with one engine keeps it.

Set IR3DE_KERNEL=numpy to compute without it.

>>> engine.name in ("native", "numpy")
True
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ir3de.kernel.interfaces import Look as Look
    from ir3de.kernel.interfaces import Reader as Reader
    from ir3de.kernel.interfaces import Route as Route
    from ir3de.kernel.interfaces import Subjects as Subjects
    from ir3de.kernel.interfaces import Tables as Tables
    from ir3de.kernel.interfaces import Values as Values

__all__ = ["VARIABLE", "Engine", "engine"]

KERNEL_VERSION = 7  # the same as in native.h: a module that was compiled from other sources is not used
VARIABLE = "IR3DE_KERNEL"
INSTALL = "install ir3de again where a C compiler and Python's headers are, or from a wheel of this platform"


class Engine(NamedTuple):
    """What computes the inner loops, and why."""

    name: str  # "native" or "numpy"
    reason: str


def load() -> tuple[ModuleType | None, Engine]:
    """The compiled module where it may be used, and which engine runs. It never raises."""
    if (wanted := os.environ.get(VARIABLE, "")).lower() == "numpy":
        return None, Engine("numpy", f"{VARIABLE}={wanted} turns the native kernel off: unset it")
    try:
        found = _import()
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            return None, Engine("numpy", f"the native kernel was not built: {INSTALL}")
        printed = " ".join(str(error).split())
        return None, Engine("numpy", f"the native kernel cannot be loaded ({printed}): {INSTALL}")
    if (version := getattr(found, "KERNEL_VERSION", None)) != KERNEL_VERSION:
        what = f"the native kernel is of version {version}, and this package needs {KERNEL_VERSION}"
        return None, Engine("numpy", f"{what}: {INSTALL}")
    try:
        is_right = _passes(found)
    except Exception as error:  # whatever it raises, numpy takes over
        return None, Engine("numpy", f"the native kernel fails its first test ({error}): {INSTALL}")
    if not is_right:
        return None, Engine("numpy", f"the native kernel counts wrongly on this machine: {INSTALL}")
    return found, Engine("native", f"native kernel of version {version}, compiled C")


def _import() -> ModuleType:
    path = Path(__file__).with_name("_native.abi3.so")
    if path.is_file() and not is_whole(path.read_bytes()):
        raise ImportError(f"{path} is cut off")
    return import_module("ir3de.kernel._native")


def is_whole(content: bytes) -> bool:
    """Whether a shared library in the format of Linux has its end, where its sections are listed.

    The system would map what is missing, and the process would crash. Other formats are left to their loaders.
    """
    if content[:6] != b"\x7fELF\x02\x01" or len(content) < 64:  # 64 bits, the smallest byte first
        return True
    begin, size, number = (int.from_bytes(content[slice(*at)], "little") for at in ((40, 48), (58, 60), (60, 62)))
    return begin + size * number <= len(content)


def _passes(found: ModuleType) -> bool:
    """Whether a small tally has the numbers that it must have."""
    import numpy as np

    values, pairs = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((1 << 16, 3), np.float32)
    pairs[9_512], pairs[33_268] = (1, 0, 0), (0, 2, 0)  # the buckets of 3, 5 and 5, 3
    subjects = np.arange(-4, 4, dtype=np.int8).reshape(4, 2)
    tally, ids = np.empty(5), np.array([3, 1, 3], np.uint32)
    best = found.Tables(values, None, 3, None, None, subjects).decide(ids, tally, 3, None)
    if (best, tally.tolist()) != (2, [21.0, 24.0, 27.0, 2.0, 5.0]):
        return False
    paired = found.Tables(np.zeros((6, 3)), None, 4, None, pairs, None)
    paired.decide(np.array([3, 5, 3, 5], np.uint32), row := np.empty(3), 3, None)
    return bool(row.tolist() == [2.0, 2.0, 0.0])


native: Any  # the compiled module, or None; `interfaces` has its types
native, engine = load()
