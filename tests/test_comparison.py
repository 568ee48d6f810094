"""Every "has" of docs/comparison.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| |")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_what_we_have_is_shown_by_a_test(row: list[str]) -> None:
    what, ours, shown, *others = row
    assert set(others) <= {"has", "partly", "no"} and len(others) == 4, what
    if ours == "no":
        assert not shown, f"{what}: there is nothing to show"
        return
    found = re.fullmatch(r"`((?:gateway/)?tests/[\w/]+\.py)(?:::(test_\w+))?`", shown)
    assert ours in ("has", "partly") and found is not None, f"{what}: no test is named"
    tree = ast.parse((ROOT / found[1]).read_text(encoding="utf-8"))
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_")}
    assert defined if found[2] is None else found[2] in defined, f"{what}: {found[1]} has no {found[2]}"


def test_there_are_rows_that_we_lack() -> None:
    assert any(row[1] == "no" for row in ROWS) and len(ROWS) > 30
