"""Running an encoder: its session of onnxruntime, its tokenizer, the pooling, the digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ir3de import files
from ir3de.encoders.settings import Settings
from ir3de.encoders.transformer import Floats
from ir3de.errors import ArtifactError, EmbeddingError, MissingExtraError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class Parts(NamedTuple):
    """What an encoder is made of."""

    name: str
    session: InferenceSession
    tokenizer: bytes
    settings: Settings
    model_sha256: str
    is_ours: bool  # whether the graph is known to give each text the same vector in every batch


def pool(states: Floats, settings: Settings) -> Floats:
    """One unit vector from the states (tokens, h) of a text's tokens."""
    wide = states.astype(np.float64)
    vector = wide[0] if settings.pooling == "cls" else wide.sum(axis=0)
    length = float(np.sqrt((vector * vector).sum()))
    if not 0 < length < np.inf:
        raise ArtifactError(f"the encoder gives a vector of length {length}: its weights are damaged. Install it again")
    unit: Floats = (vector / length).astype(np.float32)
    return unit


def make_digest(model_sha256: str, tokenizer_sha256: str, settings: Settings) -> str:
    """The digest of an encoder."""
    content = {
        "model": model_sha256,
        "tokenizer": tokenizer_sha256,
        "pooling": settings.pooling,
        "max_tokens": settings.max_tokens,
        "lowercase": settings.lowercase,
        "prefix": settings.prefix,
    }
    return hashlib.sha256(files.to_json(content)).hexdigest()


def load_tokenizer(content: bytes, max_tokens: int, place: str) -> Any:
    """The tokenizer of a tokenizer.json, which cuts texts at so many tokens and pads none."""
    from tokenizers import Tokenizer

    try:
        made = Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises nothing narrower
        raise EmbeddingError(f"the tokenizer.json of {place} cannot be read: {error}. Take it again") from error
    made.no_padding()
    made.enable_truncation(max_tokens)
    return made


def open_session(model: bytes | Path, place: str) -> InferenceSession:
    """A session of onnxruntime with one thread: its sums have one order, and threads run batches beside each other."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "encoder", "Running a sentence encoder") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3  # errors alone
    given = str(model) if isinstance(model, Path) else model
    try:
        return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its errors have no class in common
        first = " ".join(str(error).split())[:200]
        raise ArtifactError(f"onnxruntime cannot load the model of {place}: {first}. Take it again") from error
