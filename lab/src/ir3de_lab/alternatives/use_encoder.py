"""A sentence encoder: the vote of the nearest prompts, or logistic regression on the vectors (`--linear`)."""

from __future__ import annotations

import sys
from typing import Any

import measuring

NEAREST = 10


class Nearest:
    """The ten nearest training prompts vote, each by its similarity."""

    def load(self, model: str) -> None:
        import numpy as np
        from sentence_transformers import SentenceTransformer

        self._numpy: Any = np
        self._encoder = SentenceTransformer(model, device="cpu")

    def encode(self, texts: list[str]) -> Any:
        return self._encoder.encode(texts, normalize_embeddings=True, batch_size=64, show_progress_bar=False)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self._vectors, self._labels = self.encode(texts), self._numpy.array(labels)

    def add(self, label: str, texts: list[str]) -> None:
        self._vectors = self._numpy.concatenate([self._vectors, self.encode(texts)])
        self._labels = self._numpy.concatenate([self._labels, self._numpy.array([label] * len(texts))])

    def route(self, text: str) -> tuple[str | None, float]:
        return self.route_many([text])[0]

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        return [self._vote(vector) for vector in self.encode(texts)]

    def _vote(self, vector: Any) -> tuple[str | None, float]:
        near = self._vectors @ vector
        count = min(NEAREST, len(near) - 1)
        votes: dict[str, float] = {}
        for place in self._numpy.argpartition(-near, count)[:NEAREST]:
            votes[str(self._labels[place])] = votes.get(str(self._labels[place]), 0.0) + float(near[place])
        best = max(votes, key=votes.__getitem__)
        return best, votes[best] / NEAREST


class Linear(measuring.Refitted, Nearest):
    """Logistic regression on the vectors. They are encoded again at every fit, as from nothing."""

    def fit(self, texts: list[str], labels: list[str]) -> None:
        from sklearn.linear_model import LogisticRegression

        self.keep(texts, labels)
        self._model = LogisticRegression(C=10, class_weight="balanced", max_iter=1_000)
        self._model.fit(self.encode(texts), labels)

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        shares = self._model.predict_proba(self.encode(texts))
        names = self._model.classes_[shares.argmax(axis=1)]
        return [(str(name), float(share)) for name, share in zip(names, shares.max(axis=1), strict=True)]


if __name__ == "__main__":
    measuring.main(Linear() if "--linear" in sys.argv else Nearest())
