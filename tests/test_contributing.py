"""CONTRIBUTING.md sends people to files that exist and define what they look for."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = re.findall(r"^\| (.+?) \| `((?:src|gateway|lab)/[^`]+)` \| `(\w+)` \|$", PAGE, re.MULTILINE)
ROOMS = re.findall(r"^\| `(\w+(?:/|\.py))` \|", PAGE, re.MULTILINE)


def test_at_least_twenty_five_changes_are_listed() -> None:
    listed = PAGE.split("## Where do I change")[1].split("\n## ")[0].count("\n| ") - 1  # the heading
    assert len(CHANGES) == listed >= 25  # each row has a path and a name


@pytest.mark.parametrize(("change", "path", "name"), CHANGES, ids=[change for change, _, _ in CHANGES])
def test_a_change_is_made_where_the_page_says(change: str, path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        assert f" {name}(" in text, f"{change}: {path} has no {name}"
        return
    tree = ast.parse(text)
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = {node.name for node in tree.body if isinstance(node, kinds)}
    assert name in defined, f"{change}: {path} defines no {name}, but {', '.join(sorted(defined))}"


def test_every_room_is_described_and_there_are_at_most_twenty() -> None:
    aside = ("__init__.py", "__main__.py", "__pycache__", "py.typed")
    entries = [path for path in (ROOT / "src" / "ir3de").iterdir() if path.name not in aside]
    assert sorted(ROOMS) == sorted(path.name + ("/" if path.is_dir() else "") for path in entries)
    assert len(entries) <= 20
