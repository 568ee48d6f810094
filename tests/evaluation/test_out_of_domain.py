"""Out-of-domain prompts: rare and unknown tokens make them, common words do not hide them."""

import random
import string

import numpy as np
import pytest

import ir3de
import tiny
from demo_router import chosen_demo_router, demo_router
from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de.policies import Policy
from ir3de.scorers import Blend
from ir3de.scorers.table import token_familiarity


def gibberish(count: int) -> dict[str, list[str]]:
    """Make letters and bytes at random, 10 to 200 of them."""
    draw = random.Random(0)
    letters = [draw.choices(string.ascii_lowercase + " " * 5, k=draw.randint(10, 200)) for _ in range(count)]
    return {
        "random letters": ["".join(text) for text in letters],
        "random bytes": [draw.randbytes(draw.randint(10, 200)).decode("latin-1") for _ in range(count)],
    }


def test_the_more_often_a_token_was_seen_the_more_familiarity_it_is() -> None:
    statistics = [ir3de.collect(texts) for texts in demo.prompts().values()]
    familiarity = token_familiarity(statistics)
    seen = sum(s.histogram * (1 / s.tokens) for s in statistics)
    order = np.argsort(seen, kind="stable")
    assert (np.diff(familiarity[order]) >= 0).all()
    assert familiarity.max() <= 0 and familiarity[seen == 0].max() == familiarity.min()


def test_the_unknown_token_is_never_familiarity() -> None:
    embedding = tiny.word_embedding()
    unknown = embedding.tokenizer.unknown_id
    assert unknown is not None
    texts = [f"{text} 字 🙂 字" for text in tiny.sentences("law", 30)]
    statistics = [ir3de.collect(texts, embedding=embedding)]
    assert statistics[0].histogram[unknown] > 60
    assert (
        token_familiarity(statistics, unknown=unknown)[unknown] == token_familiarity(statistics, unknown=unknown).min()
    )


def test_unknown_words_make_a_prompt_less_familiar() -> None:
    router = tiny.router(40, of=tiny.word_embedding())
    told = ["the", "contract", "is", "void", "and", "the", "landlord", "can", "evict", "the", "tenant"]
    found = []
    for strange in range(len(told)):
        decision = router.route(" ".join(["ξψ"] * strange + told[strange:]))
        assert decision.familiarity is not None
        found.append(decision.familiarity)
    assert found == sorted(found, reverse=True) and found[-1] < found[0]
    assert (
        router.route(" ".join(["ξψ"] * 9 + told[:1])).out_of_domain and not router.route(" ".join(told)).out_of_domain
    )


def test_few_own_prompts_and_many_strange_ones_are_called_out_of_domain() -> None:
    router = chosen_demo_router()
    own = router.route_batch([text for texts in demo.held_out().values() for text in texts])
    assert np.mean([decision.out_of_domain for decision in own]) < 0.06
    for kind, texts in gibberish(60).items():
        assert np.mean([decision.out_of_domain for decision in router.route_batch(texts)]) > 0.5, kind
    letters = router.route_batch(gibberish(60)["random letters"])
    familiar, strange = (np.array([decision.familiarity for decision in part]) for part in (own, letters))
    assert (familiar[:, None] > strange).mean() > 0.95


@pytest.mark.parametrize("threshold", [0.0, 1e-9, 0.5])
def test_out_of_domain_prompts_are_abstained_on_with_any_threshold(threshold: float) -> None:
    router = demo_router().with_policy(Policy(threshold=threshold))
    text = gibberish(1)["random bytes"][0]
    decision = router.route(text)
    assert (decision.abstained, decision.reason, decision.expert) == (True, "out of domain", None)
    assert decision.confidence is not None and decision.in_domain is not None
    assert decision.confidence <= decision.in_domain < 0.5
    named = router.with_policy(router.policy, default="law").route(text)
    assert (named.abstained, named.reason, named.expert) == (True, "out of domain", "law")


def test_without_kept_prompts_only_a_threshold_makes_them_abstained_on() -> None:
    """Nothing was learnt then of what is in domain."""
    router = Router.fit(demo.prompts(), scorer=Blend(), keep_sample=False)
    decision = router.route(gibberish(1)["random bytes"][0])
    assert decision.in_domain is None and not decision.abstained
