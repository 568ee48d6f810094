"""Routers and statistics that version 0.1 wrote still load, route as they did, and can be changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ir3de import Contribution, Embedding, Router, Statistics
from ir3de.files.tensors import map_tensors
from ir3de.selectors import AllTokens
from ir3de.statistics.files import load_statistics

WRITTEN = Path(__file__).parent / "written_by_0_1"
EXPECTED = json.loads((WRITTEN / "decisions.json").read_text(encoding="utf-8"))


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "earlier"))


@pytest.mark.parametrize("name", EXPECTED["decisions"])
def test_an_earlier_router_routes_as_it_did(earlier: Path, name: str) -> None:
    router = Router.load(earlier / name)
    for prompt, expected in zip(EXPECTED["prompts"], EXPECTED["decisions"][name], strict=True):
        decision = router.route(prompt)
        assert (decision.expert, decision.abstained) == (expected["expert"], expected["abstained"])
        value = decision.expected_score if router.kind == "outcomes" else decision.confidence
        assert value == pytest.approx(expected["confidence"], abs=2e-6)  # 0.1 had one name for both


@pytest.mark.parametrize("name", EXPECTED["decisions"])
def test_an_earlier_router_keeps_its_default_and_abstains_as_it_did(earlier: Path, tmp_path: Path, name: str) -> None:
    """Nothing was learnt of what is in domain, so nothing is abstained on for that."""
    router = Router.load(earlier / name)
    header = json.loads((earlier / name / "router.json").read_text(encoding="utf-8"))
    assert router.default == header["default"] is not None
    assert (router.route("").expert, router.route("").reason) == (router.default, "no known token")
    again = Router.load(router.save(tmp_path / "again", serving=True))
    for text in ("hi", "Welche Farbe hat der Himmel am Abend?", "bread and butter"):
        for decision in (router.route(text), again.route(text)):
            assert decision.in_domain is None and decision.reason in ("", "no known token")
            if router.kind != "outcomes":
                assert sum(value for _, value in decision.ranking) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["router", "contributions"])
def test_an_earlier_router_can_be_changed_and_saved(earlier: Path, name: str) -> None:
    router = Router.load(earlier / name)
    router.add("cooking", ["boil an egg", "a recipe for bread", "stir the dough"])
    router.remove("cooking")
    before = Router.load(earlier / name)
    entries = len(before.history)  # read now: the folder changes below
    assert router.statistics == before.statistics
    # the change fitted the calibration anew, as this version does, and nothing else
    calibration = router.compiled.rules.calibration
    assert calibration is not None and calibration != before.compiled.rules.calibration
    expected = before.with_calibration(calibration).route_batch(EXPECTED["prompts"])
    for now, then in zip(router.route_batch(EXPECTED["prompts"]), expected, strict=True):
        assert now.expert == then.expert and now.confidence == pytest.approx(then.confidence, abs=2e-6)
        assert now.in_domain is None and now.reason == then.reason  # there is no background to learn it from
    router.save(earlier / name)
    assert len(Router.load(earlier / name).history) == entries + 2


def test_the_tokens_familiarity_has_another_name_in_new_files(earlier: Path, tmp_path: Path) -> None:
    before, _ = map_tensors(next((earlier / "router").glob("table-*")))
    router = Router.load(earlier / "router")
    router.save(tmp_path / "new")
    after, _ = map_tensors(next((tmp_path / "new").glob("table-*")))
    assert np.array_equal(after["familiarity"], before["usualness"])
    assert set(after) == {name if name != "usualness" else "familiarity" for name in before}


def test_ballots_that_an_earlier_version_mapped_are_written_anew(earlier: Path, tmp_path: Path) -> None:
    router = Router.load(earlier / "router").with_selector(AllTokens())
    router.save(tmp_path / "votes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir3de.fitting.loading.BALLOTS_VERSION", 1)
        Router.load(tmp_path / "votes", mapped=True)
    (old,) = (tmp_path / "votes").glob("ballots-*")
    assert Router.load(tmp_path / "votes", mapped=True).route_batch(EXPECTED["prompts"]) == router.route_batch(
        EXPECTED["prompts"]
    )
    (new,) = (tmp_path / "votes").glob("ballots-*")
    assert new.name != old.name


@pytest.mark.parametrize("name", ["router", "contributions", "outcomes"])
def test_a_table_that_is_gone_is_built_again(earlier: Path, name: str) -> None:
    expected = Router.load(earlier / name).route_batch(EXPECTED["prompts"])
    for table in (earlier / name).glob("table-*"):
        table.unlink()
    assert Router.load(earlier / name).route_batch(EXPECTED["prompts"]) == expected


def test_an_earlier_outcome_router_has_no_prompts_to_compare(earlier: Path) -> None:
    router = Router.load(earlier / "outcomes")
    assert router.outcomes.sample is None and router.validation.gain is None and not router.validation.reason
    model = router.experts[0]
    router.merge(model, [{"text": "what is this", "scores": {model: 1.0}}])
    assert "earlier version" in router.validation.reason and router.validation.gain is None


def test_earlier_statistics_can_be_given_to_a_router(earlier: Path) -> None:
    statistics = load_statistics(earlier / "law.stats")
    assert isinstance(statistics, Statistics) and statistics.prompts == 12
    router = Router.load(earlier / "router")
    router.merge("law", Contribution.load(earlier / "law.stats"))
    assert router.statistics["law"].prompts == 24


def test_version_1_is_the_default_embedding_that_earlier_routers_were_fitted_with() -> None:
    assert Embedding.default(1).fingerprint == EXPECTED["default_fingerprint"]
