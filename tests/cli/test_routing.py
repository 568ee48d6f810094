"""Route, explain and eval on the command line."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import HELD_OUT, LAW, PROMPT, ROOT, complaint, run, run_json, wrong_call
from ir3de import Router
from ir3de.cli import cli
from ir3de.corpora import examples as demo

pytestmark = pytest.mark.usefixtures("plain_terminal")

# route ----------------------------------------------------------------------------------------------------------------


def test_route_one_prompt(fitted: Path) -> None:
    shown = run("route", fitted, "Is this contract void?").stdout
    assert shown.startswith("law") and "█" in shown and "5 tokens, all counted" in shown
    assert run("route", fitted, "Is this contract void?", "-q").stdout == "law\n"
    said = run_json("route", fitted, "Is this contract void?", "--top", "2")["ir3de"]
    assert said["expert"] == "law" and len(said["ranking"]) == 2
    assert len(run("route", fitted, "Is it void?", "--top", "1").stdout.splitlines()) == 2


@pytest.mark.parametrize("stdin", ["", "\n \n"])
def test_no_prompt_at_all_is_an_error(fitted: Path, tmp_path: Path, stdin: str) -> None:
    for call in (("route", fitted), ("route", fitted, "--json"), ("route", fitted, "-q"), ("explain", fitted)):
        if call[0] == "route" or not stdin:
            assert "no prompt came: standard input has none" in complaint(*call, stdin=stdin)
    (tmp_path / "empty.jsonl").write_text(stdin)
    assert "empty.jsonl has none" in complaint("route", fitted, "--input", tmp_path / "empty.jsonl")
    told = run("route", fitted, "--input", tmp_path / "empty.jsonl", "--output", tmp_path / "o.jsonl").stdout
    assert "0 rows routed" in told  # a file of no rows has nothing wrong, and this says so


def test_route_says_when_it_abstains(fitted: Path) -> None:
    result = run("route", fitted, "")
    told = "abstained, because the prompt is empty and nothing could decide: none fits, and no default expert was named"
    assert " ".join(result.stderr.split()) == f"warning: {told}"
    assert result.stdout == "none fits\n"  # and no expert at 0.0 %
    explained = run("explain", fitted, "")
    assert explained.stdout == "none fits\nNo word is known to the router.\n"
    assert " ".join(explained.stderr.split()) == f"warning: {told}"
    assert run("route", fitted, "", "-q").stdout == "none fits\n"
    said = run_json("route", fitted, "")["ir3de"]
    assert (said["abstained"], said["expert"], said["confidence"]) == (True, None, 0.0)


STRANGE = "Welche Farbe hat der Himmel am Abend?"


@pytest.mark.parametrize(
    ("text", "reason", "told"),
    [
        (
            STRANGE,
            "out of domain",
            "the prompt is out of domain: none fits, and no default expert was named; the nearest is ",
        ),
        ("hi", "no content", "the prompt has no content of its own: none fits, and no default expert was named"),
    ],
)
def test_route_says_that_none_fits(fitted: Path, text: str, reason: str, told: str) -> None:
    said = run_json("route", fitted, text)["ir3de"]
    assert (said["expert"], said["abstained"], said["reason"]) == (None, True, reason)
    assert said["in_domain"] < 0.5 and said["confidence"] <= said["in_domain"]
    assert sum(row["probability"] for row in said["ranking"]) == pytest.approx(said["in_domain"], abs=1e-5)
    shown = run("route", fitted, text)
    nearest = "none fits" if reason == "no content" else said["ranking"][0]["expert"]
    assert told in " ".join(shown.stderr.split()) and shown.stdout.startswith(nearest)
    assert run("route", fitted, text, "-q").stdout == "none fits\n"
    many = run("route", fitted, stdin=f"{text}\nIs this contract void?\n").stdout.splitlines()
    assert many[0].startswith("none fits ") and f" {reason}  " in many[0] and many[1].startswith("law ")
    assert run("route", fitted, "-q", stdin=f"{text}\n").stdout == "none fits\n"
    assert told in " ".join(run("explain", fitted, text).stderr.split())


def test_with_a_default_expert_it_gets_what_fits_nobody(fitted: Path, tmp_path: Path) -> None:
    router = Path(shutil.copytree(fitted, tmp_path / "router"))
    run("policy", router, "--default", "coding")
    for text, why in ((STRANGE, "is out of domain"), ("hi", "has no content of its own"), ("", "nothing could decide")):
        result = run("route", router, text)
        told = " ".join(result.stderr.split())
        assert f"{why}: it goes to coding, the default expert" in told and result.stdout.startswith("coding")
        assert run("route", router, text, "-q").stdout == "coding\n"
        said = run_json("route", router, text)["ir3de"]
        assert (said["expert"], said["abstained"], said["ranking"][0]["expert"]) == ("coding", True, "coding")
    shown = run("route", router, stdin=f"hi\n{STRANGE}\n").stdout.splitlines()
    assert [line.split()[:4] for line in shown] == [
        ["coding", "(default)", "no", "content"],
        ["coding", "(default)", "out", "of"],
    ]


def test_rows_that_fit_nobody_are_counted_as_such(fitted: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    stdin = f"hi\n{STRANGE}\nIs this contract void?\n"
    said = run_json("route", fitted, "--input", "-", "--output", target, stdin=stdin)
    assert said["experts"] == {"none fits": 2, "law": 1}
    rows = [json.loads(line)["ir3de"] for line in target.read_text(encoding="utf-8").splitlines()]
    assert [row["expert"] for row in rows] == [None, None, "law"]


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
    assert "exists already" in complaint("route", fitted, "--input", questions, "--output", target, "--field", "ask")
    human = run("route", fitted, "--input", questions, "--output", target, "--field", "ask", "--force").stdout
    assert "3 rows routed" in human
    piped = run("route", fitted, "--input", "-", "--output", "-", stdin='{"text": "Is it void?", "id": 9}\n').stdout
    assert json.loads(piped)["id"] == 9
    shown = run("route", fitted, "--input", questions, "--field", "ask").stdout
    assert len(shown.splitlines()) == 3 and "no known token" in shown


def test_route_writes_the_whole_output_or_none(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "r.jsonl"
    target.write_text("before", encoding="utf-8")
    with questions.open("a", encoding="utf-8") as file:
        file.write("{broken\n")
    arguments = ("route", fitted, "--input", questions, "--output", target, "--field", "ask", "--force")
    assert "q.jsonl:4" in complaint(*arguments)
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
    assert "\x1b[1;32m contract" in run("explain", fitted, PROMPT).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("explain", fitted, PROMPT).stdout
    assert "\x1b[1;32m" not in shown and "++++++++" in shown


def test_explain_votes(voting: Path) -> None:
    assert "The words that speak for coding (+) or law (−)" in run("explain", voting, PROMPT).stdout
    said = run_json("explain", voting, "-", stdin=PROMPT + "\n")
    counted = [vote for vote in said["votes"] if vote["counted"]]
    assert len(counted) == 3 and said["experts"] == ["law", "coding"]
    assert "".join(vote["text"] for vote in said["votes"]) == PROMPT
    lead = [vote["vote"] for vote in counted].count("coding") - [vote["vote"] for vote in counted].count("law")
    assert sum(word["contribution"] for word in said["words"]) == pytest.approx(lead, abs=1e-4)


def test_explain_says_where_a_prompt_is_not_utf_8(fitted: Path) -> None:
    broken = CliRunner().invoke(cli, ["explain", str(fitted)], input=b"one\n\xff")
    assert broken.exit_code == 1 and "<stdin>:2: not valid UTF-8" in broken.stderr


def test_a_prompt_cannot_steer_the_terminal(fitted: Path) -> None:
    hostile = "void \x1b[2J \x9b31m [red]contract[/red] :smile:"
    for shown in (run("explain", fitted, hostile).stdout, run("route", fitted, stdin=hostile + "\n").stdout):
        assert "\x1b" not in shown and "\x9b" not in shown and "[red]" in shown and ":smile:" in shown


# eval -----------------------------------------------------------------------------------------------------------------


def write_with_thanks(name: str, folder: Path) -> Path:
    """Held-out prompts of an expert, and one more that no expert fits."""
    path = folder / f"{name}.txt"
    prompts = (HELD_OUT / f"{name}.txt").read_text(encoding="utf-8").rstrip()
    path.write_text(f"{prompts}\nok thanks\n", encoding="utf-8")
    return path


def test_eval(fitted: Path, tmp_path: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in demo.DOMAINS]
    said = run_json("eval", fitted, *pairs, "--errors", "2")
    assert said["accuracy"] > 0.8 and said["prompts"] == 125 and len(said["errors"]) == 2
    assert said["errors"][0]["expected"] != said["errors"][0]["expert"]
    name = Router.load(fitted).route("ok thanks").best  # the nearest expert, which counts as right
    pairs = [f"{name}={write_with_thanks(name, tmp_path)}", *(pair for pair in pairs if not pair.startswith(name))]
    said = run_json("eval", fitted, *pairs)
    assert said["abstained"] == 1, "no expert fits the added prompt"
    shown = run("eval", fitted, *pairs, "--errors", "1").stdout
    for expected in (
        f"accuracy {100 * said['accuracy']:.1f} % of 126 prompts, by the most probable expert",
        f"{100 * said['routed_accuracy']:.1f} % went right, ",
        "recall",
        "precision",
        "went to",
        "Calibration",
        "Misrouted",
        "90 – 100 %",
    ):
        assert expected in shown
    assert len(run("eval", fitted, *pairs, "-q").stdout.splitlines()) == 1


def test_eval_with_unknown_prompts(fitted: Path, tmp_path: Path) -> None:
    pairs = [f"{name}={HELD_OUT / name}.txt" for name in demo.DOMAINS]
    files = tmp_path / "one.txt", tmp_path / "two.jsonl"
    files[0].write_text(f"hi\n{STRANGE}\nCan my landlord evict me?\n", encoding="utf-8")
    files[1].write_text('{"text": "\u6211\u7684\u623f\u4e1c"}\n', encoding="utf-8")
    known = run_json("eval", fitted, *pairs)
    said = run_json("eval", fitted, *pairs, "--unknown", files[0], "--unknown", files[1])
    assert known["unknown"] is None and all(point["error_with_unknown"] is None for point in known["coverage"])
    found = said["unknown"]
    assert (found["prompts"], found["told"], found["sure"]) == (4, 0.75, 0.25)  # one is no unknown at all
    assert 0.5 < found["area"] < 1 and found["told_at_5"] == 0.75
    assert said["accuracy"] == known["accuracy"] and said["area"] == known["area"]
    assert said["coverage"][0]["error_with_unknown"] > said["coverage"][0]["error"]
    shown = run("eval", fitted, *pairs, "--unknown", files[0], "--unknown", files[1]).stdout
    told = (
        "Coverage",
        "with unknown",
        "Unknown prompts",
        "4: 75.0 % recognised as out of domain, 25.0 % over 90 % sure",
    )
    assert all(part in shown for part in (*told, "area under the curve", "75.0 % recognised at 5 % false alarms"))
    assert "with unknown" not in run("eval", fitted, *pairs).stdout


def test_eval_refuses_unknown_prompts_that_are_none(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("", encoding="utf-8")
    law = f"law={HELD_OUT / 'law.txt'}"
    empty = complaint("eval", fitted, law, "--unknown", tmp_path / "empty.txt")
    assert "empty.txt: no prompt to evaluate: give --unknown at least one" in empty
    missing = complaint("eval", fitted, law, "--unknown", tmp_path / "missing.txt")
    assert "missing.txt" in missing and "no such file" in missing


def test_eval_shows_what_fits_nobody(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "law.txt").write_text(f"Can my landlord evict me?\n{STRANGE}\n", encoding="utf-8")
    said = run_json("eval", fitted, f"law={tmp_path / 'law.txt'}", "--errors", "2")
    assert said["recall"]["law"] == 0.5 and said["sizes"]["law"] == 2
    assert [row["expert"] for row in said["errors"]] == [None]
    shown = run("eval", fitted, f"law={tmp_path / 'law.txt'}", "--errors", "2").stdout
    assert re.search(r"^law +none fits +out of domain +Welche Farbe", shown, re.MULTILINE)


def test_eval_lists_the_surest_mistakes_first(fitted: Path, tmp_path: Path) -> None:
    asked = [STRANGE, "Is this contract void?", "hi", "The court ruled that the tenancy agreement is void."]
    (tmp_path / "coding.txt").write_text("\n".join([*asked, "Why does this Python function raise?"]), "utf-8")
    named = f"coding={tmp_path / 'coding.txt'}"
    found = run_json("eval", fitted, named, "--errors", "9")["errors"]
    assert [row["abstained"] for row in found] == [False, False, True, True] and {row["text"] for row in found} == {
        *asked
    }
    assert found[0]["confidence"] > found[1]["confidence"] and found[2]["confidence"] > found[3]["confidence"]
    assert run_json("eval", fitted, named, "--errors", "2")["errors"] == found[:2]
    assert "Misrouted  the most confident first" in run("eval", fitted, named, "--errors", "2").stdout


@pytest.mark.nightly
def test_eval_of_perturbed_prompts(fitted: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir3de_lab")
    files = {name: write_with_thanks(name, tmp_path) for name in ("law", "coding")}
    pairs = [f"{name}={path}" for name, path in files.items()]
    assert "robustness" not in run_json("eval", fitted, *pairs)
    said = run_json("eval", fitted, *pairs, "--robustness")
    assert said["robustness"]["prompts"] == said["prompts"]
    router = Router.load(fitted)
    texts = {name: path.read_text(encoding="utf-8").splitlines() for name, path in files.items()}
    nearest = [sum(d.best == name for d in router.route_batch(own)) / len(own) for name, own in texts.items()]
    assert said["robustness"]["accuracy"] == pytest.approx(sum(nearest) / 2) == said["accuracy"]
    effects = said["robustness"]["effects"]
    assert all(0 <= effect["flipped"] <= 1 for effect in effects)
    assert [effect["perturbation"] for effect in effects if effect["either"] is not None] == [
        "mixed, 20% of another domain",
        "mixed, 40% of another domain",
    ]
    shown = run("eval", fitted, *pairs, "--robustness").stdout
    assert "where none fits, the nearest expert counts" in shown
    for expected in ("accuracy", "Robustness", "flipped", *(effect["perturbation"] for effect in effects)):
        assert all(word in shown for word in expected.split())  # long names are broken over two lines
    assert "mixed" not in run("eval", fitted, pairs[0], "--robustness").stdout  # with what?


@pytest.mark.nightly
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


LONG = "Is this contract void? " * 20  # longer than the name of a file may be


@pytest.mark.parametrize("command", ["route", "explain"])
def test_a_long_prompt_in_the_place_of_the_router(fitted: Path, command: str) -> None:
    assert "ROUTER and TEXT look swapped" in wrong_call(command, LONG, fitted)
    assert "no router at Is this contract void?" in complaint(command, LONG, "Is it void?")


def test_a_long_text_in_the_place_of_a_path_is_told_in_a_line(fitted: Path, tmp_path: Path) -> None:
    assert "expected name=path, found 'Is this" in wrong_call("eval", fitted, LONG)
    assert "cannot be read (File name too long)" in complaint("eval", fitted, f"law={LONG}")
    told = complaint("fit", LONG, f"law={LAW}")
    assert "File name too long: Is this contract void?" in told and "where a path belongs" in told
