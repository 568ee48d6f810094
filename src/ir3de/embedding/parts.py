"""`EmbeddingParts`: a tokenizer, its matrix and a name, as every reader returns them and every copy stores them."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from ir3de.embedding.matrix import Matrix
from ir3de.embedding.tokenizer import Tokenizer
from ir3de.errors import EmbeddingError


class EmbeddingParts(NamedTuple):
    """What an `Embedding` is made of."""

    tokenizer: Tokenizer
    matrix: Matrix
    name: str

    @property
    def fingerprint(self) -> str:
        """SHA-256 of tokenizer and matrix."""
        return hashlib.sha256(f"{self.tokenizer.sha256} {self.matrix.sha256}".encode()).hexdigest()


def combine(definition: bytes, matrix: Matrix, *, name: str) -> EmbeddingParts:
    """Put a foreign tokenizer.json and a matrix together, after checking that they belong together."""
    tokenizer = Tokenizer(canonical_definition(definition))
    if tokenizer.vocabulary_size > matrix.rows:
        raise EmbeddingError(
            f"'{name}': the tokenizer has ids up to {tokenizer.vocabulary_size - 1}, "
            f"the matrix only {matrix.rows} rows: they do not belong together"
        )
    return EmbeddingParts(tokenizer, matrix, name)


def canonical_definition(source: bytes) -> bytes:
    """A tokenizer.json reduced to what decides the ids: the same tokenizer gives the same bytes.

    Truncation, padding, the post-processor and the decoder are dropped: none of them takes part in `encode`
    without special tokens, and files that differ only there are the same tokenizer.
    """
    try:
        content = json.loads(source)
        kept = {key: content[key] for key in ("version", "added_tokens", "normalizer", "pre_tokenizer", "model")}
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddingError(f"the tokenizer is not a Hugging Face tokenizer.json: {error!r}") from error
    kept |= {"truncation": None, "padding": None, "post_processor": None, "decoder": None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
