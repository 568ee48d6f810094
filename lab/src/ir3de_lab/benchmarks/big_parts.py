"""An embedding as large as wanted and the statistics of experts, made up: no figure depends on what they say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding, Matrix, matrix
from ir3de.embedding.rows import TOUCHED
from ir3de.scorers.arithmetic import BLOCK
from ir3de.statistics.domain import PromptSums, Statistics, upper_triangle
from ir3de.statistics.files import load_statistics, save_statistics
from ir3de.storage import tensors as tensor_files
from ir3de.storage.tensors import TensorFile, read_tensors

WINDOWS = 500  # of a domain's prompt sums: few enough for the default blend to solve the token ridge as well
TOKENS = 4  # of a domain, for each token of the vocabulary: it then sees two fifths of it
PROCESS = 256e6  # bytes: Python, numpy and the tokenizer
THREAD = 48e6  # bytes that BLAS keeps for each thread
MAPPED = 4  # bytes of a file in memory for each that was asked for: pages are mapped with those around them


@dataclass(frozen=True)
class Size:
    """How large the embedding is, and how many experts are fitted before one more joins."""

    vocabulary: int = 256_000
    width: int = 4_096
    experts: int = 5

    @property
    def bound(self) -> float:
        """The bytes that a fit from statistics needs at most, E mapped from its file: docs/big-embeddings.md."""
        V, h, C = self.vocabulary, self.width + 1, self.experts
        statistics = C * (8 * V + 4 * h * h)
        solving = C * 4 * h * h + 20 * h * h + 8 * BLOCK * h
        process = PROCESS + THREAD * (os.cpu_count() or 1)
        return process + statistics + solving + 64 * V * C + min(MAPPED * TOUCHED, 2 * V * h) + 64 * h * 128


QUICK = Size(32_000, 1_024)


@dataclass(frozen=True)
class _Random:
    """A matrix of float16 that is drawn when it is written; columns of ever smaller numbers, as in real ones."""

    shape: tuple[int, int]
    dtype = np.dtype(np.float16)

    def __getitem__(self, rows: slice) -> npt.NDArray[np.float16]:
        count = len(range(*rows.indices(self.shape[0])))
        drawn = np.random.default_rng(rows.start).standard_normal((count, self.shape[1]), np.float32)
        drawn /= np.sqrt(1.0 + np.arange(self.shape[1], dtype=np.float32))
        return drawn.astype(np.float16)


def make(size: Size, folder: Path) -> None:
    """An embedding and the statistics of the experts and of one more, as files."""
    stored = _Random((size.vocabulary, size.width))
    TensorFile({"values": stored}, {"width": size.width}).write(folder / "matrix.safetensors")
    embedding = open_embedding(size, folder)
    for number in range(size.experts + 1):
        save_statistics(_statistics(number, embedding), folder / f"{number}.stats")


def load(size: Size, folder: Path) -> tuple[Embedding, list[Statistics]]:
    embedding = open_embedding(size, folder)
    return embedding, [load_statistics(folder / f"{number}.stats") for number in range(size.experts + 1)]


def open_embedding(size: Size, folder: Path) -> Embedding:
    # a quick run takes the way of a large one
    matrix.LARGE = min(matrix.LARGE, size.vocabulary * size.width * 4 - 1)
    tensor_files.LARGE = min(tensor_files.LARGE, size.vocabulary * size.width * 2 - 1)
    tensors, _ = read_tensors(folder / "matrix.safetensors")
    embedding = Embedding(Embedding.default().tokenizer, Matrix(tensors, size.width), name="made up")
    len(embedding.rows)  # looked through once, for what is not finite
    return embedding


def _statistics(number: int, embedding: Embedding) -> Statistics:
    """Zipf's law, in an order of tokens of the expert's own; prompt sums of some hundred windows."""
    rng = np.random.default_rng(number)
    V, h = embedding.vocabulary_size, embedding.width
    place = np.argsort(np.argsort(np.log1p(np.arange(V)) + rng.standard_normal(V)))
    frequency = (place + 3.0) ** -1.1
    histogram = rng.multinomial(TOKENS * V, frequency / frequency.sum()).astype(np.int64)
    means = np.rint(1_000 * rng.standard_normal((WINDOWS, h)))
    gram = upper_triangle(means.T @ means).astype(np.int64)
    unit = embedding.stored.unit / 256
    sums = PromptSums(128, unit, WINDOWS, means.sum(axis=0).astype(np.int64), gram)
    return Statistics(embedding.fingerprint, WINDOWS, histogram, sums)
