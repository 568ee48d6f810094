"""Where an embedding comes from: the bundled copy, an installed one, a folder, a GGUF file, or a hub id."""

from __future__ import annotations

import re
from pathlib import Path

from ir3de.embedding import multilingual
from ir3de.embedding.copies import HEADER, read_copy
from ir3de.embedding.defaults import get_default, parse_default
from ir3de.embedding.parts import EmbeddingParts, combine
from ir3de.errors import EmbeddingError
from ir3de.storage import files


def load(source: str | Path, *, tokenizer: str | Path | None = None) -> EmbeddingParts:
    """Read an embedding from wherever `source` points."""
    path = Path(source).expanduser()
    replacement = None if tokenizer is None else Path(tokenizer).expanduser()
    version, is_named = parse_default(str(source)), str(source) == multilingual.NAME
    if version is not None or is_named or (path / HEADER).is_file():
        folder = path if version is None else get_default(version).folder
        copy = multilingual.load() if is_named else read_copy(folder)
        return copy if replacement is None else combine(files.read(replacement), copy.matrix, name=copy.name)
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
        "'default' is the bundled one, 'default@1' a given version of it. To install for other languages than English: "
        f"'{multilingual.NAME}' ({multilingual.COMMAND})"
    )
