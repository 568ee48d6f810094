"""TF-IDF of words and pairs of words, with logistic regression: the usual first try at sorting texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.bench.baselines.interface import Fitted, Indices, labelled, needed
from ir3de.errors import InputError


@dataclass(frozen=True)
class TfidfLogistic:
    """Logarithmic term counts, domains weighted alike; `C` is the inverse of the ridge, as in scikit-learn."""

    C: float = 10.0
    most_features: int = 500_000  # of the corpus's most frequent ones; only long documents have more

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        text = needed("sklearn.feature_extraction.text", extra="bench", purpose="TF-IDF with logistic regression")
        linear_model = needed("sklearn.linear_model", extra="bench", purpose="TF-IDF with logistic regression")
        vectorizer = text.TfidfVectorizer(
            ngram_range=(1, 2), sublinear_tf=True, max_features=self.most_features, dtype=np.float32
        )
        features = _features(vectorizer, data.texts)
        model = linear_model.LogisticRegression(C=self.C, class_weight="balanced", max_iter=1_000)
        model.fit(features, data.labels)

        def choose(texts: list[str]) -> Indices:
            chosen: Indices = model.predict(vectorizer.transform(texts))
            return chosen

        return Fitted(data.names, choose)


def _features(vectorizer: Any, texts: list[str]) -> Any:
    try:
        return vectorizer.fit_transform(texts)
    except ValueError as error:  # no word of two letters in any text
        raise InputError(f"the training texts hold no words to count ({error}): give texts with words") from error
