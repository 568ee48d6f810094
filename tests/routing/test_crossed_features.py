"""Features that are right alone must be right together: every two values of these features meet in some case."""

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
from ir3de import AllTokens, Average, Conversation, EntropyTopK, PromptRidge, Router, TokenRidge
from ir3de.corpora import background
from ir3de.policies import Cost, Policy, StrongShare
from ir3de.routing.decision import Decision
from ir3de.routing.messages import count_content
from ir3de.scorers import Blend, CrossEntropy, KernelRidge, Posterior
from ir3de.scorers.logistic import Logistic
from ir3de_lab.benchmarks.trust.crossing.covering import Case, cover, list_pairs, meet_pairs
from laws import STRANGE, shown

NAMES = tuple(tiny.DOMAINS)
SCORERS: dict[str, Any] = {
    "token ridge": TokenRidge.paper(),
    "authors' ridge": TokenRidge.authors(),
    "prompt ridge": PromptRidge(),
    "posterior": Posterior(),
    "blend": Blend(),
    "pairs": Blend(0.5, 0.5),
    "cross-entropy": CrossEntropy(),
    "kernel ridge": KernelRidge(landmarks=40),
    "logistic": Logistic(),
}
OUTCOMES = {"outcomes": 0.0, "negative outcomes": -3.0}  # added to every score
SELECTORS: dict[str, Any] = {
    "top 1": EntropyTopK(1),
    "top 3": EntropyTopK(3),
    "authors' top 4": EntropyTopK.authors(4),
    "all": AllTokens(),
    "all, ties by order": AllTokens(ties="order"),
    "all of few": AllTokens(cap=6),
    "average": Average(),
    "average of few": Average(cap=5),
}
COSTS = {"maths": Cost(2.0), "law": Cost(0.5, latency=1.0), "cooking": Cost(memory=3.0)}
SHARE = StrongShare("maths", "law", 0.5, 0.1)
POLICIES = {
    "none": Policy(),
    "threshold": Policy(0.6),
    "threshold of 1": Policy(1.0),
    "costs": Policy(weights={"price": 0.2, "memory": 0.05}, costs=COSTS),
    "costs and threshold": Policy(0.4, {"latency": 0.3}, COSTS),
    "costs without weights": Policy(costs=COSTS),
    "strong share": Policy(strong_share=SHARE),
    "strong share, costs and threshold": Policy(0.4, costs=COSTS, strong_share=SHARE),
}
WEIGHTS: dict[str, dict[str, float] | None] = {"none": None, "no weight": {}, "price": {"price": 0.3}}
FEATURES = {
    "embedding": ("bytes", "words"),
    "scorer": (*SCORERS, *OUTCOMES),
    "selector": tuple(SELECTORS),
    "sample": ("kept", "kept, with a background", "none"),
    "policy": tuple(POLICIES),
    "default": ("none", "law"),
    "weights": tuple(WEIGHTS),
    "copy": ("none", "saved", "serving", "pickled", "changed"),
    "asked": ("batch", "ids", "turn", "messages", "explained"),
}
FORBIDDEN = frozenset(
    frozenset((("scorer", scorer), other))
    for scorer in (*OUTCOMES, "logistic")
    for other in (
        ("sample", "none"),
        *(("selector", name) for name in SELECTORS if scorer in OUTCOMES and "average" not in name),
        *((("sample", "kept, with a background"),) if scorer in OUTCOMES else ()),
    )
)
CASES = cover(FEATURES, 28, FORBIDDEN)
PASTED = "is this void?\n\n" + "\n".join(tiny.sentences("law", 40))
PROMPTS = [*STRANGE, "ok thanks", "yes", *tiny.mixed(10, seed=2), *tiny.mixed(6, seed=3, longest=3)]


def fit(case: Case) -> Router:
    options: dict[str, Any] = {
        "embedding": tiny.embedding() if case["embedding"] == "bytes" else tiny.word_embedding(),
        "policy": POLICIES[case["policy"]],
        "default": None if case["default"] == "none" else case["default"],
    }
    texts = tiny.domain_texts(14)
    if (lift := OUTCOMES.get(case["scorer"])) is not None:
        rows = [
            {"text": text, "task": task, "scores": {name: lift + (name == task) for name in NAMES}}
            for task, own in texts.items()
            for text in own
        ]
        return Router.fit_outcomes(rows, **options).with_selector(SELECTORS[case["selector"]])
    if case["sample"] == "kept, with a background":
        options["background"] = [*background.prompts()[:60], *PROMPTS[:4]]
    kept = case["sample"] != "none"
    chosen = {"scorer": SCORERS[case["scorer"]], "selector": SELECTORS[case["selector"]], "keep_sample": kept}
    return Router.fit(texts, **options, **chosen)


def take_copy(router: Router, kind: str, folder: Path) -> Router:
    if kind in ("saved", "serving"):
        return Router.load(router.save(folder / "router", serving=kind == "serving"))
    if kind == "pickled":
        return pickle.loads(pickle.dumps(router))
    if kind == "changed" and router.kind == "domains":  # there and back is not having changed
        router.add("new", tiny.mixed(5, seed=9))
        router.remove("new")
    return router


def ask(router: Router, text: str, asked: str, weights: dict[str, float] | None) -> Decision:
    if asked == "batch":
        return router.route_batch(["void", text, "prove it"], weights=weights)[1]
    if asked == "ids":
        return router.route_ids([[0], router.tokenizer.encode(text), [1]], weights=weights)[1]
    if asked == "turn":
        return Conversation(router).route(text, weights=weights)
    if asked == "messages":
        messages = [{"role": "system", "content": "court"}, {"role": "user", "content": text}]
        return Conversation.from_messages(router, messages, weights=weights).decision
    return router.explain(text, weights=weights).decision


def list_numbers() -> Iterator[Any]:
    """By day the first cases, in which most pairs meet for the first time; the rest at night."""
    for number, case in enumerate(CASES):
        yield pytest.param(number, id=", ".join(case.values()), marks=pytest.mark.nightly if number >= 50 else ())


@pytest.mark.parametrize("number", list(list_numbers()))
def test_features_are_right_together(number: int, tmp_path: Path) -> None:
    check_case(CASES[number], number, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_features_are_right_together_in_other_cases(seed: int, tmp_path: Path) -> None:
    for number, case in enumerate(cover(FEATURES, seed, FORBIDDEN)):
        check_case(case, number, tmp_path / str(number))


def check_case(case: Case, number: int, folder: Path) -> None:
    router, weights = fit(case), WEIGHTS[case["weights"]]
    alone = [router.route(text, weights=weights) for text in PROMPTS]
    for text, decision in zip(PROMPTS, alone, strict=True):
        check_decision(decision, router, weights)
        if case["asked"] != "ids" or count_content(text):  # generic words cannot be told from ids
            assert shown(ask(router, text, case["asked"], weights)) == shown(decision), text
    check_batches(router, weights, alone, number)
    check_chat(router, weights, number)
    again = take_copy(router, case["copy"], folder)
    assert [shown(one) for one in again.route_batch(PROMPTS, weights=weights)] == list(map(shown, alone))
    assert again.default == router.default and again.policy == router.policy
    check_predictions(again)


def check_decision(decision: Decision, router: Router, weights: dict[str, float] | None) -> None:
    policy, values = router.policy, dict(decision.quality)
    assert sorted(values) == sorted(router.experts) == sorted(name for name, _ in decision.ranking)
    assert decision.candidates[0] == decision.best and set(decision.candidates) <= set(router.experts)
    assert decision.abstained == bool(decision.reason)
    assert decision.expert == (router.default if decision.abstained else decision.best)
    assert decision.ranking[0][0] == (decision.expert or decision.best)
    if decision.confidence is not None:
        assert 0 <= decision.confidence <= 1 and decision.confidence == values[decision.best]
        assert sum(values.values()) == pytest.approx(1 if decision.in_domain is None else decision.in_domain)
    assert 0 <= decision.counted <= decision.tokens
    assert json.loads(json.dumps(decision.to_dict())) == decision.to_dict()
    if decision.reason == "no known token":  # no expert is better than another, whatever it costs
        return
    used = policy.weights if weights is None else Cost.of(weights)
    assert (decision.penalties is not None) == (bool(used and policy.costs) and not policy.strong_share)
    if policy.strong_share:
        assert decision.best in (SHARE.strong, SHARE.weak)
    elif decision.penalties is not None:
        worth = {name: value - decision.penalties[name] for name, value in values.items()}
        assert worth[decision.best] == max(worth.values())
    else:
        assert values[decision.best] == max(values.values())
    if policy.threshold and not decision.abstained:
        assert max(values.values()) >= policy.threshold and not decision.out_of_domain


def check_batches(router: Router, weights: dict[str, float] | None, alone: list[Decision], seed: int) -> None:
    order = random.Random(seed).sample(range(len(PROMPTS)), len(PROMPTS))
    cut = seed % len(order)
    found = [
        one
        for part in (order[:cut], order[cut:])
        for one in router.route_batch([PROMPTS[at] for at in part], weights=weights)
    ]
    assert [shown(one) for one in found] == [shown(alone[at]) for at in order]


def check_chat(router: Router, weights: dict[str, float] | None, seed: int) -> None:
    """Turn by turn is at once; every turn keeps the policy; a turn that is repeated stays."""
    texts = random.Random(seed).sample([*PROMPTS, PASTED, PASTED], 5)
    chat = Conversation(router)
    turns = [chat.route(text, weights=weights) for text in (*texts, texts[-1])]
    messages = [{"role": "user", "content": text} for text in (*texts, texts[-1])]
    at_once = Conversation.from_messages(router, messages, weights=weights).turns
    assert [shown(turn.decision) for turn in at_once] == list(map(shown, turns))
    for turn in turns:
        check_decision(turn, router, weights)
    repeated = Conversation(router)
    first, *others = [repeated.route(texts[0], weights=weights) for _ in range(4)]
    assert {one.quality[0][0] for one in others} == {first.quality[0][0]}
    assert chat.explain().to_dict()["expert"] == turns[-1].expert


def check_predictions(router: Router) -> None:
    predicted = router.predict(PROMPTS).tolist()
    assert predicted == [one.expert or one.best for one in router.route_batch(PROMPTS)]
    if router.kind == "outcomes":
        return
    rows = router.predict_proba(PROMPTS)
    assert np.allclose(rows.sum(axis=1), 1.0)
    likeliest = router.with_policy(Policy()).route_batch(PROMPTS)
    assert router.classes_[rows.argmax(axis=1)].tolist() == [one.best for one in likeliest]
    if router.policy in (POLICIES["none"], POLICIES["costs without weights"]) and router.default is None:
        assert router.classes_[rows.argmax(axis=1)].tolist() == predicted


def test_every_pair_of_features_meets() -> None:
    met = {pair for case in CASES for pair in meet_pairs(case)}
    assert met.issuperset(list_pairs(FEATURES, FORBIDDEN)) and met.isdisjoint(FORBIDDEN)
