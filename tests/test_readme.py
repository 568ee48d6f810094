"""What is written is run: the README's Python examples and its commands; tests/docs has the pages of docs/."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest
from page_blocks import parse_blocks
from page_runner import opened_page

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = [line for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
TEST_COMMAND = 'pip install -e ".[dev]" -e ./gateway -e ./lab && pytest'


def test_python_examples_print_what_the_readme_says() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "README.md", "README.md", 0)
    assert len(test.examples) >= 7
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.failed == 0


@pytest.mark.slow
def test_commands_run_in_the_order_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in parse_blocks(README, "README") if block.language == "console"]
    first, *others = blocks
    assert next(first.list_commands()).startswith("pip install . && ir3de demo ")  # CI runs the second one
    with opened_page(others, tmp_path) as runner:
        for block in others:
            runner.run(block)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    routed = [json.loads(line) for line in (tmp_path / "routed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["ir3de"]["expert"] for row in routed] == ["law"] * 3


def test_the_first_screen_leads_from_a_labelled_file_to_an_endpoint() -> None:
    screen = "\n".join(README.splitlines()[:30])
    for step in ("ir3de demo", "ir3de fit router train.csv --label", "ir3de report", "ir3de serve", "docs/tutorial.md"):
        assert step in screen


def test_ci_runs_the_readme_s_test_command() -> None:
    assert any(line.startswith(f"$ {TEST_COMMAND}") for line in CONSOLE)
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    install, test = TEST_COMMAND.split(" && ")
    assert "set -euo pipefail" in lines and lines.index(install) < lines.index(test)


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
