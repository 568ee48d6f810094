"""The reference engine (`tokenizers`): reading a tokenizer.json, and encoding and decoding with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ir3de.embedding.fast_tokenizer import make_decoder
from ir3de.errors import EmbeddingError

if TYPE_CHECKING:
    import tokenizers


def read_reference(definition: bytes) -> tokenizers.Tokenizer:
    """A tokenizer that never truncates or pads."""
    import tokenizers

    try:
        reference = tokenizers.Tokenizer.from_str(definition.decode())
    except Exception as error:  # the engine raises bare Exceptions
        raise EmbeddingError(
            f"the tokenizer cannot be read: {error}. It must be a Hugging Face tokenizer.json"
        ) from error
    reference.no_truncation()
    reference.no_padding()
    return reference


def read_decoder(definition: bytes) -> tokenizers.Tokenizer:
    """The same tokenizer, for decoding alone."""
    import tokenizers

    decoder = tokenizers.Tokenizer.from_str(definition.decode())
    decoder.decoder = make_decoder(definition)
    return decoder


def find_unknown(reference: tokenizers.Tokenizer, definition: bytes) -> int | None:
    """The id that stands for text the vocabulary lacks, if the tokenizer has one."""
    model = json.loads(definition)["model"]
    found = reference.token_to_id(model["unk_token"]) if model.get("unk_token") else model.get("unk_id")
    return found if isinstance(found, int) else None


def encode_texts(
    reference: tokenizers.Tokenizer, texts: Sequence[str]
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """The ids of all texts one after the other, and how many each has."""
    for text in texts:
        text.encode()  # raise on a surrogate as the fast engine does; the reference would panic
    encodings = reference.encode_batch_fast(list(texts), add_special_tokens=False)
    lengths = np.array([len(encoding) for encoding in encodings], np.uint64)
    ids = np.array([token for encoding in encodings for token in encoding.ids], np.uint32)
    return ids, lengths
