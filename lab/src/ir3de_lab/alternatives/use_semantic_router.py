"""semantic-router: the nearest example utterances, with a sentence encoder in a local folder."""

from __future__ import annotations

from typing import Any

import measuring


class SemanticRouter:
    def __init__(self) -> None:
        self._vectors: dict[str, list[float]] = {}

    def load(self, model: str) -> None:
        from semantic_router import IndexedRouter, Route
        from semantic_router.encoders.local import LocalEncoder

        vectors = self._vectors

        class BatchEncoder(LocalEncoder):  # type: ignore[misc]
            """Reads the vectors of prompts that were encoded together."""

            def __call__(self, docs: list[str]) -> list[list[float]]:
                if all(text in vectors for text in docs):
                    return [vectors[text] for text in docs]
                found: list[list[float]] = super().__call__(docs)
                return found

        self._route, self._indexed = Route, IndexedRouter
        self._encoder: Any = BatchEncoder(name=model)

    def fit(self, texts: list[str], labels: list[str]) -> None:
        examples: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            examples.setdefault(label, []).append(text)
        routes = [self._route(name=name, utterances=some) for name, some in examples.items()]
        self._router = self._indexed(encoder=self._encoder, routes=routes)

    def add(self, label: str, texts: list[str]) -> None:
        self._router.add(self._route(name=label, utterances=texts))

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        """Encode all prompts at once, and then route one after the other: a call takes a text, not a vector."""
        self._vectors.update(zip(texts, self._encoder(texts), strict=True))
        found = [self.route(text) for text in texts]
        self._vectors.clear()
        return found

    def route(self, text: str) -> tuple[str | None, float]:
        choice = self._router(text)
        return choice.name, float(choice.confidence or 0.0)


if __name__ == "__main__":
    measuring.main(SemanticRouter())
