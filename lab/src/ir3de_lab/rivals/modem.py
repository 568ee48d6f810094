"""After MoDEM: an encoder with a classification head, of which the epoch is kept that was best on validation texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.rivals.balancing import capped, held_out, mean_recall
from ir3de_lab.rivals.classifier import Classifier
from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.interface import Indices, Labelled, at_least, count_labels, kept, labelled
from ir3de_lab.rivals.training import Course, Trained, balanced_epochs, cosine, keep_best, train

TRAINED, VALIDATED = 0.7, 0.1  # of a domain's texts; the rest is left out, as the authors test on it
HEAD_EPOCHS, FULL_EPOCHS = 100, 3
PATIENCE = 1  # epochs without a better one, where the encoder learns as well
MOST_GRADIENT = 1.0


@dataclass(frozen=True)
class Modem:
    """AdamW, a tenth of the steps to warm up, then a cosine; `rate` is the head's, whose vectors are as they come.

    With `frozen` the head alone learns, as in the IR3DE authors' code; without it the encoder learns as well, at its
    own rate, as in MoDEM's paper, until an epoch is not better than the best before it. `pooling` is the encoder's
    usual one unless it is given.
    """

    encoder: Encoder
    rate: float = 0.1
    frozen: bool = True
    epochs: int | None = None  # HEAD_EPOCHS, or FULL_EPOCHS if not frozen
    pooling: Pooling | None = None
    encoder_rate: float = 2e-5
    batch: int = 16
    most_texts: int = 1_750  # of a domain
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("batch", "most_texts", *(("epochs",) if self.epochs is not None else ())):
            at_least(name, getattr(self, name), 1)
        for name in ("rate", "encoder_rate"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}: nothing is learnt unless it is above 0")

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Trained:
        data = labelled(domains)
        chosen = capped(data.labels, self.most_texts, np.random.default_rng(self.seed))
        data = Labelled(data.names, [data.texts[i] for i in chosen], data.labels[chosen])
        with self.encoder.seeded(self.seed):
            return self._fit_head(data) if self.frozen else self._fit_all(data)

    def _fit_head(self, data: Labelled) -> Trained:
        """Encode the texts once, and train the head on their vectors, on the CPU: it is small."""
        encoder, torch, pooling = self.encoder, self.encoder.torch, self.pooling or self.encoder.usual_pooling
        vectors = torch.from_numpy(encoder.encode(data.texts, pooling, unit=False))
        head = torch.nn.Linear(encoder.width, len(data.names))

        def chosen(given: Any) -> Indices:
            with torch.inference_mode():
                places: Indices = head(given).argmax(dim=1).numpy()
            return places

        def choose(texts: list[str]) -> Indices:
            return chosen(torch.from_numpy(encoder.encode(texts, pooling, unit=False)))

        rates = [(head.parameters(), self.rate)]
        course, trained, spared = self._train(
            data, head, rates, lambda i: head(vectors[i]), lambda i: chosen(vectors[i])
        )
        size = kept([*encoder.weights, *head.parameters()], besides=encoder.tokenizer_bytes)
        return Trained(data.names, choose, *size, course, trained, spared)

    def _fit_all(self, data: Labelled) -> Trained:
        classifier = Classifier.untrained(self.encoder, self.pooling or self.encoder.usual_pooling, len(data.names))
        tokens = self.encoder.tokens(data.texts)
        rates = [(classifier.model.parameters(), self.encoder_rate), (classifier.head.parameters(), self.rate)]
        course, trained, spared = self._train(
            data,
            classifier.module,
            rates,
            lambda places: classifier.scores([tokens[i] for i in places]),
            lambda places: classifier.choose_tokens([tokens[i] for i in places]),
        )
        return Trained(data.names, classifier.choose, *classifier.kept, course, trained, spared)

    def _train(
        self,
        data: Labelled,
        module: Any,
        rates: Sequence[tuple[Any, float]],
        score: Callable[[Indices], Any],
        choose: Callable[[Indices], Indices],
    ) -> tuple[Course, tuple[int, ...], tuple[int, ...]]:
        torch, rng = self.encoder.torch, np.random.default_rng(self.seed)
        number = self.epochs or (HEAD_EPOCHS if self.frozen else FULL_EPOCHS)
        places, validation = held_out(data.labels, TRAINED, VALIDATED, rng)
        epochs = balanced_epochs(places, data.labels, number, self.batch, rng)
        losses = train(torch, rates, score, data.labels, epochs, fall=cosine, most_gradient=MOST_GRADIENT)
        patience = None if self.frozen else PATIENCE
        course = keep_best(
            torch, module, losses, lambda: mean_recall(data.labels[validation], choose(validation)), patience=patience
        )
        return course, count_labels(data.labels[places]), count_labels(data.labels[validation])
