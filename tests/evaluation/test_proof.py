"""A proof never sees a prompt that it is measured on; copies stay together; few prompts are said to be too few."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Router
from ir3de.errors import InputError, UnknownExpertError
from ir3de.evaluation import Proof, evaluate, prove
from ir3de.evaluation.folds import NEVER, DealtPrompts, deal_prompts
from ir3de.policies import Policy
from ir3de.scorers import Blend, Logistic, logistic
from ir3de.scorers.solver import fit_logistic
from ir3de.statistics import collect
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import hash_text

NUMBERS = st.lists(st.integers(0, 25), min_size=1, max_size=40)  # of prompts, so that some occur several times


def statistics_of(texts: Mapping[str, list[str]]) -> dict[str, Statistics]:
    return {name: collect(own, embedding=tiny.embedding(), keep_sample=True) for name, own in texts.items()}


def deal(texts: Mapping[str, list[str]], folds: int = 5) -> DealtPrompts:
    return deal_prompts(statistics_of(texts), tiny.embedding(), folds)


@pytest.fixture(scope="module")
def proof() -> Proof:
    return prove(tiny.domain_texts(30), embedding=tiny.embedding(), scorer=Blend(), contenders=False)


# folds --------------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(NUMBERS, NUMBERS, st.integers(2, 7))
def test_copies_lie_in_one_fold_and_every_expert_keeps_prompts(one: list[int], other: list[int], folds: int) -> None:
    texts = {"law": [f"law number {n}" for n in one], "maths": [f"law number {n}" for n in other] + ["x + 3"]}
    dealt = deal(texts, folds)
    fold_of: dict[int, set[int]] = {}
    for value, fold in zip(dealt.hashes.tolist(), dealt.folds.tolist(), strict=True):
        fold_of.setdefault(value, set()).add(fold)
    assert all(len(found) == 1 for found in fold_of.values())
    for fold in range(dealt.count):
        left = dealt.train_without(dealt.hold_out(fold))
        assert all(own.tokens for own in left.values())
        assert all(own.sample is not None and len(own.sample) for own in left.values())


def test_folds_are_of_about_equal_size_for_every_expert() -> None:
    dealt = deal(tiny.domain_texts(43))
    for expert in range(3):
        sizes = np.bincount(dealt.folds[dealt.experts == expert], minlength=5)
        assert sizes.min() >= 8 and sizes.max() <= 9


def test_what_is_left_is_what_a_fit_without_the_fold_counts() -> None:
    texts = tiny.domain_texts(15)
    dealt = deal(texts)
    held = dealt.hold_out(2)
    gone = set(dealt.hashes[held].tolist())
    rest = {name: [text for text in own if hash_text(text) not in gone] for name, own in texts.items()}
    expected, found = statistics_of(rest), dealt.train_without(held)
    assert found == expected
    assert all(found[name].sample == expected[name].sample for name in texts)


def test_the_order_of_prompts_and_experts_changes_nothing() -> None:
    texts = tiny.domain_texts(20)
    turned = {name: texts[name][::-1] for name in reversed(texts)}
    one, other = deal(texts), deal(turned)
    assert dict(zip(one.hashes.tolist(), one.folds.tolist(), strict=True)) == dict(
        zip(other.hashes.tolist(), other.folds.tolist(), strict=True)
    )


def test_prompts_with_copies_outside_of_the_sample_are_never_held_out() -> None:
    texts = {"law": ["Is it void?"] * 40 + [f"clause {n}" for n in range(30)], "maths": [f"{n} + 1" for n in range(30)]}
    dealt = deal(texts)
    assert set(dealt.folds[dealt.hashes == hash_text("Is it void?")]) == {NEVER}
    assert (dealt.folds[dealt.experts == 1] != NEVER).all()


# what is proven -----------------------------------------------------------------------------------------------------


def test_no_router_is_asked_about_a_prompt_that_it_was_fitted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {name: [*own, *own[:3]] for name, own in tiny.domain_texts(24).items()}
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend())
    asked: list[set[tuple[int, ...]]] = []
    knows: dict[int, set[tuple[int, ...]]] = {}
    real_fit, real_route = Router.with_statistics, Router.route_ids

    def fit(self: Router, statistics: Mapping[str, Statistics]) -> Router:
        made = real_fit(self, statistics)
        samples = [own.sample for own in statistics.values() if own.sample is not None]
        prompts = {tuple(ids.tolist()) for one in samples for ids in np.split(one.ids, one.starts[1:])}
        counted = sum(own.tokens for own in statistics.values())
        assert counted == sum(len(one.ids) for one in samples)  # nothing else was counted
        knows[id(made.compiled.table)] = prompts
        fitted.append(made)
        return made

    def route(self: Router, prompts: list[np.ndarray], **more: object) -> object:
        own = {tuple(ids.tolist()) for ids in prompts}
        assert not own & knows[id(self.compiled.table)]
        asked.append(own)
        return real_route(self, prompts)

    fitted: list[Router] = []  # they stay alive, so that no two have the same id
    monkeypatch.setattr(Router, "with_statistics", fit)
    monkeypatch.setattr(Router, "route_ids", route)
    found = prove(router=router, contenders=False)
    assert len(fitted) == len(asked) == 3 * found.folds  # the whole of the training prompts, a half and a quarter
    assert found.prompts == sum(map(len, texts.values()))


def test_a_proof_is_deterministic_and_ready_for_json(proof: Proof) -> None:
    again = prove(tiny.domain_texts(30), embedding=tiny.embedding(), scorer=Blend(), contenders=False)
    assert json.dumps(proof.to_dict()) == json.dumps(again.to_dict())


def test_counts_add_up(proof: Proof) -> None:
    assert proof.prompts == proof.known == 90 and (proof.folds, proof.of_folds) == (5, 5)
    confusion = np.array(proof.confusion)
    assert confusion.sum() == proof.prompts
    assert proof.accuracy.value == pytest.approx(confusion.trace() / 90, abs=1e-6)
    assert sum(part.count for part in proof.reliability) == proof.prompts
    wrong = sum(pair.count for pair in proof.confused)
    assert wrong == proof.prompts - confusion.trace()
    assert all(pair.examples and pair.truth != pair.said for pair in proof.confused)
    assert [point.prompts for point in proof.curve] == [18, 36, 72]
    assert proof.curve[-1].accuracy == proof.accuracy
    assert sum(proof.abstained.reasons.values()) == proof.abstained.count
    assert proof.verdict[0].startswith("On prompts like these")


def test_labels_that_say_nothing_are_worth_nothing() -> None:
    """The same prompts for both experts: no router can tell them apart, and a proof must not think so."""
    texts = tiny.sentences("law", 60)
    found = prove({"a": texts, "b": list(texts)}, embedding=tiny.embedding(), scorer=Blend(), contenders=False)
    assert found.accuracy.value == pytest.approx(0.5, abs=1e-6)


def test_a_router_s_own_sample_gives_the_same_proof_as_its_texts() -> None:
    texts = tiny.domain_texts(25)
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend())
    own, given_texts = (prove(one, router=router, contenders=False) for one in (None, texts))
    assert own.confusion == given_texts.confusion and own.curve == given_texts.curve
    assert [pair.examples for pair in own.confused] == [pair.examples for pair in given_texts.confused]


def test_prompts_kept_aside_are_routed_by_the_router_as_it_is() -> None:
    router, aside = tiny.router(30), tiny.domain_texts(20, seed=1)
    found = prove(router=router, held_out=aside, contenders=False)
    report = evaluate(router.with_policy(Policy()), aside)
    right = sum(row[at] for at, row in enumerate(found.confusion))
    assert (found.method, found.folds, found.prompts) == ("holdout", 1, 60)
    assert found.calibration_error == pytest.approx(report.calibration_error)
    assert right / 60 == pytest.approx(found.accuracy.value, abs=1e-6)


def test_contenders_are_measured_on_the_same_prompts() -> None:
    texts = {name: own[: 20 + 5 * (name == "law")] for name, own in tiny.domain_texts(25).items()}
    found = prove(texts, embedding=tiny.embedding(), scorer=Blend(), curve=False)
    words, largest = found.contenders
    assert words.name == "TF-IDF + logistic regression" and words.accuracy.value > 0.8
    assert largest.accuracy.value == pytest.approx(25 / 65, abs=1e-6)
    for one in found.contenders:
        assert one.difference.value == pytest.approx(found.accuracy.value - one.accuracy.value, abs=1e-5)
        assert one.difference.low <= one.difference.value <= one.difference.high
    assert found.curve == () and found.doubling is None


@pytest.mark.nightly
def test_prompts_without_a_word_have_no_real_rival() -> None:
    texts = {"plus": [f"{n} + {n % 7}" for n in range(10)], "minus": [f"{n} - {n % 7}" for n in range(10)]}
    found = prove({name: [" ".join(one) for one in own] for name, own in texts.items()}, scorer=Blend(), curve=False)
    assert [one.name for one in found.contenders] == ["always the largest expert"]


@pytest.mark.nightly
def test_where_only_some_prompts_are_kept_the_curve_shares_the_fit_of_its_fold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ir3de.statistics.sample.MAX_PROMPTS", 60)
    texts, fits = tiny.domain_texts(90), []

    def count(*given: Any) -> Any:
        fits.append(given)
        return fit_logistic(*given)

    monkeypatch.setattr(logistic, "fit_logistic", count)
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Logistic(closed=0.1))
    fits.clear()
    shared = prove(router=router, contenders=False)
    assert len(fits) == 3 * shared.folds and len(shared.curve) == 3
    monkeypatch.setattr("ir3de.evaluation.proving.sharing_fits", nullcontext)
    fits.clear()
    alone = prove(router=router, contenders=False)
    assert len(fits) == 4 * alone.folds
    assert (shared.accuracy, shared.curve) == (alone.accuracy, alone.curve)


def test_prices_bring_a_frontier() -> None:
    router = tiny.router(20).with_policy(Policy(costs={"law": {"price": 2.0}}))
    assert prove(router=router, contenders=False, curve=False).frontier is not None
    assert prove(router=tiny.router(20), contenders=False, curve=False).frontier is None


def test_an_expert_that_is_only_described_does_no_harm() -> None:
    texts = {**tiny.domain_texts(20), "music": []}
    router = Router.fit(
        texts, descriptions={"music": "songs and instruments"}, embedding=tiny.embedding(), scorer=Blend()
    )
    found = prove(router=router, contenders=False)
    assert found.recall["music"] is None and found.prompts == 60


# bad input ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_proven_is_refused() -> None:
    router = tiny.router(20)
    with pytest.raises(InputError, match="at least two experts"):
        prove({"law": tiny.sentences("law", 30)}, embedding=tiny.embedding())
    with pytest.raises(InputError, match=r"too few prompts .* 3 or fewer"):
        prove(tiny.domain_texts(3), embedding=tiny.embedding())
    with pytest.raises(InputError, match="at least 2 folds"):
        prove(router=router, folds=1)
    with pytest.raises(InputError, match="has no text"):
        prove({**tiny.domain_texts(9), "law": []}, router=router)
    with pytest.raises(UnknownExpertError, match="no expert 'music'"):
        prove({"music": ["A song?"]}, router=router)
    with pytest.raises(InputError, match="leave out scorer"):
        prove(router=router, scorer=Blend())
    with pytest.raises(InputError, match="needs texts, or a router"):
        prove()
    table = pyarrow.table(tiny.domain_texts(9))  # its columns are no experts
    with pytest.raises(InputError, match=r"name the column of the expert .*'maths', 'law', 'cooking'"):
        prove(table, embedding=tiny.embedding())
    with pytest.raises(InputError, match="name the column"):
        prove(router=router, held_out=table)
    with pytest.raises(InputError, match="no prompt was held out"):
        prove(router=router, held_out={"law": []})
    bare = Router.fit(tiny.domain_texts(20), embedding=tiny.embedding(), scorer=Blend(), keep_sample=False)
    with pytest.raises(InputError, match="no prompts were kept"):
        prove(router=bare)


def test_more_folds_than_prompts_leave_one_prompt_out_at_a_time() -> None:
    found = prove(tiny.domain_texts(8), embedding=tiny.embedding(), scorer=Blend(), folds=50, contenders=False)
    assert found.of_folds == found.folds == 8 and found.prompts == 24


def test_statistics_that_are_not_what_the_sample_says_are_replaced_by_it() -> None:
    """Where prompts cannot be taken out of the sums, the fold is fitted to the other prompts alone."""
    counted = statistics_of(tiny.domain_texts(10))
    odd = replace(counted["law"], histogram=np.zeros_like(counted["law"].histogram) + 1)
    dealt = deal_prompts({**counted, "law": odd}, tiny.embedding(), 5)
    left = dealt.train_without(dealt.hold_out(0))["law"]
    assert left.sample is not None and left.tokens == len(left.sample.ids)


# the file's own mix -------------------------------------------------------------------------------------------------


def skewed_texts() -> dict[str, list[str]]:
    """97 % of the prompts are of one expert."""
    texts = tiny.domain_texts(30)
    return {"law": tiny.sentences("law", 1_940), "maths": texts["maths"], "cooking": texts["cooking"]}


@pytest.fixture(scope="module")
def skewed() -> Proof:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir3de.statistics.sample.MAX_PROMPTS", 100)  # of an expert are kept
        return prove(skewed_texts(), embedding=tiny.embedding(), scorer=Blend())


def test_figures_are_about_the_mix_of_the_file(skewed: Proof) -> None:
    assert skewed.prompts == 159 and skewed.known == 2_000  # the last one of a full sample is never held out
    assert skewed.mix == pytest.approx({"law": 0.97, "maths": 0.015, "cooking": 0.015})
    majority = skewed.contenders[-1]
    assert majority.name == "always the largest expert"
    assert majority.accuracy.value == pytest.approx(0.97) and majority.mean_accuracy.value == pytest.approx(1 / 3)
    recall = [share or 0.0 for share in skewed.recall.values()]
    weighted = sum(share * own for share, own in zip(recall, skewed.mix.values(), strict=True))
    assert skewed.accuracy.value == pytest.approx(weighted, abs=1e-6)
    assert skewed.mean_accuracy.value == pytest.approx(sum(recall) / 3, abs=1e-6)
    assert majority.difference.value == pytest.approx(skewed.accuracy.value - 0.97, abs=1e-5)
    assert skewed.curve[-1].accuracy.low <= skewed.accuracy.value <= skewed.curve[-1].accuracy.high


def test_weights_reach_every_share_of_a_proof(skewed: Proof) -> None:
    assert sum(part.share for part in skewed.reliability) == pytest.approx(1)
    right = sum(part.share * (part.accuracy or 0.0) for part in skewed.reliability)
    assert right == pytest.approx(skewed.accuracy.value, abs=1e-6)
    held = {name: sum(row) for name, row in zip(skewed.experts, skewed.confusion, strict=True)}
    abstained = sum(skewed.abstained.experts[name] / held[name] * share for name, share in skewed.mix.items())
    assert skewed.abstained.share.value == pytest.approx(abstained, abs=1e-6)
    often = [pair.share * skewed.mix[pair.truth] for pair in skewed.confused]
    assert often == sorted(often, reverse=True)


def test_a_rival_learns_from_each_prompt_as_many_as_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller weights would leave the prompts of small experts without effect beside a fixed penalty."""
    learned: list[dict[int, float]] = []

    def record(texts: list[str], experts: np.ndarray, weights: np.ndarray, asked: list[str]) -> None:
        learned.append(dict(zip(experts.tolist(), weights.tolist(), strict=True)))

    monkeypatch.setattr("ir3de.evaluation.proving.choose_by_tfidf", record)
    monkeypatch.setattr("ir3de.statistics.sample.MAX_PROMPTS", 100)
    prove(skewed_texts(), embedding=tiny.embedding(), scorer=Blend(), curve=False)
    assert learned == [{0: 19.4, 1: 1.0, 2: 1.0}] * 5
    learned.clear()
    prove(tiny.domain_texts(21), embedding=tiny.embedding(), scorer=Blend(), curve=False)
    assert learned == [{0: 1.0, 1: 1.0, 2: 1.0}] * 5


def test_weighted_figures_are_named(skewed: Proof, proof: Proof) -> None:
    assert any("weighted to the mix of all 2,000 prompts" in note for note in skewed.notes)
    assert any("As a mean over the experts" in sentence for sentence in skewed.verdict)
    assert not any("weighted" in note for note in proof.notes)  # all prompts of equal experts


def test_copies_are_named_where_they_are_why_figures_are_weighted() -> None:
    texts = {**tiny.domain_texts(20), "law": ["Is it void?"] * 60 + [f"clause {n}" for n in range(20)]}
    found = prove(texts, embedding=tiny.embedding(), scorer=Blend(), curve=False, contenders=False)
    (note,) = (note for note in found.notes if "weighted" in note)
    assert "16 or more copies" in note and "1,024" not in note
    assert f"({100 * (1 - found.prompts / 120):.1f} % of all)" in note and 59 <= 120 - found.prompts <= 62


def test_missing_prompts_are_those_of_the_fit_whatever_was_kept_aside() -> None:
    router, aside = tiny.router(30), {**tiny.domain_texts(3, seed=1), "law": tiny.sentences("law", 30, seed=1)}
    found = prove(router=router, held_out=aside, contenders=False)
    assert found.known_each == dict.fromkeys(router.experts, 30)
    assert "cooking 20 more, law 20 more, maths 20 more" in found.verdict[-1].replace(" and ", ", ")


def test_the_largest_expert_is_the_file_s_in_every_fold() -> None:
    """With few prompts, a fold that is held out can make another expert the largest of the rest."""
    texts = {name: own[:8] for name, own in tiny.domain_texts(8).items()}
    texts["law"] = tiny.sentences("law", 9)
    found = prove(texts, embedding=tiny.embedding(), scorer=Blend(), curve=False)
    assert found.contenders[-1].accuracy.value == pytest.approx(9 / 25, abs=1e-6)


def test_a_description_is_not_a_prompt() -> None:
    texts = {name: own[:10] for name, own in tiny.domain_texts(10).items()}
    router = Router.fit(
        texts, descriptions={"law": "court clause contract"}, embedding=tiny.embedding(), scorer=Blend()
    )
    assert router.statistics["law"].prompts == 30 and router.prompts == dict.fromkeys(texts, 10)
    found = prove(router=router, contenders=False)
    assert found.known == 30 and found.mix == pytest.approx(dict.fromkeys(texts, 1 / 3))


def test_an_expert_that_was_described_and_removed_leaves_no_trace_in_the_count(tmp_path: Path) -> None:
    texts = tiny.domain_texts(6)
    router = Router.fit(texts, descriptions={"law": "court clause"}, embedding=tiny.embedding(), scorer=Blend())
    router.save(tmp_path / "router")
    router = Router.load(tmp_path / "router")
    assert router.prompts["law"] == 6
    router.remove("law")
    router.add("law", texts["law"])
    assert router.prompts["law"] == 6
    router.merge("law", description="contract")
    assert router.prompts["law"] == 6 and router.statistics["law"].prompts == 26
