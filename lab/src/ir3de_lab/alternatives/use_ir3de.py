"""IR3DE with its defaults; `--embedding 2` takes the second default embedding."""

from __future__ import annotations

import sys
from typing import Any

import measuring


class Ir3de:
    def load(self, model: str) -> None:
        import ir3de

        self._module: Any = ir3de
        self._embedding = ir3de.Embedding.default(2) if "--embedding" in sys.argv else None

    def fit(self, texts: list[str], labels: list[str]) -> None:
        domains: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            domains.setdefault(label, []).append(text)
        self._router = self._module.Router.fit(domains, embedding=self._embedding)
        self._router.route("calibrated by the first route")

    def add(self, label: str, texts: list[str]) -> None:
        self._router.add(label, texts)

    def route(self, text: str) -> tuple[str | None, float]:
        decision = self._router.route(text)
        return decision.best, decision.confidence


if __name__ == "__main__":
    measuring.main(Ir3de())
