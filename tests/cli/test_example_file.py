"""demo --write: the example prompts as the labelled file that people bring themselves."""

import csv
from pathlib import Path

from commands import complaint, run, run_json
from ir3de.corpora import examples


def test_every_prompt_is_written_with_its_team(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    shown = " ".join(run("demo", "--write", path).stdout.split())
    assert "600 prompts of 5 teams" in shown and f"ir3de fit router {path} --label team" in shown
    with path.open(newline="", encoding="utf-8") as file:
        rows = [(row["prompt"], row["team"]) for row in csv.DictReader(file)]
    assert rows == [(text, domain) for domain, texts in examples.prompts().items() for text in texts]


def test_no_file_is_overwritten_or_named_as_what_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("mine", encoding="utf-8")
    assert "--force" in complaint("demo", "--write", path)
    assert path.read_text(encoding="utf-8") == "mine"
    assert run_json("demo", "--write", path, "--force") == {
        "written": str(path), "rows": 600, "text": "prompt", "label": "team"
    }  # fmt: skip
    assert "ends in .csv" in complaint("demo", "--write", tmp_path / "train.jsonl")
