"""The native kernel encodes plain texts word by word: the ids are the reference engine's, whatever it remembers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Router, kernel
from ir3de.corpora import examples
from ir3de.embedding import Embedding
from ir3de.embedding import fast_tokenizer as fast
from ir3de.kernel.interfaces import Words
from ir3de.routing.messages import BARE_GENERIC_WORDS, GENERIC_WORDS

pytestmark = [
    pytest.mark.skipif(kernel.native is None, reason="the native kernel was not built here"),
    pytest.mark.skipif(Embedding.default().tokenizer.fast_engine is None, reason="there is no fast engine here"),
]


@cache
def words() -> Words:
    return forgetful()


def forgetful() -> Words:
    """A memory of its own, so that what other tests taught is not known."""
    quick = Embedding.default().tokenizer.quick
    made: Words = kernel.native.Words(quick.reader, quick.encode, fast.classify, lambda: True)
    assert [made.encode("a b") for _ in range(9)] == [None] * 8 + [made.encode("a b")] != [None] * 9
    return made


def test_a_tokenizer_that_splits_texts_otherwise_is_asked_for_them() -> None:
    asked = []
    quick = Embedding.default().tokenizer.quick
    made = kernel.native.Words(quick.reader, quick.encode, fast.classify, lambda: asked.append(1))
    assert [made.encode("a b") for _ in range(20)] == [None] * 20 and len(asked) == 1


def test_the_default_tokenizer_is_one_that_is_proven() -> None:
    tokenizer = Embedding.default().tokenizer
    found = [tokenizer.quick.words.encode("What is 12 times 7?") for _ in range(9)][-1]
    assert (
        found is not None
        and np.frombuffer(found, np.uint32).tolist() == tokenizer.encode("What is 12 times 7?").tolist()
    )


def assert_right(texts: Sequence[str], memory: Words, least: float) -> None:
    """The ids are the reference engine's; of the texts, at least a share of `least` is encoded at all."""
    flat, lengths = Embedding.default().tokenizer._encode_by_reference(texts)
    expected = np.split(flat, np.cumsum(lengths)[:-1].astype(np.int64))
    encoded = 0
    for text, ids in zip(texts, expected, strict=True):
        if (found := memory.encode(text)) is not None:
            encoded += 1
            assert np.frombuffer(found, np.uint32).tolist() == ids.tolist(), repr(text)
    assert encoded >= least * len(texts), (encoded, len(texts))


SINGLED_OUT = (
    "'",
    "s",
    "t",
    "ll",
    "re",
    "v",
    "a",
    "B",
    "1",
    ".",
    "<",
    "|",
    " ",
    "\n",
    "\r",
    "é",
    "’",
    "字",
    "_",
    "\u0301",
)


def test_all_short_sequences_of_what_splitting_rules_single_out() -> None:
    assert_right(["".join(parts) for parts in product(SINGLED_OUT, repeat=3)], words(), 0.8)
    assert_right(["".join(parts) for parts in product(SINGLED_OUT[:16], repeat=4)][::3], words(), 0.8)


@pytest.mark.parametrize("context", ["a _b", "._. ", "1_\n_ 's"])
def test_every_character(context: str) -> None:
    characters = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    some = [one for one in characters if not 0x3400 <= ord(one) < 0xD7A4 or ord(one) % 16 == 0]
    assert_right([context.replace("_", one) for one in some], words(), 0.4)


def test_the_prompts_of_the_demo_and_the_marks_of_the_tokenizer() -> None:
    prompts = [text for texts in examples.prompts().values() for text in texts]
    assert_right(prompts, forgetful(), 0.95)
    special = [f"a {mark}b" for mark in ("<|im_end|>", "<repo_name>", "<file_sep>", "<gh_stars>", "<empty_output>")]
    assert [words().encode(text) for text in special] == [None] * len(special)
    assert_right(["#include<iostream>", "a<b", "<p>text</p>", "x <= y"], words(), 1.0)


def test_words_that_are_too_long_and_texts_of_many_new_words_are_left() -> None:
    memory = forgetful()
    assert memory.encode("a" * 32) is None
    new = " ".join(f"q{letter}zv" for letter in "abcdefghijklmnopqrstuvw")
    assert memory.encode(new) is None
    assert_right([new, new], memory, 0.5)  # by now the first of them are known


def test_more_words_than_are_remembered() -> None:
    syllables = [first + vowel for first in "bcdfghjklmnprstvwz" for vowel in "aeiou"]
    texts = [f"{one}{two}{three}" for one, two, three in product(syllables, syllables, syllables[::10])]
    memory = forgetful()
    for _ in range(2):  # the second time, many have been forgotten
        assert_right(texts, memory, 1.0)


def test_threads_share_what_is_remembered() -> None:
    prompts = [text for texts in examples.prompts().values() for text in texts][:200]
    memory = forgetful()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda turn: [memory.encode(text) for text in prompts], range(8)))
    expected = [memory.encode(text) for text in prompts]
    assert all(one in (None, right) for turn in found for one, right in zip(turn, expected, strict=True))
    assert sum(one is not None for one in expected) > 150


@pytest.mark.parametrize("given", [3, None, b"text"])
def test_what_is_not_a_text_is_an_error(given: object) -> None:
    with pytest.raises(TypeError):
        words().encode(given)  # type: ignore[arg-type]


# short texts ----------------------------------------------------------------------------------------------------------

SHORT = st.lists(
    st.sampled_from([*sorted(GENERIC_WORDS)[::25], "ok", "Thanks!", "(hi)", "—", "...", "egg", "İ"]), max_size=6
)


@cache
def default_router() -> Router:
    return Router.fit({name: tiny.sentences(name, 60) for name in tiny.DOMAINS})


@tiny.LAW
@given(SHORT, st.sampled_from([" ", "  ", "\n", "\x1f"]))
def test_a_short_text_without_content_abstains_as_in_a_batch(parts: list[str], space: str) -> None:
    text = space.join(parts)
    assert default_router().route(text) == default_router().route_batch([text])[0]


def test_generic_words_are_known_without_the_marks_around_them() -> None:
    assert GENERIC_WORDS <= BARE_GENERIC_WORDS
