"""TF-IDF of words and pairs of words, with logistic regression: the usual first try at sorting texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir3de_lab.rivals.interface import Fitted, Indices, kept, labelled, needed, spelt
from ir3de_lab.rivals.words import counted_words

_PURPOSE = "TF-IDF with logistic regression"


@dataclass(frozen=True)
class TfidfLogistic:
    """Logarithmic term counts, domains weighted alike; `C` is the inverse of the ridge, as in scikit-learn.

    Where the training texts have more than `most_for_pairs` characters, words alone are counted.
    """

    C: float = 10.0
    most_features: int = 500_000  # of the corpus's most frequent ones
    most_for_pairs: int = 20_000_000

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        linear_model = needed("sklearn.linear_model", extra="", purpose=_PURPOSE)
        longest = 2 if sum(map(len, data.texts)) <= self.most_for_pairs else 1
        vectorizer, features = counted_words(data.texts, self.most_features, _PURPOSE, ngram_range=(1, longest))
        model = linear_model.LogisticRegression(C=self.C, class_weight="balanced", max_iter=1_000)
        model.fit(features, data.labels)

        def choose(texts: list[str]) -> Indices:
            chosen: Indices = model.predict(vectorizer.transform(texts))
            return chosen

        learnt = [vectorizer.idf_, model.coef_, model.intercept_]
        return Fitted(data.names, choose, *kept(learnt, besides=spelt(vectorizer.vocabulary_)))
