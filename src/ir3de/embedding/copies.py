"""A compact copy of an embedding: a folder of `embedding.json` (the header), `matrix.safetensors`, `tokenizer.json`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.embedding.matrix import Matrix
from ir3de.embedding.parts import EmbeddingParts
from ir3de.embedding.proof import Proof
from ir3de.embedding.rows import Tensors
from ir3de.embedding.tokenizer import Tokenizer
from ir3de.errors import ArtifactError
from ir3de.storage import files
from ir3de.storage.tensors import read_tensors, write_tensors

KIND, VERSION = "ir3de.embedding", 1
HEADER, MATRIX, TOKENIZER = "embedding.json", "matrix.safetensors", "tokenizer.json"


def write_copy(copy: EmbeddingParts, folder: str | Path) -> Path:
    """Write the copy into a folder. A copy that is there already stays until the new one is complete."""
    folder = Path(folder).expanduser()
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != {HEADER, MATRIX, TOKENIZER}:
        _write_files(copy, folder)
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        _write_files(copy, Path(beside, "new"))
        folder.rename(Path(beside, "old"))
        Path(beside, "new").rename(folder)
    return folder


def _write_files(copy: EmbeddingParts, folder: Path) -> None:
    """Write the three files. The header goes last: a copy without a header is not a copy."""
    proof = copy.tokenizer.proof
    header = {
        "kind": KIND,
        "version": VERSION,
        "name": copy.name,
        "vocabulary": copy.matrix.rows,
        "width": copy.matrix.width,
        "encoding": copy.matrix.encoding,
        "fingerprint": copy.fingerprint,
        "tokenizer_sha256": copy.tokenizer.sha256,
        "matrix_sha256": copy.matrix.sha256,
        "fast_engine": None if proof is None else proof.to_dict(),
    }
    files.make_folder(folder)
    files.write(folder / TOKENIZER, copy.tokenizer.definition)
    write_tensors(folder / MATRIX, copy.matrix.tensors, {"width": copy.matrix.width})
    files.write(folder / HEADER, files.to_json(header))


def write_extension(whole: EmbeddingParts, added: Matrix, folder: Path, *, extends: str) -> None:
    """Write only the last columns of an embedding; the others are those of the copy `extends` beside the folder."""
    header = {
        "kind": KIND,
        "version": VERSION,
        "name": whole.name,
        "vocabulary": whole.matrix.rows,
        "width": whole.matrix.width,
        "encoding": whole.matrix.encoding,
        "fingerprint": whole.fingerprint,
        "matrix_sha256": added.sha256,
        "extends": extends,
    }
    files.make_folder(folder)
    write_tensors(folder / MATRIX, added.tensors, {"width": added.width})
    files.write(folder / HEADER, files.to_json(header))


def read_copy(folder: Path) -> EmbeddingParts:
    """Read a compact copy and check it against the hashes in its header."""
    header = files.read_json(folder / HEADER, kind=KIND, version=VERSION)
    tensors, extra = read_tensors(folder / MATRIX)
    base = read_copy(folder.parent / Path(header["extends"]).name) if "extends" in header else None
    try:
        if base is not None:
            copy = _extend(base, header, tensors)
        else:
            definition = files.read(folder / TOKENIZER, sha256=header["tokenizer_sha256"])
            proof = Proof(**header["fast_engine"]) if header["fast_engine"] else None
            copy = EmbeddingParts(Tokenizer(definition, proof=proof), Matrix(tensors, extra["width"]), header["name"])
        is_whole = copy.fingerprint == header["fingerprint"]
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise ArtifactError(f"the embedding in {folder} is damaged: {error!r}. Copy it again") from error
    if not is_whole:
        raise ArtifactError(f"{folder / MATRIX} is damaged: its content does not match its header. Copy it again")
    return copy


def _extend(base: EmbeddingParts, header: dict[str, Any], tensors: Tensors) -> EmbeddingParts:
    """An embedding that has the tokenizer and the columns of another one, and more columns. Both are 4-bit blocks."""
    joined = {name: np.hstack([base.matrix.tensors[name], tensors[name]]) for name in ("levels", "steps")}
    return EmbeddingParts(base.tokenizer, Matrix(joined, header["width"]), header["name"])
