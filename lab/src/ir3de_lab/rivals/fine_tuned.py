"""A fine-tuned encoder: all its weights and a linear head on its vector, trained on the domains' names.

On the vector of the first token (`pooling="cls"`) it is PolyRouter's BERT-router.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ir3de_lab.rivals.balancing import balanced, capped
from ir3de_lab.rivals.classifier import Classifier
from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.interface import Fitted, Labelled, at_least, labelled
from ir3de_lab.rivals.training import batches, linear, train


@dataclass(frozen=True)
class FineTuned:
    """AdamW for `epochs`, or `fewest_steps` where texts are few; the rate rises over a tenth of them, then falls."""

    encoder: Encoder
    epochs: int = 3
    fewest_steps: int = 300
    rate: float = 5e-5
    batch: int = 32
    most_texts: int = 8_000  # of a domain
    pooling: Pooling = "mean"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "fewest_steps", "batch", "most_texts"):
            at_least(name, getattr(self, name), 1)

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        with self.encoder.seeded(self.seed):
            classifier = Classifier.untrained(self.encoder, self.pooling, len(data.names))
            self._train(classifier, data)
        return Fitted(data.names, classifier.choose, *classifier.kept)

    def _train(self, classifier: Classifier, data: Labelled) -> None:
        rng = np.random.default_rng(self.seed)
        kept = capped(data.labels, self.most_texts, rng)
        tokens, labels = self.encoder.tokens([data.texts[i] for i in kept]), data.labels[kept]
        order = balanced(labels, max(self.epochs * len(kept), self.fewest_steps * self.batch), rng)
        module = classifier.module.train()
        losses = train(
            self.encoder.torch,
            [(module.parameters(), self.rate)],
            lambda places: classifier.scores([tokens[i] for i in places]),
            labels,
            [batches(order, self.batch)],
            fall=linear,
        )
        for _ in losses:
            module.eval()
