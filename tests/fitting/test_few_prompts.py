"""Few prompts, one, or a description alone: what is held out, how sure the router may be, and that changes undo."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Router
from ir3de.corpora import examples
from ir3de.evaluation import verify
from ir3de.fitting.calibration import count_few, limit_probability
from ir3de.fitting.folds import make_folds
from ir3de.policies import AssumedCalibration, Calibration
from ir3de.routing.valuation import Probabilities

DESCRIPTIONS = {"law": "contracts, courts, tenancy", "cooking": "recipes, baking, boiling"}


def draw(**sizes: int) -> dict[str, list[str]]:
    return {name: tiny.sentences(name, number) for name, number in sizes.items()}


def fit(texts: dict[str, list[str]], *described: str) -> Router:
    own = {name: DESCRIPTIONS[name] for name in described}
    return Router.fit(texts, embedding=tiny.embedding(), descriptions=own)


def limits_of(router: Router) -> tuple[float, ...]:
    calibration = router.compiled.rules.calibration
    assert calibration is not None
    return calibration.most


@pytest.mark.parametrize(
    "sizes", [{"maths": 2, "law": 2}, {"maths": 6, "law": 6}, {"maths": 9, "law": 4, "cooking": 1}]
)
def test_each_prompt_is_held_out_once_and_alone_of_its_expert(sizes: dict[str, int]) -> None:
    router = fit(draw(**sizes))
    folds = make_folds(list(router.statistics.values()), router.embedding)
    held = np.array([fold.held for fold in folds])
    assert (held.sum(axis=0) == 1).all()
    for fold in folds:
        experts = fold.deal.experts[fold.held]
        assert len(set(experts.tolist())) == len(experts) and (fold.tokens > 0).all()
    kept = [own.expert for own in router.route_kept()]
    assert {name: kept.count(name) for name in sizes} == {name: n if n > 1 else 0 for name, n in sizes.items()}


def test_the_order_of_prompts_makes_no_difference() -> None:
    texts = draw(maths=6, law=5, cooking=1)
    one, other = fit(texts), fit({name: own[::-1] for name, own in texts.items()})
    assert tiny.same_table(one, other) and one.compiled.rules == other.compiled.rules


@pytest.mark.parametrize("described", [(), ("cooking",)])
def test_one_expert_without_prompts_to_hold_out_leaves_the_others_calibrated(described: tuple[str, ...]) -> None:
    texts = draw(maths=8, law=8, cooking=0 if described else 1)
    router = fit(texts, *described)
    assert router.calibrated and {own.expert for own in router.route_kept()} == {"maths", "law"}
    new = {name: tiny.sentences(name, 30, seed=5) for name in ("maths", "law")}
    assert all(sum(router.route(text).best == name for text in new[name]) > 20 for name in new)


def test_nobody_is_surer_than_after_so_many_right_answers() -> None:
    texts = draw(maths=6, law=40, cooking=1)
    router = fit(texts)
    assert limits_of(router) == (7 / 8, 1.0, 2 / 3)
    for decision in router.route_batch([text for own in texts.values() for text in own]):
        limit = limits_of(router)[router.experts.index(decision.best)]
        assert (decision.confidence or 0.0) <= limit
        shares = [share for _, share in decision.ranking]
        assert sum(shares) == pytest.approx(decision.in_domain) and shares == sorted(shares, reverse=True)


def test_a_description_counts_as_four_prompts() -> None:
    router = fit(draw(maths=6, law=6, cooking=0), "law", "cooking")
    assert [count_few(own) for own in router.statistics.values()] == [6, 10, 4]
    assert [limit_probability(own) for own in router.statistics.values()] == [7 / 8, 11 / 12, 5 / 6]


def test_thirty_prompts_have_no_limit() -> None:
    assert limits_of(fit(draw(maths=30, law=30))) == ()
    assert limits_of(fit(draw(maths=30, law=29))) == (1.0, 30 / 31)


def test_what_is_above_a_limit_is_shared_by_the_others() -> None:
    calibration = Calibration(1.0, most=(0.5, 0.9, 1.0))
    assert calibration.limit([0.8, 0.15, 0.05]) == pytest.approx([0.5, 0.3, 0.2])
    assert calibration.limit([0.05, 0.15, 0.8]) == [0.05, 0.15, 0.8]
    assert calibration.limit([0.1, 0.85, 0.05]) == [0.1, 0.85, 0.05]
    assert Calibration(1.0).limit([0.8, 0.2]) == [0.8, 0.2]


def test_one_prompt_each_is_as_sure_as_its_limit() -> None:
    router = fit(draw(maths=1, law=1, cooking=1))
    valuation = router.compiled.rules.valuation
    assert isinstance(valuation, Probabilities) and isinstance(valuation.assumed, AssumedCalibration)
    assert not router.calibrated
    assert valuation.assumed.trust + (1 - valuation.assumed.trust) / 3 == pytest.approx(2 / 3)


MIXTURES = {
    "few": ({"maths": 6, "law": 3, "cooking": 2}, ()),
    "one prompt here, eight there, a description there": ({"maths": 8, "law": 1, "cooking": 0}, ("cooking",)),
    "one prompt and a description each": ({"maths": 1, "law": 1, "cooking": 1}, ("law", "cooking")),
    "few and many": ({"maths": 40, "law": 4, "cooking": 0}, ("cooking",)),
}


@pytest.mark.parametrize(("sizes", "described"), MIXTURES.values(), ids=MIXTURES)
def test_mixtures_are_saved_loaded_verified_and_changed_back(
    sizes: dict[str, int], described: tuple[str, ...], tmp_path: Path
) -> None:
    router = fit(draw(**sizes), *described)
    folder = router.save(tmp_path / "router")
    serving = Router.load(router.save(tmp_path / "serving", serving=True))
    loaded, prompts = Router.load(folder), tiny.mixed(12)
    decided = router.route_batch(prompts)
    assert loaded.route_batch(prompts) == decided == serving.route_batch(prompts)
    assert loaded.compiled.rules == router.compiled.rules and not [one for one in verify(folder) if one.holds is False]
    loaded.add("music", ["a song for the piano", "tune the guitar"], description="songs and instruments")
    assert "music" in loaded.experts and len(loaded.compiled.rules.valuation.in_force.most) in (0, 4)  # type: ignore[union-attr]
    loaded.remove("music")
    assert loaded.compiled.rules == router.compiled.rules and loaded.route_batch(prompts) == decided


def test_more_prompts_raise_the_limit_and_removal_lowers_it_again() -> None:
    router = fit(draw(maths=6, law=6))
    router.merge("law", tiny.sentences("law", 14, seed=4))
    assert limits_of(router) == (7 / 8, 21 / 22)
    router.remove("maths")
    assert router.compiled.rules.calibration is None  # one expert alone has nothing to calibrate


@pytest.fixture(scope="module")
def six() -> Router:
    return Router.fit({name: texts[:6] for name, texts in examples.prompts().items()})


def test_six_utterances_each_abstain_on_what_is_clearly_foreign(six: Router) -> None:
    own = [text for texts in examples.held_out().values() for text in texts]
    foreign = [
        "Wie wird das Wetter morgen in Hamburg?",
        "¿Dónde puedo comprar entradas para el concierto?",
        "zxcv qwer asdf",
    ]
    assert any(decision.abstained for decision in six.route_batch(foreign))
    assert np.mean([decision.out_of_domain for decision in six.route_batch(own)]) < 0.05
    assert max(decision.confidence or 0.0 for decision in six.route_batch(own)) <= 7 / 8
