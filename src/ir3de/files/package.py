"""The package itself: its version, and packages that import a public name when it is first used.

Importing this module costs nothing, so every package may do so.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # type checkers know the name; importing typing takes longer than this whole module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

VERSION = "0.1.0"  # of all three distributions


def export_lazily(
    package: str, names: Mapping[str, str], *, within: str = "", lab: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the `__getattr__` and `__dir__` (PEP 562) of a package from `{submodule: its public names}`.

    Each name is imported when it is first used. The submodules are those of `within`, by default of the package itself,
    unless they begin with "ir3de."; `lab` has names of the laboratory; `dir` omits them if it is not installed.
    No exported name may equal the name of a submodule: the attribute would depend on what was imported last.
    """
    module_of = {
        name: module if module.startswith("ir3de.") else f"{within or package}.{module}"
        for module, exported in names.items()
        for name in exported.split()
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
        vars(sys.modules[package])[name] = value  # the next access does not call this function
        return value

    def list_names() -> list[str]:
        if not lab:
            return sorted(module_of)
        from importlib.util import find_spec

        has_lab = find_spec("ir3de_lab") is not None
        return sorted(name for name, module in module_of.items() if has_lab or not module.startswith("ir3de_lab."))

    return get, list_names
