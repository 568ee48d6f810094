"""An embedding from a GGUF file: the token matrix, dequantised, and the tokenizer rebuilt from the metadata.

Four kinds of tokenizers: byte-level BPE (`gpt2`), SentencePiece BPE (`llama`), WordPiece (`bert`) and Unigram (`t5`).
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding.copies import EmbeddingParts, combine
from ir3de.embedding.matrix import Matrix
from ir3de.errors import ArtifactError, EmbeddingError, MissingExtraError
from ir3de.files.tensors import LARGE_FILE_BYTES

Json = dict[str, Any]
Metadata = Mapping[str, Any]

EMBEDDING_TENSOR = "token_embd.weight"
WORD_START_MARK = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # GGUF's token types
ADVICE = "Name the model's own tokenizer.json with tokenizer="


def load_gguf(path: Path, *, tokenizer: Path | None) -> EmbeddingParts:
    """The embedding of a GGUF file, however it is quantised."""
    reader = _open(path)
    matrix = _read_matrix(reader, path)
    fields = {key: field for key, field in reader.fields.items() if key.startswith("tokenizer.")}
    definition = (
        files.read(tokenizer)
        if tokenizer is not None
        else tokenizer_json({key: field.contents() for key, field in fields.items()})
    )
    name = reader.fields["general.name"].contents() if "general.name" in reader.fields else path.stem
    return combine(definition, matrix, name=str(name))


def _open(path: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError("gguf", "gguf", "reading a GGUF file") from error
    try:
        return gguf.GGUFReader(path)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    # the reader maps the file and follows its lengths: a truncated or foreign file raises one of these
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise ArtifactError(
            f"{path} is truncated, damaged or not a GGUF file ({error}). Take it again from its source"
        ) from error


def _read_matrix(reader: Any, path: Path) -> Matrix:
    import gguf

    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if EMBEDDING_TENSOR not in tensors:
        raise EmbeddingError(
            f"{path} has no token embedding: expected the tensor '{EMBEDDING_TENSOR}', found "
            f"{', '.join(sorted(tensors)[:4]) or 'none'}. Take a GGUF file of a whole language model, not of a part"
        )
    tensor = tensors[EMBEDDING_TENSOR]
    try:
        # plain floats stay as they are; a copy, since the reader only maps the file, unless that is too much
        values: npt.NDArray[np.generic] = (
            (tensor.data if tensor.data.nbytes > LARGE_FILE_BYTES else np.array(tensor.data))
            if tensor.data.dtype in (np.float16, np.float32)
            else gguf.dequantize(tensor.data, tensor.tensor_type)
        )
    except NotImplementedError as error:
        raise EmbeddingError(
            f"the embedding in {path} is quantised as {tensor.tensor_type.name}, which the gguf package does not read. "
            "Upgrade it (pip install --upgrade gguf), or take another quantisation of the model"
        ) from error
    if values.ndim != 2:
        raise EmbeddingError(
            f"'{EMBEDDING_TENSOR}' in {path} is not a matrix: its shape is {list(values.shape)}. "
            "Take it again from its source"
        )
    return Matrix.plain(values)


class Vocabulary:
    """The `tokenizer.ggml.*` fields of a GGUF file."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        tokens: list[str] = self.require("tokens")
        types: list[int] = self.get("token_type", [NORMAL] * len(tokens))
        size = len(tokens)
        while size and types[size - 1] == UNUSED:  # padding up to a round number of rows
            size -= 1
        self.tokens, self.types = tokens[:size], types[:size]

    def get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def require(self, key: str) -> Any:
        if (value := self.get(key)) is None:
            raise EmbeddingError(f"the GGUF file's tokenizer has no '{key}'. {ADVICE}")
        return value

    @property
    def ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    @cached_property
    def unknown(self) -> int | None:
        """The id for text the vocabulary lacks."""
        found: int | None = self.get("unknown_token_id", self.types.index(UNKNOWN) if UNKNOWN in self.types else None)
        return found

    @property
    def unknown_token(self) -> str | None:
        return None if self.unknown is None else self.tokens[self.unknown]

    @property
    def added_tokens(self) -> list[Json]:
        """Tokens that are found in the text before anything else is done to it."""
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": i, "content": token, **plain, "special": kind != USER_DEFINED}
            for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (CONTROL, UNKNOWN, USER_DEFINED)
        ]


def tokenizer_json(metadata: Metadata) -> bytes:
    """The tokenizer of a GGUF file, from its metadata, as a Hugging Face tokenizer.json."""
    if own := metadata.get("tokenizer.huggingface.json"):
        return str(own).encode()
    vocabulary = Vocabulary(metadata)
    kind = vocabulary.require("model")
    if kind not in _KINDS:
        raise EmbeddingError(
            f"the GGUF file's tokenizer is of the kind '{kind}'; ir3de knows {', '.join(sorted(_KINDS))}. {ADVICE}"
        )
    empty = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    content = {"version": "1.0", **empty, "added_tokens": vocabulary.added_tokens, **_KINDS[kind](vocabulary)}
    return json.dumps(content, ensure_ascii=False).encode()


# --- byte-level BPE: GGUF keeps the name of the splitting rule, not the rule. Only rules known for certain are here: a
# wrong one would give plausible, wrong ids.


class Splitting(NamedTuple):
    """How a byte-level tokenizer cuts text into words before merging."""

    pre_tokenizer: Json
    normalizer: Json | None = None
    ignore_merges: bool = False


def _byte_level(*, use_regex: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _in_sequence(first: Json, *, use_regex: bool) -> Json:
    return {"type": "Sequence", "pretokenizers": [first, _byte_level(use_regex=use_regex)]}


def _split_at(digits: str) -> Json:
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


_DIGIT_BY_DIGIT = Splitting(_in_sequence({"type": "Digits", "individual_digits": True}, use_regex=True))
_GPT_2 = Splitting(_byte_level(use_regex=True))
_LLAMA_3 = Splitting(_in_sequence(_split_at(r"\p{N}{1,3}"), use_regex=False), ignore_merges=True)
_QWEN_2 = Splitting(_in_sequence(_split_at(r"\p{N}"), use_regex=False), normalizer={"type": "NFC"})
SPLITTINGS = {
    **dict.fromkeys(("smollm", "starcoder"), _DIGIT_BY_DIGIT),
    **dict.fromkeys(("gpt-2", "phi-2", "default"), _GPT_2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), _LLAMA_3),
    "qwen2": _QWEN_2,
}


def _byte_level_bpe(vocabulary: Vocabulary) -> Json:
    rule = vocabulary.require("pre")
    if rule not in SPLITTINGS:
        raise EmbeddingError(
            f"the GGUF file's tokenizer splits text by the rule '{rule}'; ir3de knows {', '.join(SPLITTINGS)}. {ADVICE}"
        )
    splitting = SPLITTINGS[rule]
    merges = [merge.split(" ") for merge in vocabulary.require("merges")]
    return {
        "normalizer": splitting.normalizer,
        "pre_tokenizer": splitting.pre_tokenizer,
        "model": _bpe(vocabulary.ids, merges, ignore_merges=splitting.ignore_merges),
    }


def _sentencepiece_bpe(vocabulary: Vocabulary) -> Json:
    steps: list[Json] = [{"type": "Replace", "pattern": {"String": " "}, "content": WORD_START_MARK}]
    if vocabulary.get("add_space_prefix", True):
        steps.insert(0, {"type": "Prepend", "prepend": WORD_START_MARK})
    settings = {"unk_token": vocabulary.unknown_token, "fuse_unk": True, "byte_fallback": BYTE in vocabulary.types}
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "model": _bpe(vocabulary.ids, _merges_by_score(vocabulary), **settings),
    }


def _bpe(ids: dict[str, int], merges: list[list[str]], **settings: Any) -> Json:
    empty = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
    usual = {"type": "BPE", **empty, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return {**usual, **settings, "vocab": ids, "merges": merges}


def _merges_by_score(vocabulary: Vocabulary) -> list[list[str]]:
    """SentencePiece merges the neighbours that make the best-scored token: as merges, best score first."""
    scores: list[float] = vocabulary.require("scores")
    ids = {token: i for token, i in vocabulary.ids.items() if vocabulary.types[i] == NORMAL}
    merges: list[tuple[float, int, int, list[str]]] = []
    for token, i in ids.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                merges.append((-scores[i], ids[left], ids[right], [left, right]))
    return [merge for *_, merge in sorted(merges)]


def _wordpiece(vocabulary: Vocabulary) -> Json:
    tokens = [_wordpiece_token(token, kind) for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True)]
    normal = [token for token, kind in zip(tokens, vocabulary.types, strict=True) if kind == NORMAL]
    # GGUF does not record whether the model knows capitals; a vocabulary without any cannot use them
    cased = any(token != token.lower() for token in normal if not _is_bracketed(token))
    rules = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": not cased}
    return {
        "normalizer": {"type": "BertNormalizer", **rules},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece",
            "unk_token": vocabulary.unknown_token or "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {token: i for i, token in enumerate(tokens)},
        },
    }


def _wordpiece_token(token: str, kind: int) -> str:
    """GGUF marks the starts of words; WordPiece marks what continues one."""
    if kind in (CONTROL, UNKNOWN, USER_DEFINED) or _is_bracketed(token):
        return token
    return token[1:] if token.startswith(WORD_START_MARK) else f"##{token}"


def _is_bracketed(token: str) -> bool:
    return len(token) > 2 and token[0] == "[" and token[-1] == "]"  # [CLS], [unused7]: never part of a word


def _unigram(vocabulary: Vocabulary) -> Json:
    steps: list[Json] = []
    if charsmap := vocabulary.get("precompiled_charsmap"):
        encoded = base64.b64encode(bytes(value & 255 for value in charsmap)).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if vocabulary.get("remove_extra_whitespaces", False):
        steps.append({"type": "Strip", "strip_left": True, "strip_right": True})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    prefix = "always" if vocabulary.get("add_space_prefix", True) else "never"
    scores: list[float] = vocabulary.require("scores")
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": WORD_START_MARK, "prepend_scheme": prefix, "split": True},
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unknown,
            "vocab": [list(piece) for piece in zip(vocabulary.tokens, scores, strict=False)],
            "byte_fallback": BYTE in vocabulary.types,
        },
    }


_KINDS = {"gpt2": _byte_level_bpe, "llama": _sentencepiece_bpe, "bert": _wordpiece, "t5": _unigram}
