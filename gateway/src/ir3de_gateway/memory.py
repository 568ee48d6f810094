"""The process's memory: garbage is collected rarely, and what loading a router freed is given back."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

GC_THRESHOLD_OBJECTS = 20_000  # new objects between two runs of the garbage collector


def collect_garbage_rarely() -> None:
    """Requests leave hardly any reference cycles: collect garbage rarely, and never what was there at the start."""
    release_memory()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS, 20, 20)


def release_memory() -> None:
    """Give back what is not used any more. glibc would keep it, apart for each thread that ever loaded a router."""
    gc.collect()
    with suppress(AttributeError, OSError):  # other systems have no such function
        ctypes.CDLL(None).malloc_trim(0)
