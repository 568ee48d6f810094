"""bench cold-start: figures that can be worked out by hand, rewordings, and the command on tiny material."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tiny
from commands import complaint, run, run_json, wrong_call
from ir3de import Router
from ir3de.policies import Policy
from ir3de_lab.benchmarks.alternatives import ALTERNATIVES, weigh
from ir3de_lab.benchmarks.cold_start import (
    Findings,
    Fit,
    Size,
    make,
    measure_few,
    measure_limits,
    plan,
    read_sets,
    tabulate_few,
)
from ir3de_lab.benchmarks.contenders import (
    NOT_GIVEN,
    Answers,
    Elsewhere,
    Ir3de,
    Labelled,
    Taught,
    find_others,
    list_contenders,
)
from ir3de_lab.benchmarks.defaults import Material, Texts, draw_few
from ir3de_lab.benchmarks.rewording import FORMAL_CLOSING, FORMAL_OPENING, REWORDINGS, make_formal, replace_words

pytestmark = pytest.mark.usefixtures("plain_terminal")

TRAIN = {name: tiny.sentences(name, 40, seed=0) for name in ("law", "maths")}
TEST = {"law": tiny.sentences("law", 3, seed=1), "maths": tiny.sentences("maths", 9, seed=1)}
OOD = {name: tiny.sentences(name, 6, seed=2) for name in ("law", "maths")}
SUITE = Material("suite", TRAIN, {"test": TEST, "ood": OOD}, by_expert=True)
COOKING = tiny.sentences("cooking", 40, seed=0)
INTENTS = Material("intents", TRAIN, {"test": TEST}, by_expert=False)


@dataclass
class Scripted:
    """Right on so many of the first prompts of each call, sure and wrong on the last one, abstained on two."""

    right: Sequence[int]
    name: str = "scripted"
    missing: str | None = None
    calls: int = 0

    def answer(self, train: Texts, test: Labelled) -> Answers:
        self.calls += 1
        places = np.arange(len(test))
        last = places == len(test) - 1
        return Answers(places < self.right[self.calls - 1], last, places < 2)


def test_shares_of_a_suite_are_means_over_its_domains() -> None:
    # 3 prompts of law and 9 of maths, then 6 and 6 from other sources: 4 right are 3 of law and 1 of maths
    found = measure_few(SUITE, Scripted([4]), seed=0)
    assert found["test"].accuracy == pytest.approx(100 * (3 / 3 + 1 / 9) / 2)
    assert found["test"].abstained == pytest.approx(100 * (2 / 3 + 0 / 9) / 2)
    assert (found["test"].sure_and_wrong, found["ood"].sure_and_wrong) == (0, pytest.approx(100 * (0 + 1 / 6) / 2))
    assert (found["ood"].accuracy, found["ood"].abstained) == (0, 0)
    (alone,) = measure_few(INTENTS, Scripted([4]), seed=0).values()
    assert alone.accuracy == pytest.approx(100 * 4 / 12) and alone.abstained == pytest.approx(100 * 2 / 12)


def test_draws_have_a_mean_and_a_standard_error() -> None:
    contender, findings = Scripted([3, 6, 12]), Findings()
    for fit in plan([INTENTS], [], [contender], ["few"], Size(draws=3)):
        findings.add(make(fit))
    (row,) = tabulate_few([INTENTS], [contender], findings)
    assert row.draws == [25, 50, 100] and (row.prompts, row.split, row.missing) == (8, "test", None)
    assert row.accuracy == pytest.approx(175 / 3)
    # the variance of 25, 50, 100 is (33.3² + 8.3² + 41.7²) / 2 = 1458.3
    assert row.standard_error == pytest.approx((1458 + 1 / 3) ** 0.5 / 3**0.5)
    one = Findings(few={("intents", "scripted"): [measure_few(INTENTS, Scripted([3]), 0)]})
    assert tabulate_few([INTENTS], [contender], one)[0].standard_error is None


def test_draws_are_those_of_the_defaults_and_depend_on_the_seed_alone() -> None:
    seen = []

    class Looking(Scripted):
        def answer(self, train: Texts, test: Labelled) -> Answers:
            seen.append(train)
            return super().answer(train, test)

    for seed in (0, 1, 0):
        measure_few(SUITE, Looking([1]), seed)
    assert seen[0] == seen[2] == draw_few(TRAIN, 30, 0) != seen[1]
    assert all(len(texts) == len(set(texts)) == 30 for texts in seen[0].values())


def test_few_prompts_need_intents_or_other_sources() -> None:
    plain = Material("plain", TRAIN, {"test": TEST}, by_expert=True)
    own = Ir3de("ir3de")
    fits = plan([INTENTS, plain, SUITE], [own], [Scripted([], missing="n/a")], ["few", "all", "limits"], Size(draws=2))
    assert [(fit.part, fit.material.name, fit.seed) for fit in fits] == [
        *(("few", name, seed) for name in ("intents", "suite") for seed in (0, 1)),
        *(("all", name, 0) for name in ("intents", "plain", "suite")),
        *(("limits", name, 0) for name in ("intents", "plain", "suite")),
    ]
    assert {fit.contender.name for fit in fits} == {"ir3de"}


def test_a_teacher_labels_the_prompts_that_were_not_drawn() -> None:
    seen: list[str] = []

    def teach(texts: list[str]) -> list[str]:
        seen.extend(texts)
        return ["law" if text in TRAIN["law"] else "maths" for text in texts]

    contender = replace(Taught("taught", {"embedding": tiny.embedding()}), teacher=cast(str, teach))
    assert measure_few(SUITE, contender, seed=0)["test"].accuracy > 50
    few = draw_few(TRAIN, 30, 0)
    rest = {text for name, texts in TRAIN.items() for text in texts if text not in few[name]}
    assert rest <= set(seen)
    assert {fit.part for fit in plan([SUITE], [contender], [], ["few", "all", "limits"], Size(draws=1))} == {"few"}


def test_a_router_with_an_encoder_is_measured_where_the_encoder_is_installed() -> None:
    own = Ir3de("with encoder", {"encoder": "minilm-l6"})
    parts = ["few", "all", "limits"]
    assert {fit.part for fit in plan([SUITE], [own], [], parts, Size(draws=1))} == set(parts)
    assert plan([SUITE], [replace(own, missing="not installed")], [], parts, Size(draws=1)) == []


def test_each_expert_is_left_out_in_turn_and_its_prompts_are_unknown() -> None:
    suite, own = replace(SUITE, name="reasoning"), Ir3de("tiny", {"embedding": tiny.embedding()})
    more = replace(suite, train={**TRAIN, "cooking": COOKING}, splits={"test": {**TEST, "cooking": COOKING[:10]}})
    fits = plan([INTENTS, more], [own], [], ["unknowns"], Size(left_out=2))
    assert [(fit.material.name, fit.left_out) for fit in fits] == [("reasoning", "law"), ("reasoning", "maths")]
    findings = Findings()
    for fit in fits:
        findings.add(make(fit))
    rows = findings.unknowns["tiny"]
    assert [(row.left_out, row.unknown) for row in rows] == [(name, len(TEST[name])) for name in ("law", "maths")]
    router = Router.fit({name: texts for name, texts in more.train.items() if name != "law"}, **own.options)
    found = router.route_batch(TEST["law"])
    assert rows[0].told == pytest.approx(100 * sum(one.abstained for one in found) / len(found))


def test_ir3de_counts_what_its_decisions_say() -> None:
    contender = Ir3de("tiny", {"embedding": tiny.embedding()})
    test = [(name, text) for name, texts in TEST.items() for text in texts]
    swapped = [("law" if name == "maths" else "maths", text) for name, text in test]
    found, wrong = contender.answer(TRAIN, test), contender.answer(TRAIN, swapped)
    decisions = Router.fit(TRAIN, embedding=tiny.embedding()).route_batch([text for _, text in test])
    right = [decision.best == name for decision, (name, _) in zip(decisions, test, strict=True)]
    assert found.right.tolist() == (~wrong.right).tolist() == right
    sure = [(decision.confidence or 0) > 0.9 for decision in decisions]
    assert wrong.sure_and_wrong is not None and found.abstained is not None
    assert wrong.sure_and_wrong.tolist() == [a and b for a, b in zip(sure, right, strict=True)] and any(sure)
    assert found.abstained.tolist() == [decision.abstained for decision in decisions]


def test_limits_count_abstentions_beside_those_on_the_originals() -> None:
    fitted = Router.fit(TRAIN, embedding=tiny.embedding())
    router = fitted.with_policy(Policy(threshold=0.9))  # low enough for some prompts, too high for others
    rows = {row.kind: row for row in measure_limits(SUITE, "tiny", router)}
    assert list(rows) == ["test prompts", "other sources", *REWORDINGS]

    def count(reword: Any, texts: list[str]) -> float:
        return 100 * sum(router.route(reword(text)).abstained for text in texts) / len(texts)

    before = {name: count(str, TEST[name]) for name in TEST}
    others = {name: count(str, OOD[name]) for name in OOD}
    assert rows["test prompts"].abstained == pytest.approx(sum(before.values()) / 2)
    assert rows["other sources"].worst == pytest.approx(max(others.values()))
    assert others[rows["other sources"].worst_domain] == max(others.values())
    assert rows["other sources"].over_originals is None
    for kind, reword in REWORDINGS.items():
        gaps = {name: count(reword, TEST[name]) - before[name] for name in TEST}
        assert rows[kind].over_originals == pytest.approx(sum(gaps.values()) / 2)
        assert rows[kind].worst == pytest.approx(max(gaps.values()))
    assert any(rows[kind].over_originals for kind in REWORDINGS)


def test_a_rewording_keeps_the_rest_of_the_prompt() -> None:
    assert replace_words("Buy bigger, big or BIG? get_big(x) Ich suche 你好") == (
        "Purchase bigger, large or LARGE? get_big(x) Ich suche 你好"
    )
    letter = make_formal("Can you tell me why it’s late? I'm sorry, please")
    body = letter.removeprefix(FORMAL_OPENING).removesuffix(FORMAL_CLOSING)
    assert body == "Would you be able to kindly inform me why it is late? I am sorry, kindly"
    for name, reword in REWORDINGS.items():
        assert reword("Solve 3x = 12.") == reword("Solve 3x = 12."), name
        assert "3x = 12." in reword("Solve 3x = 12.") != "Solve 3x = 12.", name
    texts = [f"prompt {number}" for number in range(100)]
    openings = {REWORDINGS["long-winded"](text).partition(":")[0] for text in texts}
    assert len(openings) == 4


def test_routers_of_others_say_what_they_lack(tmp_path: Path) -> None:
    others = [Elsewhere(one, None, None, tmp_path) for one in find_others()]
    assert [one.name for one in others] == ["MiniLM + logistic regression", "semantic-router, MiniLM"]
    rows = tabulate_few([INTENTS], others, Findings())
    assert [(row.accuracy, row.missing) for row in rows] == [(None, NOT_GIVEN)] * 2


@pytest.mark.nightly
@pytest.mark.slow
def test_a_router_of_others_answers_in_its_environment_once(tmp_path: Path) -> None:
    """TF-IDF is installed where the tests run; those with an encoder need environments of their own."""
    tfidf = next(one for one in ALTERNATIVES if one.script == "use_tfidf.py")
    contender = Elsewhere(tfidf, weigh(Path(sys.executable)), None, tmp_path)
    found = measure_few(SUITE, contender, seed=0)
    assert found["test"].accuracy > 60 and found["test"].abstained is None is found["test"].sure_and_wrong
    kept = [path for path in tmp_path.iterdir() if "request" not in path.name]
    document = json.loads(kept[0].read_text("utf-8"))
    document["answers"][0]["said"] = [None] * len(document["answers"][0]["said"])  # an abstention counts as wrong
    kept[0].write_text(json.dumps(document), "utf-8")
    assert len(kept) == 1 and measure_few(SUITE, contender, seed=0)["test"].accuracy == 0
    measure_few(SUITE, contender, seed=1)
    assert len(list(tmp_path.iterdir())) == 4  # another draw is another request


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without any encoder
    folder = tmp_path / "data"
    for split, texts in (("train", TRAIN), ("test", TEST), ("ood", OOD)):
        rows = [{"text": text, "label": name} for name, some in texts.items() for text in some]
        write_rows(folder / "intents" / "small" / f"{split}.jsonl", rows)
        for name, some in texts.items():
            write_rows(folder / "suite" / name / f"{split}.jsonl", [{"text": text} for text in some])
    return folder


@pytest.fixture
def embedding(tmp_path: Path) -> Path:
    return tiny.embedding().save(tmp_path / "embedding")


def test_quick_reads_little_and_the_usual_size_everything(data: Path) -> None:
    small, suite = read_sets(data, Size())
    assert (small.train, suite.splits) == (TRAIN, {"test": TEST, "ood": OOD})
    (short, _) = read_sets(data, Size(experts=1, training=5, test=2))
    assert {name: len(texts) for name, texts in short.train.items()} == {"law": 5}
    assert {name: len(texts) for name, texts in short.splits["test"].items()} == {"law": 2}
    assert set(short.train["law"]) < set(TRAIN["law"])


@pytest.mark.nightly
def test_the_command_prints_every_part_and_keeps_the_figures(
    data: Path, embedding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # where no encoder is installed
    kept = tmp_path / "kept.json"
    result = run("bench", "cold-start", "--data", data, "--quick", "--embedding", embedding, "--save", kept)
    for title in ("8 prompts an expert", "30 prompts a domain", "All prompts", "Limits", "suite, other sources"):
        assert title in result.stdout
    shown = " ".join(result.stdout.split())  # where a line ends depends on the length of the path
    assert shown.count(f"n/a: semantic-router, MiniLM {NOT_GIVEN}") == 1
    assert shown.count("taught by minilm-l6 the encoder 'minilm-l6' is not installed") == 1
    assert "8 of 8 fits made" in result.stderr and "a minute" in result.stderr
    said = json.loads(kept.read_text("utf-8"))
    assert (said["quick"], said["draws"]) == (True, 2)
    measured = [row for row in said["few"] if row["missing"] is None]
    assert [(row["data"], row["split"], row["prompts"], len(row["draws"])) for row in measured] == [
        ("small", "test", 8, 2), ("suite", "test", 30, 2), ("suite", "ood", 30, 2)
    ]  # fmt: skip
    assert len(said["few"]) == 15 and all(row["router"] == f"ir3de, {embedding}" for row in measured)
    assert [set(row["accuracy"]) for row in said["all"]] == [{"test"}, {"test", "ood", "first 32"}]
    kinds = [[row["kind"] for row in said["limits"] if row["data"] == name] for name in ("small", "suite")]
    assert kinds == [["test prompts", *REWORDINGS], ["test prompts", "other sources", *REWORDINGS]]


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forks")
def test_the_figures_do_not_depend_on_the_number_of_processes(data: Path, embedding: Path) -> None:
    given = ["bench", "cold-start", "--data", data, "--quick", "--only", "limits", "--embedding", embedding]
    assert run_json(*given)["limits"] == run_json(*given, "--processes", "2")["limits"]


def test_json_has_one_part_and_a_row_for_each_embedding(data: Path, embedding: Path) -> None:
    given = ["--embedding", embedding, "--embedding", f"{embedding}/"]
    said = run_json("bench", "cold-start", "--data", data, "--quick", "--only", "all", *given)
    assert [row["router"] for row in said["all"]] == [f"ir3de, {one}" for one in given[1::2]] * 2
    assert said["few"] == said["limits"] == []
    again = list_contenders([str(embedding)], "not installed")[0]
    findings = make(Fit("all", read_sets(data, Size(draws=2, experts=6, training=60, test=10))[0], again))
    assert findings.all[0].accuracy == said["all"][0]["accuracy"]


def test_bad_input_is_named(data: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    expected = "expected intents/{set}/train.jsonl and test.jsonl, or {suite}/{domain}/train.jsonl"
    assert expected in complaint("bench", "cold-start", "--data", empty)
    assert "'many' is not one of 'few', 'all', 'limits', 'unknowns'" in wrong_call(
        "bench", "cold-start", "--data", data, "--only", "many"
    )
    for source, reason in (("default@99", "version 99"), ("nowhere", "no embedding at 'nowhere'")):
        assert reason in complaint("bench", "cold-start", "--data", data, "--embedding", source)
