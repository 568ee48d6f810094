"""PolyRouter's MLP-router: a perceptron of two layers on a bag of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de_lab.rivals.balancing import balanced, held_out, mean_recall
from ir3de_lab.rivals.interface import Fitted, Indices, at_least, kept, labelled, needed, spelt
from ir3de_lab.rivals.words import counted_words

_PURPOSE = "A perceptron on a bag of words"
_HELD_OUT = 0.1


@dataclass(frozen=True)
class BagOfWordsMLP:
    """Adam, all domains alike in every epoch; a tenth of the texts tells which epoch is best.

    It ends after `patience` epochs in a row that are no better, or after `most_epochs`.
    """

    most_words: int = 10_000
    hidden: int = 128
    rate: float = 1e-3
    batch: int = 200
    most_epochs: int = 30
    patience: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("most_words", "hidden", "batch", "most_epochs", "patience"):
            at_least(name, getattr(self, name), 1)

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        vectorizer, features = counted_words(data.texts, self.most_words, _PURPOSE, use_idf=False, norm=None)
        model = self._trained(features, data.labels)

        def choose(texts: list[str]) -> Indices:
            chosen: Indices = model.predict(vectorizer.transform(texts))
            return chosen

        learnt = [*model.coefs_, *model.intercepts_]
        return Fitted(data.names, choose, *kept(learnt, besides=spelt(vectorizer.vocabulary_)))

    def _trained(self, features: Any, labels: Indices) -> Any:
        """The perceptron of the first epoch that was best on the texts held out."""
        neural_network = needed("sklearn.neural_network", extra="", purpose=_PURPOSE)
        rng = np.random.default_rng(self.seed)
        places, validation = held_out(labels, 1 - _HELD_OUT, _HELD_OUT, rng)
        size = min(self.batch, len(places))
        model = neural_network.MLPClassifier(
            (self.hidden,), learning_rate_init=self.rate, batch_size=size, random_state=self.seed
        )
        best, kept_model, worse = -1.0, model, 0
        for _ in range(self.most_epochs):
            order = places[balanced(labels[places], len(places), rng)]
            model.partial_fit(features[order], labels[order], classes=np.unique(labels))
            accuracy = mean_recall(labels[validation], model.predict(features[validation]))
            if accuracy > best:
                best, kept_model, worse = accuracy, deepcopy(model), 0
            else:
                worse += 1
            if worse == self.patience:
                break
        return kept_model
