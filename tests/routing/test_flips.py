"""Which words a decision hangs on: brute force says the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from demo_router import demo_router
from ir3de import AllTokens, Average, EntropyTopK, Router
from ir3de.policies import Policy
from ir3de.routing.compiled import decide
from ir3de.routing.words import MAX_WORDS_TOGETHER, find_words
from ir3de.scorers import Blend
from laws import STRANGE, words

ROWS = [
    {"text": text, "task": task, "scores": {"one": 0.2 + 0.7 * (task == "law"), "two": 0.5, "three": len(text) / 200}}
    for task in tiny.DOMAINS
    for text in tiny.sentences(task, 8)
]
COSTS = Policy(0.5, {"price": 0.1}, {"law": {"price": 3.0}})
ROUTERS = {
    "average": lambda: tiny.router(20, default="law"),
    "none fits": lambda: tiny.router(20),
    "pairs": lambda: tiny.router(scorer=Blend(0.5, 0.5)),
    "votes of a few": lambda: tiny.router(selector=EntropyTopK(3)),
    "votes of all, unknown tokens": lambda: tiny.router(of=tiny.word_embedding(), selector=AllTokens()),
    "unknown tokens": lambda: tiny.router(of=tiny.word_embedding(), default="cooking"),
    "abstaining and costs": lambda: tiny.router(default="maths", policy=COSTS),
    "short cap": lambda: tiny.router(selector=Average(cap=5), scorer=Blend(0.5, 0.5)),
    "short cap, votes": lambda: tiny.router(selector=EntropyTopK(2, cap=5)),
    "outcomes": lambda: Router.fit_outcomes(ROWS, embedding=tiny.embedding()),
    "one expert": lambda: Router.fit({"law": tiny.sentences("law", 5)}, embedding=tiny.embedding()),
}
_MADE: dict[str, Router] = {}


def made(kind: str) -> Router:
    if kind not in _MADE:
        _MADE[kind] = ROUTERS[kind]()
    return _MADE[kind]


def asked_without(router: Router, text: str, *places: int) -> str:
    """The expert of the prompt without the words at these places."""
    pieces = router.tokenizer.pieces(text)
    starts = find_words([piece for _, piece in pieces]).tolist()
    ids = np.array([token for token, _ in pieces], np.uint32)
    ends = [*starts[1:], len(ids)]
    gone = [token for place in places for token in range(starts[place], ends[place])]
    return decide(router.compiled, np.delete(ids, gone), router.tokenizer.unknown_id).expert


@pytest.mark.parametrize("kind", ROUTERS)
@given(text=st.lists(words, max_size=8).map(" ".join) | st.sampled_from(STRANGE))
@tiny.law_settings(max_examples=12)
def test_what_flips_alone_and_together_is_what_brute_force_finds(kind: str, text: str) -> None:
    router = made(kind)
    expert, found = router.route(text).expert, router.flips(text)
    others = [asked_without(router, text, place) for place in range(len(router.explain(text).words))]
    assert found.expert == expert
    assert found.alone == {place: other for place, other in enumerate(others) if other != expert}
    if not found.together:
        assert not found.alone and found.other is None
        return
    assert asked_without(router, text, *found.together) == found.other != expert
    assert len(found.together) <= MAX_WORDS_TOGETHER
    if len(found.together) > 1:  # none of them could stay
        for kept in found.together:
            assert asked_without(router, text, *(place for place in found.together if place != kept)) == expert


def test_words_that_decide_alone_or_together_are_named() -> None:
    router = made("unknown tokens")
    alone = router.flips("onion court")
    assert (alone.expert, alone.alone, alone.together, alone.other) == ("law", {1: "cooking"}, (1,), "cooking")
    both = router.flips("court onion court court")
    assert (both.expert, both.alone, both.other) == ("law", {}, "cooking")
    assert len(both.together) > 1 and set(both.together) <= {0, 2, 3}


def test_a_thousand_tokens_are_looked_at_and_what_lies_beyond_them_is_not() -> None:
    router = made("average")
    text = " ".join(["contract"] * 700 + ["egg"] * 690)
    ids = router.tokenizer.encode(text)
    assert len(ids) > 1_024
    found = router.flips(text)
    assert max(found.alone, default=0) < len(router.explain(text).words)
    assert found.to_dict().keys() == {"alone", "together"}


def test_weights_of_costs_are_respected() -> None:
    router = tiny.router(policy=Policy(costs={"law": {"price": 1.0}}))
    text = "evict judge clause liable"
    assert router.flips(text).expert == "law"
    dear = router.flips(text, weights={"price": 5.0})
    assert dear.expert == router.route(text, weights={"price": 5.0}).expert != "law"


def test_without_its_content_a_prompt_goes_to_nobody() -> None:
    router = demo_router()
    assert (router.route("is it legal?").expert, router.route("is it?").reason) == ("law", "no content")
    found = router.flips("is it legal?")
    assert (found.expert, found.alone, found.other) == ("law", {2: None}, None)
    assert router.flips("can you give me an example?").expert is None
