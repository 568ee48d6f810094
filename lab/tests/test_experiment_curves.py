"""Long curves: routers of one axis in one file, λ, draws of training prompts, and the tables and figures of them."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiment_files import LINEAR, chosen, random_matrix, write_results
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import choices, sweeps
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.curve_tables import curve_tables, drawn_curves, paired_by_draw
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.results import read
from ir3de_lab.experiments.standings import standings

TRAIN = {
    "cooking": [f"boil {n} eggs in salted water with butter" for n in range(12)],
    "law": [f"the court held contract {n} void on appeal" for n in range(12)],
}


def drawn(matrix: Matrix, name: str, wrong: dict[int, float]) -> list[Choices]:
    return [
        Choices(
            f"{name} by training prompts, {at}, draw {draw}", "ours", "clean", chosen(matrix, share, 10 * draw + 1),
            LINEAR, series=f"{name} by training prompts", axis="prompts", at=float(at), about={"draw": draw},
        )
        for at, share in wrong.items()
        for draw in range(10)
    ]  # fmt: skip


def test_routers_of_a_curve_share_a_file_and_are_read_as_they_were(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="by-hand")
    made = drawn(matrix, "ir3de", {10: 0.5})
    [path] = choices.write_bundles(
        [*made, Choices("ir3de", "ours", "clean", matrix.own_expert, LINEAR)], matrix, tmp_path
    )
    assert path.name == "prompts.jsonl.xz"
    found = choices.read_all(tmp_path, matrix)
    assert [one.router for one in found] == [one.router for one in made]
    assert all((a.columns == b.columns).all() and a.about == b.about for a, b in zip(found, made, strict=True))


@pytest.mark.parametrize(
    ("content", "said"), [(b"not compressed", "truncated or damaged"), (lzma.compress(b'{"kind": "other"}'), "kind")]
)
def test_a_damaged_file_of_a_curve_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "prompts.jsonl.xz").write_bytes(content)
    with pytest.raises(ArtifactError, match=said):
        choices.read_all(tmp_path, random_matrix("perplexity"))


def test_a_file_of_a_curve_replaces_the_single_files_of_its_axis_and_no_others(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity")
    [one, *_] = made = drawn(matrix, "ir3de", {10: 0.5})
    other = Choices("ir3de", "ours", "clean", matrix.own_expert, LINEAR)
    for kept in (one, other):
        choices.write(kept, matrix, tmp_path)
    choices.write_bundles(made[1:], matrix, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"ir3de.json", "prompts.jsonl.xz"}


def test_a_router_in_two_files_is_refused(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity")
    [one, *_] = drawn(matrix, "ir3de", {10: 0.5})
    choices.write_bundles([one], matrix, tmp_path)
    choices.write(one, matrix, tmp_path)
    with pytest.raises(ArtifactError, match="same router"):
        choices.read_all(tmp_path, matrix)


def test_draws_are_of_the_right_size_differ_and_come_again() -> None:
    first, second = (sweeps.draw_prompts(TRAIN, 5, draw) for draw in (0, 1))
    assert first == sweeps.draw_prompts(TRAIN, 5, 0) and first != second
    assert {d: len(set(found)) for d, found in first.items()} == {"cooking": 5, "law": 5}  # none twice
    assert all(set(found) <= set(TRAIN[d]) for d, found in first.items())


@pytest.mark.nightly
def test_every_draw_fits_every_router_and_larger_ones_than_there_are_prompts_are_not_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeps, "PROMPTS", (4, 100))
    monkeypatch.setattr(sweeps, "DRAWS", 2)
    made = list(sweeps.draws(TRAIN))
    assert {one.at for one in made} == {4.0}
    assert len(made) == 2 * 5 and len({one.name for one in made}) == 10
    assert {one.about["draw"] for one in made} == {0, 1}
    assert all(one.fitted.route(["boil an egg in butter"]) == ["cooking"] for one in made if "ir3de" in one.name)


@pytest.mark.nightly
def test_every_strength_is_fitted_in_every_form_and_changes_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "STRENGTHS", (1e-2, 1e4))
    made = list(sweeps.strengths(TRAIN))
    assert len({one.series for one in made}) == 4 and len({one.name for one in made}) == 8
    assert {one.axis for one in made} == {"strength"}
    usual = {one.series: one.about["usual_strength"] for one in made}
    assert usual["IR3DE-avg (authors' code) by strength"] == 0.01
    assert usual["ir3de, closed form by strength"] == 8.0


def test_the_table_of_draws_shows_means_deviations_and_differences_within_draws(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="by-hand", items=40)
    made = [*drawn(matrix, "ir3de", {10: 0.3, 100: 0.1}), *drawn(matrix, "naive Bayes", {10: 0.6, 100: 0.1})]
    folder = write_results(tmp_path / "by-hand", matrix, [])
    choices.write_bundles(made, matrix, folder / "choices")
    results = read(folder)
    [table] = curve_tables(results, standings(results))
    rows: dict[tuple[str, str], Any] = {(row.group, row.name): row.cells for row in table.rows}
    assert list(drawn_curves(results)) == ["ir3de", "naive Bayes"]
    accuracies = [results.accuracy(one.columns) for one in made[:10]]
    own = rows["ir3de", "10 prompts"]
    assert own[0].text == "10"
    assert own[1].value == pytest.approx(np.mean(accuracies)) and own[2].value == pytest.approx(
        np.std(accuracies, ddof=1)
    )
    assert rows["naive Bayes", "10 prompts"][5].difference.is_below  # more of its items are wrong
    same = rows["naive Bayes", "100 prompts"][5].difference  # the same ones are
    assert same.value == 0 and same.interval == (0, 0)


def test_a_difference_over_draws_has_the_interval_of_students_t() -> None:
    found = paired_by_draw(np.array([3.0, 5.0]), np.array([1.0, 1.0]))
    assert found is not None and found.value == 3.0
    assert found.interval == pytest.approx((3 - 12.706, 3 + 12.706), abs=1e-3)
    assert paired_by_draw(np.array([1.0]), np.array([1.0])) is None
    assert paired_by_draw(np.array([1.0, 2.0]), np.array([1.0])) is None


def test_the_table_of_strengths_marks_the_usual_one_and_compares_with_the_default_router(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="by-hand", items=40)
    own = Choices("ir3de", "ours", "clean", matrix.own_expert, LINEAR)
    curve = [
        Choices(
            f"closed by strength, {at:g}", "ours", "clean", chosen(matrix, share, 3), LINEAR,
            series="closed by strength", axis="strength", at=at, about={"usual_strength": 8.0},
        )
        for at, share in ((8.0, 0.0), (1e4, 0.5))
    ]  # fmt: skip
    folder = write_results(tmp_path / "by-hand", matrix, [own])
    choices.write_bundles(curve, matrix, folder / "choices")
    results = read(folder)
    assert not any("strength" in row.name for row in standings(results))  # no row of the other tables
    [table] = curve_tables(results, standings(results))
    assert [row.name for row in table.rows] == ["λ = 8, as it is by default", "λ = 10000"]
    assert {row.group for row in table.rows} == {"closed"}
    same, worse = (row.cells[2].difference for row in table.rows)
    assert same is not None and same.value == 0
    assert worse is not None and worse.is_below
