"""A sentence encoder: the vote of the nearest prompts, or logistic regression on the vectors (`--linear`).

The number of neighbours and the strength of the penalty are chosen on folds of the training prompts.
"""

from __future__ import annotations

import sys
from typing import Any

import measuring

NEAREST = (1, 3, 5, 10, 20)
MOST = max(NEAREST)
STRENGTHS = (1.0, 10.0, 100.0)

Near = list[tuple[str, float]]  # a prompt's label and its similarity


class Nearest:
    """The nearest training prompts vote, each by its similarity."""

    vectors = "sentence-transformers"

    def load(self, model: str) -> None:
        import numpy as np
        from sentence_transformers import SentenceTransformer

        self._numpy: Any = np
        self._encoder = SentenceTransformer(model, device=measuring.find_device())

    def encode(self, texts: list[str]) -> Any:
        return self._encoder.encode(texts, normalize_embeddings=True, batch_size=64, show_progress_bar=False)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self._vectors, self._labels = self.encode(texts), self._numpy.array(labels)
        found: dict[int, list[Near]] = {}  # by the first place of a fold: the same neighbours serve every setting

        def rate(nearest: int, split: measuring.Split) -> int:
            inside, outside = split
            if outside[0] not in found:
                known, names = self._vectors[inside], self._labels[inside]
                found[outside[0]] = [
                    measuring.find_nearest(self._vectors[place], known, names, MOST) for place in outside
                ]
            votes = (vote(near, nearest)[0] for near in found[outside[0]])
            return sum(said == labels[place] for said, place in zip(votes, outside, strict=True))

        self._nearest = measuring.choose(NEAREST, texts, labels, rate)

    def add(self, label: str, texts: list[str]) -> None:
        self._vectors = self._numpy.concatenate([self._vectors, self.encode(texts)])
        self._labels = self._numpy.concatenate([self._labels, self._numpy.array([label] * len(texts))])

    def route(self, text: str) -> tuple[str | None, float]:
        return self.route_many([text])[0]

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        vectors = self.encode(texts)
        found = (measuring.find_nearest(vector, self._vectors, self._labels, self._nearest) for vector in vectors)
        return [vote(near, self._nearest) for near in found]


def vote(near: Near, nearest: int) -> tuple[str | None, float]:
    """The label with the largest sum of similarities among the first, and its share."""
    votes: dict[str, float] = {}
    for label, similarity in near[:nearest]:
        votes[label] = votes.get(label, 0.0) + similarity
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
