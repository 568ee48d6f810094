"""Embeddings from GGUF files written here: the rebuilt tokenizers give the ids of those they were made from."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from conftest import random_matrix
from tokenizers import Tokenizer

from ir3de.embedding import Embedding
from ir3de.embedding.gguf import BYTE, CONTROL, NORMAL, SPLITTINGS, UNKNOWN, UNUSED, USER_DEFINED, tokenizer_json
from ir3de.embedding.proof import PANEL
from ir3de.errors import ArtifactError, EmbeddingError, MissingExtraError

Fields = dict[str, Any]
WriteGguf = Callable[..., Path]


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    def write(fields: Fields, matrix: np.ndarray, *, tensor: str = "token_embd.weight", kind: Any = None) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_name("tiny")
        for key, value in fields.items():
            add = writer.add_array if isinstance(value, list) else writer.add_string
            add = writer.add_bool if isinstance(value, bool) else writer.add_uint32 if isinstance(value, int) else add
            add(f"tokenizer.ggml.{key}", value)
        if kind is not None:
            writer.add_tensor(tensor, gguf.quantize(matrix, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor, matrix)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def tokens_of(definition: bytes) -> list[str]:
    vocabulary = Tokenizer.from_str(definition.decode()).get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def rebuilt(fields: Fields) -> bytes:
    return tokenizer_json({f"tokenizer.ggml.{key}": value for key, value in fields.items()})


def bpe_fields(definition: bytes, pre: str = "gpt-2") -> Fields:
    tokens, content = tokens_of(definition), json.loads(definition)
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [CONTROL if token == "<|endoftext|>" else NORMAL for token in tokens],
        "merges": [" ".join(merge) for merge in content["model"]["merges"]],
    }


def bert_fields(definition: bytes) -> Fields:
    tokens = tokens_of(definition)
    types = [CONTROL if token.startswith("[") and len(token) > 1 else NORMAL for token in tokens]
    marked = [
        token if kind == CONTROL else token[2:] if token.startswith("##") else f"▁{token}"
        for token, kind in zip(tokens, types, strict=True)
    ]
    return {"model": "bert", "tokens": marked, "token_type": types, "unknown_token_id": tokens.index("[UNK]")}


def t5_fields(definition: bytes) -> Fields:
    vocabulary = json.loads(definition)["model"]["vocab"]
    types = {"<pad>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN}
    return {
        "model": "t5",
        "tokens": [token for token, _ in vocabulary],
        "scores": [float(score) for _, score in vocabulary],
        "token_type": [types.get(token, NORMAL) for token, _ in vocabulary],
        "add_space_prefix": True,
    }


FIELDS = {"byte-level BPE": bpe_fields, "WordPiece": bert_fields, "Unigram": t5_fields}


@pytest.mark.parametrize("kind", FIELDS)
def test_a_rebuilt_tokenizer_gives_the_ids_of_its_origin(
    kind: str, tiny_definitions: dict[str, bytes], write_gguf: WriteGguf, texts: list[str]
) -> None:
    definition = tiny_definitions[kind]
    matrix = random_matrix(definition)
    embedding = Embedding.load(write_gguf(FIELDS[kind](definition), matrix))
    assert embedding.name == "tiny"
    np.testing.assert_array_equal(embedding.matrix, matrix)
    origin = Tokenizer.from_str(definition.decode())
    everything = [*PANEL, *texts]
    found = embedding.tokenizer.reference.encode_batch(everything, add_special_tokens=False)
    expected = origin.encode_batch(everything, add_special_tokens=False)
    for text, one, other in zip(everything, found, expected, strict=True):
        assert one.ids == other.ids, text


# --- SentencePiece BPE, against its definition ---

SPM_PIECES = ["▁", *"abcdehlnorstw", "▁t", "he", "▁the", "er", "on", "or", "▁w", "▁wor", "ld", "lo", "llo", "hello"]


def spm_fields(*, add_space_prefix: bool = True) -> Fields:
    head = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = [*head, *SPM_PIECES, "  ", "[PAD]"]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(SPM_PIECES), USER_DEFINED, UNUSED]
    scores = [0.0] * len(head) + [-float(rank) for rank in range(len(SPM_PIECES))] + [-1000.0, -1000.0]
    fields = {"model": "llama", "tokens": tokens, "token_type": types, "scores": scores, "unknown_token_id": 0}
    return fields if add_space_prefix else {**fields, "add_space_prefix": False}


def sentencepiece_ids(text: str, fields: Fields, prefix: str) -> list[int]:
    """Merge the best-scored neighbours, leftmost first, until none is left; then bytes for what is unknown."""
    ids = {token: i for i, token in enumerate(fields["tokens"])}
    pieces = list((prefix + text if text else "").replace(" ", "▁"))
    while True:
        pairs = [(pieces[i] + pieces[i + 1], i) for i in range(len(pieces) - 1)]
        known = [(-fields["scores"][ids[pair]], i) for pair, i in pairs if pair in ids]
        if not known:
            break
        _, at = min(known)
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return [
        i for piece in pieces for i in ([ids[piece]] if piece in ids else [ids[f"<0x{b:02X}>"] for b in piece.encode()])
    ]


@pytest.mark.parametrize("prefix", ["▁", ""])
def test_sentencepiece_merges_by_score(prefix: str) -> None:
    fields = spm_fields(add_space_prefix=bool(prefix))
    tokenizer = Tokenizer.from_str(rebuilt(fields).decode())
    for text in ("", "hello world", "the other one", "the then there", "Zürich 字", "lloollo wwor", " a", "the\n"):
        assert tokenizer.encode(text, add_special_tokens=False).ids == sentencepiece_ids(text, fields, prefix), text
    assert tokenizer.encode("<s>", add_special_tokens=False).ids == [1]
    assert tokenizer.encode("a  b", add_special_tokens=False).ids.count(fields["tokens"].index("  ")) == 1
    assert tokenizer.token_to_id("[PAD]") is None


# --- splitting rules and settings ---


def words(pre: str, text: str) -> list[str]:
    tokenizer = Tokenizer.from_str(rebuilt(byte_fields(pre)).decode())
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


def byte_fields(pre: str) -> Fields:
    return {"model": "gpt2", "pre": pre, "tokens": ["a"], "merges": []}


@pytest.mark.parametrize("pre", SPLITTINGS)
def test_every_splitting_rule_is_accepted(pre: str) -> None:
    assert words(pre, "It's a") == ["It", "'s", "Ġa"]


def test_splitting_rules_differ_as_their_models_do() -> None:
    text = "a12345 WE'LL\n\n b"
    assert words("gpt-2", text) == ["a", "12345", "ĠWE", "'", "LL", "ĊĊ", "Ġb"]
    assert words("smollm", text) == ["a", "1", "2", "3", "4", "5", "ĠWE", "'", "LL", "ĊĊ", "Ġb"]
    assert words("llama-bpe", text) == ["a", "123", "45", "ĠWE", "'LL", "ĊĊ", "Ġb"]
    assert words("qwen2", text) == ["a", "1", "2", "3", "4", "5", "ĠWE", "'LL", "ĊĊ", "Ġb"]


def test_a_cased_vocabulary_keeps_its_capitals() -> None:
    fields = {
        "model": "bert",
        "tokens": ["[UNK]", "▁a", "▁B", "b", "[unused0]"],
        "token_type": [CONTROL, *[NORMAL] * 4],
    }
    cased = json.loads(rebuilt(fields))
    assert cased["normalizer"]["lowercase"] is False
    assert list(cased["model"]["vocab"]) == ["[UNK]", "a", "B", "##b", "[unused0]"]


def test_unigram_keeps_its_character_map_and_drops_extra_white_space() -> None:
    fields = {
        "model": "t5",
        "tokens": ["<unk>", "▁", "a"],
        "scores": [0.0, -1.0, -2.0],
        "token_type": [UNKNOWN, NORMAL, NORMAL],
        "remove_extra_whitespaces": True,
        "add_space_prefix": False,
        "precompiled_charsmap": [1, -1, 255],
    }
    content = json.loads(rebuilt(fields))
    first, *others = content["normalizer"]["normalizers"]
    assert base64.b64decode(first["precompiled_charsmap"]) == b"\x01\xff\xff"
    assert [step["type"] for step in others] == ["Strip", "Replace"]
    assert content["pre_tokenizer"]["prepend_scheme"] == "never"


def test_a_tokenizer_json_inside_the_file_is_taken_as_it_is() -> None:
    assert tokenizer_json({"tokenizer.huggingface.json": "{}"}) == b"{}"


# --- the matrix ---


@pytest.mark.parametrize(
    ("kind", "error"), [(gguf.GGMLQuantizationType.Q8_0, 0.01), (gguf.GGMLQuantizationType.Q4_1, 0.1)]
)
def test_a_quantised_matrix_is_dequantised(
    kind: Any, error: float, write_gguf: WriteGguf, tiny_definitions: dict[str, bytes]
) -> None:
    definition = tiny_definitions["byte-level BPE"]
    matrix = random_matrix(definition, width=64)
    embedding = Embedding.load(write_gguf(bpe_fields(definition), matrix, kind=kind))
    assert embedding.stored.encoding == "float32"
    assert np.linalg.norm(embedding.matrix - matrix) / np.linalg.norm(matrix) < error


def test_float16_stays_float16(write_gguf: WriteGguf, tiny_definitions: dict[str, bytes]) -> None:
    definition = tiny_definitions["byte-level BPE"]
    half = random_matrix(definition).astype(np.float16)
    embedding = Embedding.load(write_gguf(bpe_fields(definition), half))
    assert embedding.stored.encoding == "float16"
    np.testing.assert_array_equal(embedding.matrix, half.astype(np.float32))


# --- what is refused ---

ONES = np.ones((1, 32), np.float32)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "has no 'tokens'"),
        ({**byte_fields("gpt-2"), "model": "rwkv"}, "kind 'rwkv'; ir3de knows bert, gpt2, llama, t5"),
        (byte_fields("nonesuch"), "rule 'nonesuch'; ir3de knows smollm"),
        ({"model": "gpt2", "tokens": ["a"]}, "has no 'pre'"),
        ({"model": "gpt2", "pre": "gpt-2", "tokens": ["a"]}, "has no 'merges'"),
        ({"model": "llama", "tokens": ["a"]}, "has no 'scores'"),
        ({"model": "t5", "tokens": ["a"]}, "has no 'scores'"),
    ],
)
def test_a_tokenizer_that_cannot_be_rebuilt_is_refused(fields: Fields, said: str, write_gguf: WriteGguf) -> None:
    with pytest.raises(EmbeddingError, match=f"{said}.*tokenizer="):
        Embedding.load(write_gguf(fields, ONES))


def test_another_tokenizer_can_be_named(
    write_gguf: WriteGguf, tiny_definitions: dict[str, bytes], tmp_path: Path
) -> None:
    definition = tiny_definitions["WordPiece"]
    (tmp_path / "named.json").write_bytes(definition)
    path = write_gguf({"model": "rwkv"}, random_matrix(definition))
    assert Embedding.load(path, tokenizer=tmp_path / "named.json").tokenizer.vocabulary_size == 800


def test_a_file_without_an_embedding_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(EmbeddingError, match=r"expected the tensor 'token_embd\.weight', found output\.weight"):
        Embedding.load(write_gguf(byte_fields("gpt-2"), ONES, tensor="output.weight"))


def test_an_embedding_that_is_no_matrix_is_refused(write_gguf: WriteGguf) -> None:
    with pytest.raises(EmbeddingError, match=r"is not a matrix: its shape is \[32\]"):
        Embedding.load(write_gguf(byte_fields("gpt-2"), ONES[0]))


@pytest.mark.parametrize("kept", [0, 3, 20, 100, 300, -1])
def test_a_truncated_file_is_refused(kept: int, write_gguf: WriteGguf) -> None:
    path = write_gguf(byte_fields("gpt-2"), ONES)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ArtifactError, match="truncated, damaged or not a GGUF file"):
        Embedding.load(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a gguf file, but long enough to be looked at")
    with pytest.raises(ArtifactError, match="not a GGUF file"):
        Embedding.load(tmp_path / "x.gguf")


def test_without_the_package_the_extra_is_named(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(byte_fields("gpt-2"), ONES)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[gguf\]"):
        Embedding.load(path)
