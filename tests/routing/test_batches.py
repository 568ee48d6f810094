"""Bits: no decision, and no figure made of decisions, depends on a prompt's neighbours, its place or the batch."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pytest

import ir3de.evaluation.prompts
import tiny
from answered_prompts import answers
from demo_router import demo_router
from ir3de import AllTokens, Average, EntropyTopK, Router
from ir3de.evaluation.accuracy import evaluate
from ir3de.evaluation.outcomes import evaluate_outcomes, measure_order
from ir3de.evaluation.threshold import calibrate_confidence, calibrate_threshold
from ir3de.policies import Policy
from ir3de.scorers import Blend
from ir3de.scorers.logistic import Logistic
from ir3de.traffic import DecisionLog, compare
from laws import EVERY_SCORER, SELECTORS, STRANGE, shown

MOST = 70  # prompts: longer than any vector of a processor, and its rest
# by day those around the widths of vectors; all of them at night
LENGTHS = {"some lengths": [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, MOST], "all": list(range(1, MOST + 1))}
NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
Item = TypeVar("Item")

PROMPTS = [*STRANGE, "ok thanks", "yes", *tiny.mixed(MOST - len(STRANGE) - 2, seed=3)]
LABELLED = [(text, name) for name in tiny.DOMAINS for text in tiny.sentences(name, 24, seed=9)][:MOST]
ROUTERS: dict[str, Callable[[], Router]] = {
    **{str(one): lambda one=one: tiny.router(20, selector=one) for one in SELECTORS},
    **{str(one): lambda one=one: tiny.router(scorer=one, keep_sample=False) for one in EVERY_SCORER[::2]},
    "calibrated": lambda: tiny.router(20, default="law"),
    "words": lambda: tiny.router(20, of=tiny.word_embedding()),
    "pairs": lambda: tiny.router(20, scorer=Blend(0.5, 0.5)),
    "logistic": lambda: tiny.router(20, scorer=Logistic()),
    "membership": demo_router,
    "threshold": lambda: demo_router().with_policy(Policy(threshold=0.5)),
    "costs": lambda: tiny.router(20, policy=Policy(weights={"price": 0.1}, costs={"law": {"price": 3.0}})),
    "outcomes": lambda: Router.fit_outcomes(answers(number=20), embedding=tiny.embedding(), guard=False),
}


lengths = pytest.mark.parametrize(
    "lengths", [pytest.param(own, id=name, marks=NIGHTLY if name == "all" else ()) for name, own in LENGTHS.items()]
)


def arrange(items: Sequence[Item], lengths: Sequence[int]) -> Iterator[tuple[int, list[Item]]]:
    """Batches of each of these lengths, each time with the items in another order."""
    for length in lengths:
        shuffled = random.Random(length).sample(items, len(items))
        yield length, (list(items), list(items)[::-1], shuffled)[length % 3]


@pytest.mark.parametrize("kind", ROUTERS)
@lengths
def test_a_decision_is_the_same_in_every_batch_and_order(kind: str, lengths: list[int]) -> None:
    router = ROUTERS[kind]()
    alone = {text: shown(router.route(text)) for text in PROMPTS}
    for length, texts in arrange(PROMPTS, lengths):
        for begin in range(0, len(texts), length):
            batch = texts[begin : begin + length]
            assert [shown(one) for one in router.route_batch(batch)] == [alone[text] for text in batch], length


@pytest.mark.parametrize("kind", ["calibrated", "membership", "threshold", "outcomes", "logistic"])
def test_no_vectorised_function_takes_part_in_a_decision(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They round otherwise on other processors, and some of them at the end of an array."""
    router = ROUTERS[kind]()
    before = [shown(one) for one in router.route_batch(PROMPTS)]

    def distort(function: Callable[..., Any]) -> Callable[..., Any]:
        def distorted(values: Any, *rest: Any, **options: Any) -> Any:
            found = np.asarray(function(values, *rest, **options))
            return found * (1 + 1e-4 * np.arange(1, found.size + 1).reshape(found.shape))

        return distorted

    for name in ("exp", "log", "log2", "log1p", "expm1", "sqrt", "power", "logaddexp", "mean", "einsum", "matmul"):
        monkeypatch.setattr(np, name, distort(getattr(np, name)))
    assert [shown(one) for one in router.route_batch(PROMPTS)] == before
    assert [shown(router.route(text)) for text in PROMPTS] == before


@pytest.mark.parametrize("selector", [Average(), AllTokens(), EntropyTopK(3)], ids=str)
@lengths
def test_figures_are_the_same_in_every_batch_and_order(
    selector: Average | AllTokens | EntropyTopK, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    router = tiny.router(20, selector=selector)

    def measure(pairs: Sequence[tuple[str, str]]) -> tuple[object, ...]:
        made = calibrate_threshold(router, *zip(*pairs, strict=True), error=0.3)
        by_expert = {name: [text for text, own in pairs if own == name] for name in dict(map(reversed, pairs))}
        rules = calibrate_confidence(router, by_expert).compiled.rules
        return made.chosen, made.router.compiled.rules.calibration, rules.calibration, evaluate(made.router, by_expert)

    expected = measure(LABELLED)
    for length, pairs in arrange(LABELLED, lengths):
        monkeypatch.setattr(ir3de.evaluation.prompts, "BATCH_PROMPTS", length)
        assert measure(pairs) == expected, length


@lengths
def test_figures_of_outcomes_and_logs_are_the_same_in_every_batch_and_order(
    lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, labelled = random.Random(5), tiny.router(20)
    models = ("llama", "mistral", "gemma")
    rows = [{**row, "scores": {name: draw.random() for name in models}} for row in answers(number=MOST // 2)]
    router = Router.fit_outcomes(rows, embedding=tiny.embedding(), guard=False)
    log = [
        {"text": text, "expert": name, "ranking": [], "confidence": draw.random(), "cost": draw.random(),
         "prompt_tokens": 7, "completion_tokens": 3, "price": {"input_per_1m": 0.1, "output_per_1m": 0.7}}
        for text, name in LABELLED
    ]  # fmt: skip
    gaps = [(draw.choice([0.0, draw.random()]), (draw.random(), draw.random() / 2)) for _ in range(MOST)]

    def measure(some: Sequence[Any], others: Sequence[Any], pairs: Sequence[Any]) -> tuple[object, ...]:
        logged = DecisionLog(others)
        found = compare(None, labelled, logged, prices=logged.prices)
        return evaluate_outcomes(router, some), found, measure_order(*zip(*pairs, strict=True))

    expected = measure(rows, log, gaps)
    arranged = (arrange(own, lengths) for own in (rows, log, gaps))
    for (length, some), (_, others), (_, pairs) in zip(*arranged, strict=True):
        monkeypatch.setattr(ir3de.evaluation.prompts, "BATCH_PROMPTS", length)
        monkeypatch.setattr(ir3de.traffic.columns, "BATCH_REQUESTS", length)
        assert measure(some, others, pairs) == expected, length
