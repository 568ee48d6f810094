"""Doubtful texts have the reference's ids without the reference: the proof for the default tokenizer."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir3de.embedding import Embedding, Tokenizer
from ir3de.embedding.fast_tokenizer import _SPECIAL_BEGINNINGS, PROVEN, WordByWord
from ir3de.embedding.proof import _CONTEXTS, _SINGLED_OUT, _SUSPECTS, PANEL

# beside the proof's own: in a run of signs, between letters, beside white space, before and after contractions
CONTEXTS = (*_CONTEXTS, "(_)", " (_--", "a_b", "  _  ", "'_'s", "_\t'll", "é_é", "_'", " _ ", "\t_\n")


@cache
def parts() -> tuple[Tokenizer, WordByWord]:
    tokenizer = Embedding.default().tokenizer
    assert tokenizer.proof is not None
    proven = PROVEN[tokenizer.sha256, tokenizer.proof.version]  # missing: run these tests with that version, and add it
    return tokenizer, WordByWord(tokenizer.fast_engine.encode_batch_flat, proven)


def assert_same_ids(texts: list[str]) -> int:
    """How many of the texts were encoded word by word; all of those have the reference's ids."""
    tokenizer, words = parts()
    found = [(text, ids) for text in texts if (ids := words.encode(text)) is not None]
    expected = tokenizer.reference.encode_batch_fast([text for text, _ in found], add_special_tokens=False)
    wrong = [text for (text, ids), one in zip(found, expected, strict=True) if ids.tolist() != one.ids]
    assert not wrong, wrong[:20]
    return len(found)


def doubtful_points() -> list[int]:
    proof = parts()[0].proof
    assert proof is not None
    return [point for first, last in proof.doubtful for point in range(first, last + 1, 1 if last < 0x40000 else 9_001)]


def test_every_doubtful_character_has_the_ids_of_the_reference_in_every_context() -> None:
    points = [point for point in doubtful_points() if point < 0x40000]
    texts = [context.replace("_", chr(point)) for point in points for context in CONTEXTS]
    assert assert_same_ids(texts) == len(texts)  # none is left to the reference
    assert_same_ids([context.replace("_", chr(point)) for point in doubtful_points() for context in CONTEXTS])


ODD = ("\x04", "\x1d", "Ⅷ", "〇", "<", "|")


def test_short_sequences_of_what_splitting_rules_single_out() -> None:
    draw = random.Random(0)
    assert_same_ids(["".join(found) for found in product((*_SINGLED_OUT, *ODD), repeat=2)])
    assert_same_ids(["".join(draw.choices((*_SINGLED_OUT, *_SUSPECTS, *ODD), k=7)) for _ in range(2_000)])


@pytest.mark.slow
@pytest.mark.nightly
def test_all_short_sequences() -> None:
    sequences = ["".join(found) for found in product((*_SINGLED_OUT, *ODD), repeat=3)]
    assert assert_same_ids(sequences) > 0.9 * len(sequences)


def test_awkward_texts_and_added_tokens(texts: list[str]) -> None:
    added = [token.content for token in parts()[0].reference.get_added_tokens_decoder().values()]
    assert all(any(one.startswith(begin) for begin in _SPECIAL_BEGINNINGS) for one in added)
    assert_same_ids([*PANEL, *texts, *(f"a {one}\x04 b" for one in added)])
    assert all(parts()[1].encode(f"a {one}\x04 b") is None for one in added)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(max_size=8) | st.sampled_from(["\x04", "\t'", "Ⅷ", "〇年", "\x0c", "☃'"]), max_size=9).map("".join)
)
def test_any_text(text: str) -> None:
    assert_same_ids([text])


@pytest.mark.parametrize(
    "text", ["Is this \x04 contract void?", "if x:\n\t'll'\n" * 30, "二〇二六年", "☃'s " * 400, "a \x04 b " * 2_000]
)
def test_doubtful_texts_do_not_load_the_reference(text: str) -> None:
    known = parts()[0]
    tokenizer = Tokenizer(known.definition, proof=known.proof, fast_cache=known.fast_cache)
    ids = tokenizer.encode(text, 1_024)
    batch, lengths = tokenizer.encode_batch([text, "egg"], 1_024)
    assert "reference" not in vars(tokenizer)
    assert ids.tolist() == known.reference.encode(text, add_special_tokens=False).ids[: len(ids)]
    assert np.array_equal(batch[: min(len(ids), 1_024)], ids[:1_024]) and lengths[1] == 1
