"""The benchmarks' commands: each runs on a small folder of suites, and its figures are what counting by hand gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny
from answered_prompts import BEST, answers, written
from commands import HELD_OUT, run, run_json
from ir3de import Embedding, Router, Statistics, TokenRidge, collect
from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_strong_share, evaluate_outcomes
from ir3de.kernel import engine
from ir3de.scorers import Blend, NumpyArithmetic, using
from ir3de_lab.benchmarks import accuracy, outcome_routing, strong_weak
from ir3de_lab.benchmarks import privacy as measured
from ir3de_lab.benchmarks.accuracy import suites
from ir3de_lab.benchmarks.recovery import counts_from_gram, order_from_pairs
from ir3de_lab.benchmarks.robustness import FITTED_ON_WRAPPED, measure, sampled
from ir3de_lab.experiments.contenders import paper
from ir3de_lab.experiments.settings import load
from ir3de_lab.robustness import Wrapped, measure_robustness

pytestmark = [pytest.mark.usefixtures("plain_terminal"), pytest.mark.slow]


def test_ties_go_to_the_same_expert_as_in_the_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"math": "integral", "biology": "enzyme", "legal": "tenant", "dialogue": "hello"}
    assert tuple(words) == load("clm-large").domains != tuple(sorted(words))
    train = {domain: [word] * 5 for domain, word in words.items()}
    tied = f"{words['biology']} {words['math']}"  # a vote each
    for domain in words:
        folder = tmp_path / "clm_large" / domain
        folder.mkdir(parents=True)
        for split, texts in (("train", train[domain]), ("test", [tied])):
            (folder / f"{split}.jsonl").write_text(
                "".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8"
            )
    chosen = next(entry for entry in paper(train) if entry.name == "IR3DE, k=500 (authors' code)").fitted.route([tied])
    only = [one for one in accuracy.contenders() if one[0] == "authors' code, k=500"]
    monkeypatch.setattr(accuracy, "contenders", lambda: iter(only))
    (suite,) = suites(tmp_path)
    assert tuple(suite.folders) == tuple(sorted(words)) and suite.in_order == tuple(words)
    (row,) = accuracy.measure(suite)
    assert chosen == ["math"] and [domain for domain, share in row.by_domain.items() if share] == chosen


def test_domains_of_a_suite_without_a_setting_stay_as_they_are(tmp_path: Path) -> None:
    for domain in ("b", "a"):
        (tmp_path / "clm" / domain).mkdir(parents=True)
        for split in ("train", "test"):
            (tmp_path / "clm" / domain / f"{split}.jsonl").write_text('{"text": "x"}\n')
    assert suites(tmp_path)[0].in_order == ("a", "b")


@pytest.mark.parametrize("name", ["novelty", "confidence"])
@pytest.mark.nightly
def test_the_measurement_runs_on_a_folder_of_suites(name: str, tmp_path: Path) -> None:
    for suite, domains in {"one": ("law", "maths"), "two": ("cooking", "law")}.items():
        for domain in domains:
            (tmp_path / "suites" / suite / domain).mkdir(parents=True)
            for split, seed in (("train", 0), ("test", 1)):
                lines = [json.dumps({"text": text}) for text in tiny.sentences(domain, 60, seed=seed)]
                (tmp_path / "suites" / suite / domain / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    kept = tmp_path / "kept.json"
    run("bench", name, "--data", tmp_path / "suites", "--suite", "one", "--save", kept)
    rows = json.loads(kept.read_text("utf-8"))["rows"]
    assert {row["suite"] for row in rows} == {"one"}
    if name == "novelty":
        assert {row["strangers"] for row in rows} == {"two/cooking", "random letters", "random bytes"}
        assert all(0 <= row["out_of_domain"] <= 1 and row["own_out_of_domain"] < 0.2 for row in rows)
    else:
        assert all(row["promises"] and row["calibrated"] >= 0 for row in rows)
        assert all(one["wrong"] <= one["error"] for row in rows for one in row["promises"])


@pytest.mark.nightly
def test_speed_compares_both_routers_on_long_and_short_prompts(tmp_path: Path) -> None:
    for suite, domain, size in (("reasoning", "law", 9), ("reasoning", "maths", 9), ("intents", "cooking", 2)):
        (tmp_path / "suites" / suite / domain).mkdir(parents=True)
        lines = [json.dumps({"text": " ".join(tiny.sentences(domain, size, seed=seed))}) for seed in range(30)]
        for split in ("train", "test"):
            (tmp_path / "suites" / suite / domain / f"{split}.jsonl").write_text("\n".join(lines), "utf-8")
    figures = run_json("bench", "speed", "--data", tmp_path / "suites", "--only", "routing")["figures"]
    label = "route one prompt / bare fast tokenizer call"
    bars = {figure["name"]: figure["bar"] for figure in figures if figure["name"].startswith(label)}
    engines = ("native", "numpy") if engine.name == "native" else ("numpy",)
    alone = [f"{label}, {router}, {one}" for router in ("default", "closed form") for one in engines]
    assert [bars.pop(name) for name in alone] == [None] * len(alone)
    routers = ("default", "closed form")
    assert list(bars.items()) == [
        (f"{label}, default", 1.8),
        (f"{label}, closed form", 1.5),
        *((f"{label}, {of} prompts, {router}", None) for of in ("demo", "intents") for router in routers),
    ]
    raw = {figure["name"]: figure["raw"] for figure in figures}
    long, short = raw[f"{label}, default"], raw[f"{label}, intents prompts, default"]
    assert long["prompts"] == 60 and short["prompts"] == 30
    assert long["mean_tokens"] > short["mean_tokens"]
    assert all(len(raw[name]["rounds_s"]["default_route"]) == 21 for name in bars)
    batches = [figure["name"].rpartition(", ")[2] for figure in figures if figure["name"].startswith("route_batch")]
    assert batches == list(routers)


@pytest.mark.nightly
def test_the_bench_measures_four_routers_on_a_sample_of_each_suite(tmp_path: Path) -> None:
    for domain in ("law", "coding"):
        for split, texts in (("train", demo.prompts()[domain]), ("test", demo.held_out()[domain])):
            write_split(tmp_path / "suite" / domain / f"{split}.jsonl", texts)
    (suite,) = suites(tmp_path)
    default, closed, authors, wrapped = measure(suite)
    assert (default.suite, default.report.prompts) == ("suite", 50)
    assert "authors" in authors.router and "defaults" in default.router and "blend" in closed.router
    prompts = {domain: demo.held_out()[domain] for domain in ("coding", "law")}
    sample = {name: sampled(texts) for name, texts in prompts.items()}
    for held, scorer in ((default, None), (closed, Blend())):
        alone = Router.fit({domain: demo.prompts()[domain] for domain in prompts}, scorer=scorer)
        assert held.report == measure_robustness(alone, sample, over_experts=True)
    before, after = (
        {effect.perturbation: effect.accuracy for effect in held.report.effects} for held in (default, wrapped)
    )
    boilerplate = Wrapped("long").name
    assert wrapped.router == FITTED_ON_WRAPPED and after[boilerplate] > before[boilerplate]


def test_a_sample_does_not_depend_on_the_order() -> None:
    texts = demo.prompts()["law"]
    assert sampled(texts, 10) == sampled(texts[::-1], 10) == sampled(texts)[:10]
    assert sorted(sampled(texts)) == sorted(texts)


def write_split(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


@pytest.mark.nightly
def test_bench_robustness(tmp_path: Path) -> None:
    for domain in ("law", "coding"):
        folder = tmp_path / "suites" / "small" / domain
        folder.mkdir(parents=True)
        for split, path in (("train", demo.path_of(domain)), ("test", HELD_OUT / f"{domain}.txt")):
            lines = [json.dumps({"text": line}) for line in path.read_text(encoding="utf-8").splitlines()[:20]]
            (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    kept = tmp_path / "kept.json"
    shown = run("bench", "robustness", "--data", tmp_path / "suites", "--suite", "small", "--save", kept).stdout
    assert [row["suite"] for row in json.loads(kept.read_text(encoding="utf-8"))["rows"]] == ["small"] * 4
    assert "small: authors' code, k=10" in shown and "first 16 tokens" in shown


@pytest.mark.nightly
def test_bench_change_costs(tmp_path: Path) -> None:
    said = run_json("bench", "change-costs", "--size", "3", "8", "--rounds", "1", "--save", tmp_path / "kept.json")
    assert json.loads((tmp_path / "kept.json").read_text()) == said
    bars = {figure["name"]: figure["bar"] for figure in said["figures"]}
    for name, bar in (("closed form", 0.1), ("default", 0.3)):
        for what in ("add", "merge", "remove"):
            assert bars[f"{name}, {what} with the first route / {name}, fit; 3 experts"] == bar
            assert bars[f"{name}, {what} / {name}, fit; 3 experts"] is None
    assert bars["default, fit / closed form, fit; 3 experts"] == 3.0 and bars["tune / default, fit; 3 experts"] == 1.5
    assert bars["default, fit / TF-IDF + logistic regression; 3 experts"] == 0.2
    assert "`ir3de fit` with its proof, 3 experts × 8 prompts" in bars
    assert all(figure["value"] > 0 for figure in said["figures"])


@pytest.mark.nightly
def test_bench_defaults(tmp_path: Path) -> None:
    texts = {name: some[:24] for name, some in demo.prompts().items()}
    suites, intents = tmp_path / "data" / "small", tmp_path / "data" / "intents" / "tiny"
    intents.mkdir(parents=True)
    for split, part in (("train", slice(16)), ("test", slice(16, 24))):
        rows = [{"text": text, "label": name} for name, some in texts.items() for text in some[part]]
        (intents / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        for name in ("law", "coding"):
            (suites / name).mkdir(parents=True, exist_ok=True)
            own = [json.dumps({"text": text}) for text in texts[name][part]]
            (suites / name / f"{split}.jsonl").write_text("\n".join(own))
    said = run_json("bench", "defaults", "--data", tmp_path / "data", "--draws", "1", "--save", tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert said == {name: value for name, value in kept.items() if name != "measures"}
    shown = [(row["data"], row["prompts"], row["router"]) for row in said["rows"]]
    assert shown == [
        (data, prompts, router)
        for data, few in (("tiny", 8), ("small", 30))
        for prompts in (None, few)
        for router in ("default", "closed form")
    ]
    assert set(said["rows"][0]["accuracy"]) == {"test"} and set(said["rows"][4]["accuracy"]) == {"test", "first 32"}
    assert all(row["accuracy"]["test"] > 50 for row in said["rows"])


@pytest.mark.nightly
def test_bench_proof(tmp_path: Path) -> None:
    intents = tmp_path / "data" / "intents" / "tiny"
    intents.mkdir(parents=True)
    parts = {"train": {name: some[:60] for name, some in demo.prompts().items()}, "test": demo.held_out()}
    for split, texts in parts.items():
        rows = [{"text": text, "label": name} for name, some in texts.items() for text in some]
        (intents / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = run_json("bench", "proof", "--data", tmp_path / "data", "--save", tmp_path / "kept.json")
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert said == {name: value for name, value in kept.items() if name != "measures"}
    (row,) = said["rows"]
    assert (row["data"], row["experts"], row["prompts"], row["held_out"]) == ("tiny", 5, 300, 300)
    assert row["foretold"]["low"] - 0.1 < row["test"]["value"] and row["tfidf_test"] < row["test"]["value"]


@pytest.mark.nightly
def test_bench_experts(tmp_path: Path) -> None:
    shown = run("bench", "experts", "--count", "3", "--count", "2", "--save", tmp_path / "kept.json").stdout
    kept = json.loads((tmp_path / "kept.json").read_text(encoding="utf-8"))
    assert [row["experts"] for row in kept["rows"]] == [2, 3]
    assert kept["figures"][0]["name"] == "time of a prompt, 2 to 3 experts"
    shares = {figure["name"] for figure in kept["figures"]}
    for router in ("closed form", "default"):
        assert f"{router}, add an expert with the first route / fit; 3 experts" in shares
    assert all(row["closed_peak_mb"] > 0 and row["peak_mb"] >= row["fit_peak_mb"] for row in kept["rows"])
    assert "2 experts" in shown and "route batch, µs" in shown and "serving peak, MB" in shown


@pytest.mark.nightly
def test_bench_takes_the_folder_or_the_one_above_it(tmp_path: Path) -> None:
    folder = tmp_path / "routerdc7"
    folder.mkdir()
    rows = answers(field="acc")
    for task in BEST:
        mine = [{"text": row["prompt"], **row} for row in rows if row["task"] == task]
        for split, part in (("train", mine[:30]), ("test", mine[30:]), ("ood_test", mine[30:])):
            name = f"{task}_{split}" if split != "ood_test" else f"other_{task}_{split}"
            written(folder / f"{name}.jsonl", part)
    kept = tmp_path / "figures.json"
    told = run_json("bench", "outcome-routing", "--data", tmp_path, "--save", kept)
    assert (
        told["rows"]
        == json.loads(kept.read_bytes())["rows"]
        == [row.to_dict() for row in outcome_routing.measure(folder)]
    )
    by_name = {row["router"]: row for row in told["rows"]}
    assert by_name["oracle"]["known"] == 100 and by_name["a model at random"]["known"] == 50
    assert by_name["ir3de"]["known"] > 80 < by_name["ir3de"]["unseen"]
    assert "known tasks" in run("bench", "outcome-routing", "--data", folder, "--leave-out", "law").stdout
    with pytest.raises(InputError, match="no task"):
        outcome_routing.measure(folder, leave_out=["law", "coding"])


@pytest.mark.nightly
def test_bench_strong_weak(tmp_path: Path) -> None:
    folder = tmp_path / "routellm"
    folder.mkdir()
    rows = [{"text": row["prompt"], **row} for row in answers(number=60)]
    rows = [row if row["task"] == "law" else {**row, "scores": {"llama": 0, "mistral": 0}} for row in rows]
    written(folder / "both_train.jsonl", rows[::2])
    written(folder / "both_test.jsonl", rows[1::2])
    (row,) = run_json("bench", "strong-weak", "--data", tmp_path, "--save", tmp_path / "kept.json")["rows"]
    assert json.loads((tmp_path / "kept.json").read_bytes())["rows"] == [row]
    assert (row["name"], row["strong"], row["prompts"]) == ("both", "llama", 60) and row["apgr"] > 0.7
    shared = calibrate_strong_share(Router.fit_outcomes(rows[::2], guard=False), None, 0.3)
    assert (row["wanted_share"], shared.reached) == (0.3, pytest.approx(0.3, abs=0.01))
    # Most gaps of law lie close to the threshold: with 60 prompts, the share of new ones above it is largely chance.
    found = evaluate_outcomes(shared.router, rows[1::2]).strong_weak
    assert found is not None and (row["reached_share"], row["apgr"]) == (found.strong_share, found.apgr)
    assert (row["error"], row["cpt_50"], row["cpt_80"]) == (found.error, found.cpt_50, found.cpt_80)
    assert "APGR" in run("bench", "strong-weak", "--data", folder).stdout
    with pytest.raises(InputError, match="no set"):
        strong_weak.measure(tmp_path)


@pytest.mark.nightly
def test_the_benchmark_finds_the_same_bits() -> None:
    figures = run_json("bench", "big", "--vocabulary", "600", "--width", "32")["figures"]
    assert figures[0]["raw"]["same_bits"]
    peaks = figures[-1]["raw"]
    assert 0 < peaks["TokenRidge"] <= peaks["Blend"] < peaks["bound_mb"]


def test_the_papers_gram_matrix_gives_every_count_away() -> None:
    """h(h+1)/2 = 300 equations for 200 counts: A = Σ n_v x_v x_vᵀ has one solution."""
    embeddings = np.random.default_rng(0).standard_normal((200, 24)).astype(np.float32)
    histogram = np.random.default_rng(1).geometric(0.01, 200) - 1
    histogram[::3] = 0  # most words never occur, some once
    histogram[1] = 1
    gram = gram_of_a_fit(TokenRidge.paper(), histogram, embeddings)
    assert np.array_equal(counts_from_gram(gram, embeddings), histogram)


class Listening(NumpyArithmetic):
    """The usual arithmetic, that keeps what it is given to solve."""

    def solve(self, A: np.ndarray, B: np.ndarray, penalty: float) -> np.ndarray:
        self.gram = A.copy()
        return super().solve(A, B, penalty)


def gram_of_a_fit(scorer: TokenRidge, histogram: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """A, as the scorer has it solved."""
    with using(listening := Listening()):
        scorer.scores([Statistics("f" * 64, 1, histogram)], embeddings)
    return listening.gram


def test_statistics_of_one_prompt_are_the_prompt() -> None:
    """Which tokens, how often, and by the pairs in which order."""
    text = "My neighbour Zbigniew Kowalczyk owes me 4,711 euros since May."
    statistics = collect([text])
    assert order_from_pairs(statistics) == [Embedding.default().encode(text).tolist()]


def test_the_benchmark_counts_what_is_left_and_recovers_a_real_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "SETTINGS", ((None, 1), (1, 2)))
    monkeypatch.setattr(measured, "CONTENDERS", measured.CONTENDERS[:1])
    monkeypatch.setattr(measured, "UNKNOWNS", 1_200)
    for domain in ("law", "coding"):
        (tmp_path / domain).mkdir()
        for split, prompts in (("train", demo.prompts()), ("test", demo.held_out())):
            lines = [json.dumps({"text": text}) for text in prompts[domain]]
            (tmp_path / domain / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (row,) = run_json("bench", "privacy", "--data", tmp_path)["rows"]
    plain = {domain: collect(demo.prompts()[domain], prompt_sums=False) for domain in ("coding", "law")}
    assert [one["below"]["2"] for one in row["domains"]] == [int((s.histogram == 1).sum()) for s in plain.values()]
    left = {name: collect(demo.prompts()[name], clip=1, min_count=2, prompt_sums=False) for name in plain}
    shares = [left[name].tokens / plain[name].tokens for name in plain]
    assert [one["occurrences"] for one in row["settings"]] == [1.0, pytest.approx(np.mean(shares))]
    router = Router.fit({domain: demo.prompts()[domain] for domain in plain}, keep_sample=False)
    right = [np.mean([d.expert == name for d in router.route_batch(demo.held_out()[name])]) for name in plain]
    (accuracy,) = row["settings"][0]["accuracies"].values()
    assert accuracy == {"test": pytest.approx(100 * np.mean(right)), "ood": None}
    assert (row["recovery"]["unknowns"], row["recovery"]["wrong"]) == (1_200, 0)
    assert measured.recover(plain, unknowns=100) is None
