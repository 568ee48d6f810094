"""How sure a figure is: clusters that are left out together, their files, and the correction for many rows."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import run_json
from experiment_files import chosen, matrix_of, random_matrix
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import clusters, matrix, results
from ir3de_lab.experiments.cells import show_sign
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.metrics import Judge, normalised_difference
from ir3de_lab.experiments.resampling import Bootstrap, Difference, estimate, find_leanings, find_signs
from ir3de_lab.experiments.tables import count_clusters

ROOT = Path(__file__).parents[2]


def test_the_jackknife_of_a_mean_is_the_textbook_interval_of_a_mean() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    found = estimate([float(values.mean())], [(values.sum() - values) / 3])
    reach = 3.182446 * values.std(ddof=1) / 2  # Student's t with 3 degrees of freedom
    assert found.value == 4.0 and found.interval == pytest.approx((4.0 - reach, 4.0 + reach))
    assert found.p_value == pytest.approx(0.1102, abs=1e-4)


def test_of_one_cluster_there_is_no_spread_and_nothing_is_sure() -> None:
    found = estimate([5.0], [np.array([np.nan])])
    assert found.interval == (-np.inf, np.inf) and find_signs([found]) == [0]


def test_items_of_one_document_count_as_one() -> None:
    """Every item five times, as chunks of one document, is as sure as every item once."""
    once = random_matrix("score", 3, items=40, domains=("coding", "math"))
    chunks = np.repeat(np.arange(len(once.items)), 5)
    many = replace(
        once,
        items=tuple(f"{once.items[place]}/{part}" for part, place in enumerate(chunks)),
        domain=once.domain[chunks],
        group=tuple("" for _ in chunks),
        weight=once.weight[chunks],
        values=once.values[chunks],
    )
    columns = chosen(once, 0.2)
    honest = Judge(replace(many, clusters=chunks)).of_experts(columns[chunks]).average_interval
    assert honest == pytest.approx(Judge(once).of_experts(columns).average_interval)
    naive = Judge(many).of_experts(columns[chunks]).average_interval
    assert naive[1] - naive[0] < 0.6 * (honest[1] - honest[0])


def test_a_question_in_two_languages_is_left_out_of_both() -> None:
    rows = [("law", 1, (1, 0)), ("law", 1, (1, 0)), ("law", 1, (0, 1)), ("law", 1, (0, 1)), ("math", 1, (0, 1))]
    made = matrix_of("score", [*rows, rows[-1]], groups=["fr", "de", "fr", "de", "", ""])
    made = replace(made, clusters=np.array([0, 0, 1, 1, 2, 3]))
    found = Judge(made).of_experts(np.array([0, 0, 0, 0, 1, 1]))
    assert found.resampled.raw[0].tolist() == [0.0, 100.0]  # without the first question, and without the second


def test_the_jackknife_and_the_bootstrap_agree_where_clusters_are_many() -> None:
    made = random_matrix("score", 1, items=400, domains=("coding", "math"))
    made = replace(made, clusters=np.arange(800) // 2)
    widths = []
    for judge in (Judge(made), Judge(made, Bootstrap(seed=3, resamples=4_000))):
        one, other = (judge.of_experts(chosen(made, share)) for share in (0.1, 0.3))
        drawn = [a - b for a, b in zip(one.resampled.normalised, other.resampled.normalised, strict=True)]
        if isinstance(judge.resampling, Bootstrap):
            widths.append(np.ptp(np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])))
        else:
            widths.append(np.ptp(normalised_difference(one, other, [0, 1]).interval))
    assert widths[0] == pytest.approx(widths[1], rel=0.06)


def test_intervals_cover_as_often_as_they_say() -> None:
    """Of 400 sets of 25 documents with five items each; with items for documents it would be about 60 %."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        means = rng.normal(size=25) + rng.normal(scale=0.3, size=(5, 25)).mean(axis=0)
        low, high = estimate([float(means.mean())], [(means.sum() - means) / 24]).interval
        covered += low <= 0 <= high
    assert 0.92 <= covered / 400 <= 0.98


def test_holms_rule_by_hand() -> None:
    made = [Difference(1.0, (0.0, 2.0), p) for p in (0.01, 0.04, 0.02, 0.5)]
    assert find_signs(made) == [1, 0, 0, 0]  # 0.01·4 ≤ 0.05, and then 0.02·3 is not
    assert find_signs([*made[:3], None]) == [1, 1, 1, 0]  # 0.01·3, 0.02·2, 0.04·1
    assert find_signs([Difference(0.0, (0.0, 0.0), 1.0)]) == [0]


# files ----------------------------------------------------------------------------------------------------------------


def test_documents_questions_and_repeated_texts_are_clusters() -> None:
    items = [
        Item("a/0", "a", "one", {"doc": "book", "text": "one"}),
        Item("a/1", "a", "two", {"doc": "book", "text": "two"}),
        Item("b/0", "b", "uno", {"id": "es/q1", "lang": "es"}),
        Item("b/1", "b", "un", {"id": "fr/q1", "lang": "fr"}),
        Item("c/0", "c", "Say  it", {"id": "x1"}),
        Item("c/1", "c", "say it", {"id": "x2"}),
        Item("d/0", "d", "say it", {}),
    ]
    assert clusters.find(items).tolist() == [0, 0, 1, 1, 2, 2, 3]


def test_clusters_are_read_with_the_outcomes_and_those_of_others_refused(tmp_path: Path) -> None:
    made = random_matrix("score", items=3, domains=("coding", "math"), setting="clm")
    matrix.write(made, tmp_path / "outcomes.jsonl.xz")
    items = [Item(name, name[:4], "", {"doc": "all of it"}) for name in made.items]
    path = clusters.write(items, made, tmp_path)
    assert results.read(tmp_path).matrix.cluster.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(ArtifactError, match="are of other items than these texts"):
        clusters.write(items[1:], made, tmp_path)
    document = json.loads(lzma.decompress(path.read_bytes()))
    path.write_bytes(lzma.compress(json.dumps({**document, "items": "0"}).encode()))
    with pytest.raises(ArtifactError, match="belongs to other outcomes: run `ir3de bench clusters"):
        results.read(tmp_path)


def test_the_command_finds_the_clusters_of_outcomes_that_are_there(tmp_path: Path) -> None:
    suite = tmp_path / "data" / "clm"
    for domain in ("coding", "math", "physics", "history", "philosophy"):
        (suite / domain).mkdir(parents=True)
        for split in ("train", "test"):
            rows = [{"text": f"{domain} {split} {place}", "doc": f"book {place // 2}"} for place in range(4)]
            (suite / domain / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    from ir3de_lab.experiments import material, settings

    texts = material.load(settings.load("clm"), tmp_path / "data")
    made = random_matrix("perplexity", items=4, setting="clm")
    made = replace(made, items=tuple(item.id for item in texts.items))
    matrix.write(made, tmp_path / "clm" / "outcomes.jsonl.xz")
    found = run_json(
        "bench", "clusters", "--setting", "clm", "--data", str(tmp_path / "data"), "--results", str(tmp_path)
    )
    assert (found["items"], found["clusters"]) == (20, 10)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("clm", "Coding 375, Math 95, Physics 135, History 102, Philosophy 16. Fewer than 20 make a rough interval"),
        pytest.param("reasoning", "Multilingual 1,141", marks=pytest.mark.nightly),
        pytest.param("routerdc7", "MMLU 4,188", marks=pytest.mark.nightly),
    ],
)
def test_every_published_setting_says_how_many_clusters_it_has(name: str, told: str) -> None:
    assert told in count_clusters(results.read(ROOT / "results" / name).matrix)


def test_a_row_that_only_its_own_interval_shows_leans_and_has_no_sign() -> None:
    near, far = Difference(1.0, (0.1, 1.9), 0.03), Difference(-2.0, (-2.9, -1.1), 0.001)
    rows = [near, near, far, None]
    assert (find_signs(rows), find_leanings(rows)) == ([0, 0, -1, 0], [1, 1, -1, 0])
    shown = map(show_sign, find_signs(rows), find_leanings(rows))
    assert list(shown) == [" △", " △", " ▼", ""]
