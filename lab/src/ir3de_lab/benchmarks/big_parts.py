"""An embedding as large as wanted and the statistics of experts, made up: no figure depends on what they say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding, Matrix
from ir3de.statistics import PromptSums, Statistics, load_statistics, save_statistics
from ir3de_lab.benchmarks.measurement import usable_cores

WINDOWS = 500  # of a domain's prompt sums: few enough for the default blend to solve the token ridge as well
TOKENS = 4  # of a domain, for each token of the vocabulary: it then sees two fifths of it
PROCESS = 256e6  # bytes: Python, numpy and the tokenizer
THREAD = 48e6  # bytes that BLAS keeps for each thread
BLOCK = 4_096  # rows of E in one product
IN_MEMORY = 1 << 30  # bytes of E as float32 up to which all of it is kept in memory
TOUCHED = 1 << 26  # bytes of a larger E that are read before their pages are given back
MAPPED = 4  # bytes of a file in memory for each that was asked for: pages are mapped with those around them


@dataclass(frozen=True)
class Size:
    """How large the embedding is, and how many experts are fitted before one more joins."""

    vocabulary: int = 256_000
    width: int = 4_096
    experts: int = 5

    @property
    def bound(self) -> float:
        """The bytes that a fit from statistics needs about, E mapped from its file: docs/big-embeddings.md."""
        V, h, C = self.vocabulary, self.width + 1, self.experts
        statistics = C * (8 * V + 4 * h * h)
        solving = C * 4 * h * h + 20 * h * h + 8 * BLOCK * h
        process = PROCESS + THREAD * usable_cores()
        matrix = 4 * V * h if 4 * V * h <= IN_MEMORY else MAPPED * TOUCHED
        return process + statistics + solving + 64 * V * C + matrix + 64 * h * 128


QUICK = Size(32_000, 1_024)


def make(size: Size, folder: Path) -> None:
    """An embedding and the statistics of the experts and of one more, as files."""
    _write_matrix(size, folder / "matrix.npy")
    embedding = open_embedding(size, folder)
    for number in range(size.experts + 1):
        save_statistics(_statistics(number, embedding), folder / f"{number}.stats")


def load(size: Size, folder: Path) -> tuple[Embedding, list[Statistics]]:
    embedding = open_embedding(size, folder)
    return embedding, [load_statistics(folder / f"{number}.stats") for number in range(size.experts + 1)]


def open_embedding(size: Size, folder: Path) -> Embedding:
    """Open the embedding, its matrix mapped from the file."""
    values: npt.NDArray[np.float16] = np.load(folder / "matrix.npy", mmap_mode="r")
    embedding = Embedding(Embedding.default().tokenizer, Matrix.plain(values), name="made up")
    len(embedding.rows)  # this looks for numbers that are not finite, once
    return embedding


def _write_matrix(size: Size, path: Path) -> None:
    """Write random numbers as float16, some rows at a time; later columns have smaller ones, as in real matrices."""
    values = np.lib.format.open_memmap(path, "w+", np.float16, (size.vocabulary, size.width))
    for begin in range(0, size.vocabulary, BLOCK):
        rows = min(BLOCK, size.vocabulary - begin)
        drawn = np.random.default_rng(begin).standard_normal((rows, size.width), np.float32)
        drawn /= np.sqrt(1.0 + np.arange(size.width, dtype=np.float32))
        values[begin : begin + rows] = drawn
    values.flush()


def _statistics(number: int, embedding: Embedding) -> Statistics:
    """Zipf's law, in an order of tokens of the expert's own; prompt sums of some hundred windows."""
    rng = np.random.default_rng(number)
    V, h = embedding.vocabulary_size, embedding.width
    place = np.argsort(np.argsort(np.log1p(np.arange(V)) + rng.standard_normal(V)))
    frequency = (place + 3.0) ** -1.1
    histogram = rng.multinomial(TOKENS * V, frequency / frequency.sum()).astype(np.int64)
    means = np.rint(1_000 * rng.standard_normal((WINDOWS, h)))
    gram = (means.T @ means)[np.triu_indices(h)].astype(np.int64)  # row by row, as statistics keep it
    unit = embedding.stored.unit / 256
    sums = PromptSums(128, unit, WINDOWS, means.sum(axis=0).astype(np.int64), gram)
    return Statistics(embedding.fingerprint, WINDOWS, histogram, sums)
