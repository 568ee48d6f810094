"""Without prompts to calibrate on, a router is no surer than so few prompts can make it."""

from pathlib import Path

import pytest

import tiny
from ir3de import Router
from ir3de.corpora import examples
from ir3de.fitting.calibration import ENOUGH_PROMPTS
from ir3de.policies import AssumedCalibration
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Blend
from ir3de.selectors import Average, EntropyTopK

DESCRIPTIONS = {
    "coding": "Writing, debugging and explaining computer programs",
    "law": "Legal questions about contracts, tenancy and courts",
    "medicine": "Health, symptoms, diseases and treatments",
    "mathematics": "Solving equations, proofs and word problems",
}


@pytest.fixture(scope="module")
def described() -> Router:
    return Router.fit({name: [] for name in DESCRIPTIONS}, descriptions=DESCRIPTIONS)


def list_confidences(router: Router, texts: list[str]) -> list[float]:
    return [decision.confidence or 0.0 for decision in router.route_batch(texts)]


def assumed_of(router: Router) -> AssumedCalibration | None:
    valuation = router.compiled.rules.valuation
    assert isinstance(valuation, Probabilities)
    return valuation.assumed


def test_descriptions_alone_are_no_reason_to_be_sure(described: Router) -> None:
    prompts = examples.prompts()
    pairs = [(name, text) for name in DESCRIPTIONS for text in prompts[name]]
    inside, outside = (list_confidences(described, own) for own in ([text for _, text in pairs], prompts["history"]))
    right = [described.route(text).best == name for name, text in pairs]
    mean = sum(inside) / len(inside)
    assert not described.calibrated and max(inside + outside) < 5 / 6  # as after four prompts of each
    assert sum(outside) / len(outside) < mean
    assert -0.15 < mean - sum(right) / len(right) < 0.05  # rather too modest than too sure


@pytest.mark.parametrize("prompts", [1, 6])
def test_a_few_prompts_are_no_reason_to_be_sure(prompts: int) -> None:
    texts = {name: own[:prompts] for name, own in examples.prompts().items()}
    router = Router.fit(texts, scorer=Blend(), keep_sample=False)
    assert max(list_confidences(router, [text for own in texts.values() for text in own])) < 0.4


def test_confidence_shrinks_and_the_ranking_stays() -> None:
    texts = tiny.domain_texts(20)
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend(), keep_sample=False)
    bare = Router(router.with_selector(EntropyTopK(3)).with_selector(Average())._parts)  # votes drop what is assumed
    assert assumed_of(router) == AssumedCalibration(1.25, 0.5, 0.5) and assumed_of(bare) is None
    for text in tiny.mixed(20):
        one, other = router.route(text), bare.route(text)
        assert [name for name, _ in one.ranking] == [name for name, _ in other.ranking]
        assert (one.confidence or 0) <= 0.5 + 0.5 / 3
        assert one == router.route_batch(["void", text, "clause"])[1]


def test_many_prompts_are_taken_at_their_word() -> None:
    texts = {name: tiny.sentences(name, ENOUGH_PROMPTS) for name in ("law", "maths")}
    few = {**texts, "maths": texts["maths"][:-1]}
    fitted = [Router.fit(own, embedding=tiny.embedding(), scorer=Blend(), keep_sample=False) for own in (texts, few)]
    assert assumed_of(fitted[0]) is None and assumed_of(fitted[1]) is not None


def test_it_is_saved_and_follows_the_law_of_change(tmp_path: Path) -> None:
    texts = tiny.domain_texts(20)
    router = Router.fit(texts, embedding=tiny.embedding(), scorer=Blend(), keep_sample=False)
    before = router.route("court clause")
    loaded = Router.load(router.save(tmp_path / "router"))
    serving = Router.load(router.save(tmp_path / "serving", serving=True))
    assert loaded.route("court clause") == before == serving.route("court clause")
    router.add("music", ["A song?"])
    assert assumed_of(router) != assumed_of(loaded)
    router.remove("music")
    assert assumed_of(router) == assumed_of(loaded) and router.route("court clause") == before


def test_a_router_saved_without_it_keeps_its_confidence(tmp_path: Path) -> None:
    router = Router.fit(tiny.domain_texts(20), embedding=tiny.embedding(), scorer=Blend(), keep_sample=False)
    old = router.with_selector(EntropyTopK(3)).with_selector(Average())
    loaded = Router.load(old.save(tmp_path / "old"))
    assert assumed_of(loaded) is None and loaded.route("court clause") == old.route("court clause")


def test_calibrated_routers_assume_nothing() -> None:
    assert tiny.router(30).calibrated and assumed_of(tiny.router(30)) is None
