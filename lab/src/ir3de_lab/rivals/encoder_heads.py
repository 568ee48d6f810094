"""What can be put on a frozen encoder: the nearest training texts, or logistic regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de_lab.rivals.encoder import Encoder, Pooling
from ir3de_lab.rivals.interface import Fitted, Indices, at_least, kept, labelled, needed

_TEXTS = 1_024  # compared with all training texts at once


@dataclass(frozen=True)
class NearestNeighbours:
    """The domain most of the k nearest training texts are of, by cosine; ties go to the nearer ones."""

    encoder: Encoder
    k: int = 10
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        at_least("k", self.k, 1)

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data, torch, device = labelled(domains), self.encoder.torch, self.encoder.device
        known = torch.from_numpy(self.encoder.encode(data.texts, self.pooling)).to(device)

        def choose(texts: list[str]) -> Indices:
            vectors = torch.from_numpy(self.encoder.encode(texts, self.pooling))
            chosen = []
            for some in vectors.split(_TEXTS):
                cosines, places = (some.to(device) @ known.T).topk(min(self.k, len(known)), dim=1)
                labels = data.labels[places.cpu().numpy()]
                chosen.append(_elected(cosines.cpu().numpy(), labels, len(data.names)))
            return np.concatenate(chosen)

        size = kept([*self.encoder.weights, known, data.labels], besides=self.encoder.tokenizer_bytes)
        return Fitted(data.names, choose, *size)


def _elected(cosines: npt.NDArray[np.float32], labels: Indices, domains: int) -> Indices:
    of_domain = labels[..., None] == np.arange(domains)
    votes = of_domain.sum(axis=1)
    nearness = np.where(of_domain, cosines[..., None].astype(float), 0.0).sum(axis=1)
    k = labels.shape[1]
    elected: Indices = np.argmax(votes + nearness / (2 * k + 1), axis=1)  # |nearness| ≤ k: less than half a vote
    return elected


@dataclass(frozen=True)
class LinearProbe:
    """Logistic regression on the vectors, domains weighted alike; `C` is the inverse of the ridge."""

    encoder: Encoder
    C: float = 10.0
    pooling: Pooling = "mean"

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted:
        data = labelled(domains)
        linear_model = needed("sklearn.linear_model", extra="", purpose="A linear probe")
        model = linear_model.LogisticRegression(C=self.C, class_weight="balanced", max_iter=1_000)
        model.fit(self.encoder.encode(data.texts, self.pooling), data.labels)

        def choose(texts: list[str]) -> Indices:
            chosen: Indices = model.predict(self.encoder.encode(texts, self.pooling))
            return chosen

        learnt = [*self.encoder.weights, model.coef_, model.intercept_]
        return Fitted(data.names, choose, *kept(learnt, besides=self.encoder.tokenizer_bytes))
