"""Advice for routers with few prompts: figures from held-out prompts, the weakest expert first, and one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiny
from commands import run, run_json
from ir3de import Router
from ir3de.corpora import import_routes
from ir3de.evaluation import advise, prove
from ir3de.evaluation.advice import _list_helps


def fit(texts: dict[str, list[str]], **options: object) -> Router:
    return Router.fit(texts, embedding=tiny.embedding(), **options)  # type: ignore[arg-type]


def test_the_figures_are_those_of_the_kept_prompts() -> None:
    router = fit(tiny.domain_texts(6))
    advice, kept = advise(router), router.route_kept()
    assert advice is not None and advice.accuracy is not None
    right = [one.decision.best == one.expert for one in kept]
    assert advice.accuracy.value == pytest.approx(np.mean(right), abs=1e-6) and advice.held_out == len(kept) == 18
    assert advice.accuracy.low < advice.accuracy.value <= advice.accuracy.high
    assert (advice.fewest, advice.most, advice.unmeasured) == (6, 6, ())
    assert f"about {100 * advice.accuracy.value:.0f} % right on new prompts" in str(advice) and "\n" not in str(advice)


def test_a_proof_gives_its_own_figures() -> None:
    router = fit(tiny.domain_texts(12))
    proof = prove(router=router, contenders=False)
    advice = advise(router, proof)
    assert advice is not None and (advice.accuracy, advice.held_out) == (proof.accuracy, proof.prompts)


def test_thirty_prompts_of_each_expert_and_a_single_expert_get_no_advice() -> None:
    assert advise(fit(tiny.domain_texts(30))) is None and advise(fit(tiny.domain_texts(29))) is not None
    assert advise(fit({"law": tiny.sentences("law", 3)})) is None


def test_the_weakest_expert_comes_first_with_the_one_it_is_confused_with() -> None:
    confusion = np.array([[8, 0, 0], [1, 4, 3], [0, 1, 7]])
    sizes, none = np.array([8, 8, 8]), np.zeros(3, bool)
    prompts, described = _list_helps(("a", "b", "c"), sizes, none, confusion)
    assert prompts.experts == ("b", "c", "a") == described.experts and prompts.confused_with == "c"
    assert str(prompts).endswith("first of b, which is confused with c") and prompts.prompts == 22
    assert prompts.gain is not None and described.gain is not None and 0 < described.gain < prompts.gain < 6 / 24
    (alone,) = _list_helps(("a", "b", "c"), sizes, ~none, confusion)
    assert alone.kind == "prompts" and alone.gain is not None and alone.gain < prompts.gain


def test_an_expert_that_could_not_be_measured_is_named() -> None:
    router = fit({**tiny.domain_texts(8), "law": [], "cooking": tiny.sentences("cooking", 1)},
                 descriptions={"law": "contracts and courts"})  # fmt: skip
    advice = advise(router)
    assert advice is not None and advice.unmeasured == ("law", "cooking") and advice.fewest == 0
    assert "without law, cooking" in str(advice) and "from 0 to 8 prompts an expert" in str(advice)


def test_nothing_is_claimed_where_nothing_can_be_held_out() -> None:
    one = advise(fit(tiny.domain_texts(1)))
    assert one is not None and one.accuracy is None and {own.gain for own in one.helps} == {None}
    assert "cannot be measured from 1 prompt an expert" in str(one)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    rows = [{"text": text, "team": name} for name, texts in tiny.domain_texts(6).items() for text in texts]
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.mark.usefixtures("plain_terminal")
def test_the_command_prints_one_line_and_json_has_the_fields(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IR3DE_NO_PROOF", raising=False)
    embedding = tiny.embedding().save(tmp_path / "embedding")
    how = ["--label", "team", "--embedding", embedding]
    said = run("fit", tmp_path / "one", few, *how)
    assert "few prompts: about " in said.stderr + said.stdout
    found = run_json("fit", tmp_path / "two", few, *how)["advice"]
    assert found["fewest"] == 6 and found["helps"][0]["kind"] == "prompts" and found["sentence"].startswith("about ")
    assert found["helps"][-1]["kind"] == "teacher" and "--teacher minilm-l6" in found["sentence"]
    assert "advice" not in run_json("fit", tmp_path / "three", few, *how, "--no-proof")


def test_imported_routes_get_advice_too(tmp_path: Path) -> None:
    routes = [{"name": name, "utterances": texts} for name, texts in tiny.domain_texts(4).items()]
    path = tmp_path / "routes.json"
    path.write_text(json.dumps({"encoder_type": "openai", "encoder_name": "small", "routes": routes}), "utf-8")
    advice = advise(fit(dict(import_routes(path).texts)))
    assert advice is not None and (advice.fewest, advice.held_out) == (4, 12)
