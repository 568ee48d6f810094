"""What a router is compared with on the same folds: the usual first try at sorting texts, and no router at all."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

TFIDF = "TF-IDF + logistic regression"
MAJORITY = "always the largest expert"
MAX_PAIR_CHARACTERS = 5_000_000  # of training texts; beyond it, words are counted alone and not in pairs
MAX_ITERATIONS = 1_000
INVERSE_RIDGE = 10.0

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def has_sklearn() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def choose_by_tfidf(texts: Sequence[str], experts: Indices, weights: Floats, asked: Sequence[str]) -> Indices | None:
    """The expert of each text asked about, by TF-IDF of words and pairs of words and logistic regression.

    A training text weighs as many prompts as it stands for, at least 1: the penalty is the same for every fit, so
    smaller weights would leave the texts of small experts without effect. None where it cannot be fitted:
    no training text has a word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    longest = 2 if sum(map(len, texts)) <= MAX_PAIR_CHARACTERS else 1
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, longest), dtype=np.float32)
    try:
        features = words.fit_transform(texts)
    except ValueError:
        return None
    model = LogisticRegression(C=INVERSE_RIDGE, max_iter=MAX_ITERATIONS)
    model.fit(features, experts, sample_weight=weights)
    return np.asarray(model.predict(words.transform(asked)), np.int64)
