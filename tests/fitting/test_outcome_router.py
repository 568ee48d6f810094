"""Laws of routers from outcomes: saved, changed and asked like any other, but with expected scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_outcomes import MODELS, TASKS, Rows, only, rows

import tiny
from ir3de import Average, EntropyTopK, Router
from ir3de.errors import ArtifactError, InputError, MismatchError, UnknownExpertError
from ir3de.evaluation.accuracy import evaluate
from ir3de.evaluation.outcomes import evaluate_outcomes
from ir3de.fitting.outcomes import collect_outcomes
from ir3de.policies import Calibration, Policy
from ir3de.routing.valuation import ExpectedScores
from ir3de.scorers.expectation import Shrinkage
from saved import edit, part, refusal

PROMPTS = ["", " ", "字 \x00", "contract", *tiny.mixed(30, seed=4)]
UNTASKED = [{"text": row["text"], "scores": row["scores"]} for row in rows(120)]  # the prompt itself must tell


def fitted(some: Rows, **options: Any) -> Router:
    return Router.fit_outcomes(some, embedding=tiny.embedding(), **options)


def assert_same(one: Router, other: Router) -> None:
    """The same statistics, the same table, the same answers: to the last bit."""
    assert one.outcomes == other.outcomes
    assert tiny.same_table(one, other)
    assert one.scorer == other.scorer and one.validation == other.validation
    assert isinstance(one.compiled.rules.valuation, ExpectedScores)
    assert [d.to_dict() for d in one.route_batch(PROMPTS)] == [d.to_dict() for d in other.route_batch(PROMPTS)]


# asking -------------------------------------------------------------------------------------------------------------


def test_the_model_of_the_largest_expected_score_is_chosen() -> None:
    router = fitted(rows(40))
    assert router.experts == MODELS
    assert (router.kind, tiny.router().kind) == ("outcomes", "domains")
    for place, task in enumerate(TASKS):
        decision = router.route(" ".join(tiny.DOMAINS[task]))
        assert decision.expert == MODELS[place] == decision.ranking[0][0]
        assert decision.expected_score == decision.ranking[0][1] == max(score for _, score in decision.ranking)
        assert decision.confidence is None and decision.familiarity is None
        assert decision.margin == pytest.approx(decision.ranking[0][1] - decision.ranking[1][1])
        assert 0.8 < decision.expected_score < 1.4  # what the best model scores there, not a probability


def test_a_decision_names_its_expected_score() -> None:
    decision = fitted(rows(40)).route(" ".join(tiny.DOMAINS[TASKS[0]]))
    told = decision.to_dict()
    assert told["confidence"] is None and told["expected_score"] == pytest.approx(decision.expected_score, abs=1e-6)
    assert [(row["expert"], row["expected_score"]) for row in told["ranking"]] == [
        (model, round(score, 6)) for model, score in decision.ranking
    ]
    assert all(set(row) == {"expert", "expected_score"} for row in told["ranking"])
    assert repr(decision).startswith(f"Decision(expert='ant', expected_score={decision.expected_score:.2f}, margin=")


def test_a_threshold_is_a_score() -> None:
    router, prompt = fitted(rows(40)), " ".join(tiny.DOMAINS[TASKS[0]])
    expected = router.route(prompt).expected_score
    assert expected == pytest.approx(0.877, abs=0.01)
    below = router.with_policy(Policy(expected + 0.001)).route(prompt)
    assert (below.reason, below.expert, below.expected_score) == ("low expected score", router.default, expected)
    assert not router.with_policy(Policy(expected - 0.001)).route(prompt).abstained


@pytest.mark.parametrize("some", [rows(20), rows(20, missing=0.4), UNTASKED], ids=["tasks", "missing", "no tasks"])
def test_a_batch_is_its_prompts_one_by_one(some: Rows) -> None:
    router = fitted(some)
    assert [d.to_dict() for d in router.route_batch(PROMPTS)] == [router.route(text).to_dict() for text in PROMPTS]
    assert [d.to_dict() for d in router.route_batch(PROMPTS[::-1])][::-1] == [
        d.to_dict() for d in router.route_batch(PROMPTS)
    ]


def test_the_order_of_a_prompts_tokens_never_matters() -> None:
    router = Router.fit_outcomes(rows(20), embedding=tiny.word_embedding())
    words = ["contract", "boil", "theorem", "court", "the"]
    assert router.route(" ".join(words)) == router.route(" ".join(reversed(words)))


def test_a_prompt_without_a_known_token_goes_to_the_best_on_average_or_to_the_default() -> None:
    some = [{**row, "scores": {**row["scores"], "bee": 2.0}} for row in rows(10)]
    router = fitted(some)
    decision = router.route("")
    assert router.default == decision.expert == "bee"
    assert decision.abstained and decision.reason == "no known token"
    means = router.compiled.rules.valuation.expectation.means.mean(axis=0)
    assert dict(decision.ranking) == pytest.approx(dict(zip(MODELS, means, strict=True)), abs=1e-6)
    assert fitted(some, default="cat").route("").expert == "cat"


def test_costs_shift_the_choice_by_what_they_are_worth() -> None:
    prompt = " ".join(tiny.DOMAINS[TASKS[0]])
    policy = Policy(costs={"ant": {"price": 3.0}})
    router = fitted(rows(40), policy=policy)
    quality = dict(router.route(prompt).ranking)
    assert router.route(prompt).expert == "ant"
    gap = quality["ant"] - max(quality["bee"], quality["cat"])
    assert router.route(prompt, weights={"price": 0.99 * gap / 3}).expert == "ant"
    dear = router.route(prompt, weights={"price": 1.01 * gap / 3})
    assert dear.expert != "ant" and dict(dear.ranking) == quality
    assert dear.expected_score == quality[dear.expert]
    assert router.route_batch([prompt], weights={"price": 1.01 * gap / 3}) == [dear]
    with pytest.raises(UnknownExpertError, match="dog"):
        fitted(rows(2), policy=Policy(costs={"dog": {"price": 1.0}}))


def test_explaining_tells_what_each_token_would_be_worth_alone() -> None:
    router = Router.fit_outcomes(UNTASKED, embedding=tiny.word_embedding())
    explanation = router.explain("boil the contract")
    assert explanation.decision == router.route("boil the contract")
    assert [token.text.strip() for token in explanation.tokens] == ["boil", "the", "contract"]
    for token in explanation.tokens:
        alone = router.route(token.text)
        assert token.scores == pytest.approx([dict(alone.ranking)[model] for model in MODELS], abs=1e-5)
        assert token.vote == alone.expert
    assert explanation.to_dict()["experts"] == list(MODELS)


def test_the_scale_of_scores_is_no_matter_even_where_scores_are_huge() -> None:
    huge = [{**row, "scores": {m: 600 * s - 300 for m, s in row["scores"].items()}} for row in UNTASKED]
    one, other = fitted(UNTASKED), fitted(huge)
    assert one.scorer == other.scorer != Shrinkage(one.scorer.pull, float("inf"))
    for small, large in zip(one.route_batch(PROMPTS), other.route_batch(PROMPTS), strict=True):
        expected = {model: 600 * score - 300 for model, score in small.ranking}
        assert dict(large.ranking) == pytest.approx(expected, abs=0.2)


# changing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_a_model_added_later_is_as_if_it_had_always_been_there(missing: float) -> None:
    some = rows(20, missing=missing)
    together = fitted(some)
    later = fitted(only(some, {"ant", "cat"}))
    later.add("bee", some)  # the scores of the others are there already
    assert_same(later, together)
    at_once = fitted(only(some, {"ant"}))
    at_once.add_outcomes(only(some, {"bee", "cat"}))
    assert_same(at_once, together)


def test_a_model_added_from_other_prompts_is_as_if_all_had_been_read_at_once() -> None:
    ours, theirs = rows(12), only(rows(12, seed=5), {"cat"})
    later = fitted(only(ours, {"ant", "bee"}))
    later.add("cat", theirs)
    assert_same(later, fitted([*only(ours, {"ant", "bee"}), *theirs]))


def test_more_rows_are_merged() -> None:
    some = rows(12)
    router = fitted(some[::2])
    router.add_outcomes(some[1::2], merge=True)
    assert_same(router, fitted(some))
    router = fitted([*some[::2], *only(some[1::2], {"ant", "bee"})])
    router.merge("cat", some[1::2])
    assert_same(router, fitted(some))


def test_a_removed_model_leaves_no_trace() -> None:
    some = rows(12, missing=0.3)
    router = fitted(some, policy=Policy(costs={"bee": {"price": 1.0}}))
    router.remove("bee")
    assert_same(router, fitted(only(some, {"ant", "cat"})))
    assert router.policy == Policy()
    router.remove("ant")
    with pytest.raises(InputError, match="only expert"):
        router.remove("cat")


def test_a_default_that_was_given_stays_and_one_that_was_not_moves() -> None:
    some = [{**row, "scores": {**row["scores"], "bee": 2.0, "cat": -1.0}} for row in rows(6)]
    usual, given = fitted(only(some, {"ant", "cat"})), fitted(only(some, {"ant", "cat"}), default="ant")
    for router in (usual, given):
        router.add("bee", some)
    assert (usual.default, given.default) == ("bee", "ant")
    given.remove("ant")
    assert given.default == "bee"


def test_changes_that_make_no_sense_are_refused() -> None:
    router, texts = fitted(rows(4)), tiny.router()
    refusals = (
        (lambda: router.add("ant", rows(1)), "expert already"),
        (lambda: router.add_outcomes(rows(1)), "expert already"),
        (lambda: router.add("dog", rows(1)), "a score of 'dog'"),
        (lambda: router.add("dog", ["a text"]), "row 1"),
        (lambda: router.add("dog", "a text"), "rows with its scores"),
        (lambda: router.merge("ant", collect_outcomes(only(rows(1), {"bee"}), embedding=tiny.embedding())), "'ant'"),
        (lambda: router.tune(), "nothing to tune"),
        (lambda: router.with_selector(EntropyTopK(3)), "Average"),
        (lambda: router.with_calibration(Calibration(1.0)), "expected scores"),
        (lambda: router.statistics, "router.outcomes"),
        (lambda: texts.outcomes, "fit_outcomes"),
        (lambda: texts.add_outcomes(rows(1)), "fit_outcomes"),
        (lambda: evaluate(router, {"ant": ["a"]}), "evaluate_outcomes"),
    )
    before = router.compiled
    for action, said in refusals:
        with pytest.raises(InputError, match=said):
            action()
    assert router.compiled is before
    assert router.with_selector(Average(cap=2)).route("one two three four").counted == 2


# bad rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5", [1], {}, 1e9])
def test_a_score_that_is_no_number_is_named_with_its_row(score: object) -> None:
    with pytest.raises(InputError, match="row 2: the score of 'bee'"):
        fitted([*rows(1)[:1], {"text": "a", "scores": {"bee": score}}])


def test_candidates_of_negative_scores_have_the_best_model_first() -> None:
    scores = {"ant": -0.2, "bee": -0.5, "cat": -0.7}
    router = fitted([{"text": text, "scores": scores} for text in tiny.mixed(20)])
    for decision in (*router.route_batch(PROMPTS), *router.route_batch(PROMPTS, weights={"price": 1.0})):
        assert decision.candidates == ("ant", "bee")


def test_negative_true_and_missing_scores_are_scores() -> None:
    some: Rows = [
        {"prompt": "boil an egg", "scores": {"ant": -2, "bee": True, "cat": None}},
        {"text": "is this void", "scores": {"ant": np.float32(-1.5), "cat": False}},
    ]
    router = fitted(some)
    assert router.default == "bee"
    assert dict(router.route("").ranking) == pytest.approx({"ant": -1.75, "bee": 1.0, "cat": 0.0}, abs=1e-3)


@pytest.mark.parametrize(
    ("some", "said"),
    [
        ([], "at least one"),
        ([{"text": "", "scores": {"ant": 1}}], "at least one"),
        ([{"text": "a", "acc": {"ant": 1}}], "row 1: no 'scores': found 'text', 'acc'"),
        ([{"text": "a", "scores": {"ant": 1, "bee": None}}], "'bee'"),
        ({"text": "a", "scores": {"ant": 1}}, "one dict"),
        ([{"text": "a", "scores": {"a\nb": 1}}], "control characters"),
    ],
)
def test_rows_that_teach_nothing_are_refused(some: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fitted(some)


def test_scores_may_be_in_another_field_and_other_fields_are_passed_over() -> None:
    some = [{"id": 7, "acc": row["scores"], "text": row["text"], "task": row["task"]} for row in rows(6)]
    assert_same(fitted(some, field="acc"), fitted(rows(6)))


def test_names_and_embeddings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UnknownExpertError, match="dog"):
        fitted(rows(2), default="dog")
    with pytest.raises(MismatchError, match="collect them again"):
        fitted(collect_outcomes(rows(1), embedding=tiny.other_embedding()))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"Embedding\.load"):
        Router.fit_outcomes(rows(1), embedding="gpt2")  # type: ignore[arg-type]


# keeping ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("some", [rows(12), rows(12, missing=0.4), UNTASKED], ids=["tasks", "missing", "no tasks"])
def test_saved_is_loaded(some: Rows, tmp_path: Path) -> None:
    router = fitted(some, policy=Policy(weights={"price": 0.1}, costs={"ant": {"price": 1.0}}), default="cat")
    loaded = Router.load(router.save(tmp_path / "one"))
    assert_same(loaded, router)
    assert loaded.policy == router.policy and loaded.default == "cat"
    loaded.save(tmp_path / "two")
    assert tiny.contents(tmp_path / "one") == tiny.contents(tmp_path / "two")


def test_a_router_changed_after_loading_is_the_one_fitted_together_file_by_file(tmp_path: Path) -> None:
    some = rows(12)
    fitted(only(some, {"ant", "bee"})).save(tmp_path / "later")
    later = Router.load(tmp_path / "later")
    later.add("cat", some)
    later.save(tmp_path / "later")
    fitted(some).save(tmp_path / "together")
    assert tiny.contents(tmp_path / "later") == tiny.contents(tmp_path / "together")


def test_the_table_is_rebuilt_from_the_outcomes(tmp_path: Path) -> None:
    router = fitted(UNTASKED)
    folder = router.save(tmp_path / "router")
    part(folder, "table").unlink()
    assert_same(Router.load(folder), router)


def test_a_serving_copy_routes_and_does_not_change(tmp_path: Path) -> None:
    router = fitted(rows(12))
    folder = router.save(tmp_path / "serving", serving=True)
    assert not list(folder.glob("outcomes*"))
    copy = Router.load(folder)
    assert copy.route_batch(PROMPTS) == router.route_batch(PROMPTS)
    assert copy.kind == "outcomes"
    with pytest.raises(ArtifactError, match="serving copy"):
        copy.add("dog", rows(1))


def test_damage_is_named(tmp_path: Path) -> None:
    fitted(rows(3)).save(tmp_path / "router")

    def damaged(change: Any) -> str:
        folder = fitted(rows(3)).save(tmp_path / "router")
        edit(folder, change)
        return refusal(Router.load, folder)

    for key in ("tasks", "means", "unit", "tried", "default_given"):
        assert "damaged" in damaged(lambda header, key=key: header["outcomes"].pop(key))
    assert "damaged" in damaged(lambda header: header["outcomes"]["means"].pop())
    assert "damaged" in damaged(lambda header: header["scorer"].update(name="PromptRidge"))
    assert "Shrinkage" in damaged(lambda header: header.pop("outcomes"))
    folder = fitted(rows(3)).save(tmp_path / "router")
    sums = part(folder, "outcomes")
    sums.write_bytes(sums.read_bytes()[:-1] + b"\x7f")
    router = Router.load(folder)
    assert router.route("boil").expert  # the table is whole
    with pytest.raises(ArtifactError, match="outcomes-"):
        router.remove("ant")


# evaluating ---------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_the_mean_over_tasks_of_what_was_chosen() -> None:
    router = fitted(rows(40))
    some: Rows = [
        {"text": " ".join(tiny.DOMAINS[TASKS[0]]), "task": "a", "scores": {"ant": 1, "bee": 0, "cat": 0.5}},
        {"text": " ".join(tiny.DOMAINS[TASKS[1]]), "task": "a", "scores": {"ant": 1, "cat": 0, "dog": 9}},
        {"text": " ".join(tiny.DOMAINS[TASKS[2]]), "task": "b", "scores": {"ant": 0, "bee": 1, "cat": 0.5}},
        {"text": "nothing known of it", "task": "b", "scores": {"dog": 1}},
    ]
    report = evaluate_outcomes(router, some)
    chosen = {task: router.route(" ".join(tiny.DOMAINS[task])).expert for task in TASKS}
    assert list(chosen.values()) == list(MODELS)
    first, second = report.tasks["a"], report.tasks["b"]
    assert (first.prompts, first.chosen, first.oracle, first.random) == (2, 1.0, 1.0, 0.5)
    assert (second.prompts, second.chosen, second.oracle, second.random) == (1, 0.5, 1.0, 0.5)
    assert (report.overall.chosen, report.best_model, report.overall.best_single) == (0.75, "ant", 0.5)
    assert (report.unscored, report.left_out, report.unknown_models) == (1, 1, ("dog",))
    assert report.choices == dict.fromkeys(MODELS, 1)


def test_an_evaluation_without_a_score_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        evaluate_outcomes(fitted(rows(2)), [{"text": "a", "scores": {"dog": 1}}])
    with pytest.raises(InputError, match="row 1"):
        evaluate_outcomes(fitted(rows(2)), [{"text": "a", "scores": {"ant": float("nan")}}])
