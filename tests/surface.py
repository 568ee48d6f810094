"""The public surface: the modules that pyproject.toml lists, and what each one exports."""

from __future__ import annotations

import ast
import importlib
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ir3de"][
    "public-modules"
]


def exports(module: str) -> list[str]:
    """List the public names of a public module."""
    names: list[str] = importlib.import_module(module).__all__
    return names


PACKAGES = ("ir3de", "ir3de_gateway")


def find_private_imports(code: str, packages: tuple[str, ...] = PACKAGES) -> Iterator[str]:
    """Yield each import from the packages, or attribute of one, that is not part of the surface, as `line: what`."""

    def is_ours(module: str) -> bool:
        return module.split(".")[0] in packages

    tree = ast.parse(code)
    bound: dict[str, str] = {}  # the names of this code that are public modules
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                root = name.name.split(".")[0]
                if is_ours(name.name) and name.name not in MODULES:
                    yield f"{node.lineno}: import {name.name}"
                elif is_ours(name.name):
                    bound[name.asname or root] = name.name if name.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and is_ours(node.module):
            for name in node.names:
                if f"{node.module}.{name.name}" in MODULES:
                    bound[name.asname or name.name] = f"{node.module}.{name.name}"
                elif node.module not in MODULES or name.name not in (*exports(node.module), "__version__"):
                    yield f"{node.lineno}: from {node.module} import {name.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (module := _module_of(node.value, bound)):
            whole = f"{module}.{node.attr}"
            if whole not in MODULES and node.attr not in (*exports(module), "__version__", "__file__", "__path__"):
                yield f"{node.lineno}: {whole}"


def _module_of(node: ast.expr, bound: dict[str, str]) -> str | None:
    """The public module that an expression such as `ir3de.scorers` stands for, if it is one."""
    if isinstance(node, ast.Name):
        return bound.get(node.id)
    if isinstance(node, ast.Attribute) and (above := _module_of(node.value, bound)):
        return whole if (whole := f"{above}.{node.attr}") in MODULES else None
    return None


def check_no_circles(*folders: Path) -> None:
    """Raise CycleError, which names the modules, if modules of these packages import each other in a circle."""
    modules = {}
    for folder in folders:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            modules[".".join(parts).removesuffix(".__init__")] = path
    imports = {name: _find_imports(name, path, modules) for name, path in modules.items()}
    assert len(modules) > 50 and sum(map(len, imports.values())) > 100, "hardly any module was found"
    TopologicalSorter(imports).prepare()


def _find_imports(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """List the modules that a module imports anywhere: also in a function, or for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {module if module in modules else str(node.module) for module in submodules}
    return (found & set(modules)) - {name}
