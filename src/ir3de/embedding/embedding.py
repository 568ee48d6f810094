"""`Embedding`: a tokenizer and the matrix of its tokens' static vectors."""

from __future__ import annotations

from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import copies, readers
from ir3de.embedding.copies import EmbeddingParts, combine
from ir3de.embedding.matrix import Matrix, StoredRows
from ir3de.embedding.subjects import SubjectRows, read_subjects
from ir3de.embedding.tokenizer import Ids, Tokenizer
from ir3de.errors import EmbeddingError


class Embedding:
    """A tokenizer and the matrix of its tokens' vectors: all a router needs of a language model.

    >>> import ir3de
    >>> embedding = ir3de.Embedding.default()
    >>> embedding.matrix.shape
    (49152, 832)
    >>> embedding.encode("Hello, world!").tolist()
    [19556, 28, 905, 17]
    """

    def __init__(self, tokenizer: Tokenizer, stored: Matrix, *, name: str) -> None:
        self.tokenizer = tokenizer
        self.stored = stored
        self.name = name
        if stored.rows == 0 or stored.width == 0:
            raise EmbeddingError(f"the embedding '{name}' is empty: its matrix is {stored.rows} × {stored.width}")

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled embedding brings its matrix along, unless it is a version of the default one."""
        if self.default_version is not None:
            return Embedding.default, (self.default_version,)
        return partial(Embedding, name=self.name), (self.tokenizer, self.stored)

    def __deepcopy__(self, memo: object) -> Embedding:
        return self  # it never changes, and may be large

    @staticmethod
    def default(version: int | None = None) -> Embedding:
        """The bundled embedding, or a given version of it. Nothing is downloaded.

        Version 1, the current one, is SmolLM2-135M's input vectors in 4-bit blocks. Version 3 adds 256 columns, which
        were distilled from a sentence encoder on prompts: it is often better where experts have few prompts. Version 2
        has 128 such columns, distilled on documentation.
        """
        version = readers.current_version() if version is None else version
        return _read_default(readers.get_default(version).folder)

    @staticmethod
    def load(source: str | Path, *, tokenizer: str | Path | None = None) -> Embedding:
        """Read a compact copy, a Hugging Face folder, a GGUF file, or a hub id: see `readers.READERS`.

        "multilingual" is the embedding that `ir3de embedding install multilingual` makes. `tokenizer` names a
        tokenizer.json to use instead of the source's own.
        """
        version = None if tokenizer is not None else readers.parse_default(str(source))
        if version is not None:
            return Embedding.default(version)
        return Embedding._of(readers.load(source, tokenizer=tokenizer))

    @staticmethod
    def from_definition(definition: bytes, matrix: Matrix, *, name: str) -> Embedding:
        """An embedding from the bytes of a tokenizer.json and a matrix, checked against each other."""
        return Embedding._of(combine(definition, matrix, name=name))

    @staticmethod
    def _of(parts: EmbeddingParts) -> Embedding:
        return Embedding(parts.tokenizer, parts.matrix, name=parts.name)

    def save(self, folder: str | Path, *, compact: bool = True) -> Path:
        """Write a copy that `Embedding.load` reads: in 4-bit blocks, or as it is with `compact=False`."""
        matrix = self.stored.compact() if compact else self.stored
        return copies.write_copy(EmbeddingParts(self.tokenizer, matrix, self.name), folder)

    @property
    def matrix(self) -> npt.NDArray[np.float32]:
        """E (V, h), read-only, whole in memory however large it is: `rows` is not."""
        return self.stored.values

    @property
    def rows(self) -> npt.NDArray[np.float32] | StoredRows:
        """E (V, h) to take rows of: the matrix, or, if that is large, what reads them where they are stored."""
        return self.stored.by_rows

    @property
    def vocabulary_size(self) -> int:
        return self.stored.rows

    @property
    def width(self) -> int:
        return self.stored.width

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of tokenizer and matrix: two embeddings with one fingerprint are the same embedding."""
        return EmbeddingParts(self.tokenizer, self.stored, self.name).fingerprint

    @cached_property
    def default_version(self) -> int | None:
        """Which version of the default embedding this is; None if it is another embedding."""
        return readers.find_version(self.fingerprint)

    @property
    def subjects(self) -> SubjectRows | None:
        """What each token is about, in a few whole numbers; None where the embedding has no such rows."""
        version = self.default_version
        return None if version is None else read_subjects(readers.get_default(version).folder)

    @property
    def is_multilingual(self) -> bool:
        """Whether prompts in a language that a fit never saw can be routed."""
        return self.name == readers.MULTILINGUAL

    def encode(self, text: str) -> Ids:
        """The text's token ids, without special tokens."""
        return self.tokenizer.encode(text)

    def __repr__(self) -> str:
        return f"Embedding({self.name!r}, {self.vocabulary_size:,} × {self.width}, {self.stored.encoding})"


@lru_cache(maxsize=4)
def _read_default(folder: Path) -> Embedding:
    return Embedding._of(copies.read_copy(folder))
