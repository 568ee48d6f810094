"""route --output: the file's ending names its format, and nothing is overwritten unasked."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from commands import complaint, run, run_json
from ir3de import Router
from ir3de.corpora import read_rows

pytestmark = pytest.mark.usefixtures("plain_terminal")

ROWS = (
    {"id": "7", "prompt": 'Is this "contract" of my landlord\nvoid, or\tnot?', "team": "law"},
    {"id": "8", "prompt": "Welche Farbe hat der Himmel am Abend?", "team": ""},
)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ROWS[0])
        table.writeheader()
        table.writerows(ROWS)
    return path


def check(rows: list[dict[str, Any]], router: Path) -> None:
    """Whether a table has the rows as they were, and their decisions."""
    decisions = Router.load(router).route_batch([row["prompt"] for row in ROWS])
    for given, row, decision in zip(ROWS, rows, decisions, strict=True):
        assert list(row) == ["id", "prompt", "team", "expert", "confidence", "margin", "abstained", "reason"]
        assert {name: row[name] for name in given} == given
        assert (row["expert"] or None, row["reason"]) == (decision.expert, decision.reason)
        assert float(row["confidence"]) == pytest.approx(decision.confidence, abs=1e-6)


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("tsv", "\t"), ("CSV", ",")])
def test_a_table_has_the_columns_of_the_rows_and_those_of_the_decision(
    fitted: Path, questions: Path, tmp_path: Path, ending: str, separator: str
) -> None:
    target = tmp_path / f"routed.{ending}"
    assert run_json("route", fitted, "--input", questions, "--output", target)["rows"] == 2
    with target.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=separator))
    check(rows, fitted)
    assert [row["abstained"] for row in rows] == ["false", "true"]
    read = list(read_rows([str(target)]))  # ir3de reads what it writes
    assert [row["prompt"] for row in read] == [row["prompt"] for row in ROWS]


def test_columns_of_the_same_name_are_both_kept(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "Is it void?", "expert": "maths", "tags": ["a", {"b": 1}]}\n', "utf-8")
    run("route", fitted, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["expert"], row["ir3de_expert"]) == ("maths", "law") and json.loads(row["tags"]) == ["a", {"b": 1}]


def test_parquet(fitted: Path, questions: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run("route", fitted, "--input", questions, "--output", tmp_path / "routed.parquet")
    rows = parquet.read_table(tmp_path / "routed.parquet").to_pylist()
    check(rows, fitted)
    assert [row["abstained"] for row in rows] == [False, True]
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text('{"text": "a", "n": 1}\n{"text": "b", "n": "two"}\n', "utf-8")
    said = complaint("route", fitted, "--input", mixed, "--output", tmp_path / "mixed.parquet")
    assert "values of one type" in said and ".jsonl" in said and not (tmp_path / "mixed.parquet").exists()


def test_json_is_one_document_and_has_the_shape_of_lines(fitted: Path, questions: Path, tmp_path: Path) -> None:
    for ending in ("json", "jsonl", "ndjson"):
        run("route", fitted, "--input", questions, "--output", tmp_path / f"routed.{ending}")
    lines = [json.loads(line) for line in (tmp_path / "routed.jsonl").read_text("utf-8").splitlines()]
    assert json.loads((tmp_path / "routed.json").read_text("utf-8")) == lines
    assert (tmp_path / "routed.ndjson").read_bytes() == (tmp_path / "routed.jsonl").read_bytes()
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", "utf-8")
    run("route", fitted, "--input", empty, "--output", tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text("utf-8")) == []


def test_one_prompt_and_many_have_one_shape(fitted: Path, tmp_path: Path) -> None:
    text = "Is this contract void?"
    one = run_json("route", fitted, text)
    assert set(one) == {"text", "ir3de"} and one["ir3de"]["candidates"] == ["law"]
    assert one == run_json("route", fitted, stdin=f"{text}\n")
    assert one == json.loads(run("route", fitted, text, "--output", "-").stdout)
    run("route", fitted, text, "--output", tmp_path / "one.jsonl")
    assert one == json.loads((tmp_path / "one.jsonl").read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "found"), [("out.txt", "ends in '.txt'"), ("out", "has no ending"), ("o.gz", "'.gz'")]
)
def test_another_ending_is_refused_before_anything_is_read(fitted: Path, tmp_path: Path, name: str, found: str) -> None:
    said = complaint("route", fitted, "--input", tmp_path / "missing.jsonl", "--output", tmp_path / name)
    assert found in said and ".jsonl, .ndjson, .json, .csv, .tsv, .parquet" in said


def test_a_table_needs_the_same_columns_in_every_row(fitted: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a", "id": 1}\n{"text": "b"}\n{"text": "c", "x": 1}\n', "utf-8")
    said = complaint("route", fitted, "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out.csv")
    assert "out.csv: row 3 has the field 'x', which the first row has not" in said and "write .jsonl" in said
    assert not (tmp_path / "out.csv").exists()


def test_what_exists_stays_unless_force_is_given(fitted: Path, questions: Path, tmp_path: Path) -> None:
    target = tmp_path / "routed.csv"
    target.write_text("mine", "utf-8")
    said = complaint("route", fitted, "--input", questions, "--output", target)
    assert "routed.csv exists already" in said and "--force" in said and target.read_text("utf-8") == "mine"
    run("route", fitted, "--input", questions, "--output", target, "--force")
    assert target.read_text("utf-8").startswith("id,prompt,team,expert,")
