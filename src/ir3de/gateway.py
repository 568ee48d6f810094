"""The gateway under its old name, for users' hook files. It is a package of its own now: `ir3de_gateway`.

A name that is imported from here is that of `ir3de_gateway`, with a `DeprecationWarning` that names the new import.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from ir3de.errors import name_extra


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        package = import_module("ir3de_gateway")
    except ModuleNotFoundError as error:
        if error.name != "ir3de_gateway":
            raise
        raise ImportError(
            f"the gateway is not installed: {name_extra('', 'ir3de-gateway')}, and import from ir3de_gateway"
        ) from None
    value = getattr(package, name)
    warnings.warn(
        f"ir3de.gateway is now ir3de_gateway: write `from ir3de_gateway import {name}`",
        DeprecationWarning,
        stacklevel=2,
    )
    return value
