"""The rival of a proof: TF-IDF of words and pairs of words with logistic regression, as scikit-learn defines both.

The features are those of its `TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))`, and the loss is that of its
`LogisticRegression(C=10)`. The minimum is the same, but found in a fraction of the time, with the solver of the router.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from ir3de.scorers.solver import Preconditioner, minimise
from ir3de.scorers.sparse import Indices, Numbers, SparseMatrix

Floats = npt.NDArray[np.float64]

WORD = re.compile(r"\w\w+")  # whole words, as with \b at both ends: what is matched is as long as it can be
MAX_PAIR_CHARACTERS = 5_000_000  # of training texts; beyond it, words are counted alone and not in pairs
INVERSE_RIDGE = 10.0
CONSTANT = 100.0  # the feature of all texts: as large as this, it is hardly penalised
TOLERANCE = 0.003  # of the gradient, as a share of its start: the choices are those of the minimum but for near ties


def choose_by_tfidf(texts: Sequence[str], experts: Indices, weights: Floats, held: Sequence[str]) -> Indices | None:
    """The expert of each held-out text, by TF-IDF of words and pairs of words and logistic regression.

    A training text weighs as many prompts as it stands for, at least 1: the penalty is the same for every fit, so
    smaller weights would leave the texts of small experts without effect. None where it cannot be fitted:
    no training text has a word.
    """
    counts = _count_words([*texts, *held], pairs=sum(map(len, texts)) <= MAX_PAIR_CHARACTERS)
    n, known = len(texts), np.unique(experts)
    frequency = np.bincount(counts.columns[: counts.starts[n]], minlength=counts.width)
    if not frequency.any():
        return None
    idf = np.where(frequency > 0, np.log((1.0 + n) / (1.0 + np.maximum(frequency, 1))) + 1.0, 0.0)
    values = (1.0 + np.log(counts.values)) * idf[counts.columns]
    rows = np.repeat(np.arange(len(counts)), np.diff(counts.starts))
    lengths = np.sqrt(np.bincount(rows, values**2, minlength=len(counts)))
    values /= np.maximum(lengths, np.finfo(np.float64).tiny)[rows]
    design, routed = _Texts.split(counts, rows, values, frequency, np.searchsorted(known, experts))
    share = (weights / weights.sum()).astype(np.float32)
    W = minimise(design, len(known), share, 1.0 / (INVERSE_RIDGE * float(weights.sum())), TOLERANCE)
    return None if W is None else np.asarray(known[routed.multiply(W).argmax(axis=1)], np.int64)


def _count_words(texts: Sequence[str], *, pairs: bool) -> SparseMatrix:
    """How often each text has each word, and each pair of neighbouring words."""
    number: defaultdict[str, int] = defaultdict()
    number.default_factory = number.__len__  # a new word gets the next number
    words = [WORD.findall(text.lower()) for text in texts]
    sizes = list(map(len, words))
    ids = np.fromiter(map(number.__getitem__, chain.from_iterable(words)), np.int64, sum(sizes))
    rows, width = np.repeat(np.arange(len(texts)), sizes), max(1, len(number))
    if pairs and len(ids):
        within = rows[1:] == rows[:-1]
        kinds, columns = np.unique((ids[:-1] * width + ids[1:])[within], return_inverse=True)
        rows, ids = np.concatenate([rows, rows[1:][within]]), np.concatenate([ids, width + columns])
        width += len(kinds)
    keys, counts = np.unique(rows * width + ids, return_counts=True)
    rows, columns = np.divmod(keys, width)
    return SparseMatrix(_begin(rows, len(texts)), columns, counts.astype(np.float32), width)


@dataclass(frozen=True, eq=False)
class _Texts:
    """The features of training texts.

    Words of one text alone, of which there are many, all have the same role: their weights are in proportion to their
    values. So they are one feature, which is as long as they are together.
    """

    matrix: SparseMatrix
    experts: Indices

    @classmethod
    def split(
        cls, counts: SparseMatrix, rows: Indices, values: Floats, frequency: Indices, experts: Indices
    ) -> tuple[_Texts, SparseMatrix]:
        """The training texts, which are the first, and the others, with the same features."""
        n, columns = len(experts), counts.columns
        training, single = rows < n, frequency[columns] == 1
        own = training & single
        length = np.sqrt(np.bincount(rows[own], values[own] ** 2, minlength=n))
        several = frequency > 1
        place, factor = np.cumsum(several) - 1, np.ones(counts.width)
        first = int(several.sum())  # of the features that stand for the words of one text
        place[columns[own]], factor[columns[own]] = first + rows[own], values[own] / length[rows[own]]
        width, constant = first + n + 1, np.arange(len(counts))

        def build(chosen: npt.NDArray[np.bool_], extra: list[tuple[Indices, Indices, Floats]]) -> SparseMatrix:
            parts = [(rows[chosen], place[columns[chosen]], (values * factor[columns])[chosen]), *extra]
            row, column, value = map(np.concatenate, zip(*parts, strict=True))
            order = np.argsort(row, kind="stable")
            return SparseMatrix(_begin(row, len(counts)), column[order], value[order].astype(np.float32), width)

        with_own = np.flatnonzero(length)
        ones = (constant, np.full(len(counts), width - 1), np.full(len(counts), CONSTANT))
        fitted = build(training & (frequency[columns] > 1), [(with_own, first + with_own, length[with_own]), ones])
        routed = build(~training & (frequency[columns] > 0), [ones])
        return cls(fitted.take(np.arange(n)), experts), routed.take(np.arange(n, len(counts)))

    def __len__(self) -> int:
        return len(self.experts)

    @property
    def width(self) -> int:
        return self.matrix.width

    def project(self, W: Numbers, room: Numbers | None = None) -> Numbers:
        return self.matrix.multiply(W)

    def gather(self, R: Numbers, out: Numbers) -> Numbers:
        return self.matrix.multiply_transposed(R, out)

    def precondition(self, weights: Numbers, penalty: float) -> Preconditioner:
        diagonal = (1.0 / (penalty + self.matrix.sum_squares(weights))).astype(np.float32)[:, None]
        return lambda q, out: np.multiply(q, diagonal, out=out)


def _begin(rows: Indices, count: int) -> Indices:
    """Where each row's entries begin, and where the last row's end."""
    return np.append(0, np.cumsum(np.bincount(rows, minlength=count)))
