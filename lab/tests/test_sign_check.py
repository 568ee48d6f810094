"""Signs of the tables held against bootstraps: a sure difference stays, and one that hangs on a seed is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import run_json
from experiment_files import LINEAR, chosen, random_matrix, write_results
from ir3de_lab.experiments import sign_check
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.results import Results, read
from ir3de_lab.experiments.sign_check import CheckedSign, check_signs


def made(folder: Path) -> Results:
    matrix = random_matrix("score", items=120, domains=("coding", "math"), setting="one")
    routers = [
        Choices("ir3de", "ours", "clean", chosen(matrix, 0.02), LINEAR),
        Choices("naive Bayes", "rivals", "clean", chosen(matrix, 0.6, 1), LINEAR),
        Choices("MLP-router", "rivals", "clean", chosen(matrix, 0.03), LINEAR),
    ]
    return read(write_results(folder / "one", matrix, routers))


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_check, "RESAMPLES", 300)


def test_a_sure_difference_is_sure_with_every_seed(tmp_path: Path) -> None:
    found = {(one.row, one.column): one for one in check_signs(made(tmp_path))}
    worse = found["naive Bayes", "Difference to ir3de"]
    assert (worse.sign, worse.agreeing, worse.changes) == (-1, 10, False)
    assert ("MLP-router", "Difference to ir3de") not in found  # it has no sign
    assert (
        not CheckedSign("one", "main", "a", "b", 1, 10).changes and CheckedSign("one", "main", "a", "b", 1, 9).changes
    )


def test_a_sign_that_the_bootstrap_does_not_show_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every sign is turned round, every one of them changes."""
    usual = sign_check.find_column_signs
    monkeypatch.setattr(sign_check, "find_column_signs", lambda *given: [-sign for sign in usual(*given)])
    found = [one for one in check_signs(made(tmp_path)) if one.column == "Difference to ir3de"]
    assert found and all(one.changes and one.agreeing == 0 for one in found)


def test_the_command_counts_them(tmp_path: Path) -> None:
    made(tmp_path)
    found = run_json("bench", "signs", "--results", str(tmp_path), "--save", str(tmp_path / "signs.json"))
    assert found["changed"] == 0 and found["signs"] == len(found["rows"]) > 3 and found["seeds"] == 10
    assert (tmp_path / "signs.json").is_file()
