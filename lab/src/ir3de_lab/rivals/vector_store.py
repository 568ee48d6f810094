"""Texts' vectors in a folder: encoding is what takes long, and a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError
from ir3de_lab import files

Vectors = npt.NDArray[np.float32]
_NEAR = 0.02  # of the mark's length: the same encoder on another machine, or in bfloat16, is nearer


@dataclass(frozen=True, eq=False)
class Maker:
    """What tells one encoder's vectors from another's: those it makes of a fixed text, and how many tokens it reads."""

    mark: Vectors
    tokens: int

    def is_like(self, other: Maker) -> bool:
        if self.tokens != other.tokens or self.mark.shape != other.mark.shape:
            return False
        return float(np.linalg.norm(self.mark - other.mark)) <= _NEAR * float(np.linalg.norm(self.mark))


class VectorStore:
    """Files of vectors by the digest of their text; each file also says which encoder made it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, texts: Sequence[str], maker: Maker) -> dict[str, Vectors]:
        """The vectors of those texts that are there; refused if another encoder made them."""
        for path, content in self._files:
            if not maker.is_like(Maker(content["mark"], int(content["tokens"]))):
                raise ArtifactError(
                    f"{path} has vectors of another encoder, or of texts cut elsewhere (at {int(content['tokens'])} "
                    f"tokens, and not at {maker.tokens}): name another folder, or empty this one"
                )
        digests = {text: _digest(text) for text in texts}
        return {text: self._known[digest] for text, digest in digests.items() if digest in self._known}

    def add(self, texts: Sequence[str], vectors: Vectors, maker: Maker) -> None:
        """Keep the vectors of some texts, in one file that appears once it is whole."""
        digests = np.array([_digest(text) for text in texts])
        files.make_folder(self.folder)
        with files.open_atomic(self.folder / f"{digests[0]}.npz") as file:
            np.savez(file, digests=digests, vectors=vectors, mark=maker.mark, tokens=maker.tokens)
        self._known.update(zip(digests.tolist(), vectors, strict=True))

    @cached_property
    def _files(self) -> list[tuple[Path, dict[str, Any]]]:
        return [(path, _read(path)) for path in sorted(self.folder.glob("*.npz"))]

    @cached_property
    def _known(self) -> dict[str, Vectors]:
        known: dict[str, Vectors] = {}
        for _, content in self._files:
            known.update(zip(content["digests"].tolist(), content["vectors"], strict=True))
        return known


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:  # a damaged file is closed, too
            return {name: content[name] for name in ("digests", "vectors", "mark", "tokens")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Remove it: its texts are then encoded again") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
