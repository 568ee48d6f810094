"""Quality against money: expectations kept as files, APGR and AIQ from them, and the command from rows to tables."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import run, run_json
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import expectations, material, matrix, results, settings, spending
from ir3de_lab.experiments.expectations import Expectations
from ir3de_lab.experiments.outcomes import of_scored
from ir3de_lab.experiments.spending_tables import part_items, spending_tables
from test_rivals import write_encoder

ROOT = Path(__file__).parents[2]
HEAD = """
version = 1
name = "{name}"
title = "PRICED"
metric = "score"
domains = ["law", "cooking"]
[data]
suite = "priced"
layout = "scored"
scores = "points"
"""
COSTS = HEAD.format(name="priced") + 'costs = "dollars"\n'


def write_rows(folder: Path, **changed: Any) -> tuple[Path, Path]:
    """A setting with costs, and rows of two models: the dear one is better on law alone."""
    suite = folder / "data" / "priced"
    suite.mkdir(parents=True)
    for split, count in (("train", 12), ("test", 6)):
        for domain, question in (("law", "Is contract {} void?"), ("cooking", "How long does soup {} boil?")):
            rows = [
                {
                    "text": question.format(number),
                    "task": domain,
                    "points": {"dear": 1, "cheap": int(domain == "cooking")},
                    "dollars": {"dear": 0.01, "cheap": 0.001},
                    **changed,
                }
                for number in range(count)
            ]
            (suite / f"{domain}_{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path = folder / "priced.toml"
    path.write_text(COSTS, encoding="utf-8")
    return path, folder / "data"


def make_matrix(folder: Path, **changed: Any) -> matrix.Matrix:
    path, data = write_rows(folder, **changed)
    setting = settings.load(path)
    return of_scored(setting, material.load(setting, data))


# files ----------------------------------------------------------------------------------------------------------------


def test_costs_are_kept_with_the_outcomes(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    matrix.write(made, tmp_path / "outcomes.jsonl.xz")
    read = matrix.read(tmp_path / "outcomes.jsonl.xz")
    assert read.costs is not None and made.costs is not None
    np.testing.assert_array_equal(read.costs, made.costs)
    assert read.experts == ("cheap", "dear") and read.costs[0].tolist() == [0.001, 0.01]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dollars": {"dear": 0.01}}, "scores are of cheap, dear, and costs of dear: give both"),
        ({"dollars": {"dear": -1, "cheap": 0.1}}, "what an answer costs must be a number of 0 or more"),
        ({"dollars": None}, "no scores of models in its field 'dollars'"),
    ],
)
def test_costs_that_are_none_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_matrix(tmp_path, **changed)


SIZES = HEAD.format(name="priced") + "[data.sizes]\n"


def test_where_no_costs_are_known_sizes_take_their_place(tmp_path: Path) -> None:
    path, data = write_rows(tmp_path)
    path.write_text(SIZES + "dear = 8\ncheap = 7.2\n", encoding="utf-8")
    setting = settings.load(path)
    made = of_scored(setting, material.load(setting, data))
    assert made.costs is not None and not setting.priced  # routers of domains are run, too
    assert made.costs.tolist() == [[7.2, 8.0]] * len(made.items)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SIZES + "dear = 8\n", "scores are of cheap, dear, and sizes of dear: give both for each"),
        (COSTS + "[data.sizes]\ndear = 8\ncheap = 7\n", "both say what an answer costs: leave one of them out"),
        (SIZES.replace('"scored"', '"suite"') + "dear = 8\n", r"data\.sizes are for rows that are scored"),
    ],
)
def test_sizes_that_cannot_be_meant_are_refused(tmp_path: Path, content: str, said: str) -> None:
    path, data = write_rows(tmp_path)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        setting = settings.load(path)
        of_scored(setting, material.load(setting, data))


def test_domains_without_training_rows_are_a_part_of_their_own(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    parts = part_items(made, ["cooking"])
    assert list(parts) == ["Tasks fitted on", "Unseen tasks", "All"]
    assert {made.items[place].split("/")[0] for place in parts["Unseen tasks"]} == {"cooking"}
    assert sorted([*parts["Tasks fitted on"], *parts["Unseen tasks"]]) == parts["All"].tolist()


def test_rows_that_lack_a_score_are_left_out_where_the_setting_says_so(tmp_path: Path) -> None:
    path, data = write_rows(tmp_path)
    broken = data / "priced" / "law_test.jsonl"
    rows = [json.loads(line) for line in broken.read_text("utf-8").splitlines()]
    rows[0]["points"]["dear"] = None
    broken.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    setting = settings.load(path)
    with pytest.raises(InputError, match="needs a number as the score of the model 'dear', found None"):
        of_scored(setting, material.load(setting, data))
    path.write_text(COSTS.replace("[data]", '[data]\nincomplete = "leave_out"'), encoding="utf-8")
    setting = settings.load(path)
    assert len(of_scored(setting, material.load(setting, data)).items) == 11


def test_expectations_come_back_as_they_were_kept(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    kept = Expectations(
        "kNN, k = 5", "rivals", np.linspace(0, 1, 24).reshape(12, 2), np.array([0.001, 0.01]), 1.5, 20.0
    )
    path = expectations.write(kept, made, tmp_path / "expectations")
    assert path.name == "knn-k-5.json.xz"
    [read] = expectations.read_all(tmp_path / "expectations", made)
    np.testing.assert_allclose(read.scores, kept.scores, atol=1e-4)
    assert (read.router, read.family, read.fit_seconds, read.route_us) == ("kNN, k = 5", "rivals", 1.5, 20.0)


def test_damaged_or_strange_expectations_are_named(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    whole = Expectations("a", "ours", np.zeros((12, 2)))
    path = expectations.write(whole, made, tmp_path)
    with pytest.raises(ArtifactError, match=r"belongs to other outcomes .* --setting priced --only expectations"):
        expectations.read(path, replace(made, items=tuple(f"{item}!" for item in made.items)))
    content = path.read_bytes()
    path.write_bytes(content[:-20])
    with pytest.raises(ArtifactError, match="truncated or damaged"):
        expectations.read(path, made)
    document = json.loads(lzma.decompress(content))
    path.write_bytes(lzma.compress(json.dumps({**document, "scores": document["scores"][1:]}).encode()))
    with pytest.raises(ArtifactError, match=r"its scores have the shape \(11, 2\)"):
        expectations.read(path, made)
    for wrong in (np.zeros((11, 2)), np.full((12, 2), np.nan)):
        with pytest.raises(InputError, match="must expect a number of each of 2 models on each of 12 items"):
            expectations.write(replace(whole, scores=wrong), made, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# measures -------------------------------------------------------------------------------------------------------------


def test_a_router_that_knows_buys_quality_only_where_it_is_needed(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    assert made.costs is not None
    items, usual = np.arange(len(made.items)), made.costs.mean(axis=0)
    span = (0.001, 0.01)
    knowing = spending.buy(made, made.values, usual, items)
    single = spending.buy_single(made, items)
    # half the items need the dear model: the whole score costs 5.5 thousandths of a dollar instead of 10
    assert knowing.costs[0].mean() == pytest.approx(0.0055) and knowing.scores[0].mean() == 1
    assert spending.measure_aiq(single, span) == pytest.approx(75.0)
    assert spending.measure_aiq(knowing, span) == pytest.approx(87.5)
    found = spending.compare_aiq(knowing, single, span)
    assert found.value == pytest.approx(12.5) and 0 < found.interval[0] < 12.5 < found.interval[1]


spots = st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)), min_size=1, max_size=12)


@given(spots)
def test_a_hull_lies_above_all_spots_and_bends_down(given_spots: list[tuple[float, float]]) -> None:
    costs, scores = np.array(given_spots).T
    x, y = np.array(spending.find_hull(costs, scores)).T
    assert (np.diff(y) > 0).all() and y[-1] == scores.max()
    heights = np.interp(costs, x, y)
    assert (heights >= scores - 1e-9).all()
    slopes = np.diff(y) / np.diff(x)
    assert (np.diff(slopes) <= 1e-9 * (1 + slopes[:-1])).all()


@given(spots, st.floats(0.1, 9), st.floats(0, 1))
def test_another_spot_never_makes_the_area_smaller(found: list[tuple[float, float]], cost: float, score: float) -> None:
    span = (0.1, 9.0)
    areas = [
        spending.integrate_hull(*np.array(some).T, span)  # type: ignore[call-arg]
        for some in ([(0.1, 0.0), *found], [(0.1, 0.0), *found, (cost, score)])
    ]
    assert areas[1] >= areas[0] - 1e-12


def test_apgr_is_compared_on_the_same_items(tmp_path: Path) -> None:
    made = make_matrix(tmp_path)
    made = replace(made, values=np.where(np.arange(12)[:, None] % 2 == 0, [0, 1], [1, 1]))
    knowing = Expectations("knows", "ours", made.values.astype(float))
    blind = Expectations("blind", "rivals", np.zeros((12, 2)))
    pair = ("dear", "cheap")
    found = [spending.measure_calls(made, one, pair, 0) for one in (knowing, blind)]
    assert found[0] is not None and found[1] is not None
    # three of six items gain: they are the first of the one, and anywhere for the other
    assert (found[0].apgr, found[1].apgr, found[1].cpt_50) == pytest.approx((0.75, 0.5, 50.0))
    assert spending.compare_calls(made, knowing, blind, pair, 0).interval == pytest.approx((0.25, 0.25))
    shares, recovered = spending.trace_calls(made, knowing, pair, 0)
    assert recovered[shares == 0.5] == 1


# the command ----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.slow
def test_from_rows_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = write_rows(tmp_path)
    folder = ["--setting", str(path), "--results", str(tmp_path / "results")]
    monkeypatch.chdir(tmp_path)
    run_json("bench", "outcomes", *folder, "--data", str(data))
    made = run_json("bench", "run", *folder, "--data", str(data))
    assert made["made"] >= 5
    found = results.read(tmp_path / "results" / "priced")
    names = {one.router for one in found.expectations}
    assert {"ir3de, from outcomes", "ir3de, by task", "TF-IDF + ridge"} <= names
    assert "TF-IDF + ridge, each domain by itself" in names and "ir3de, by task, each domain by itself" not in names


@pytest.mark.nightly
@pytest.mark.torch
def test_routers_on_an_encoder_expect_scores_and_are_not_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = write_rows(tmp_path)
    encoder = tmp_path / "tiny"
    encoder.mkdir()
    write_encoder(encoder)
    named = f'\n[encoders]\nsmall = "{encoder}"\nlarge = "{tmp_path / "nowhere"}"\n'
    path.write_text(path.read_text() + named)
    arguments = ["--setting", str(path), "--results", str(tmp_path / "results"), "--data", str(data)]
    monkeypatch.chdir(tmp_path)
    run_json("bench", "outcomes", *arguments)
    told = run("bench", "run", *arguments)
    assert "left out: ridge (nowhere), kNN (nowhere):" in " ".join(told.stderr.split())
    found = results.read(tmp_path / "results" / "priced")
    kept = {one.router: one for one in found.expectations}
    for method in ("ridge", "kNN"):
        one = kept[f"{method} (tiny, 64 tokens)"]
        assert f"{one.router}, each domain by itself" in kept and one.about["encoder_tokens"] == 64
        # the encoder's own time is in both, however many routers stand on it
        assert one.fit_seconds and one.fit_seconds > 0 and one.route_us and one.route_us > 0
        dear = found.matrix.experts.index("dear")
        assert (one.scores[:6, dear] - one.scores[:6, 1 - dear] > 0.5).all()  # law, where the dear one is right
    number = run_json("bench", "run", *arguments)["made"]
    assert run_json("bench", "run", *arguments, "--resume")["made"] == number - 4
    assert run_json("bench", "run", *arguments, "--matching", "kNN")["made"] == number - 2


@pytest.mark.parametrize("name", ["routellm", pytest.param("routerbench", marks=pytest.mark.nightly)])
def test_the_published_tables_are_made_of_the_raw_files(name: str) -> None:
    found = results.read(ROOT / "results" / name)
    [table] = spending_tables(found)
    rows = {row.name: row for row in table.rows}
    assert all(cell.text for row in table.rows for cell in row.cells)
    reference = rows[spending.REFERENCE].cells[0].value
    assert reference is not None and reference > (0.5 if name == "routellm" else 50)
