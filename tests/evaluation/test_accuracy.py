"""A report counted by hand, and what is said when there is nothing to count."""

import doctest
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import ir3de.evaluation.prompts
from commands import HELD_OUT, run
from demo_router import demo_router
from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de.errors import InputError, MissingExtraError, UnknownExpertError
from ir3de.evaluation.accuracy import evaluate
from ir3de.evaluation.proving import prove
from ir3de.policies import Policy
from ir3de.routing.decision import Decision


@pytest.fixture(scope="module")
def router() -> Router:
    return demo_router()


def test_the_report_agrees_with_routing_one_by_one(router: Router) -> None:
    domains = demo.held_out()
    domains["law"] = [*domains["law"], "ok thanks"]  # which no expert fits
    report = evaluate(router, domains)
    decided = [(name, router.route(text)) for name, texts in domains.items() for text in texts]
    right = [name == decision.expert for name, decision in decided]
    assert report.experts == router.experts
    unfit = sum(decision.expert is None for _, decision in decided)
    assert report.prompts == len(decided) == sum(map(sum, report.confusion)) + unfit == sum(report.sizes.values())
    assert 0 < unfit == report.abstained < 10
    assert report.routed_accuracy == pytest.approx(sum(right) / len(right))
    best = {name: [name == d.best for truth, d in decided if truth == name] for name in report.experts}
    assert report.accuracy == pytest.approx(sum(map(sum, best.values())) / len(decided))
    assert report.mean_accuracy == pytest.approx(sum(sum(own) / len(own) for own in best.values()) / len(best))
    for i, name in enumerate(report.experts):
        row = [sum(truth == name and d.expert == other for truth, d in decided) for other in report.experts]
        assert report.confusion[i] == tuple(row)
        assert report.recall[name] == pytest.approx(row[i] / len(domains[name]))
        routed = sum(decision.expert == name for _, decision in decided)
        assert report.precision[name] == pytest.approx(row[i] / routed)


def test_calibration_is_the_weighted_gap_between_claim_and_truth(router: Router) -> None:
    domains = demo.held_out()
    report = evaluate(router, domains)
    decided = [(name, router.route(text)) for name, texts in domains.items() for text in texts]
    gap = 0.0
    for index, part in enumerate(report.reliability):
        inside = [(n, d) for n, d in decided if min(int(d.confidence * 10), 9) == index]
        assert part.count == len(inside)
        assert (part.low, part.high) == (index / 10, (index + 1) / 10)
        if not inside:
            assert part.confidence is None and part.accuracy is None
            continue
        confidence = sum(d.confidence for _, d in inside) / len(inside)
        accuracy = sum(n == d.best for n, d in inside) / len(inside)
        assert part.confidence == pytest.approx(confidence) and part.accuracy == pytest.approx(accuracy)
        gap += len(inside) / len(decided) * abs(confidence - accuracy)
    assert len(report.reliability) == 10
    assert report.calibration_error == pytest.approx(gap)


def test_accuracy_is_that_of_the_proof(router: Router) -> None:
    """One word means one thing: neither abstentions nor the number of experts change it."""
    held_out = demo.held_out()
    domains = {"law": held_out["law"], "coding": held_out["coding"][:1]}
    report = evaluate(router.with_policy(Policy(threshold=0.9)), domains)
    proof = prove(router=router, held_out=domains, contenders=False, curve=False)
    assert report.abstained and report.routed_accuracy < report.accuracy
    assert report.accuracy == pytest.approx(proof.accuracy.value, abs=1e-6)
    assert report.mean_accuracy == pytest.approx(proof.mean_accuracy.value, abs=1e-6)
    assert report.recall["history"] is None
    assert report.precision["mathematics"] is None or report.precision["mathematics"] == 0.0


def test_prompts_that_say_nothing_are_counted_as_abstained(router: Router) -> None:
    report = evaluate(router, {"law": ["", "Is this contract void?"]})
    assert (report.abstained, report.prompts) == (1, 2)


def test_the_report_is_plain_json(router: Router) -> None:
    report = evaluate(router, {"law": demo.held_out()["law"]})
    assert json.loads(json.dumps(report.to_dict()))["prompts"] == report.prompts


def test_the_report_shows_itself_in_one_line(router: Router) -> None:
    report = evaluate(router, demo.held_out())
    shown = repr(report)
    assert shown.startswith(f"Report(prompts={report.prompts}, accuracy={report.accuracy:.3f}, mean_accuracy=")
    assert len(shown) < 120


def test_every_decision_can_be_heard(router: Router) -> None:
    heard: list[tuple[str, str, Decision]] = []
    evaluate(router, {"law": ["Is it void?"], "coding": ["def f():"]}, on_decision=lambda *all_: heard.append(all_))
    assert [(name, text) for name, text, _ in heard] == [("law", "Is it void?"), ("coding", "def f():")]
    assert heard[0][2] == router.route("Is it void?")


def test_batches_change_nothing(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(router, demo.held_out())
    monkeypatch.setattr(ir3de.evaluation.prompts, "BATCH_PROMPTS", 7)
    in_small_batches = evaluate(router, demo.held_out())
    assert in_small_batches.confusion == whole.confusion
    assert in_small_batches.calibration_error == pytest.approx(whole.calibration_error)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_prompts(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir3de.evaluation.prompts, "BATCH_PROMPTS", 100)

    def many(count: int) -> Iterator[str]:
        return (f"Is clause {number} of this contract void? " * 20 for number in range(count))

    peaks = []
    for count in (500, 3_000):
        tracemalloc.start()
        evaluate(router, {"law": many(count)})
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_of_many_labels_that_are_no_experts_some_are_named(router: Router) -> None:
    with pytest.raises(UnknownExpertError, match=r"no expert 'team 0', 'team 1'.* others: this router has") as caught:
        evaluate(router, {f"team {number}": ["Hello"] for number in range(50)})
    assert len(str(caught.value)) < 300


def test_a_label_that_is_no_expert_is_named(router: Router) -> None:
    with pytest.raises(UnknownExpertError, match=r"'cooking'.*has coding, mathematics, law, medicine, history"):
        evaluate(router, {"law": ["Is it void?"], "cooking": ["Boil an egg."]})


@pytest.mark.parametrize(
    ("domains", "message"),
    [({}, "at least one domain"), ({"law": []}, "'law' has no prompt"), ({"law": "one string"}, "found one string")],
)
def test_nothing_to_evaluate_is_an_error(router: Router, domains: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(router, domains)


@pytest.mark.parametrize("wrong", [None, 7, b"bytes"])
def test_a_prompt_that_is_no_text_is_named(router: Router, wrong: object) -> None:
    domains = {"coding": ["def f():"], "law": iter(["Is it void?"] * 5_000 + [wrong])}  # beyond the first batch
    with pytest.raises(InputError, match=f"of 'law' must be str, found {type(wrong).__name__} at index 5000"):
        evaluate(router, domains)
    with pytest.raises(InputError, match=rf"the prompts of 'law' must be .* found {type(wrong).__name__}"):
        evaluate(router, {"law": wrong})  # type: ignore[dict-item]


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(ir3de.evaluation.accuracy).failed == 0


def test_without_the_laboratory_robustness_says_in_one_line_what_to_install(
    router: Router, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir3de_lab", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "ir3de_lab.robustness", raising=False)
    monkeypatch.delitem(vars(ir3de.evaluation), "measure_robustness", raising=False)
    with pytest.raises(MissingExtraError, match=r"measure_robustness needs the package 'ir3de-lab'.*install"):
        from ir3de.evaluation import measure_robustness  # noqa: F401
    saved = router.save(tmp_path / "router")
    shown = run("eval", saved, f"law={HELD_OUT / 'law.txt'}", "--robustness", code=1)
    assert shown.stderr.count("\n") == 1 and "ir3de-lab" in shown.stderr
