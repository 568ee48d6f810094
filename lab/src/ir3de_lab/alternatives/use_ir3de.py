"""IR3DE with its defaults; `--teacher` learns from prompts without labels too, `--encoder` asks for second opinions."""

from __future__ import annotations

import sys
from typing import Any

import measuring

MINILM = "minilm-l6"  # installed by `ir3de encoder install minilm-l6`


class Ir3de(measuring.WithUnlabelled):
    def load(self, model: str) -> None:
        import ir3de

        self._module: Any = ir3de

    def fit(self, texts: list[str], labels: list[str]) -> None:
        domains: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            domains.setdefault(label, []).append(text)
        options: dict[str, Any] = {}
        if "--teacher" in sys.argv and self.unlabelled:
            options = {"unlabelled": self.unlabelled, "teacher": MINILM}
        if "--encoder" in sys.argv:
            options = {"encoder": MINILM}
        self._router = self._module.Router.fit(domains, **options)
        self._router.route("calibrated by the first route")

    def add(self, label: str, texts: list[str]) -> None:
        self._router.add(label, texts)

    def route(self, text: str) -> tuple[str | None, float]:
        decision = self._router.route(text)
        return decision.best, decision.confidence


if __name__ == "__main__":
    measuring.main(Ir3de())
