"""Mixed prompts: each sentence has its own decision, and the experts of all sentences are named."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from demo_router import demo_router
from ir3de import Router
from ir3de.routing.words import MAX_SENTENCES, _split_sentences


@cache
def router() -> Router:
    return demo_router()


@pytest.mark.parametrize(
    ("text", "experts"),
    [
        ("Can my landlord evict me? What is the derivative of x squared?", ("law", "mathematics")),
        ("My chest hurts when I breathe. Also, how do I sort a list in Python?", ("medicine", "coding")),
        ("Solve x + 3 = 10 for x.\nWhy did the Roman Empire fall?", ("mathematics", "history")),
    ],
)
def test_a_mixed_prompt_names_every_expert(text: str, experts: tuple[str, ...]) -> None:
    found = router().explain(text)
    assert found.mixed == experts
    assert tuple(sentence.expert for sentence in found.sentences) == experts
    said = json.loads(json.dumps(found.to_dict()))
    assert said["mixed"] == list(experts)
    assert [row["expert"] for row in said["sentences"]] == list(experts)


@pytest.mark.parametrize(
    "text",
    [
        "Can my landlord evict me?",
        "Can my landlord evict me? The rent is late.",
        "",
        "hi",
        "我的房东想赶我走。他要我搬出去。",
    ],
)
def test_a_prompt_of_one_expert_or_none_is_not_mixed(text: str) -> None:
    assert router().explain(text).mixed == ()


def test_a_sentence_has_the_decision_of_the_same_prompt() -> None:
    first, second = router().explain("Can my landlord evict me? Why did Rome fall?").sentences
    assert first.decision == router().route(first.text)
    assert second.decision.best == router().route(second.text).best


def test_only_so_many_sentences_are_looked_at() -> None:
    found = router().explain("Is it legal? " * (MAX_SENTENCES + 9))
    assert len(found.sentences) == MAX_SENTENCES


@tiny.LAW
@given(st.lists(st.text(alphabet="ab .?!\n;。", max_size=4), max_size=12))
def test_no_token_is_lost_or_cut(pieces: list[str]) -> None:
    numbered = list(enumerate(pieces))
    said = [piece for part in _split_sentences(numbered) for piece in part]
    assert [piece for piece in numbered if piece in said] == said
    assert not "".join(text for place, text in numbered if (place, text) not in said).strip()


def test_no_end_is_seen_within_a_number() -> None:
    assert router().explain("What is 3.14 times 2?").sentences == ()
