"""--outcomes on the command line: fit, add, eval and inspect; bad rows named by their line."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from answered_prompts import BEST, answers, written
from commands import complaint, quick, run, run_json, wrong_call
from ir3de import Embedding, Router
from ir3de.corpora import examples as demo

GIVEN_UP = 10, ("--embedding", "default@1")  # a seed of noise that misleads the shrinkage on this embedding


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "answers.jsonl", answers())


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A router of these answers, and what the command said about it."""
    folder = tmp_path_factory.mktemp("outcomes")
    result = run("fit", folder / "router", "--outcomes", written(folder / "answers.jsonl", answers()))
    return folder / "router", result.stdout


@pytest.fixture(scope="module")
def fitted(told: tuple[Path, str]) -> Path:
    return told[0]


@pytest.fixture(scope="module")
def small() -> tuple[str, ...]:
    """Options for tests that do not look at how good a router is."""
    return quick()[2:]


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(fitted, tmp_path / "router"))


def test_fit_says_what_it_learnt_and_what_it_chose(told: tuple[Path, str], file: Path, tmp_path: Path) -> None:
    fitted, shown = told
    for said in ("llama", "mistral", "law", "coding", "squared error", "chosen", "fitted 2 models from 160 scores"):
        assert said in shown
    found = run_json("fit", tmp_path / "two", "--outcomes", file, "--serving", tmp_path / "small")
    assert [expert["name"] for expert in found["experts"]] == ["llama", "mistral"]
    assert found["outcomes"]["tasks"] == ["coding", "law"]
    assert {pull for pull, _ in found["outcomes"]["tried"]["pull"]} >= {found["scorer"]["pull"]}
    assert (tmp_path / "small" / "router.json").is_file()
    assert Router.load(fitted).outcomes == Router.fit_outcomes(answers()).outcomes


@pytest.mark.nightly
def test_fit_and_inspect_compare_routing_with_the_best_single_model(
    told: tuple[Path, str], file: Path, tmp_path: Path, small: tuple[str, ...]
) -> None:
    said = " ".join(told[1].split())
    assert re.search(r"routing gains \+0\.[34]", said) and "over the best single model on 80 held-out prompts" in said
    seed, on = GIVEN_UP
    draw = random.Random(seed)
    noise = [{**row, "scores": {model: draw.gauss(0, 1) for model in "abcd"}} for row in answers()]
    path = written(tmp_path / "noise.jsonl", noise)
    for shown in (run("fit", tmp_path / "noise", "--outcomes", path, *on), run("inspect", tmp_path / "noise")):
        said = " ".join(shown.stdout.split())
        assert "routing was given up, because it scored 0.0" in said
        assert "below the best single model on 80 held-out prompts: all prompts go to" in said
    found = run_json("fit", tmp_path / "json", "--outcomes", path, *on)
    assert found["reason"].startswith("it scored") and found["scorer"]["pull"] is found["scorer"]["strength"] is None
    pair = ("--strong-share", "0.3", "--strong", "a", "--weak", "b")
    assert "fit --strong-share" in complaint("calibrate", tmp_path / "noise", "--prompts", file, *pair)
    assert "prompts go to a" in run("fit", tmp_path / "share", "--outcomes", path, *pair, *on).stdout
    one = written(tmp_path / "one.jsonl", answers()[:1])
    said = " ".join(run("fit", tmp_path / "one", "--outcomes", one, *small).stdout.split())
    assert "routing was not compared with the best single model: there are too few prompts to hold any out" in said


def test_packed_files_several_files_and_other_fields(tmp_path: Path, small: tuple[str, ...]) -> None:
    rows = answers(field="acc")
    halves = [written(tmp_path / name, part) for name, part in (("a.jsonl.gz", rows[:30]), ("b.jsonl", rows[30:]))]
    named = [argument for half in halves for argument in ("--outcomes", half)]
    run("fit", tmp_path / "router", *named, "--score-field", "acc", "--default", "mistral", *small)
    router = Router.load(tmp_path / "router")
    assert router.outcomes == Router.fit_outcomes(answers(), embedding=Embedding.load(small[-1])).outcomes
    assert router.default == "mistral"


def test_route_and_explain_show_scores_not_percentages(router: Path) -> None:
    shown = run("route", router, "Is this contract void?").stdout
    assert "llama" in shown.splitlines()[0] and "%" not in shown
    assert "llama" in run("explain", router, "Is this contract void?").stdout
    told = run_json("route", router, "Is this contract void?")["ir3de"]
    assert told["expert"] == "llama" and told["ranking"][0]["expected_score"] == told["expected_score"]
    assert told["confidence"] is None


@pytest.mark.slow
@pytest.mark.nightly
def test_add_is_the_fit_from_all_rows(router: Path, tmp_path: Path) -> None:
    later = written(tmp_path / "later.jsonl", answers(models=("gemma",)))
    assert "3 models" in run("add", router, "--outcomes", later).stdout
    every = answers(models=("llama", "mistral", "gemma"))
    assert Router.load(router).outcomes == Router.fit_outcomes(every).outcomes
    told = complaint("add", router, "--outcomes", later)
    assert "'gemma' is an expert already" in told and "--merge" in told and "`ir3de remove`" in told
    assert run_json("add", router, "--outcomes", later, "--merge")["experts"][0]["prompts"] == 160
    run("remove", router, "gemma")
    assert Router.load(router).experts == ("llama", "mistral")


def test_eval_compares_with_simpler_ways(router: Path, tmp_path: Path) -> None:
    rows = written(tmp_path / "more.jsonl", answers(models=("llama", "mistral", "gemma")))
    told = run_json("eval", router, "--outcomes", rows)
    overall = told["overall"]
    assert overall["chosen"] > 0.9 > overall["best_single"] == overall["random"] == 0.5
    assert overall["oracle"] == 1.0 and set(told["tasks"]) == set(BEST) and told["unknown_models"] == ["gemma"]
    result = run("eval", router, "--outcomes", rows)
    assert "mean score" in result.stdout and "oracle" in result.stdout and "gemma" in result.stderr


def test_costs_go_with_outcomes(file: Path, tmp_path: Path, small: tuple[str, ...]) -> None:
    router = tmp_path / "router"
    run("fit", router, "--outcomes", file, "--price", "llama=2", "--price", "mistral=0", *small)
    run("add", router, "--outcomes", written(tmp_path / "g.jsonl", answers(models=("gemma",))), "--price", "gemma=1")
    prices = {name: cost.price for name, cost in Router.load(router).policy.costs.items()}
    assert prices == {"llama": 2, "mistral": 0, "gemma": 1}
    assert run_json("route", router, "Is this contract void?")["ir3de"]["expert"] == "llama"
    dear = run("route", router, "Is this contract void?", "--weight", "price=10").stdout
    assert dear.split("─")[-1].split()[0] == "mistral" and "%" not in dear
    assert run_json("eval", router, "--outcomes", file, "--weight", "price=10")["choices"]["mistral"] == 80


def test_inspect_shows_the_means(router: Path) -> None:
    shown = " ".join(run("inspect", router).stdout.split())
    assert "fitted from outcomes" in shown and "Shrinkage" in shown and "coding" in shown
    assert run_json("inspect", router)["outcomes"]["tasks"] == ["coding", "law"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "a", "scores": {"llama": NaN}}', "must be a finite number, found nan"),
        ('{"text": "a", "scores": {"llama": "high"}}', "must be a finite number"),
        ('{"text": "a", "scores": 3}', "mapping of model to number"),
        ('{"text": "a", "acc": {"llama": 3}}', "no 'scores': found 'text'"),
        ('{"text": "a", "task": 3, "scores": {"llama": 3}}', "'task' must be a str"),
        ('{"scores": {"llama": 3}}', "text"),
        ("{", "JSON"),
    ],
)
def test_bad_rows_are_named_by_their_line(line: str, said: str, file: Path, tmp_path: Path) -> None:
    file.write_text(file.read_text() + "\n" + line + "\n")
    told = complaint("fit", tmp_path / "router", "--outcomes", file)
    assert f"{file}:82: " in told and said in told
    assert not (tmp_path / "router").exists()


def test_what_does_not_go_together_is_a_wrong_call(file: Path, router: Path, tmp_path: Path) -> None:
    out = tmp_path / "other"
    assert "NAME=PATH cannot be combined with --outcomes" in wrong_call("fit", out, f"law={file}", "--outcomes", file)
    assert "--scorer cannot be combined" in wrong_call("fit", out, "--outcomes", file, "--scorer", "paper")
    assert "--score-field belongs to --outcomes" in wrong_call("fit", out, f"law={file}", "--score-field", "acc")
    assert "--outcomes" in wrong_call("fit", out) and "--outcomes" in wrong_call("eval", router)
    assert "--errors cannot be combined" in wrong_call("eval", router, "--outcomes", file, "--errors", "3")
    assert not out.exists()


def test_routers_of_the_other_kind_say_so(file: Path, router: Path, tmp_path: Path) -> None:
    texts = written(tmp_path / "texts.jsonl", [{"text": text} for text in demo.prompts()["law"]])
    run("fit", tmp_path / "labels", f"law={texts}", "-q", *quick())
    assert "added from their texts (NAME=PATH" in complaint("add", tmp_path / "labels", "--outcomes", file)
    assert "models are added from rows with their scores (--outcomes" in complaint("add", router, f"law={texts}")
    assert "eval --outcomes" in complaint("eval", router, f"llama={texts}")
    assert "expected score, not a probability" in complaint("calibrate", router, f"llama={texts}")


def test_a_share_of_strong_calls(file: Path, tmp_path: Path) -> None:
    router = tmp_path / "router"
    shown = run("fit", router, "--outcomes", file, "--strong-share", "0.5", "--strong", "llama").stdout
    assert "50.0 % of 80 prompts go to llama" in shown
    share = run_json("inspect", router)["policy"]["strong_share"]
    assert (share["strong"], share["weak"], share["share"]) == ("llama", "mistral", 0.5)
    assert "50.0 % to llama, the others to mistral" in " ".join(run("inspect", router).stdout.split())
    new = [
        {"text": text, "task": task, "scores": {model: float(BEST[task] == model) for model in ("llama", "mistral")}}
        for task in BEST
        for text in demo.held_out()[task]
    ]
    told = run_json("eval", router, "--outcomes", written(tmp_path / "new.jsonl", new))
    assert told["strong_weak"]["strong_share"] == pytest.approx(0.5, abs=0.1)
    assert told["gain"]["lowest"] <= told["gain"]["mean"]
    told = run_json("calibrate", router, "--prompts", file, "--strong-share", "0.25", "--strong", "llama")
    assert told["saved"] and told["reached"] == 0.25
    assert run_json("calibrate", router, "--prompts", file, "--strong-share", "0.75", "--dry-run")["saved"] is False
    assert "25.0 % to llama" in run("policy", router).stdout
    warned = run("route", router, "Prove it.", "--weight", "price=1").stderr
    assert "the strong share of this router decides, so weights change nothing" in warned
    assert "found both" in complaint("policy", router, "--price", "llama=2", "--price", "*=1", "--weight", "price=1")
    assert "strong_share" not in run_json("policy", router, "--no-strong-share")


def test_eval_shows_gain_and_apgr(router: Path, tmp_path: Path) -> None:
    rows = [row if row["task"] == "law" else {**row, "scores": {"llama": 0, "mistral": 0}} for row in answers()]
    shown = run("eval", router, "--outcomes", written(tmp_path / "law.jsonl", rows)).stdout
    for said in ("gain over it", "(95 %)", "APGR", "CPT(50 %)", "CPT(80 %)", "0.5 is random"):
        assert said in shown
    named = run("eval", router, "--outcomes", tmp_path / "law.jsonl", "--strong", "mistral", "--weak", "llama").stdout
    assert "the strong model is not better" in named


def test_wrong_shares_are_refused(file: Path, router: Path, tmp_path: Path) -> None:
    out = tmp_path / "other"
    assert "must lie between 0 and 1, found 1.5" in complaint("fit", out, "--outcomes", file, "--strong-share", "1.5")
    assert "belong to --strong-share" in wrong_call("fit", out, "--outcomes", file, "--strong", "llama")
    assert "belong to --outcomes" in wrong_call("fit", out, f"law={file}", "--strong-share", "0.3")
    assert "belong to --outcomes" in wrong_call("eval", router, f"law={file}", "--strong", "llama")
    assert "belong together" in wrong_call("calibrate", router, "--strong-share", "0.3")
    assert "cannot be combined" in wrong_call("calibrate", router, "--strong-share", "0.3", f"law={file}")
    assert "Missing argument" in wrong_call("calibrate", router)
    told = complaint("calibrate", router, "--prompts", file, "--strong-share", "0.3", "--strong", "gpt")
    assert "no model 'gpt'" in told
    assert not out.exists()
