"""A tokenizer with its matrix as every reader returns them, and the folder that stores a compact copy of both.

The folder holds `embedding.json` (the header), `matrix.safetensors` and `tokenizer.json`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ir3de import files
from ir3de.embedding.matrix import Matrix, Tensors
from ir3de.embedding.proof import Proof
from ir3de.embedding.tokenizer import Tokenizer
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.files.tensors import read_tensors, write_tensors

KIND, VERSION = "ir3de.embedding", 1
COPY_HEADER, MATRIX, TOKENIZER = "embedding.json", "matrix.safetensors", "tokenizer.json"


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
    """Combine a foreign tokenizer.json with a matrix, after checking that they belong together."""
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


def write_copy(copy: EmbeddingParts, folder: str | Path) -> Path:
    """Write the copy into a folder. A copy that is there already stays until the new one is complete."""
    folder = Path(folder).expanduser()
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != {COPY_HEADER, MATRIX, TOKENIZER}:
        _write_files(copy, folder)
        return folder
    with files.replace_folder(folder) as new:
        _write_files(copy, new)
    return folder


def _write_files(copy: EmbeddingParts, folder: Path) -> None:
    """Write the three files. The header goes last: a folder without a header is not a copy."""
    proof = copy.tokenizer.proof
    more = {
        "tokenizer_sha256": copy.tokenizer.sha256,
        "matrix_sha256": copy.matrix.sha256,
        "fast_engine": None if proof is None else proof.to_dict(),
    }
    files.make_folder(folder)
    files.write(folder / TOKENIZER, copy.tokenizer.definition)
    _write_matrix(copy, copy.matrix, folder, more)


def write_extension(whole: EmbeddingParts, added: Matrix, folder: Path, *, extends: str) -> None:
    """Write only the last columns of an embedding; the others are in the copy `extends` next to the folder."""
    files.make_folder(folder)
    _write_matrix(whole, added, folder, {"matrix_sha256": added.sha256, "extends": extends})


def _write_matrix(copy: EmbeddingParts, stored: Matrix, folder: Path, more: dict[str, Any]) -> None:
    header = {
        "kind": KIND,
        "version": VERSION,
        "name": copy.name,
        "vocabulary": copy.matrix.rows,
        "width": copy.matrix.width,
        "encoding": copy.matrix.encoding,
        "fingerprint": copy.fingerprint,
        **more,
    }
    write_tensors(folder / MATRIX, stored.tensors, {"width": stored.width})
    files.write(folder / COPY_HEADER, files.to_json(header))


def load_copy(folder: Path, *, tokenizer: Path | None) -> EmbeddingParts:
    """Read a compact copy, with another tokenizer if one is given."""
    copy = read_copy(folder)
    return copy if tokenizer is None else combine(files.read(tokenizer), copy.matrix, name=copy.name)


def read_copy(folder: Path, *, check: bool = True) -> EmbeddingParts:
    """Read a compact copy and check it against the hashes in its header, that of the matrix unless `check` is False."""
    header = files.read_json(folder / COPY_HEADER, kind=KIND, version=VERSION)
    tensors, extra = read_tensors(folder / MATRIX)
    extended = folder.parent / Path(header["extends"]).name if "extends" in header else None
    base = None if extended is None else read_copy(extended, check=False)  # the hash below is of all columns
    try:
        if base is not None:
            copy = _extend(base, header, tensors)
        else:
            definition = files.read(folder / TOKENIZER, sha256=header["tokenizer_sha256"])
            proof = Proof(**header["fast_engine"]) if header["fast_engine"] else None
            copy = EmbeddingParts(Tokenizer(definition, proof=proof), Matrix(tensors, extra["width"]), header["name"])
        is_whole = not check or copy.fingerprint == header["fingerprint"]
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise ArtifactError(f"the embedding in {folder} is damaged: {error!r}. Copy it again") from error
    if not is_whole:
        if extended is not None:
            read_copy(extended)  # raises an error that names it, if the damage is there
        raise ArtifactError(f"{folder / MATRIX} is damaged: its content does not match its header. Copy it again")
    return copy


def _extend(base: EmbeddingParts, header: dict[str, Any], tensors: Tensors) -> EmbeddingParts:
    """An embedding with the tokenizer and the columns of another one, and more columns. Both are 4-bit blocks."""
    joined = {name: np.hstack([base.matrix.tensors[name], tensors[name]]) for name in ("levels", "steps")}
    return EmbeddingParts(base.tokenizer, Matrix(joined, header["width"]), header["name"])
