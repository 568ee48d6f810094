"""What docs/your-data.md says is run: its commands, and its Python."""

import csv
import doctest
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import ROOT, run, wrong_call
from ir3de.corpora import examples as demo

PAGE = (ROOT / "docs" / "your-data.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for line in re.findall(r"^\$ .*ir3de .*$", PAGE, re.MULTILINE)]
ROUTES = ROOT / "tests" / "corpora" / "routes_of_others" / "semantic-router-0.3.3.json"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def named_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names."""
    learnt, asked = (
        {name: texts for name, texts in prompts.items() if name in ("coding", "history", "law")}
        for prompts in (demo.prompts(), demo.held_out())
    )
    for name, rows in {
        "train.csv": {name: texts[:12] for name, texts in learnt.items()},
        "test.csv": {name: texts[:8] for name, texts in asked.items()},
        "held-out.csv": {name: texts[8:40] for name, texts in asked.items()},
    }.items():
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            pairs = [(text, team) for team, texts in rows.items() for text in texts]
            csv.writer(file).writerows([("prompt", "team"), *pairs])
    (tmp_path / "prompts" / "law").mkdir(parents=True)
    for path, texts in {
        "history.txt": learnt["history"][:8],
        "law/cases.txt": learnt["law"][:8],
        "law/statutes.txt": learnt["law"][8:12],
    }.items():
        (tmp_path / "prompts" / path).write_text("\n".join(texts), encoding="utf-8")
    rows = [f'{{"text": {text!r}}}' for text in learnt["coding"] if '"' not in text and "'" not in text][:8]
    (tmp_path / "prompts" / "coding.jsonl").write_text("\n".join(rows).replace("'", '"'), encoding="utf-8")
    (tmp_path / "routes.json").write_bytes(ROUTES.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("named_files", "plain_terminal")
def test_the_page_shows_what_import_prints() -> None:
    shown = PAGE.split("$ ir3de import routes.json routes.jsonl\n")[1].split("```")[0]
    printed = run("import", "routes.json", "routes.jsonl").stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.usefixtures("plain_terminal")
def test_commands_run_in_the_order_they_are_written(named_files: Path) -> None:
    assert len(COMMANDS) >= 10
    for command in COMMANDS:
        before, pipe, after = command.partition(" | ")
        arguments = shlex.split(after if pipe else before)[1:]
        if arguments == ["fit", "router", "train.csv"]:
            told = wrong_call(*arguments)
            assert told.endswith("name the column of the expert: ir3de fit router train.csv --label team")
            assert all(line.strip() in told for line in PAGE.split(f"$ {command}\n")[1].split("```")[0].splitlines())
            continue
        stdin = (named_files / shlex.split(before)[1]).read_text(encoding="utf-8") if pipe else None
        quick = ("--scorer", "blend") if arguments[0] == "fit" else ()  # the page is not about how routers are solved
        assert run(*arguments, *quick, stdin=stdin).stdout


@pytest.mark.nightly
@pytest.mark.clients
@pytest.mark.usefixtures("named_files")
def test_the_python_of_the_page_runs() -> None:
    missing = [name for name in ("pandas", "polars", "datasets") if find_spec(name) is None]
    blocks = [block for block in BLOCKS if not any(f"import {name}" in block for name in missing)]
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "your-data", "your-data", 0)
    assert len(test.examples) >= (11 if missing else 20)
    assert doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test).failed == 0
