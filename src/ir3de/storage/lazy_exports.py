"""Packages that import a public name when it is first used, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as checkers of types know it; typing itself takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def export_lazily(
    package: str, names: Mapping[str, str], *, within: str = "", lab: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` (PEP 562) of a package from `{submodule: its public names}`.

    The submodules are those of `within`, by default those of the package itself. `lab` has names of the laboratory,
    which may not be installed. A name is imported on first access. No name may be that of a submodule: the module that
    was imported last would be found.
    """
    module_of = {
        name: f"{within or package}.{module}" for module, exported in names.items() for name in exported.split()
    }
    module_of |= {name: f"ir3de_lab.{module}" for module, names in (lab or {}).items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "ir3de_lab":
                raise
            from ir3de.errors import MissingExtraError

            raise MissingExtraError("ir3de-lab", "", name, "ir3de-lab") from error
        vars(sys.modules[package])[name] = value  # the next time it is found without this function
        return value

    return get, lambda: sorted(module_of)
