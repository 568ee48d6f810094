"""Multinomial naive Bayes on the tokens of IR3DE's own tokenizer: the counts IR3DE has, without its vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.rivals.interface import Fitted, Indices, kept, labelled

_TEXTS = 4_096  # encoded at once


@dataclass(frozen=True)
class NaiveBayes:
    """Every domain a bag of tokens, all domains equally likely; `smoothing` is added to each token's count."""

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        if not self.smoothing > 0:
            raise InputError(f"smoothing is {self.smoothing}: a token that was never seen needs a count above 0")

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        shape = len(data.names), Embedding.default().vocabulary_size
        counts = np.full(shape, float(self.smoothing))
        for ids, owners, begin in _encoded(data.texts):
            cells = data.labels[begin + owners] * shape[1] + ids
            counts += np.bincount(cells, minlength=counts.size).reshape(shape)
        weights = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))  # log p(token | domain)

        def choose(texts: list[str]) -> Indices:
            return np.concatenate([_choose(weights, ids, owners) for ids, owners, _ in _encoded(texts)])[: len(texts)]

        tokenizer = Embedding.default().tokenizer
        return Fitted(data.names, choose, *kept([weights], besides=len(tokenizer.definition)))


def _choose(weights: npt.NDArray[np.float64], ids: Indices, owners: Indices) -> Indices:
    # Σ_token log p(token | domain), for each text and domain
    scores = np.stack([np.bincount(owners, row[ids], minlength=_TEXTS) for row in weights])
    chosen: Indices = np.argmax(scores, axis=0)
    return chosen


def _encoded(texts: list[str]) -> Iterator[tuple[Indices, Indices, int]]:
    """The ids of some texts at once, the text each belongs to, and how many texts came before."""
    tokenizer = Embedding.default().tokenizer
    for begin in range(0, len(texts), _TEXTS):
        ids, lengths = tokenizer.encode_batch(texts[begin : begin + _TEXTS])
        yield ids.astype(np.intp), np.repeat(np.arange(len(lengths)), lengths.astype(np.intp)), begin
