"""The dependencies of the package, which depend on the machine that builds it.

`tokie`, the fast tokenizer, has wheels for Linux with glibc, for macOS, and for Windows on x86-64. Environment markers
leave out every other system but one: they cannot name the C library, so a machine with musl (Alpine) is found here.
Without `tokie` everything works with the reference tokenizer, which gives the same ids and takes longer.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


def has_wheels() -> bool:
    """Whether this machine can have wheels of tokie, as far as markers cannot tell."""
    return sys.platform != "linux" or platform.libc_ver()[0] == "glibc"


class Dependencies(MetadataHookInterface):
    """Adds the fast tokenizer to the dependencies."""

    def update(self, metadata: dict[str, Any]) -> None:
        fast = [self.config["fast-tokenizer"]] if has_wheels() else []
        metadata["dependencies"] = [*self.config["dependencies"], *fast]
