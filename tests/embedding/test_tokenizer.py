"""The bundled embedding, and the two tokenizer engines."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as ReferenceTokenizer

import tiny
from ir3de.embedding import Embedding, Tokenizer, fast_tokenizer
from ir3de.embedding import tokenizer as tokenizer_module
from ir3de.embedding.normalisation import is_random_case, lowercase_if_all_caps
from ir3de.embedding.proof import LONGEST_IN_CHARACTERS, PANEL, Proof, cut, prove
from ir3de.embedding.readers import DEFAULTS
from ir3de.errors import InputError

BUNDLED = DEFAULTS[1].folder
KINDS = ("byte-level BPE", "WordPiece", "Unigram")
SCRIPT = Path(__file__).parents[2] / "scripts" / "build_default_embedding.py"
TOKENIZER_SHA256 = "876dc8becfa9e681e821bc424c78190144dbc0f9f8d3062f1e3a42d60a1c49e1"
MATRIX_SHA256 = "dee87645f864a990acf2e05170ddcae13cf64934eeb3890d86246befb8f09d4d"
AWKWARD = ("", "Ⅷ", "a Ⅷ b", "1\x04\x04.", "nul \x00 end", "\t's", "\tif x == 'me':\n\t\t'll", "\U0003835e", *PANEL)
# cut up by the fast engine, were it asked
LONG_TEXTS = [
    ("a" + " " * 37) * 2000,  # nowhere to cut
    "é\n       x" * 9000,
    "x" * (LONGEST_IN_CHARACTERS - 3) + "    b",
    "The quick brown fox, it's said, jumps over\tthe 12 lazy dogs. Ⅷ times\n\n" * 1500,
    "\n".join(PANEL) * 5,
]


def reference_ids(embedding: Embedding, text: str) -> list[int]:
    reference = ReferenceTokenizer.from_str(embedding.tokenizer.definition.decode())
    return list(reference.encode(text, add_special_tokens=False).ids)


def expected_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The reference engine's ids of the normalised texts."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.reference.encode(text, add_special_tokens=False).ids)

    ids = [(text, encode(text)) for text in map(lowercase_if_all_caps, texts)]
    return [encode(text.lower()) if is_random_case(text, len(found)) else found for text, found in ids]


# --- the bundled embedding ---


def test_version_1_is_the_embedding_it_is_said_to_be() -> None:
    default = Embedding.default(1)
    assert default.matrix.shape == (49152, 576)
    assert default.matrix.dtype == np.float32
    assert not default.matrix.flags.writeable
    assert (default.name, default.stored.encoding) == ("SmolLM2-135M", "4-bit blocks")
    assert (default.tokenizer.sha256, default.stored.sha256) == (TOKENIZER_SHA256, MATRIX_SHA256)
    assert default.fingerprint == hashlib.sha256(f"{TOKENIZER_SHA256} {MATRIX_SHA256}".encode()).hexdigest()
    assert default.encode("Hello, world!").tolist() == [19556, 28, 905, 17]
    assert Embedding.load("default@1") is default


def test_default_files_have_the_hashes_recorded_for_them() -> None:
    recorded = dict(re.findall(r"^\| `([\w.]+)` \| `([0-9a-f]{64})` \|$", (BUNDLED / "NOTICE.md").read_text(), re.M))
    assert set(recorded) == {"embedding.json", "matrix.safetensors", "tokenizer.json"}
    for name, sha256 in recorded.items():
        assert hashlib.sha256((BUNDLED / name).read_bytes()).hexdigest() == sha256, name
    header = json.loads((BUNDLED / "embedding.json").read_text())
    assert (header["tokenizer_sha256"], header["matrix_sha256"]) == (TOKENIZER_SHA256, MATRIX_SHA256)
    assert header["fingerprint"] == Embedding.default(1).fingerprint


def test_default_comes_from_the_recorded_source() -> None:
    spec = importlib.util.spec_from_file_location("build_default_embedding", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.notice(BUNDLED) == (BUNDLED / "NOTICE.md").read_text("utf-8")
    assert script.SOURCE.sha256 in script.notice(BUNDLED)
    if "IR3DE_SMOLLM2_GGUF" not in os.environ:
        pytest.skip("IR3DE_SMOLLM2_GGUF does not name the 98 MB source; CI compares with --check")
    source = Path(os.environ["IR3DE_SMOLLM2_GGUF"])
    script.check_source(source)
    original, default = Embedding.load(source), Embedding.default(1)
    assert original.tokenizer.definition == default.tokenizer.definition
    error = np.linalg.norm(default.matrix - original.matrix) / np.linalg.norm(original.matrix)
    assert error < 0.11
    assert original.stored.compact().sha256 == MATRIX_SHA256


def test_default_gives_the_reference_ids_on_awkward_texts(texts: list[str]) -> None:
    tokenizer = Embedding.default().tokenizer
    everything = [*AWKWARD, *LONG_TEXTS, *texts]
    ids, lengths = tokenizer.encode_batch(everything)
    expected = expected_ids(tokenizer, everything)
    assert lengths.tolist() == [len(one) for one in expected]
    assert ids.tolist() == [token for one in expected for token in one]


@pytest.mark.parametrize("text", LONG_TEXTS)
def test_a_long_text_alone_gives_the_reference_ids(text: str) -> None:
    default = Embedding.default()
    assert default.encode(text).tolist() == default.tokenizer.reference.encode(text, add_special_tokens=False).ids


CODE = st.lists(
    st.sampled_from(
        ["\t", " ", "\n", "'", "s", "'ll", "re", "1", "é", ".", "A", "\r", "\u00a0", "\x0b", "\x0c", "ⓐ", "☃", "\x85"]
    )
).map("".join)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text() | CODE, max_size=4))
def test_default_gives_the_reference_ids_on_any_text(texts: list[str]) -> None:
    tokenizer = Embedding.default().tokenizer
    ids, lengths = tokenizer.encode_batch(texts)
    expected = expected_ids(tokenizer, texts)
    assert ids.tolist() == [token for one in expected for token in one]
    assert lengths.tolist() == [len(one) for one in expected]


@given(st.lists(st.sampled_from(["word", " ", "two three", "\n", "1", "é", "a  b"])).map("".join), st.integers(3, 40))
def test_a_text_is_cut_between_words_and_nothing_is_lost(text: str, longest: int) -> None:
    pieces = cut(text, longest)
    if pieces is not None:
        assert "".join(pieces) == text
        assert all(len(piece) <= longest for piece in pieces)
        assert all(piece[0] == " " and piece[1].islower() for piece in pieces[1:])


@pytest.mark.parametrize("text", ["\ud800x", "a \udfff", "Ⅷ\ud800", "\ud83d\ude00"])
def test_a_lone_surrogate_reads_as_the_replacement_character(text: str) -> None:
    default = Embedding.default()
    readable = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert default.encode(text).tolist() == reference_ids(default, readable)


@pytest.mark.parametrize(("texts", "said"), [([3], "text 0 is int"), (["a", None], "text 1 is NoneType"), (5, "int")])
def test_what_is_not_text_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Embedding.default().tokenizer.encode_batch(texts)


# --- texts all in capitals ---

CAPITALS = "HOW DO I BOIL AN EGG?"


def test_a_long_text_all_in_capitals_has_the_ids_of_its_lowercase() -> None:
    default = Embedding.default()
    lower = reference_ids(default, CAPITALS.lower())
    assert default.encode(CAPITALS).tolist() == lower
    ids, lengths = default.tokenizer.encode_batch([CAPITALS, "NASA", "İ" * 16])
    assert ids.tolist() == [*lower, *reference_ids(default, "NASA"), *reference_ids(default, ("İ" * 16).lower())]
    assert lengths[0] == len(lower)


@pytest.mark.parametrize(
    ("text", "is_lowercased"),
    [("A" * 15, False), ("A" * 16, True), ("A" * 15 + "b", False), ("1" * 16, False), ("A1" * 8, True)],
)
def test_only_texts_of_16_characters_and_more_are_lowercased(text: str, is_lowercased: bool) -> None:
    assert lowercase_if_all_caps(text) == (text.lower() if is_lowercased else text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_texts_in_capitals_have_the_same_ids_one_by_one_in_a_batch_and_in_pieces(
    kind: str, tiny_embeddings: dict[str, Embedding]
) -> None:
    tokenizer = tiny_embeddings[kind].tokenizer
    texts = [
        CAPITALS,
        "ΣΊΣΥΦΟΣ ΚΑΙ ΟΔΥΣΣΕΥΣ",
        "\ud800" + CAPITALS,
        "İSTANBUL IS A CITY, İZMİR TOO",
        "Not ALL IN CAPITALS",
    ]
    ids, lengths = tokenizer.encode_batch(texts)
    one_by_one = [tokenizer.encode(text).tolist() for text in texts]
    assert ids.tolist() == [token for one in one_by_one for token in one]
    assert lengths.tolist() == [len(one) for one in one_by_one]
    assert [[token for token, _ in tokenizer.pieces(text)] for text in texts] == one_by_one


def test_one_text_is_no_batch_of_texts() -> None:
    with pytest.raises(InputError, match="expected texts"):
        Embedding.default().tokenizer.encode_batch("Hello")


@pytest.mark.parametrize(
    "text",
    ["", "Hello, world!", "naïve 👋🏽 字 Ⅷ", "   two\n\nlines  ", CAPITALS, "İSTANBUL IS A CITY, İZMİR TOO İ"],
)
def test_pieces_make_up_the_text(text: str) -> None:
    pieces = Embedding.default().tokenizer.pieces(text)
    assert "".join(piece for _, piece in pieces) == text
    assert [token for token, _ in pieces] == Embedding.default().encode(text).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_where_the_reference_says(
    kind: str, tiny_embeddings: dict[str, Embedding], texts: list[str]
) -> None:
    tokenizer = Embedding.default().tokenizer if kind == "byte-level BPE" else tiny_embeddings[kind].tokenizer
    for text in (*AWKWARD, *texts[:100]):
        encoding = tokenizer.reference.encode(text, add_special_tokens=False)
        found = tokenizer._encode_with_places(text)
        assert found == (encoding.ids, [start for start, _ in encoding.offsets]), text


def test_an_explanation_does_without_the_reference() -> None:
    known = Embedding.default().tokenizer
    tokenizer = Tokenizer(known.definition, proof=known.proof, fast_cache=known.fast_cache)
    assert tokenizer.pieces("naïve 👋🏽 字 Ⅷ, HOW?") == known.pieces("naïve 👋🏽 字 Ⅷ, HOW?")
    assert "reference" not in vars(tokenizer)


# --- the two engines ---


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.nightly
def test_the_fast_engine_is_used_where_it_is_proven(kind: str, tiny_embeddings: dict[str, Embedding]) -> None:
    tokenizer = tiny_embeddings[kind].tokenizer  # its proof was made by this very code: see tiny.keep_proof
    assert tokenizer.proof is not None and tokenizer.engine.startswith("tokie ")
    everything = [*AWKWARD, *LONG_TEXTS]
    ids, _ = tokenizer.encode_batch(everything)
    expected = expected_ids(tokenizer, everything)
    assert ids.tolist() == [token for one in expected for token in one]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_proof_that_is_made_again_is_the_same(tiny_embeddings: dict[str, Embedding]) -> None:
    kept = tiny_embeddings["Unigram"].tokenizer
    again = Tokenizer(kept.definition)
    assert again.engine == kept.engine and again.proof == kept.proof


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_without_the_fast_engine_the_reference_encodes(
    kind: str, tiny_embeddings: dict[str, Embedding], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Is 48 a multiple of 12? Ⅷ"
    expected = tiny_embeddings[kind].encode(text).tolist()  # before the engine is taken away: others share the object
    monkeypatch.setitem(sys.modules, "tokie", None)
    tokenizer = Tokenizer(tiny_embeddings[kind].tokenizer.definition)
    assert (tokenizer.engine, tokenizer.proof, tokenizer.fast_cache) == ("tokenizers", None, None)
    assert tokenizer.encode(text).tolist() == expected


@pytest.mark.slow
@pytest.mark.nightly
def test_a_fast_engine_that_disagrees_is_not_used(
    tiny_embeddings: dict[str, Embedding], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_wrong(definition: bytes, cache: bytes | None) -> object:
        return SimpleNamespace(
            encode_batch_flat=lambda texts, special: (
                np.zeros(sum(map(len, texts)), np.uint32),
                np.array([len(text) for text in texts], np.uint64),
            )
        )

    expected = tiny_embeddings["byte-level BPE"].encode("a b").tolist()
    monkeypatch.setattr(fast_tokenizer, "load_engine", load_wrong)
    tokenizer = Tokenizer(tiny_embeddings["byte-level BPE"].tokenizer.definition)
    assert tokenizer.engine == "tokenizers"
    assert tokenizer.encode("a b").tolist() == expected


def test_a_proof_of_another_version_is_made_again(
    tiny_embeddings: dict[str, Embedding], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    definition = tiny_embeddings["byte-level BPE"].tokenizer.definition
    monkeypatch.setattr(tokenizer_module, "prove", lambda *_: None)
    assert Tokenizer(definition, proof=Proof("0.0.0")).engine == "tokenizers"


def test_the_fast_engines_compiled_form_gives_the_same_ids(tiny_embeddings: dict[str, Embedding]) -> None:
    first = tiny_embeddings["byte-level BPE"].tokenizer
    again = Tokenizer(first.definition, proof=first.proof, fast_cache=first.fast_cache)
    assert again.encode("It's 12 o'clock").tolist() == first.encode("It's 12 o'clock").tolist()
    assert again.fast_cache is first.fast_cache


def engine_wrong_on(wrong: Callable[[str], bool]) -> Proof | None:
    """The proof of an engine that encodes as UTF-32, except for some texts."""

    def encode(texts: Sequence[str], slip: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
        ids = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32).copy()
        lengths = np.array([len(text) for text in texts], np.uint64)
        starts = np.cumsum(lengths) - lengths
        ids[[int(start) for start, text in zip(starts, texts, strict=True) if text and wrong(text)]] += np.uint32(slip)
        return ids, lengths

    return prove(lambda texts: encode(texts, 1), lambda texts: encode(texts, 0), "1.0")


def test_a_range_that_begins_in_ascii_is_doubted_there_too() -> None:
    proof = Proof("1", [[0x7F, 0x9F]])
    assert proof.doubts("a\x7f") and proof.doubts_any(["b", "a\x7f"]) and proof.doubts("é\x80")
    assert not proof.doubts("a~") and not proof.doubts_any(["é", "b"])


@tiny.LAW
@given(st.text(st.sampled_from("ab\t'\x04é字\u2028Ⅻ☃😀𐅀𐅁\U00010175𐏑\ud83d"), max_size=6))
def test_a_text_is_doubted_for_its_characters_and_strings_and_nothing_else(text: str) -> None:
    ranges, strings = [[4, 4], [0x2160, 0x2182], [0x10140, 0x10174], [0x103D1, 0x103D5]], ["\u2028", "\t'"]
    proof = Proof("1", ranges, strings)
    # beyond U+FFFF, what lies between two ranges that are near each other is doubted with them
    expected = any(first <= ord(c) <= last for c in text for first, last in [*ranges[:2], [0x10140, 0x103D5]])
    assert proof.doubts(text) == (expected or any(string in text for string in strings))


@pytest.mark.slow
@pytest.mark.nightly
def test_a_proof_names_the_characters_and_pairs_it_doubts() -> None:
    proof = engine_wrong_on(lambda text: "Ⅷ" in text or "\x04" in text or "\t's" in text)
    assert proof is not None
    assert all(proof.doubts(text) for text in ("Ⅻ", "a\x04", "x\t's", "é\t'll", "x" * 16_384, "é" * 40_000))
    assert not any(proof.doubts(text) for text in ("", "abc", "'s", "\ts", "éΩ字", "x" * 16_383))


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        lambda text: "a" in text,  # plain ASCII
        lambda text: "\n" in text,
        lambda text: len(text) > 1 and "1" in text[1:],  # too many pairs
        lambda text: "friends" in text,  # the panel
        lambda text: len(text) > 60_000,  # long texts
    ],
)
@pytest.mark.nightly
def test_an_engine_wrong_on_plain_text_is_not_proven(wrong: Callable[[str], bool]) -> None:
    assert engine_wrong_on(wrong) is None


@pytest.mark.parametrize("kind", ["byte-level BPE", "WordPiece", "Unigram"])
def test_ids_become_text_again(tiny_embeddings: dict[str, Embedding], kind: str) -> None:
    tokenizer = tiny_embeddings[kind].tokenizer
    texts = ["prove the sum of the angles", "the contract is void"]
    again = tokenizer.decode_batch([tokenizer.encode(text) for text in texts])
    assert [text.split() for text in again] == [text.split() for text in texts] or kind == "WordPiece"
    assert [list(tokenizer.encode(text)) for text in again] == [list(tokenizer.encode(text)) for text in texts]
