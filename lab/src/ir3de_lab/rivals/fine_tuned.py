"""A fine-tuned encoder: all its weights and a linear head on its vector, trained on the domains' names.

On the vector of the first token (`pooling="cls"`) it is PolyRouter's BERT-router.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.rivals.balancing import balanced, capped, held_out, mean_recall
from ir3de_lab.rivals.classifier import Classifier
from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.interface import Fitted, Indices, Labelled, at_least, count_labels, labelled
from ir3de_lab.rivals.training import Trained, balanced_epochs, batches, keep_best, linear, train

PATIENCE = 1  # epochs without a better one


@dataclass(frozen=True)
class FineTuned:
    """AdamW for `epochs`, or `fewest_steps` where texts are few; the rate rises over a tenth of them, then falls.

    With `validated`, that share of each domain's texts is held out: the best epoch on it is kept, and an epoch that is
    not better ends the training.
    """

    encoder: Encoder
    epochs: int = 3
    fewest_steps: int = 300
    rate: float = 5e-5
    batch: int = 32
    most_texts: int = 8_000  # of a domain
    pooling: Pooling = "mean"
    validated: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "fewest_steps", "batch", "most_texts"):
            at_least(name, getattr(self, name), 1)
        if not 0 <= self.validated < 1:
            raise InputError(f"validated is {self.validated}: it is a share of the texts, 0 or more and below 1")

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        rng = np.random.default_rng(self.seed)
        kept = capped(data.labels, self.most_texts, rng)
        data = Labelled(data.names, [data.texts[i] for i in kept], data.labels[kept])
        with self.encoder.seeded(self.seed):
            classifier = Classifier.untrained(self.encoder, self.pooling, len(data.names))
            fit = self._fit_best if self.validated else self._fit_all
            return fit(classifier, data, rng)

    def _fit_all(self, classifier: Classifier, data: Labelled, rng: np.random.Generator) -> Fitted:
        size = max(self.epochs * len(data.labels), self.fewest_steps * self.batch)
        order = balanced(data.labels, size, rng)
        classifier.module.train()
        for _ in self._losses(classifier, data, self.encoder.tokens(data.texts), [batches(order, self.batch)]):
            classifier.module.eval()
        return Fitted(data.names, classifier.choose, *classifier.kept)

    def _fit_best(self, classifier: Classifier, data: Labelled, rng: np.random.Generator) -> Trained:
        places, spared = held_out(data.labels, 1 - self.validated, self.validated, rng)
        tokens = self.encoder.tokens(data.texts)
        rounds = max(1, -(-self.fewest_steps * self.batch // (self.epochs * len(places))))  # of the texts in an epoch
        epochs = balanced_epochs(np.tile(places, rounds), data.labels, self.epochs, self.batch, rng)
        course = keep_best(
            self.encoder.torch,
            classifier.module,
            self._losses(classifier, data, tokens, epochs),
            lambda: mean_recall(data.labels[spared], classifier.choose_tokens([tokens[i] for i in spared])),
            patience=PATIENCE,
        )
        counts = count_labels(data.labels[places]), count_labels(data.labels[spared])
        return Trained(data.names, classifier.choose, *classifier.kept, course, *counts)

    def _losses(
        self, classifier: Classifier, data: Labelled, tokens: list[list[int]], epochs: Sequence[Sequence[Indices]]
    ) -> Iterator[float]:
        return train(
            self.encoder.torch,
            [(classifier.module.parameters(), self.rate)],
            lambda places: classifier.scores([tokens[i] for i in places]),
            data.labels,
            epochs,
            fall=linear,
        )
