"""`PortableEmbedding`: what counting needs of an embedding, in a form that travels to other processes and machines.

The matrix travels as it is looked up, in fixed point, so that nobody unpacks it again; as an array, which Ray keeps
once a machine, or as the name of a file that the processes of one machine map into their memory together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.rows import FixedPointRows, Floats
from ir3de.errors import ArtifactError

FIXED_POINT = "fixed_point.npy"

ROWS_AT_ONCE = 4_096  # written at a time
_WARM_UP_TEXTS = 64  # texts that the fast engine would share out among threads


@dataclass(frozen=True, eq=False)
class PortableEmbedding:
    """An embedding on its way; small without prompt sums, for which alone the matrix is needed."""

    name: str
    fingerprint: str
    definition: bytes
    proof: Proof | None
    fast_cache: bytes | None
    vocabulary: int
    width: int
    unit: float
    fixed_point: Floats | FixedPointRows | str | None  # the matrix, or the file that has it

    @classmethod
    def of(cls, embedding: Embedding, *, prompt_sums: bool = True) -> PortableEmbedding:
        tokenizer, stored = embedding.tokenizer, embedding.stored
        return cls(
            embedding.name,
            embedding.fingerprint,
            tokenizer.definition,
            None if tokenizer.proof is None else replace(tokenizer.proof),  # without what it has made of itself
            tokenizer.fast_cache,
            embedding.vocabulary_size,
            embedding.width,
            stored.unit if prompt_sums else 1.0,
            stored.fixed_point if prompt_sums else None,
        )

    def in_file(self, folder: Path) -> PortableEmbedding:
        """The same with its matrix in a file of that folder."""
        if self.fixed_point is None or isinstance(self.fixed_point, str):
            return self
        path = folder / FIXED_POINT
        try:
            _write(self.fixed_point, path)
        except OSError as error:
            raise ArtifactError(
                f"cannot write {path}: {error.strerror or error}. The folder for temporary files must have room for "
                f"{4 * self.vocabulary * self.width:,} bytes: name another in TMPDIR, or use one process (workers=1)"
            ) from error
        return replace(self, fixed_point=str(path))

    def embedding(self) -> Embedding:
        """The embedding as far as counting on one thread needs it; its matrix is in fixed point only."""
        fixed_point = self.fixed_point
        if isinstance(fixed_point, str):
            fixed_point = np.load(fixed_point, mmap_mode="r")
        elif fixed_point is None:
            fixed_point = np.broadcast_to(np.float32(0), (self.vocabulary, self.width))
        stored = Matrix({"values": fixed_point}, self.width)  # type: ignore[dict-item]
        tokenizer = Tokenizer(self.definition, proof=self.proof, fast_cache=self.fast_cache)
        made = Embedding(tokenizer, stored, name=self.name)
        # what would be computed from the matrix is known, and of this matrix it would be wrong
        vars(stored).update(fixed_point=fixed_point, unit=self.unit)
        vars(made).update(fingerprint=self.fingerprint)
        with _on_one_core():
            tokenizer.encode_batch([self.name] * _WARM_UP_TEXTS)
        return made


def _write(fixed_point: Floats | FixedPointRows, path: Path) -> None:
    """The matrix as an .npy file, some rows at a time, for it may be larger than the memory."""
    with path.open("wb") as file:
        shape = fixed_point.shape
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for begin in range(0, shape[0], ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + ROWS_AT_ONCE, shape[0]))
            some = np.empty((len(rows), shape[1]), "<f4")
            file.write(fixed_point.take(rows, axis=0, out=some, mode="clip").data)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Have the fast engine believe that there is one core: it looks when it is first used, and cannot be told."""
    if not hasattr(os, "sched_setaffinity"):  # not on Linux: then its threads are in each other's way, no more
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
