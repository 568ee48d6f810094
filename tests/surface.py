"""The public surface: the modules that pyproject.toml lists, and what each one exports."""

from __future__ import annotations

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ir3de"][
    "public-modules"
]


def exports(module: str) -> list[str]:
    """List the public names of a public module."""
    names: list[str] = importlib.import_module(module).__all__
    return names


def find_private_imports(code: str) -> Iterator[str]:
    """Yield each import, or attribute of an imported module, that is not part of the surface, as `line: what`."""
    tree = ast.parse(code)
    bound: dict[str, str] = {}  # the names of this code that are public modules
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if _is_ours(name.name) and name.name not in MODULES:
                    yield f"{node.lineno}: import {name.name}"
                elif _is_ours(name.name):
                    bound[name.asname or "ir3de"] = name.name if name.asname else "ir3de"
        elif isinstance(node, ast.ImportFrom) and node.module and _is_ours(node.module):
            for name in node.names:
                if f"{node.module}.{name.name}" in MODULES:
                    bound[name.asname or name.name] = f"{node.module}.{name.name}"
                elif node.module not in MODULES or name.name not in exports(node.module):
                    yield f"{node.lineno}: from {node.module} import {name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := _module_of(node.value, bound)):
            whole = f"{module}.{node.attr}"
            if whole not in MODULES and node.attr not in (*exports(module), "__version__", "__file__", "__path__"):
                yield f"{node.lineno}: {whole}"


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "ir3de"


def _module_of(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The public module that an expression such as `ir3de.scorers` stands for, if it is one."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute) and (above := _module_of(node.value, bound)):
        return whole if (whole := f"{above}.{node.attr}") in MODULES else None
    return None
