"""Of a long text only the beginning is read, and the first tokens are still those of the whole text."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ir3de
import tiny
from ir3de import AllTokens, Average, Conversation, EntropyTopK, Router
from ir3de.embedding import Embedding, Tokenizer
from ir3de.embedding.normalisation import JUDGED_CHARACTERS, MAX_READ_PER_TOKEN, MIN_TOKENS

KINDS = ("byte-level BPE", "WordPiece", "Unigram")
MOST_READ = MAX_READ_PER_TOKEN * MIN_TOKENS
CAP = 1_024
_draw = random.Random(1)

# words that do not end, in scripts and alphabets of every kind
ENDLESS = {
    "digits": "7" * 40_000,
    "one letter": "a" * 40_000,
    "one syllable": "ing" * 13_000,
    "letters": "".join(_draw.choices("abcdefghijklmnopqrstuvwxyz", k=40_000)),
    "base64": base64.b64encode(_draw.randbytes(30_000)).decode(),
    "DNA": "".join(_draw.choices("ACGT", k=40_000)),
    "Chinese": "".join(chr(_draw.randint(0x4E00, 0x9FFF)) for _ in range(40_000)),
    "one Chinese character": "法" * 40_000,
    "Thai": "สวัสดีครับภาษาไทยไม่มีช่องว่าง" * 1_300,
    "line ends": "\n" * 40_000,
    "emoji": "👨‍👩‍👧‍👦" * 6_000,
    "combining marks": "e\u0301" * 20_000,
}
LONG = {
    "prose": "The court held that the contract was void, and it's said that 12 of them appealed.\n" * 400,
    "words far apart": ("word" + " " * 5) * 4_000,
    "capitals": "THE COURT HELD THAT THE CONTRACT WAS VOID. " * 600,
    "capitals, then not": "THE COURT HELD THAT. " * 600 + "the court held that. " * 600,
    "Greek capitals": "ΣΊΣΥΦΟΣ ΚΑΙ ΟΔΥΣΣΕΥΣ " * 1_500,
    "capitals of two": "İSTANBUL IS A CITY. " * 1_500,
    "random case": "hOw Do I bOiL aN EgG? " * 1_500,
    "random case, then not": "hOw Do I bOiL aN EgG? " * 300 + "how do I boil an egg? " * 1_000,
    "control characters": "a\x04b \x00" * 6_000,
    "half pairs": "\ud83d\ude00 x \udc00" * 5_000,
    "English, then digits": "How long do I boil an egg? " * 200 + "7" * 40_000,
}


@cache
def default() -> Tokenizer:
    return Embedding.default().tokenizer


def assert_first_tokens_are_those_of_the_whole(tokenizer: Tokenizer, text: str, most: int = CAP) -> None:
    whole = tokenizer.encode(text)[:most].tolist()
    assert tokenizer.encode(text, most)[:most].tolist() == whole
    flat, lengths = tokenizer.encode_batch(["egg", text, text[:9_000]], most)
    assert np.split(flat, np.cumsum(lengths.astype(int)))[1][:most].tolist() == whole


@pytest.mark.parametrize("text", (ENDLESS | LONG).values(), ids=(ENDLESS | LONG).keys())
def test_the_first_tokens_of_a_long_text_are_those_of_the_whole(text: str) -> None:
    assert_first_tokens_are_those_of_the_whole(default(), text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_with_tokenizers_of_every_kind(kind: str, tiny_embeddings: dict[str, Embedding]) -> None:
    tokenizer = tiny_embeddings[kind].tokenizer
    # which tokens a Unigram tokenizer begins a word with can depend on the length of a word that does not end
    for text in (LONG | ENDLESS if kind != "Unigram" else LONG).values():
        assert_first_tokens_are_those_of_the_whole(tokenizer, text)


def test_so_it_is_without_the_fast_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokie", None)
    tokenizer = Tokenizer(default().definition)
    assert tokenizer.engine == "tokenizers"
    for name in ("prose", "capitals, then not", "random case"):
        assert_first_tokens_are_those_of_the_whole(tokenizer, LONG[name])


def test_so_it_is_with_real_documents() -> None:
    modules = sorted(Path(ir3de.__file__).parent.rglob("*.py"), key=lambda path: -path.stat().st_size)
    for path in modules[:20]:
        assert_first_tokens_are_those_of_the_whole(default(), path.read_text("utf-8") * 2)


FRAGMENTS = [
    "the ",
    "court",
    "7",
    "12 ",
    "\n",
    "\n\n",
    " ",
    "\t",
    "é",
    "字",
    "。",
    "A",
    "B",
    "'s",
    "'ll",
    "-",
    "😀",
    "\x04",
    "Σ",
    "İ",
]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 3_000)), min_size=3), st.integers(1, 1_500))
def test_so_it_is_with_any_text(parts: list[tuple[str, int]], most: int) -> None:
    text = "".join(fragment * number for fragment, number in parts)
    if len(default().encode(text[:MOST_READ])) >= most + 128:  # otherwise the limit of characters counts
        assert_first_tokens_are_those_of_the_whole(default(), text * 3, most)


def test_pieces_of_a_long_text_are_the_first_of_the_whole() -> None:
    for text in (LONG["prose"], LONG["capitals of two"], ENDLESS["base64"]):
        assert default().pieces(text, CAP)[: CAP - 1] == default().pieces(text)[: CAP - 1]  # the last may be longer


# --- what is read ---


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many characters reached the tokenizer, call by call."""
    found: list[int] = []
    engine, proof = default()._fast or (None, None)
    assert engine is not None and proof is not None

    class Counting:
        def encode_batch_flat(self, texts: Sequence[str], special: bool) -> Any:
            found.extend(map(len, texts))
            return engine.encode_batch_flat(texts, special)

    tokenizer = Tokenizer(default().definition, proof=proof)
    tokenizer.__dict__["_fast"] = (Counting(), proof)
    monkeypatch.setattr(_router(), "_encode", tokenizer.encode)
    return found


@cache
def _router() -> Router:
    return Router.fit({name: tiny.sentences(name, 20) for name in tiny.DOMAINS})


@pytest.mark.parametrize("text", ["7" * 2_000_000, "the court " * 200_000, " " * 2_000_000, "法" * 1_000_000])
def test_a_text_of_any_length_costs_what_its_beginning_costs(read: list[int], text: str) -> None:
    _router().route(text)
    assert sum(read) <= 2 * MOST_READ


def test_a_text_of_few_tokens_is_read_up_to_a_limit() -> None:
    router = _router()
    assert router.route(" " * MOST_READ + "Is this contract void?").expert == router.route(" " * MOST_READ).expert
    assert router.route(" " * 9_000 + "Is this contract void?").tokens > router.route(" " * 9_000).tokens


# --- decisions ---


@cache
def _encode_all() -> list[Any]:
    """The ids of the whole texts."""
    return [default().encode(text) for text in (*LONG.values(), *ENDLESS.values())]


@pytest.mark.parametrize("selector", [Average(), AllTokens(), EntropyTopK(10), EntropyTopK(10, cap=50)])
def test_the_cut_changes_no_decision(selector: Any) -> None:
    router = _router().with_selector(selector)
    texts = [*LONG.values(), *ENDLESS.values()]
    for text, ids, batched in zip(texts, _encode_all(), router.route_batch(texts), strict=True):
        decision = router.route(text)
        assert decision == router.route_ids([ids])[0] == batched
        assert decision.tokens == min(len(ids), selector.cap)


def test_explanations_and_chats_read_what_route_reads() -> None:
    router = _router()
    for text in (LONG["prose"], LONG["English, then digits"], LONG["capitals, then not"]):
        explained = router.explain(text)
        assert explained.decision == router.route(text)
        assert len(explained.tokens) == CAP
        assert router.flips(text).expert == router.route(text).expert
        chat = Conversation(router)
        assert chat.route(text).tokens <= CAP


# --- capitals ---


def test_the_beginning_of_a_long_text_decides_about_its_capitals() -> None:
    def encode(text: str) -> list[int]:
        return default().encode(text).tolist()

    beginning = ("THE COURT HELD " * 300)[:JUDGED_CHARACTERS]
    assert encode(beginning + "the end") == encode(beginning.lower() + "the end")
    assert encode("the " + beginning + "THE END") != encode(("the " + beginning + "THE END").lower())
