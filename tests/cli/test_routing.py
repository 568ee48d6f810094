"""Route, explain and eval on the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import HELD_OUT, LAW, PROMPT, ROOT, complaint, run, run_json, wrong_call
from ir3de.cli import cli
from ir3de.corpora import examples as demo

pytestmark = pytest.mark.usefixtures("plain_terminal")

# route ----------------------------------------------------------------------------------------------------------------


def test_route_one_prompt(fitted: Path) -> None:
    shown = run("route", fitted, "Is this contract void?").stdout
    assert shown.startswith("law") and "█" in shown and "5 tokens, all counted" in shown
    assert run("route", fitted, "Is this contract void?", "-q").stdout == "law\n"
    said = run_json("route", fitted, "Is this contract void?", "--top", "2")
    assert said["expert"] == "law" and len(said["ranking"]) == 2
    assert len(run("route", fitted, "Is it void?", "--top", "1").stdout.splitlines()) == 2


def test_route_says_when_it_abstains(fitted: Path) -> None:
    result = run("route", fitted, "")
    assert "default expert, coding" in result.stderr and "coding" in result.stdout
    assert run_json("route", fitted, "")["abstained"] is True


def test_route_standard_input(fitted: Path) -> None:
    stdin = "Is this contract void?\n\nWrite a Python function.\n"
    lines = run("route", fitted, stdin=stdin).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["law", "coding"]
    assert run("route", fitted, "-", "-q", stdin=stdin).stdout == "law\ncoding\n"
    rows = [json.loads(line) for line in run("route", fitted, "--json", stdin=stdin).stdout.splitlines()]
    assert [row["ir3de"]["expert"] for row in rows] == ["law", "coding"]
    assert rows[0]["text"] == "Is this contract void?"


def test_route_answers_each_line_as_it_comes(fitted: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "ir3de", "route", str(fitted), "--json"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None and running.stdout is not None
        for text, expert in ((b"Is this contract void?", "law"), (b"Write a Python function.", "coding")):
            running.stdin.write(text + b"\n")
            running.stdin.flush()
            assert json.loads(running.stdout.readline())["ir3de"]["expert"] == expert
        running.stdin.close()
        assert running.wait(30) == 0


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "q.jsonl"
    rows = [
        {"id": 1, "ask": "Is this contract void?", "ir3de": "old"},
        {"id": 2, "ask": "", "note": "\ud83d"},
        {"id": 3, "ask": "Écris une fonction Python 你好"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_route_a_file_into_a_file(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    said = run_json("route", fitted, "--input", questions, "--output", target, "--field", "ask", "--top", "1")
    rows = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert said["rows"] == 3 and sum(said["experts"].values()) == 3
    assert [row["id"] for row in rows] == [1, 2, 3] and rows[1]["note"] == "\ud83d"
    assert rows[0]["ir3de"]["expert"] == "law" and rows[1]["ir3de"]["abstained"]
    assert "你好" in target.read_text(encoding="utf-8")
    assert len(rows[0]["ir3de"]["ranking"]) == 1
    human = run("route", fitted, "--input", questions, "--output", target, "--field", "ask").stdout
    assert "3 rows routed" in human
    piped = run("route", fitted, "--input", "-", "--output", "-", stdin='{"text": "Is it void?", "id": 9}\n').stdout
    assert json.loads(piped)["id"] == 9
    shown = run("route", fitted, "--input", questions, "--field", "ask").stdout
    assert len(shown.splitlines()) == 3 and "abstains" in shown


def test_route_writes_the_whole_output_or_none(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    target.write_text("before", encoding="utf-8")
    with questions.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    assert "q.jsonl:4" in complaint("route", fitted, "--input", questions, "--output", target, "--field", "ask")
    assert target.read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.jsonl", "r.jsonl"]


def test_route_complains(fitted: Path, questions: Path, tmp_path: Path) -> None:
    assert "no router at" in complaint("route", tmp_path / "missing", "text")
    assert "no such file" in complaint("route", fitted, "--input", tmp_path / "missing.jsonl")
    assert "found no field" in complaint("route", fitted, "--input", questions, "--field", "question")
    assert "cannot write" in complaint("route", fitted, "a", "--output", tmp_path / "no" / "r.jsonl")
    assert "leave one of them out" in wrong_call("route", fitted, "text", "--input", questions)


# explain --------------------------------------------------------------------------------------------------------------


def test_explain_without_colours_marks_words_with_signs(fitted: Path) -> None:
    shown = run("explain", fitted, PROMPT, "--words", "3").stdout
    lines = shown.splitlines()
    assert lines[0] == "Is this contract void?" and re.fullmatch(r"[+ -]+", lines[1])
    assert lines[1][8:16] == "+" * 8  # below the strongest word
    assert "■ law" in shown and re.search(r"^contract +×2 +\+\d+\.\d\d +█", shown, re.MULTILINE)
    assert "The words that speak for law (+) or " in shown and "\x1b" not in shown


def test_the_rows_of_the_table_add_up(fitted: Path) -> None:
    said = run_json("explain", fitted, PROMPT)
    lead = sum(word["contribution"] for word in said["words"])
    rows = run("explain", fitted, PROMPT, "--words", "2").stdout.splitlines()
    (last,) = (row.split() for row in rows if row.startswith("all words"))
    assert float(last[2].replace("−", "-")) == pytest.approx(lead, abs=0.006)
    assert any(re.match(r"\d+ more ", row) for row in rows)
    assert "".join(word["text"] for word in said["words"]) == PROMPT and said["compared"][0] == "law"


def test_explain_with_colours(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;35m contract" in run("explain", fitted, PROMPT).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("explain", fitted, PROMPT).stdout
    assert "\x1b[1;35m" not in shown and "++++++++" in shown


def test_explain_votes(voting: Path) -> None:
    assert "The words that speak for coding (+) or law (−)" in run("explain", voting, PROMPT).stdout
    said = run_json("explain", voting, "-", stdin=PROMPT + "\n")
    counted = [vote for vote in said["votes"] if vote["counted"]]
    assert len(counted) == 3 and said["experts"] == ["law", "coding"]
    assert "".join(vote["text"] for vote in said["votes"]) == PROMPT
    lead = [vote["vote"] for vote in counted].count("coding") - [vote["vote"] for vote in counted].count("law")
    assert sum(word["contribution"] for word in said["words"]) == pytest.approx(lead, abs=1e-4)


def test_explain_nothing(fitted: Path) -> None:
    result = run("explain", fitted, stdin="")
    assert "no known token" in result.stderr and "coding" in result.stdout
    broken = CliRunner().invoke(cli, ["explain", str(fitted)], input=b"one\n\xff")
    assert broken.exit_code == 1 and "<stdin>:2: not valid UTF-8" in broken.stderr


def test_a_prompt_cannot_steer_the_terminal(fitted: Path) -> None:
    hostile = "void \x1b[2J \x9b31m [red]contract[/red] :smile:"
    for shown in (run("explain", fitted, hostile).stdout, run("route", fitted, stdin=hostile + "\n").stdout):
        assert "\x1b" not in shown and "\x9b" not in shown and "[red]" in shown and ":smile:" in shown


# eval -----------------------------------------------------------------------------------------------------------------


def test_eval(fitted: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in demo.DOMAINS]
    said = run_json("eval", fitted, *pairs, "--errors", "2")
    assert said["accuracy"] > 0.8 and said["prompts"] == 125 and len(said["errors"]) == 2
    assert said["errors"][0]["expected"] != said["errors"][0]["expert"]
    shown = run("eval", fitted, *pairs, "--errors", "1").stdout
    for expected in ("accuracy 94", "recall", "precision", "went to", "Calibration", "Misrouted", "90 – 100 %"):
        assert expected in shown
    assert len(run("eval", fitted, *pairs, "-q").stdout.splitlines()) == 1


def test_eval_of_perturbed_prompts(fitted: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in ("law", "coding")]
    assert "robustness" not in run_json("eval", fitted, *pairs)
    said = run_json("eval", fitted, *pairs, "--robustness")
    assert said["robustness"]["accuracy"] == said["accuracy"] and said["robustness"]["prompts"] == said["prompts"]
    effects = said["robustness"]["effects"]
    assert all(0 <= effect["flipped"] <= 1 for effect in effects)
    assert [effect["perturbation"] for effect in effects if effect["either"] is not None] == [
        "mixed, 20% of another domain",
        "mixed, 40% of another domain",
    ]
    shown = run("eval", fitted, *pairs, "--robustness").stdout
    for expected in ("accuracy", "Robustness", "flipped", *(effect["perturbation"] for effect in effects)):
        assert all(word in shown for word in expected.split())  # long names are broken over two lines
    assert "mixed" not in run("eval", fitted, pairs[0], "--robustness").stdout  # with what?


@pytest.mark.slow
def test_eval_of_many_experts_lists_the_largest_confusions(tmp_path: Path) -> None:
    files = []
    for index in range(16):
        path = tmp_path / f"{index}.txt"
        path.write_text("\n".join(demo.prompts()["law"][index::16]), encoding="utf-8")
        files.append(f"expert-{index}={path}")
    run("fit", tmp_path / "r", *files, "-q")
    names = [pair.split("=")[0] for pair in files]
    shown = run("eval", tmp_path / "r", *(f"{name}={HELD_OUT / 'law.txt'}" for name in names[:1])).stdout
    assert "expected ↓" not in shown and "went to" in shown


def test_eval_complains(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    assert "no expert 'cooking'" in complaint("eval", fitted, f"cooking={LAW}")
    assert "'law' has no prompt" in complaint("eval", fitted, f"law={tmp_path / 'empty.txt'}")
    assert "no such file" in complaint("eval", fitted, f"law={tmp_path / 'missing.txt'}")
