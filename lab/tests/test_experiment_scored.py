"""Outcomes of rows that carry every model's score, and how the commands show outcomes; no model is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, run, run_json, wrong_call
from ir3de.errors import InputError
from ir3de_lab.experiments import material, matrix, settings
from ir3de_lab.experiments.outcomes import of_scored
from refused import refusal

LONG = "a-publisher-with-a-long-name/a-model-with-a-long-name-7b-"
SCORED = """
version = 1
name = "scored"
title = "SCORED"
metric = "score"
domains = ["law", "cooking", "art"]
unseen = ["art"]
[data]
suite = "scored"
layout = "scored"
scores = "points"
"""
ROWS: dict[str, list[dict[str, float]]] = {
    "law_test": [{"m1": 1, "m2": 0.25}, {"m1": 0, "m2": 0.5}],
    "cooking_test": [{"m1": 0, "m2": 1}, {"m2": 1, "m1": 1}],
    "art_ood_test": [{"m1": True, "m2": False}],
}


def written(folder: Path, rows: dict[str, list[Any]] = ROWS) -> tuple[Path, Path]:
    """The setting's file and the data of scored rows."""
    suite = folder / "data" / "scored"
    suite.mkdir(parents=True, exist_ok=True)
    for name, scores in {"law_train": [{}], "cooking_train": [{}], **rows}.items():
        lines = [json.dumps({"text": f"{name} {place}", "points": given}) for place, given in enumerate(scores)]
        (suite / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    path = folder / "scored.toml"
    path.write_text(SCORED, encoding="utf-8")
    return path, folder / "data"


def made(folder: Path, rows: dict[str, list[Any]] = ROWS) -> matrix.Matrix:
    path, data = written(folder, rows)
    setting = settings.load(path)
    return of_scored(setting, material.load(setting, data))


# rows -----------------------------------------------------------------------------------------------------------------


def test_a_domain_s_own_expert_is_the_best_in_hindsight(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert found.experts == ("m1", "m2") and found.extras == ()
    assert found.values.tolist() == [[1, 0.25], [0, 0.5], [0, 1], [1, 1], [1, 0]]
    assert found.own == {"law": "m1", "cooking": "m2", "art": "m1"}
    best = np.array([found.values[found.domain == place].mean(axis=0).max() for place in range(3)])
    own = found.of_columns(found.own_expert)
    assert np.allclose([own[found.domain == place].mean() for place in range(3)], best)


@pytest.mark.parametrize(
    ("law", "said"),
    [
        ([{"m1": 1, "m2": 0}, {"m1": 1}], r"'law/00001-[0-9a-f]{8}' needs a number as the score of the model 'm2'"),
        ([{"m1": 1, "m2": None}], "score of the model 'm2', found None in its field 'points'"),
        ([{"m1": 1, "m2": "1"}], "score of the model 'm2', found '1' in its field 'points'"),
        ([{"m1": 1, "m2": 0}, {}], r"'law/00001-[0-9a-f]{8}' has no scores of models in its field 'points', found {}"),
        ([None], "has no scores of models in its field 'points', found None"),
        ([[1, 0]], r"has no scores of models in its field 'points', found \[1, 0\]"),
        ([{"m1": float("nan"), "m2": 0}], "no outcome of the expert 'm1' for the item 'law/00000-"),
    ],
)
def test_a_score_that_is_lacking_is_named(tmp_path: Path, law: list[Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        made(tmp_path, {**ROWS, "law_test": law})


def test_a_model_that_one_item_alone_knows_lacks_in_the_others(tmp_path: Path) -> None:
    rows = {**ROWS, "art_ood_test": [{"m1": 1, "m2": 0, "m3": 1}]}
    assert "model 'm3', found None" in refusal(InputError, made, tmp_path, rows)


# commands -------------------------------------------------------------------------------------------------------------


def test_outcomes_are_kept_and_told(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    told = run_json("bench", "outcomes", "--setting", path, "--data", data, "--results", tmp_path / "results")
    assert told == {
        "setting": "scored",
        "items": 5,
        "metric": "score",
        "columns": {
            "m1": {"law": 50.0, "cooking": 50.0, "art": 100.0},
            "m2": {"law": 37.5, "cooking": 100.0, "art": 0.0},
        },
    }
    kept = matrix.read(tmp_path / "results" / "scored" / "outcomes.jsonl.xz")
    assert (kept.values == made(tmp_path).values).all()
    files = sorted(file.name for file in (tmp_path / "results" / "scored").iterdir())
    assert files == ["clusters.jsonl.xz", "outcomes.jsonl.xz"]


def test_short_names_head_the_columns(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    lines = run("bench", "outcomes", "--setting", path, "--data", data, "--results", tmp_path).stdout.splitlines()
    cells = [line.split() for line in lines]
    assert ["domain", "m1", "m2"] in cells and ["law", "50.00", "37.50"] in cells and ["art", "100.00", "0.00"] in cells
    assert any(line[:4] == ["next:", "ir3de", "bench", "run"] for line in cells)


@pytest.mark.parametrize("width", ["70", "100"])
def test_long_names_leave_every_figure_on_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    named = {
        split: [{f"{LONG}{place}": value for place, value in enumerate([*row.values()] * 2)} for row in rows]
        for split, rows in ROWS.items()
    }
    path, data = written(tmp_path, named)
    shown = run("bench", "outcomes", "--setting", path, "--data", data, "--results", tmp_path).stdout
    cells = [line.split() for line in shown.splitlines()]
    assert all([str(number), f"{LONG}{number - 1}"] in cells for number in range(1, 5))
    assert ["domain", "1", "2", "3", "4"] in cells
    assert [line for line in cells if line[:1] == ["law"]] == [["law", "50.00", "37.50", "50.00", "37.50"]]


def test_nothing_is_trained_where_everything_is_scored(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    assert "there is nothing to train" in complaint("bench", "train", "--setting", path, "--data", data)


def test_commands_say_what_they_need(tmp_path: Path) -> None:
    path, data = written(tmp_path)
    for command in ("train", "outcomes"):
        text = run("bench", command, "--help").stdout
        assert all(option in text for option in ("--setting", "--data", "--experts", "--json", "Example:"))
        assert f"ir3de bench {command} --setting clm" in text
        assert "Missing option '--setting'" in wrong_call("bench", command)
        assert "no setting 'clm2': expected clm" in complaint("bench", command, "--setting", "clm2", "--data", data)
    assert "--domain" in run("bench", "train", "--help").stdout
    assert "--no-judge" in run("bench", "outcomes", "--help").stdout
    assert "no folder" in complaint("bench", "outcomes", "--setting", path, "--data", tmp_path)
