"""Whether routing beats every single model, on answers whose scores are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import generate_gain_docs as generator
from experiment_files import LINEAR, chosen, matrix_of, write_results
from ir3de.cli import cli
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import gain, reachable
from ir3de_lab.experiments import matrix as matrix_files
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.gain import HELD, IN_PART, NOT_HELD, Contender
from ir3de_lab.experiments.halves import SINGLE
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.results import shown_name

EACH, DRAWS = 60, 4
NAMES = ("coding", "math")
WELL, BADLY = 0.8, 0.2  # how often an expert is right in its own domain and elsewhere


def draw(own: float, elsewhere: float, base: float, seed: int) -> Floats:
    """(items, columns, draws) of two experts, the average and the base model."""
    rng = np.random.default_rng(seed)
    chances = np.full((2 * EACH, 4), elsewhere)
    chances[:EACH, 0] = chances[EACH:, 1] = own
    chances[:, 2:] = base
    return (rng.random((2 * EACH, 4, DRAWS)) < chances[:, :, None]).astype(float)


def outcomes(points: Floats, setting: str = "by-hand") -> Matrix:
    domains = [NAMES[0]] * EACH + [NAMES[1]] * EACH
    rows = [(domain, 1.0, values.tolist()) for domain, values in zip(domains, points.mean(axis=2), strict=True)]
    return matrix_of("score", rows, setting=setting)


def write_seeds(root: Path, points: Sequence[Floats], routers: Sequence[Choices] | None = None) -> Path:
    """The folders of a setting and of its other seeds, the routers in the first."""
    for seed, drawn in enumerate(points):
        name = "by-hand" + (f"-seed-{seed}" if seed else "")
        made = outcomes(drawn, name)
        default = [Choices("ir3de", "ours", "clean", chosen(made, 0.0), LINEAR)]
        folder = write_results(root / name, made, [] if seed else default if routers is None else routers)
        matrix_files.write(made, folder / "drawn.jsonl.xz")
        reachable.write(drawn, made.columns, made, folder)
    return root


def measure(root: Path, resamples: int = 500) -> gain.Gain:
    return gain.measure(gain.read_seeds(root, "by-hand"), resamples)["all"]


def test_routing_between_experts_that_differ_is_held(tmp_path: Path) -> None:
    points = [draw(WELL, BADLY, 0.4, seed) for seed in range(3)]
    found = measure(write_seeds(tmp_path, points))
    rows = {row.name: row for row in found.rows}
    assert (found.verdict, found.rivals_verdict) == (HELD, HELD) and found.signs["base"] == 1
    own = [one[np.arange(2 * EACH), [0] * EACH + [1] * EACH].mean() for one in points]
    assert rows["ir3de"].by_seed == pytest.approx([100 * share for share in own])
    assert rows["ir3de"].mean == pytest.approx(100 * np.mean(own))
    assert rows["base"].mean == pytest.approx(100 * np.mean([one[:, 3].mean() for one in points]))
    assert found.best_expert == max(NAMES, key=lambda name: rows[name].mean)
    gained = rows["base"].gain
    assert gained is not None and gained.value == pytest.approx(rows["ir3de"].mean - rows["base"].mean)
    assert gained.interval[0] < gained.value < gained.interval[1] and gained.p_value == pytest.approx(2 / 501)
    assert rows[gain.OWN].gain is not None and rows[gain.OWN].gain.value == 0 == rows[gain.OWN].gain.interval[0]
    assert rows["Oracle"].mean > rows["Reachable oracle"].mean


def test_experts_that_are_alike_gain_nothing(tmp_path: Path) -> None:
    level = measure(write_seeds(tmp_path / "level", [draw(0.5, 0.5, 0.5, seed) for seed in range(2)]))
    assert level.verdict == NOT_HELD
    strong = measure(write_seeds(tmp_path / "strong", [draw(WELL, BADLY, 0.95, seed) for seed in range(2)]))
    assert strong.verdict == IN_PART and strong.signs["base"] == -1  # above the experts, below the base model


def test_one_seed_that_is_not_above_takes_the_verdict_back(tmp_path: Path) -> None:
    points = [draw(WELL, BADLY, 0.3, seed) for seed in range(6)]
    points.append(draw(0.25, 0.25, 0.3, 9))
    found = measure(write_seeds(tmp_path, points))
    assert found.signs["base"] == 1 == found.signs[found.best_expert]
    assert found.verdict == IN_PART


def test_the_base_model_is_found_by_its_name_in_every_seed(tmp_path: Path) -> None:
    """Extras may stand in another order where another model took an expert's place."""
    points = [draw(WELL, BADLY, 0.4, 0), draw(WELL, BADLY, 0.4, 1)]
    points[1][:, 2], root = 1.0, write_seeds(tmp_path, points)
    made = replace(outcomes(points[1], "by-hand-seed-1"), extras=("base", "average"))
    for name in ("outcomes", "drawn"):
        matrix_files.write(made, root / "by-hand-seed-1" / f"{name}.jsonl.xz")
    reachable.write(points[1], made.columns, made, root / "by-hand-seed-1")
    (base,) = (row for row in measure(root, 50).rows if row.name == "base")
    assert base.by_seed == pytest.approx([100 * points[0][:, 3].mean(), 100.0])


def test_a_rival_that_is_surely_above_is_told(tmp_path: Path) -> None:
    points = draw(WELL, BADLY, 0.4, 0)
    made = outcomes(points)
    routers = [
        Choices("ir3de", "ours", "clean", chosen(made, 0.5), LINEAR),
        Choices("naive Bayes", "rivals", "clean", chosen(made, 0.0), LINEAR),
        Choices("MLP-router", "rivals", "clean", chosen(made, 0.9, 1), LINEAR),
    ]
    found = measure(write_seeds(tmp_path, [points], routers))
    assert found.rivals_verdict == NOT_HELD
    assert (found.signs["naive Bayes"], found.signs["MLP-router"]) == (-1, 1)


def test_the_papers_router_has_its_best_k_where_none_was_chosen(tmp_path: Path) -> None:
    points = draw(WELL, BADLY, 0.4, 0)
    made, series = outcomes(points), gain.PAPER_SERIES
    routers = [Choices("ir3de", "ours", "clean", chosen(made, 0.0), LINEAR)]
    routers += [
        Choices(f"k={at:g}", "paper", "clean", chosen(made, lost), LINEAR, series=series, axis="k", at=at)
        for at, lost in ((1.0, 0.9), (10.0, 0.1))
    ]
    found = measure(write_seeds(tmp_path, [points], routers))
    rows = {row.name: row for row in found.rows}
    best = rows["IR3DE, best k=10 (authors' code)"]
    assert best.kind == gain.BOUND and best.name not in found.signs  # known in hindsight: no verdict rests on it
    assert best.gain is not None and best.gain.value > 0 and not any("k=1 " in name for name in rows)


def test_rivals_are_those_that_were_chosen_without_the_test_items() -> None:
    made = outcomes(draw(WELL, BADLY, 0.4, 0))

    def one(name: str, family: str = "rivals", protocol: str = "clean", **more: object) -> Choices:
        return Choices(name, family, protocol, made.own_expert, LINEAR, **more)  # type: ignore[arg-type]

    def series(name: str, family: str, tried: dict[float, float | None], protocol: str = "clean") -> list[Choices]:
        return [
            one(f"{name} {at}", family, protocol, series=name, axis="k", at=at, about={"validation": right})
            for at, right in tried.items()
        ]

    given = [
        one("ir3de", "ours"), one("IR3DE-avg (authors' code)", "paper"), one("naive Bayes"), one(SINGLE),
        one("of the test", protocol="authors"), one("on a curve", axis="prompts", series="s", at=3.0),
        *series("kNN", "rivals", {1.0: 90.0, 5.0: 95.0}), *series("never tried", "rivals", {1.0: None, 5.0: None}),
        *series(gain.PAPER_SERIES, "paper", {1.0: 80.0, 50.0: 70.0}), *series("another", "paper", {1.0: 8.0, 5.0: 7.0}),
        *series("kNN", "rivals", {1.0: 90.0, 5.0: 95.0}, "authors"),
    ]  # fmt: skip
    assert list(gain.list_rivals(given)) == ["naive Bayes", "IR3DE, chosen k=1 (authors' code)", "kNN, chosen k=5"]


@pytest.mark.nightly
def test_a_resample_draws_seeds_items_and_draws() -> None:
    """The spread of a score is that of seeds, of items and of draws, each by itself where the others are constant."""
    ones, zeros = np.ones((2 * EACH, DRAWS)), np.zeros((2 * EACH, DRAWS))
    half = np.repeat(np.arange(2 * EACH)[:, None] % 2, DRAWS, axis=1).astype(float)
    coins = np.repeat(np.arange(DRAWS)[None, :] % 2, 2 * EACH, axis=0).astype(float)
    matrix = outcomes(draw(WELL, BADLY, 0.4, 0))

    def spread(*seeds: Floats) -> float:
        found = gain.resample([Contender("one", "router", np.stack(seeds))], matrix, 4_000, 1)
        return float(found.mean(axis=2).std())

    assert spread(ones, ones) == 0
    assert spread(ones, zeros) == pytest.approx(100 * np.sqrt(0.25 / 2), rel=0.05)
    assert spread(half) == pytest.approx(100 * np.sqrt(0.25 / (2 * EACH)), rel=0.05)
    assert spread(coins) == pytest.approx(100 * np.sqrt(0.25 / (2 * EACH * DRAWS)), rel=0.05)
    assert spread(coins, coins) == pytest.approx(spread(coins) / np.sqrt(2), rel=0.05)  # each seed answers for itself
    together = replace(matrix, clusters=np.arange(2 * EACH) // 4)
    clustered = gain.resample([Contender("one", "router", np.repeat(ones[None], 1, axis=0))], together, 50)
    assert (clustered == 100).all()
    fours = np.repeat((np.arange(2 * EACH) // 4 % 2)[:, None], DRAWS, axis=1).astype(float)
    drawn = gain.resample([Contender("one", "router", fours[None])], together, 4_000, 1).mean(axis=2).std()
    assert drawn == pytest.approx(2 * spread(half), rel=0.1)  # a quarter as many clusters


def test_groups_of_a_domain_count_alike() -> None:
    rows = [("math", 1.0, [1.0]), ("math", 3.0, [0.0]), ("math", 1.0, [0.0])]
    matrix = matrix_of("score", rows, groups=["en", "de", "de"])
    points = np.array([1.0, 0.0, 0.0])[None, :, None]
    one = Contender("one", "router", points)
    assert gain.score([one], matrix).ravel() == pytest.approx([50.0])
    drawn = gain.resample([one], matrix, 200)
    assert np.isfinite(drawn).all() and drawn.min() == 0 and drawn.max() == 100


@pytest.mark.nightly
def test_the_command_tells_the_verdicts_and_keeps_the_figures(tmp_path: Path) -> None:
    write_seeds(tmp_path / "results", [draw(WELL, BADLY, 0.4, seed) for seed in range(2)])
    saved = tmp_path / "gain.json"
    arguments = ["bench", "gain", "--setting", "by-hand", "--results", str(tmp_path / "results"), "--save", str(saved)]
    shown = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert shown.exit_code == 0 and "and the base model: held." in shown.output.replace("\n", " ")
    document = json.loads(saved.read_bytes())
    assert document["seeds"] == ["by-hand", "by-hand-seed-1"] and document["items"] == dict.fromkeys(NAMES, EACH)
    assert document["draws"] == DRAWS and document["parts"]["all"]["verdict"] == HELD
    (base,) = (row for row in document["parts"]["all"]["rows"] if row["name"] == "base")
    assert f"{base['mean']:.1f}" in shown.output and base["sign"] == 1
    again = CliRunner().invoke(cli, [*arguments[:-2], "--json"], catch_exceptions=False)
    assert json.loads(again.output)["parts"] == document["parts"]
    check_page(document)


def check_page(document: dict[str, Any]) -> None:
    """The tables of docs/experiment-plan.md have every model and router, and what the file says of them."""
    verdicts, scores = generator.gain_verdicts(document), generator.gain_scores(document)
    assert len(verdicts) == 2 + len(document["parts"]) and f"| **{HELD}** |" in verdicts[2]
    assert len(scores) == 2 + len(document["parts"]["all"]["rows"])
    assert len({line.count("|") for line in scores}) == 1
    (base,) = (line for line in scores if line.startswith(f"| {shown_name('base')} |"))
    assert base.rstrip("| ").endswith("▲")


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    def refuse(root: Path) -> str:
        found = CliRunner().invoke(cli, ["bench", "gain", "--setting", "by-hand", "--results", str(root)])
        assert found.exit_code == 1, found.output
        return " ".join(found.output.split())

    points = [draw(WELL, BADLY, 0.4, seed) for seed in range(2)]
    assert "make them with `ir3de bench draws --setting by-hand" in refuse(tmp_path)
    assert "has no choices of 'ir3de'" in refuse(write_seeds(tmp_path / "bare", points, []))
    assert "another number of draws" in refuse(write_seeds(tmp_path / "draws", [points[0], points[1][:, :, :2]]))
    root = write_seeds(tmp_path / "items", points)
    made = outcomes(points[1], "by-hand-seed-1")
    other = replace(made, items=tuple(f"{item}x" for item in made.items))
    for name in ("outcomes", "drawn"):
        matrix_files.write(other, root / "by-hand-seed-1" / f"{name}.jsonl.xz")
    reachable.write(points[1], other.columns, other, root / "by-hand-seed-1")
    assert "has other items or experts than" in refuse(root)
    with pytest.raises(ArtifactError, match="no draws of elsewhere"):
        gain.read_seeds(root, "elsewhere")
