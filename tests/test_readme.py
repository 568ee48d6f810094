"""What is written is run: the README's Python examples and its commands; tests/docs has the pages of docs/."""

from __future__ import annotations

import csv
import doctest
import json
import re
import shlex
from pathlib import Path

import pytest

from commands import run
from ir3de.corpora import examples as demo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = [line for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line[2:] for line in CONSOLE if line.startswith("$ ir3de ")]
TEST_COMMAND = 'pip install -e ".[dev]" -e ./lab && pytest'


def test_python_examples_print_what_the_readme_says() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "README.md", "README.md", 0)
    assert len(test.examples) >= 12
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert result.failed == 0


@pytest.fixture(scope="module")
def named_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files the README's commands name."""
    folder = tmp_path_factory.mktemp("readme")
    prompts = {name: texts[:40] for name, texts in demo.prompts().items()}
    rows = [json.dumps({"prompt": text}, ensure_ascii=False) for text in prompts["mathematics"]]
    (folder / "maths.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (folder / "law.txt").write_text("\n".join(prompts["law"]), encoding="utf-8")
    (folder / "medicine.txt").write_text("\n".join(prompts["medicine"]), encoding="utf-8")
    chats = [json.dumps({"messages": [{"role": "user", "content": text}]}) for text in demo.held_out()["law"]]
    (folder / "questions.jsonl").write_text("\n".join(chats), encoding="utf-8")
    (folder / "chats.jsonl").write_text("\n".join(chats), encoding="utf-8")
    with (folder / "code.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in prompts["coding"])])
    return folder


@pytest.mark.slow
def test_commands_run_in_the_order_they_are_written(named_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(COMMANDS) >= 10
    monkeypatch.chdir(named_files)
    for command in COMMANDS:
        arguments = shlex.split(command, comments=True)[1:]
        if arguments[0] == "serve":
            arguments.append("--dry-run")  # as far as it goes without serving
        assert run(*arguments).stdout or "--output" in command
    routed = [json.loads(line) for line in (named_files / "routed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(routed) == 25
    assert all(row["ir3de"]["expert"] in ("maths", "law", "medicine") for row in routed)


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
