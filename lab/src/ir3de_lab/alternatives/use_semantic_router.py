"""semantic-router: the nearest example utterances, with a sentence encoder in a local folder.

How many utterances count, and how a route's similarities become its score, is chosen on folds of the training prompts;
its defaults come first.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import measuring

NEAREST, SUMMARIES = (5, 1, 3, 10, 20), {"mean": fmean, "max": max, "sum": sum}
SETTINGS = tuple((nearest, summary) for nearest in NEAREST for summary in SUMMARIES)


class SemanticRouter:
    vectors = "sentence-transformers"

    def __init__(self) -> None:
        self._at_hand: dict[str, list[float]] = {}

    def load(self, model: str) -> None:
        import numpy as np
        from semantic_router import IndexedRouter, Route
        from semantic_router.encoders.local import LocalEncoder

        alternative, at_hand = self, self._at_hand

        class BatchEncoder(LocalEncoder):  # type: ignore[misc]
            """Reads the vectors of prompts that were encoded together."""

            def __call__(self, docs: list[str]) -> list[list[float]]:
                if all(text in at_hand for text in docs):
                    return [at_hand[text] for text in docs]
                found: list[list[float]] = np.asarray(alternative.encode(docs)).tolist()
                return found

        self._numpy: Any = np
        self._route, self._indexed = Route, IndexedRouter
        self._encoder: Any = BatchEncoder(name=model, device=measuring.find_device())
        self._compute: Any = LocalEncoder.__call__

    def encode(self, texts: list[str]) -> Any:
        return self._compute(self._encoder, texts)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        vectors = self._numpy.asarray(self.encode(texts))
        nearest, summary = self._choose(vectors, texts, labels)
        examples: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            examples.setdefault(label, []).append(text)
        routes = [self._route(name=name, utterances=some) for name, some in examples.items()]
        self._at_hand.update(zip(texts, vectors.tolist(), strict=True))  # encoded once, as it does without a choice
        self._router = self._indexed(encoder=self._encoder, routes=routes, top_k=nearest, aggregation=summary)
        self._at_hand.clear()

    def _choose(self, vectors: Any, texts: list[str], labels: list[str]) -> tuple[int, str]:
        found: dict[int, list[list[tuple[str, float]]]] = {}  # by the first place of a fold, for every setting
        names = self._numpy.array(labels)

        def rate(setting: tuple[int, str], split: measuring.Split) -> int:
            inside, outside = split
            if outside[0] not in found:
                known, of_known = vectors[inside], names[inside]
                found[outside[0]] = [
                    measuring.find_nearest(vectors[place], known, of_known, max(NEAREST)) for place in outside
                ]
            said = (score(near, *setting) for near in found[outside[0]])
            return sum(name == labels[place] for name, place in zip(said, outside, strict=True))

        return measuring.choose(SETTINGS, texts, labels, rate)

    def add(self, label: str, texts: list[str]) -> None:
        self._router.add(self._route(name=label, utterances=texts))

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        """Encode all prompts at once, and then route one after the other: a call takes a text, not a vector."""
        self._at_hand.update(zip(texts, self._numpy.asarray(self.encode(texts)).tolist(), strict=True))
        found = [self.route(text) for text in texts]
        self._at_hand.clear()
        return found

    def route(self, text: str) -> tuple[str | None, float]:
        choice = self._router(text)
        return choice.name, float(choice.confidence or 0.0)


def score(near: list[tuple[str, float]], nearest: int, summary: str) -> str:
    """The route with the highest score, as semantic-router computes it."""
    hits: dict[str, list[float]] = {}
    for label, similarity in near[:nearest]:
        hits.setdefault(label, []).append(similarity)
    return max(hits, key=lambda label: SUMMARIES[summary](hits[label]))


if __name__ == "__main__":
    measuring.main(SemanticRouter())
