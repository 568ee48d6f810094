"""A router can be copied and pickled: the copy routes and changes like the original, and apart from it."""

import copy
import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tiny
from demo_router import demo_router
from ir3de import Contribution, Embedding, Router, collect
from ir3de.errors import ArtifactError, InputError
from ir3de.selectors import Selector
from laws import SELECTORS
from saved import PROMPTS, first_router

MORE = ["boil the egg", "bread and flour", "a recipe for dough", "stir the salt", "roast an onion"]

Copy = Callable[[Router], Router]
COPIES: dict[str, Copy] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda router: pickle.loads(pickle.dumps(router)),
}


def outcome_router() -> Router:
    rows = [{"text": text, "scores": {"a": len(text) % 3, "b": 1}} for text in tiny.mixed(12)]
    return Router.fit_outcomes(rows, embedding=tiny.embedding())


def contributed_router() -> Router:
    router = first_router()
    given = collect(["Who owns the land?"], embedding=tiny.embedding(), keep_sample=True)
    router.merge("law", Contribution.of(given, owner="B", id="b-1"))
    return router


@pytest.fixture(params=COPIES)
def make_copy(request: pytest.FixtureRequest) -> Copy:
    return COPIES[request.param]


@pytest.mark.parametrize("made", [first_router, contributed_router, outcome_router])
def test_a_copy_routes_like_the_original(make_copy: Copy, made: Callable[[], Router]) -> None:
    router = made()
    router.route(PROMPTS[0])  # routing makes a function that is no part of the copy
    again = make_copy(router)
    assert again.experts == router.experts and again.route_batch(PROMPTS) == router.route_batch(PROMPTS)
    assert [again.explain(text) for text in PROMPTS] == [router.explain(text) for text in PROMPTS]


def test_a_copy_changes_like_the_original_and_apart_from_it(make_copy: Copy) -> None:
    router, fresh = contributed_router(), contributed_router()
    again = make_copy(router)
    for one in (again, fresh):
        one.add("baking", MORE)
        one.remove("law", contribution="b-1")
    assert "baking" not in router.experts and router.contributions["law"]
    assert tiny.same_table(again, fresh) and again.statistics == fresh.statistics
    assert again.route_batch(PROMPTS) == fresh.route_batch(PROMPTS)


def test_a_pickled_router_needs_no_folder(tmp_path: Path) -> None:
    contributed_router().save(tmp_path / "router")
    packed = pickle.dumps(Router.load(tmp_path / "router"))
    expected = Router.load(tmp_path / "router").route_batch(PROMPTS)
    for path in (tmp_path / "router").iterdir():
        path.unlink()
    router = pickle.loads(packed)
    assert router.route_batch(PROMPTS) == expected and len(router.history) == 4
    router.remove("law", contribution="b-1")
    router.save(tmp_path / "again")
    assert Router.load(tmp_path / "again").statistics == router.statistics


def test_a_pickled_serving_copy_routes_and_still_cannot_change(tmp_path: Path) -> None:
    first_router().save(tmp_path / "serving", serving=True)
    for mapped in (False, True):
        loaded = Router.load(tmp_path / "serving", mapped=mapped)
        router = pickle.loads(pickle.dumps(loaded))
        assert router.route_batch(PROMPTS) == loaded.route_batch(PROMPTS)
        with pytest.raises(ArtifactError, match="serving copy"):
            router.add("baking", MORE)


def test_numbers_of_a_pickled_router_stay_read_only() -> None:
    router = pickle.loads(pickle.dumps(first_router()))
    with pytest.raises(ValueError, match="read-only"):
        next(iter(router.statistics.values())).histogram[0] = 1


@pytest.mark.slow
def test_a_pickled_router_routes_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "router.pickle"
    path.write_bytes(pickle.dumps(first_router()))
    script = (
        "import json, pickle, sys; router = pickle.load(open(sys.argv[1], 'rb')); "
        "print(json.dumps([decision.expert for decision in router.route_batch(json.loads(sys.argv[2]))]))"
    )
    command, environment = tiny.python_command(script, path, json.dumps(PROMPTS))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [decision.expert for decision in first_router().route_batch(PROMPTS)]


def test_the_default_embedding_is_pickled_by_its_version() -> None:
    packed = pickle.dumps(Embedding.default())
    assert len(packed) < 1_000 and pickle.loads(packed) is Embedding.default()


def test_predict_and_predict_proba_are_what_route_says() -> None:
    router = first_router()
    found, decisions = router.predict_proba(PROMPTS), router.route_batch(PROMPTS)
    assert any(decision.abstained for decision in decisions)
    assert router.predict(PROMPTS).tolist() == [decision.expert or decision.best for decision in decisions]
    named = router.with_policy(router.policy, default="law")
    assert named.predict(PROMPTS).tolist() == [decision.expert or "law" for decision in decisions]
    assert router.classes_.tolist() == list(router.experts) and found.shape == (len(PROMPTS), len(router.experts))
    assert np.allclose(found.sum(axis=1), 1)
    for row, decision in zip(found, decisions, strict=True):
        if decision.in_domain:
            said = {name: probability / decision.in_domain for name, probability in decision.quality}
            assert dict(zip(router.classes_.tolist(), row.tolist(), strict=True)) == pytest.approx(said)
    assert router.predict([]).shape == (0,) and router.predict_proba([]).shape == (0, len(router.experts))


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_the_largest_probability_is_the_prediction(selector: Selector) -> None:
    texts = ["ok thanks", "yes", " ", "", "prove contract", "the", *PROMPTS, *tiny.mixed(200, seed=8, longest=6)]
    for router in (demo_router().with_selector(selector), tiny.router(20, selector=selector)):
        rows = router.predict_proba(texts)
        assert router.classes_[rows.argmax(axis=1)].tolist() == router.predict(texts).tolist()
        assert np.abs(rows.sum(axis=1) - 1).max() < 1e-12


def test_an_outcome_router_predicts_models_and_no_probabilities() -> None:
    router = outcome_router()
    assert set(router.predict(PROMPTS)) <= set(router.experts)
    with pytest.raises(InputError, match="expected scores"):
        router.predict_proba(PROMPTS)
