"""Where an embedding comes from: the bundled copy, a folder, a GGUF file, a hub id; and how a copy is written.

A compact copy is a folder of three files: `embedding.json` (the header), `matrix.safetensors`, `tokenizer.json`.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ir3de.embedding.embedding import Embedding, from_parts
from ir3de.embedding.matrix import Matrix
from ir3de.embedding.proof import Proof
from ir3de.embedding.tokenizer import Tokenizer
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.storage import files
from ir3de.storage.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    from ir3de.storage.files import Header

KIND, VERSION = "ir3de.embedding", 1
HEADER, MATRIX, TOKENIZER = "embedding.json", "matrix.safetensors", "tokenizer.json"
BUNDLED = Path(__file__).parent / "bundled"


@lru_cache(maxsize=1)
def bundled() -> Embedding:
    """The embedding shipped inside the package, read once."""
    return _load_copy(BUNDLED)


def load(source: str | Path, *, tokenizer: str | Path | None = None) -> Embedding:
    """Read an embedding from wherever `source` points."""
    path = Path(source).expanduser()
    replacement = None if tokenizer is None else Path(tokenizer).expanduser()
    if str(source) == "default" or (path / HEADER).is_file():
        copy = bundled() if str(source) == "default" else _load_copy(path)
        return copy if replacement is None else from_parts(files.read(replacement), copy.stored, name=copy.name)
    if path.is_dir():
        from ir3de.embedding.huggingface import load_folder

        return load_folder(path, tokenizer=replacement)
    if path.is_file():
        if path.suffix != ".gguf":
            raise EmbeddingError(
                f"{path} is not an embedding: expected a .gguf file or a folder, found '{path.suffix}'"
            )
        from ir3de.embedding.gguf_file import load_gguf

        return load_gguf(path, tokenizer=replacement)
    if re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)) and not path.parent.is_dir():
        from ir3de.embedding.huggingface import load_hub

        return load_hub(str(source), tokenizer=replacement)
    raise EmbeddingError(
        f"no embedding at '{source}': it is neither a file, nor a folder, nor a hub id of the form 'owner/model'. "
        "'default' is the bundled one"
    )


def save(embedding: Embedding, folder: str | Path, *, compact: bool = True) -> Path:
    """Write a copy of the embedding into a folder; a copy that is there already stays until the new one is whole."""
    folder = Path(folder).expanduser()
    stored = embedding.stored.compact() if compact else embedding.stored
    copy = Embedding(embedding.tokenizer, stored, name=embedding.name)
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != {HEADER, MATRIX, TOKENIZER}:
        _write(copy, folder)
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as beside:
        _write(copy, Path(beside, "new"))
        folder.rename(Path(beside, "old"))
        Path(beside, "new").rename(folder)
    return folder


def _write(copy: Embedding, folder: Path) -> None:
    """The three files; the header goes last, so that half a copy is none."""
    proof = copy.tokenizer.proof
    header = {
        "kind": KIND,
        "version": VERSION,
        "name": copy.name,
        "vocabulary": copy.vocabulary_size,
        "width": copy.width,
        "encoding": copy.stored.encoding,
        "fingerprint": copy.fingerprint,
        "tokenizer_sha256": copy.tokenizer.sha256,
        "matrix_sha256": copy.stored.sha256,
        "fast_engine": None if proof is None else asdict(proof),
    }
    files.make_folder(folder)
    files.write(folder / TOKENIZER, copy.tokenizer.definition)
    write_tensors(folder / MATRIX, copy.stored.tensors, {"width": copy.width})
    files.write(folder / HEADER, files.to_json(header))


def _load_copy(folder: Path) -> Embedding:
    header: Header = files.read_json(folder / HEADER, kind=KIND, version=VERSION)
    tensors, extra = read_tensors(folder / MATRIX)
    try:
        definition = files.read(folder / TOKENIZER, sha256=header["tokenizer_sha256"])
        proof = Proof(**header["fast_engine"]) if header["fast_engine"] else None
        embedding = Embedding(Tokenizer(definition, proof=proof), Matrix(tensors, extra["width"]), name=header["name"])
        whole = embedding.fingerprint == header["fingerprint"]
    except (KeyError, TypeError, StopIteration) as error:
        raise ArtifactError(f"the embedding in {folder} is damaged: {error!r}. Copy it again") from error
    if not whole:
        raise ArtifactError(f"{folder / MATRIX} is damaged: its content does not match its header. Copy it again")
    return embedding
