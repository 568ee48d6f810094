"""A sentence encoder: the vote of the nearest prompts, or logistic regression on the vectors (`--linear`).

The number of neighbours and the strength of the penalty are chosen on folds of the training prompts.
"""

from __future__ import annotations

import sys
from typing import Any

import measuring

NEAREST = (1, 3, 5, 10, 20)
STRENGTHS = (1.0, 10.0, 100.0)


class Nearest:
    """The nearest training prompts vote, each by its similarity."""

    def load(self, model: str) -> None:
        import numpy as np
        from sentence_transformers import SentenceTransformer

        self._numpy: Any = np
        self._encoder = SentenceTransformer(model, device=measuring.find_device())

    def encode(self, texts: list[str]) -> Any:
        return self._encoder.encode(texts, normalize_embeddings=True, batch_size=64, show_progress_bar=False)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self._vectors, self._labels = self.encode(texts), self._numpy.array(labels)
        whole = self._vectors, self._labels

        def rate(nearest: int, split: measuring.Split) -> int:
            inside, outside = split
            return sum(
                self._vote(whole[0][place], whole[0][inside], whole[1][inside], nearest)[0] == labels[place]
                for place in outside
            )

        self._nearest = measuring.choose(NEAREST, texts, labels, rate)

    def add(self, label: str, texts: list[str]) -> None:
        self._vectors = self._numpy.concatenate([self._vectors, self.encode(texts)])
        self._labels = self._numpy.concatenate([self._labels, self._numpy.array([label] * len(texts))])

    def route(self, text: str) -> tuple[str | None, float]:
        return self.route_many([text])[0]

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        return [self._vote(vector, self._vectors, self._labels, self._nearest) for vector in self.encode(texts)]

    def _vote(self, vector: Any, vectors: Any, labels: Any, nearest: int) -> tuple[str | None, float]:
        near = vectors @ vector
        count = min(nearest, len(near) - 1)
        votes: dict[str, float] = {}
        for place in self._numpy.argpartition(-near, count)[:nearest]:
            votes[str(labels[place])] = votes.get(str(labels[place]), 0.0) + float(near[place])
        best = max(votes, key=votes.__getitem__)
        return best, votes[best] / nearest


class Linear(measuring.Refitted, Nearest):
    """Logistic regression on the vectors. They are encoded again at every fit, as from nothing."""

    def fit(self, texts: list[str], labels: list[str]) -> None:
        from sklearn.linear_model import LogisticRegression

        self.keep(texts, labels)
        vectors, names = self.encode(texts), self._numpy.array(labels)

        def train(strength: float, places: Any) -> Any:
            model = LogisticRegression(C=strength, class_weight="balanced", max_iter=1_000)
            return model.fit(vectors[places], names[places])

        def rate(strength: float, split: measuring.Split) -> int:
            inside, outside = split
            return int((train(strength, inside).predict(vectors[outside]) == names[outside]).sum())

        self._model = train(measuring.choose(STRENGTHS, texts, labels, rate), slice(None))

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        shares = self._model.predict_proba(self.encode(texts))
        names = self._model.classes_[shares.argmax(axis=1)]
        return [(str(name), float(share)) for name, share in zip(names, shares.max(axis=1), strict=True)]


if __name__ == "__main__":
    measuring.main(Linear() if "--linear" in sys.argv else Nearest())
