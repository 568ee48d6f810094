"""The public surface is complete, documented, and all that examples and documentation use."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import ir3de
from surface import MODULES, ROOT, exports, find_private_imports

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
GATEWAY = sorted((ROOT / "gateway" / "src").rglob("*.py"))
SCRIPTS = sorted((ROOT / "examples").rglob("*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_sorted_there_and_documented(module: str) -> None:
    found, names = importlib.import_module(module), exports(module)
    assert found.__doc__
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))  # as ruff sorts
    for name in names:
        value = getattr(found, name)
        if getattr(value, "__name__", None) == name:  # a class or a function; not a constant
            assert value.__doc__ and not value.__doc__.startswith(f"{name}("), f"{module}.{name} has no docstring"


@pytest.mark.parametrize("module", [name for name in MODULES if hasattr(importlib.import_module(name), "__path__")])
def test_no_public_name_is_a_submodule_too(module: str) -> None:
    """Or what `from module import name` gives would depend on what was imported before."""
    package = importlib.import_module(module)
    submodules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert submodules.isdisjoint(exports(module))


@pytest.mark.parametrize("module", [name for name in MODULES if "__getattr__" in vars(importlib.import_module(name))])
def test_lazy_packages_list_what_they_export(module: str) -> None:
    package = importlib.import_module(module)
    assert sorted({*dir(package)} - {"__version__"}) == sorted(exports(module))
    with pytest.raises(AttributeError, match="has no attribute 'Roter'"):
        package.Roter  # noqa: B018 - asking is the test


def test_no_room_imports_from_the_package_itself() -> None:
    """The import contract cannot see through the package, which exports names of every room.

    The command line is above every room, so whatever it imports so lies below it.
    """
    rooms = {found.name for found in pkgutil.iter_modules(ir3de.__path__)}
    command_line = ROOT / "src" / "ir3de" / "cli"
    for path in (ROOT / "src").rglob("*.py"):
        if path.is_relative_to(command_line):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "ir3de":
                assert {name.name for name in node.names} <= rooms, path
            if isinstance(node, ast.Import):
                assert "ir3de" not in [name.name for name in node.names], path


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_examples_and_scripts_use_the_surface_alone(path: Path) -> None:
    assert list(find_private_imports(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", GATEWAY, ids=lambda path: str(path.relative_to(ROOT / "gateway")))
def test_the_gateway_uses_the_library_s_surface_alone(path: Path) -> None:
    assert list(find_private_imports(path.read_text(encoding="utf-8"), ("ir3de",))) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_documentation_uses_the_surface_alone(page: Path) -> None:
    """Every Python block of a page is looked through; names that it imports further up count too."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = "\n".join(_without_prompts(block) for block in blocks)
    assert list(find_private_imports(code)) == []
    assert "ir3de_lab" not in code


def _without_prompts(block: str) -> str:
    """The code of a block, whether or not it is written as a session."""
    if not block.startswith(">>> "):
        return block
    return "\n".join(line[4:] for line in block.splitlines() if line.startswith((">>> ", "... ")))


def test_the_search_finds_what_is_private() -> None:
    code = """
import ir3de, ir3de.files
from ir3de.scorers import Blend, remember
from ir3de.corpora import examples as demo
from ir3de.router import Router
ir3de.Router; ir3de.routing; ir3de.evaluation.evaluate; ir3de.evaluation.stare
demo.prompts(); demo._lines
"""
    assert list(find_private_imports(code)) == [
        "2: import ir3de.files",
        "3: from ir3de.scorers import remember",
        "5: from ir3de.router import Router",
        "6: ir3de.routing",
        "6: ir3de.evaluation.stare",
        "7: ir3de.corpora.examples._lines",
    ]
