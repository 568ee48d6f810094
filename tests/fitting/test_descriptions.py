"""Experts that begin with a description, alone or beside prompts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from commands import complaint, quick, run, run_json, wrong_call
from demo_router import demo_router
from ir3de import Contribution, Router, collect
from ir3de.corpora import examples
from ir3de.embedding import Embedding
from ir3de.errors import InputError, UnknownExpertError
from ir3de.files.ledger import Entry
from ir3de.fitting.inputs import list_carriers
from ir3de.scorers import Blend

WORDS = "recipes, baking, roasting, kitchen tools, ingredients, meals"
COOKING = [
    "How long do I roast a chicken in the oven?",
    "My bread dough does not rise. Which flour should I buy?",
    "Which pan is best for frying eggs?",
    "What can I use instead of butter when baking a cake?",
    "Give me a recipe for tomato soup with fresh basil.",
    "How do I keep rice from sticking to the pot?",
    "What temperature should the oven have for pizza?",
    "Which ingredients go into a curry?",
]


def with_words(texts: list[str]) -> list[str]:
    return [*texts, *(f"{carrier} {WORDS}" for carrier in list_carriers())]


@pytest.fixture(scope="module")
def demo() -> Router:
    return demo_router()


def accuracy(router: Router) -> float:
    held_out = examples.held_out()
    right = [np.mean(router.predict(texts) == expert) for expert, texts in held_out.items()]
    return float(np.mean(right))


def test_a_description_alone_makes_an_expert(demo: Router) -> None:
    texts = {**examples.prompts(), "cooking": []}
    router = Router.fit(texts, descriptions={"cooking": WORDS}, scorer=Blend())
    assert (router.predict(COOKING) == "cooking").mean() >= 0.5
    assert accuracy(router) > accuracy(demo) - 0.03
    assert router.calibrated


# the law of change, byte for byte ------------------------------------------------------------------------------------

TEXTS = {name: tiny.sentences(name, 14, seed=5) for name in ("maths", "law")}


def fit(**options: object) -> Router:
    return Router.fit(TEXTS, embedding=tiny.embedding(), **options)  # type: ignore[arg-type]


def saved(router: Router, folder: Path) -> dict[str, bytes]:
    """The files by name. Names hold hashes of their content; the ledger tells of the way here, and the header of it."""
    router.save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".safetensors"}


def test_added_and_removed_it_was_never_there(tmp_path: Path) -> None:
    router, plain = fit(), fit()
    router.add("cooking", ["boil the egg"], description=WORDS)
    router.remove("cooking")
    assert saved(router, tmp_path / "a") == saved(plain, tmp_path / "b")


def test_the_order_in_which_it_is_given_does_not_matter(tmp_path: Path) -> None:
    whole = fit(descriptions={"law": WORDS})
    merged = fit()
    merged.merge("law", description=WORDS, scorer="choose")
    begun = Router.fit({**TEXTS, "law": []}, descriptions={"law": WORDS}, embedding=tiny.embedding())
    begun.merge("law", TEXTS["law"], scorer="choose")
    first = saved(whole, tmp_path / "whole")
    assert first == saved(merged, tmp_path / "merged") == saved(begun, tmp_path / "begun")


def test_it_counts_as_the_prompts_it_is_written_into() -> None:
    router = fit(descriptions={"law": WORDS})
    expected = collect(with_words(TEXTS["law"]), embedding=tiny.embedding())
    assert router.statistics["law"] == expected
    sample = router.statistics["law"].sample
    assert sample is not None and len(sample) == len(set(TEXTS["law"]))  # none of the words in it


def test_it_stays_when_a_contribution_goes(tmp_path: Path) -> None:
    given = Contribution.of(collect(TEXTS["law"], embedding=tiny.embedding(), keep_sample=True))
    router = fit()
    router.add("cooking", given, description=WORDS)
    router.remove("cooking", contribution=given.id)
    other = fit()
    other.add("cooking", description=WORDS)
    assert saved(router, tmp_path / "a") == saved(other, tmp_path / "b")


def test_the_ledger_says_so(tmp_path: Path) -> None:
    router = fit(descriptions={"law": WORDS})
    router.save(tmp_path / "router")
    given = [entry.change.given for entry in Router.load(tmp_path / "router").history]
    assert [(one.prompts, one.is_description) for one in given if one] == [(14, False), (20, True), (14, False)]


def test_entries_without_a_description_are_as_before(tmp_path: Path) -> None:
    router = fit(descriptions={"law": WORDS})
    router.save(tmp_path / "router")
    texts, words, _ = (entry.to_dict() for entry in router.history)
    assert "kind" not in texts["contribution"] and words["contribution"]["kind"] == "description"
    assert Entry.from_dict(words).is_intact and Entry.from_dict(texts).is_intact


# what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", " \n", None, 7])
def test_an_empty_description_is_refused(words: str) -> None:
    with pytest.raises(InputError, match="the description of 'law' must be a few words, such as"):
        fit(descriptions={"law": words}) if words is not None else fit(descriptions={"law": 0})


def test_a_description_of_no_expert_is_refused() -> None:
    with pytest.raises(UnknownExpertError, match="'laws' is described, but is not among the experts maths, law"):
        fit(descriptions={"laws": WORDS})
    with pytest.raises(InputError, match="descriptions must map experts' names to text, found str"):
        fit(descriptions="law")
    with pytest.raises(UnknownExpertError, match="no expert 'laws'"):
        fit().merge("laws", description=WORDS)


def test_a_description_without_a_known_token_is_refused(tiny_embeddings: dict[str, Embedding]) -> None:
    with pytest.raises(InputError, match=r"the description of 'law' has no token that the embedding .* knows: '字'"):
        Router.fit(TEXTS, descriptions={"law": "字"}, embedding=tiny_embeddings["WordPiece"])


def test_an_expert_with_neither_is_refused() -> None:
    with pytest.raises(InputError, match="expert 'cooking' has no text"):
        fit().add("cooking")


def test_a_router_from_outcomes_takes_no_description() -> None:
    router = Router.fit_outcomes([{"text": "a b", "scores": {"x": 1.0, "y": 0.0}}])
    with pytest.raises(InputError, match="'z' needs rows with its scores, found a description"):
        router.add("z", description=WORDS)


# the command line ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_terminal")
@pytest.mark.nightly
def test_describe_on_the_command_line(tmp_path: Path, law_file: Path, router: Path) -> None:
    said = run_json("fit", tmp_path / "r", f"law={law_file}", "cooking", "--describe", f"cooking={WORDS}", *quick())
    assert [(one["name"], one["description"]) for one in said["counted"]] == [("law", None), ("cooking", WORDS)]
    shown = run("add", router, "cooking", "--describe", f"cooking={WORDS}").stdout
    assert "cooking (described)" in shown
    assert "description" in run("ledger", router).stdout
    assert run_json("route", router, COOKING[6])["ir3de"]["expert"] == "cooking"
    run("add", router, "--merge", "law", "--describe", "law=contracts, courts, tenancy")
    kinds = [entry["contribution"].get("kind") for entry in run_json("ledger", router)["entries"][-2:]]
    assert kinds == ["description", "description"]


@pytest.mark.usefixtures("plain_terminal")
def test_what_the_command_line_refuses(tmp_path: Path, law_file: Path, router: Path) -> None:
    out, law = tmp_path / "r", f"law={law_file}"
    assert "correct it, or name tax or tax=PATH too" in wrong_call("fit", out, law, "--describe", "tax=levies")
    assert "or --describe tax=" in wrong_call("fit", out, law, "tax")
    assert "expected name=words, found 'law= '" in wrong_call("fit", out, law, "--describe", "law= ")
    twice = ("--describe", "law=courts", "--describe", "law=judges")
    assert "'law' is described twice" in wrong_call("fit", out, law, *twice)
    assert "--describe cannot be combined with --outcomes" in wrong_call(
        "fit", out, "--outcomes", law_file, "--describe", "law=courts"
    )
    assert "is an expert already" in complaint("add", router, "law", "--describe", "law=courts")
