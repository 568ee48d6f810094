"""A router with an encoder: when it is asked, what it adds, and that it follows every change of the prompts."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

import ir3de
import tiny
from ir3de.corpora import examples
from ir3de.encoders import Encoder, shared
from ir3de.encoders.installing import install
from ir3de.encoders.sources import find_source
from ir3de.errors import ArtifactError, InputError, MismatchError
from ir3de.evaluation.verification import verify
from ir3de.files.router_folder import list_routing_parts, read_header
from ir3de.fitting.second_opinion import _fit_sum, find_centroids
from ir3de.policies import MAX_CERTAINTY, Policy
from ir3de.routing.second_opinion import OpinionMembership, SecondOpinion, quantise, to_units
from ir3de.scorers import Blend
from ir3de.statistics import collect
from tiny_encoders import own_cache, write_encoder

pytest.importorskip("onnxruntime")

PROMPTS = {name: texts[:24] for name, texts in examples.prompts().items()}
TEXTS = [text for texts in examples.prompts().values() for text in texts[24:44]]


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with own_cache(tmp_path_factory.mktemp("cache")):
        yield


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(write_encoder(tmp_path_factory.mktemp("encoders") / "tiny"))
    install(folder)
    return folder


@pytest.fixture(scope="module")
def router(encoder: str) -> ir3de.Router:
    return ir3de.Router.fit(PROMPTS, encoder=encoder, scorer=Blend())


def lose_encoder(patch: pytest.MonkeyPatch, encoder: str) -> None:
    """As in another process on a machine where the encoder is not installed."""
    patch.setattr(shared, "_encoders", {})
    patch.setattr(shared, "_missing", set())
    shutil.move(find_source(encoder).installed, f"{encoder}-aside")


@pytest.fixture
def no_encoder(encoder: str, monkeypatch: pytest.MonkeyPatch) -> object:
    lose_encoder(monkeypatch, encoder)
    yield
    shutil.move(f"{encoder}-aside", find_source(encoder).installed)


# --- when it is asked


def test_about_the_share_of_held_out_prompts_is_asked(router: ir3de.Router) -> None:
    opinion = router.opinion
    assert opinion is not None and opinion.gain is not None
    assert opinion.share == 0.2
    assert 0 < opinion.gain.asked <= 0.2
    kept = [one.decision.confidence for one in router.route_kept()]
    assert np.mean([value < opinion.certainty for value in kept if value is not None]) <= 0.2


def test_a_prompt_is_asked_exactly_where_the_table_is_unsure(router: ir3de.Router) -> None:
    opinion = router.opinion
    assert opinion is not None
    for text in TEXTS:
        table, found = router.route(text, consult=False), router.route(text)
        assert not table.consulted
        assert found.consulted == (table.confidence < opinion.certainty)
        assert found.to_dict()["consulted"] == found.consulted
        if not found.consulted:
            assert found == table
    assert {router.route(text).consulted for text in TEXTS} == {True, False}


def test_the_caller_can_always_ask(router: ir3de.Router) -> None:
    assert all(router.route(text, consult=True).consulted for text in TEXTS)
    assert all(found.consulted for found in router.route_batch(TEXTS, consult=True))


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_the_encoder_is_never_asked_about_nothing(router: ir3de.Router, text: str) -> None:
    assert not router.route(text, consult=True).consulted


def test_a_batch_gives_the_decisions_of_single_prompts(router: ir3de.Router) -> None:
    found = router.route_batch(iter(TEXTS))
    assert [one.to_dict() for one in found] == [router.route(text).to_dict() for text in TEXTS]
    assert router.predict(TEXTS).tolist() == [one.expert or one.best for one in found]


@pytest.mark.nightly
def test_a_larger_share_asks_more_often(encoder: str) -> None:
    few = {name: texts[:12] for name, texts in PROMPTS.items()}
    asked = [
        sum(one.consulted for one in ir3de.Router.fit(few, encoder=encoder, encoder_share=share).route_batch(TEXTS))
        for share in (0.1, 0.6, 1.0)
    ]
    assert asked[0] < asked[1] < asked[2] == len(TEXTS)


def test_costs_threshold_and_default_hold_for_consulted_prompts(router: ir3de.Router) -> None:
    costly = router.with_policy(Policy(threshold=0.9999), default="law")
    found = [costly.route(text, consult=True) for text in TEXTS]
    assert any(one.abstained and one.expert == "law" for one in found)
    assert all(one.abstained or one.confidence >= 0.9999 for one in found)
    name = router.experts[0]
    prices = {other: {"price": 100.0} for other in router.experts if other != name}
    cheap = router.with_policy(Policy(costs=prices, weights={"price": 1.0}))
    assert {cheap.route(text, consult=True).best for text in TEXTS} == {name}
    again = router.route(TEXTS[0], consult=True).under(costly.compiled.rules)
    assert again == costly.route(TEXTS[0], consult=True)


# --- what it adds


def test_the_explanation_shows_table_encoder_and_both(router: ir3de.Router) -> None:
    text = next(text for text in TEXTS if router.route(text).consulted)
    found = router.explain(text)
    assert found.decision == router.route(text)
    assert [one.expert for one in found.opinions] == list(found.compared)
    values = dict(router.route(text, consult=False).quality)
    share = sum(values.values())
    for one in found.opinions:
        assert one.table == pytest.approx(values[one.expert] / share)
    if len(found.compared) == len(router.experts):
        assert sum(one.encoder for one in found.opinions) == pytest.approx(1)
        assert sum(one.together for one in found.opinions) == pytest.approx(1)
    assert "The encoder was asked" in found.summary
    assert json.loads(json.dumps(found.to_dict()))["opinions"]
    alone = router.explain(text, consult=False)
    assert not alone.opinions and alone.words


def test_the_one_that_is_right_on_held_out_prompts_has_the_weight() -> None:
    rng = np.random.default_rng(0)
    experts = rng.integers(0, 3, 2_000)
    guesses = np.where(rng.random(2_000) < 0.8, experts, rng.integers(0, 3, 2_000))
    right, noise = np.eye(3)[guesses], rng.normal(size=(2_000, 3))
    weights = np.full(2_000, 1 / 2_000)
    a, b = _fit_sum(noise, right, experts, weights)
    assert a < 0.1 and b > 2
    a, b = _fit_sum(right, noise, experts, weights)
    assert a > 2 and b < 0.1
    a, b = _fit_sum(right, -np.eye(3)[experts], experts, weights)
    assert b == 0 and a > 2


def test_centroids_lie_in_the_middle_of_prompts() -> None:
    rng = np.random.default_rng(1)
    middles = rng.normal(size=(4, 20))
    vectors = quantise(np.repeat(middles, 30, axis=0) + 0.05 * rng.normal(size=(120, 20)))
    found = to_units(find_centroids(vectors[rng.permutation(120)]))
    cosines = found @ (middles / np.linalg.norm(middles, axis=1, keepdims=True)).T
    assert (cosines.max(axis=0) > 0.99).all()


# --- changes


def test_removing_and_adding_an_expert_leaves_no_trace(router: ir3de.Router, encoder: str) -> None:
    gone, *others = reversed(list(PROMPTS))
    changed = copy.copy(router)
    changed.remove(gone)
    fitted = ir3de.Router.fit({name: PROMPTS[name] for name in reversed(others)}, encoder=encoder, scorer=Blend())
    assert changed.opinion == fitted.opinion != router.opinion
    changed.add(gone, PROMPTS[gone])
    assert changed.opinion == router.opinion


@pytest.mark.nightly
def test_merging_and_removing_a_contribution_leaves_no_trace(router: ir3de.Router, tmp_path: Path) -> None:
    texts = examples.prompts()["law"][50:60]
    more = ir3de.Contribution.of(collect(texts, embedding=router.embedding), id="other-office")
    changed = copy.copy(router)
    changed.merge("law", more)
    assert changed.opinion != router.opinion
    changed.save(tmp_path / "router")
    again = ir3de.Router.load(tmp_path / "router")
    assert again.opinion == changed.opinion
    again.remove("law", contribution="other-office")
    assert again.opinion == router.opinion


@pytest.mark.nightly
def test_tuning_keeps_the_encoder(router: ir3de.Router) -> None:
    changed = copy.copy(router)
    changed.tune()
    assert changed.opinion is not None
    assert changed.opinion.encoder == router.opinion.encoder
    np.testing.assert_array_equal(changed.opinion.head, router.opinion.head)


@pytest.mark.nightly
def test_copies_and_variants_keep_the_opinion(router: ir3de.Router) -> None:
    pickled = pickle.loads(pickle.dumps(router))
    for other in (pickled, copy.deepcopy(router), router.with_policy(Policy(threshold=0.1))):
        assert other.opinion == router.opinion
    assert router.with_selector(ir3de.Average(cap=100)).opinion == router.opinion
    assert pickled.route_batch(TEXTS) == router.route_batch(TEXTS)
    pickled.remove("law")
    assert pickled.opinion != router.opinion
    assert router.with_statistics(router.statistics).opinion is None  # it saw other prompts


# --- files


def test_loaded_is_saved_and_verifies(router: ir3de.Router, tmp_path: Path) -> None:
    router.save(tmp_path / "router")
    loaded = ir3de.Router.load(tmp_path / "router")
    assert loaded.opinion == router.opinion
    assert loaded.route_batch(TEXTS) == router.route_batch(TEXTS)
    checks = list(verify(tmp_path / "router"))
    assert all(check.holds is not False for check in checks)
    assert any("encoder's head" in check.claim and check.holds for check in checks)
    loaded.save(tmp_path / "again")
    names = [sorted(path.name for path in (tmp_path / one).iterdir()) for one in ("router", "again")]
    assert names[0] == names[1]


def test_a_head_that_was_changed_is_noticed(router: ir3de.Router, tmp_path: Path) -> None:
    other = copy.copy(router)
    rules = other.compiled.rules
    changed = copy.copy(rules.opinion)
    vars(changed)["head"] = changed.head * np.float32(1.5)
    vars(rules)["opinion"], before = changed, rules.opinion
    try:
        other.save(tmp_path / "router")
    finally:
        vars(rules)["opinion"] = before
    assert [check.holds for check in verify(tmp_path / "router") if "encoder's head" in check.claim] == [False]


def test_a_serving_copy_has_the_head_and_no_vectors(router: ir3de.Router, tmp_path: Path) -> None:
    served = ir3de.Router.load(router.save(tmp_path / "served", serving=True))
    assert served.route_batch(TEXTS) == router.route_batch(TEXTS)
    names = {path.name.split("-")[0] for path in (tmp_path / "served").iterdir()}
    needed = {part["name"].split("-")[0] for part in list_routing_parts(read_header(tmp_path / "served"))}
    assert "opinion" in names and "vectors" not in names and names == {*needed, "router.json"}
    with pytest.raises(ArtifactError, match="serving copy"):
        served.remove("law")


def test_a_router_without_an_encoder_is_as_before(tmp_path: Path) -> None:
    plain = ir3de.Router.fit(PROMPTS, scorer=Blend(), embedding=tiny.embedding())
    header = json.loads((plain.save(tmp_path / "plain") / "router.json").read_text())
    assert "opinion" not in header and not any("vectors" in expert for expert in header["experts"])
    assert "consulted" not in plain.route(TEXTS[0]).to_dict()
    assert plain.opinion is None and not plain.route(TEXTS[0]).consulted
    with pytest.raises(InputError, match="no encoder to consult"):
        plain.route(TEXTS[0], consult=True)


# --- without the encoder


def test_without_the_encoder_the_table_decides_after_one_warning(router: ir3de.Router, no_encoder: object) -> None:
    unsure = [text for text in TEXTS if router.route(text, consult=False).confidence < router.opinion.certainty]
    with pytest.warns(UserWarning, match="by the table alone.*ir3de encoder install") as seen:
        found = [*map(router.route, unsure), *router.route_batch(unsure)]
    assert len(seen) == 1
    assert found == 2 * [router.route(text, consult=False) for text in unsure]
    with pytest.raises(ArtifactError, match="not installed"):
        router.route(unsure[0], consult=True)


@pytest.mark.nightly
def test_without_the_encoder_experts_can_be_removed_and_not_added(router: ir3de.Router, no_encoder: object) -> None:
    changed = copy.copy(router)
    changed.remove("law")
    assert changed.opinion is not None
    before = changed.experts
    with pytest.raises(ArtifactError, match="not installed"):
        changed.add("law", PROMPTS["law"])
    assert changed.experts == before


def test_another_encoder_of_the_same_name_is_not_used(
    router: ir3de.Router, encoder: str, no_encoder: object, tmp_path: Path
) -> None:
    kept = shutil.move(encoder, tmp_path / "kept")
    try:
        install(str(write_encoder(Path(encoder), "xlm-roberta")))
        with pytest.raises(MismatchError, match="another one than the router was fitted with"):
            router.route(TEXTS[0], consult=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert not any(one.consulted for one in router.route_batch(TEXTS))
        assert len(seen) == 1
        shutil.rmtree(find_source(encoder).installed)
    finally:
        shutil.rmtree(encoder)
        shutil.move(kept, encoder)


# --- what cannot be fitted


def test_what_is_wrong_is_rejected_before_anything_is_counted(encoder: str, tmp_path: Path) -> None:
    def count() -> object:
        raise AssertionError("counted")
        yield

    for options, message in (
        ({"encoder": "minilm-l7"}, "minilm-l6"),
        ({"encoder": str(tmp_path)}, "has no config.json"),
        ({"encoder": 7}, "name, a folder or an Encoder"),
        ({"encoder": encoder, "keep_sample": False}, "keep_sample=False keeps none"),
        ({"encoder": encoder, "encoder_share": 0.0}, "encoder_share"),
        ({"encoder": encoder, "encoder_share": 1.5}, "encoder_share"),
    ):
        with pytest.raises((InputError, ArtifactError, ValueError), match=message):
            ir3de.Router.fit({"law": count(), "maths": count()}, **options)


def test_every_expert_needs_a_prompt(router: ir3de.Router, encoder: str) -> None:
    with pytest.raises(InputError, match="'law' of 2 experts have none"):
        ir3de.Router.fit({"maths": PROMPTS["mathematics"], "law": []}, descriptions={"law": "courts"}, encoder=encoder)
    changed = copy.copy(router)
    with pytest.raises(InputError, match="'tax' of 6 experts have none"):
        changed.add("tax", description="taxes, levies")
    assert changed.experts == router.experts


def test_one_prompt_each_is_enough_and_the_encoder_is_always_asked(encoder: str) -> None:
    router = ir3de.Router.fit({name: texts[:1] for name, texts in PROMPTS.items()}, encoder=Encoder.load(encoder))
    assert router.opinion.gain is None
    assert all(found.consulted for found in router.route_batch(TEXTS[:5]))


@pytest.mark.nightly
def test_few_prompts_limit_the_confidence_of_both(encoder: str) -> None:
    router = ir3de.Router.fit({name: texts[:4] for name, texts in PROMPTS.items()}, encoder=encoder)
    limit = max(router.compiled.rules.calibration.most)
    assert limit < 0.9
    for text in TEXTS[:20]:
        found = router.route(text, consult=True)
        assert max(value for _, value in found.quality) <= limit
        assert sum(value for _, value in found.quality) == pytest.approx(found.in_domain)


@pytest.mark.nightly
def test_what_a_teacher_labelled_leaves_the_head_as_it_is(router: ir3de.Router, encoder: str) -> None:
    def teach(texts: list[str]) -> list[str]:
        return [router.experts[len(text) % len(router.experts)] for text in texts]

    taught = ir3de.Router.fit(PROMPTS, encoder=encoder, scorer=Blend(), unlabelled=TEXTS, teacher=teach)
    np.testing.assert_array_equal(taught.opinion.head, router.opinion.head)
    assert any(one.consulted for one in taught.route_batch(TEXTS))


# --- out of domain


def test_the_encoder_alone_calls_no_prompt_out_of_domain() -> None:
    member = OpinionMembership(bias=0.0, table=0.3, nearest=10.0, certainty=0.5, lowest=-1.0, doubt=0.5)
    far, near = {"nearest": -0.5, "certainty": -1.0}, {"nearest": 0.9, "certainty": 2.0}
    assert member.judge(0.4, **far) < member.lowest, "both doubt"
    assert member.judge(0.5, **far) == member.lowest, "the table does not"
    assert member.judge(0.4, **near) == member.find_log_odds(0.4, **near) > member.lowest


def test_phrases_around_prompts_hardly_make_them_foreign(router: ir3de.Router) -> None:
    """The table's doubt is learnt on such prompts: about one in ten may be doubted, and fewer are refused."""
    opinion = router.opinion
    assert opinion is not None and opinion.membership is not None
    assert opinion.membership.doubt < MAX_CERTAINTY
    wordy = [f"To whom it may concern: I would be grateful for your help. {text} Yours sincerely." for text in TEXTS]
    refused = [found.abstained for found in router.route_batch(wordy, consult=True)]
    assert np.mean(refused) <= 0.1


def test_a_router_without_the_tables_doubt_is_read(router: ir3de.Router) -> None:
    """Those of the version before have no such number: the encoder's word is enough there."""
    opinion = router.opinion
    assert opinion is not None
    described = json.loads(json.dumps(opinion.describe()))
    del described["membership"]["doubt"]
    restored = SecondOpinion.restore(described, opinion.tensors)
    assert restored.membership is not None and restored.membership.doubt == MAX_CERTAINTY
