"""IR3DE with its defaults; `--teacher` learns from prompts without labels too, `--encoder` asks for second opinions."""

from __future__ import annotations

import sys
from typing import Any

import measuring

MINILM = "minilm-l6"  # installed by `ir3de encoder install minilm-l6`


class Ir3de:
    def load(self, model: str) -> None:
        import ir3de

        self._module: Any = ir3de

    def fit(self, texts: list[str], labels: list[str]) -> None:
        domains: dict[str, list[str]] = {}
        for text, label in zip(texts, labels, strict=True):
            domains.setdefault(label, []).append(text)
        self._router = self._module.Router.fit(domains, **self.choose_options())
        self._router.route("calibrated by the first route")

    def choose_options(self) -> dict[str, Any]:
        return {}

    def add(self, label: str, texts: list[str]) -> None:
        self._router.add(label, texts)

    def route(self, text: str) -> tuple[str | None, float]:
        """The expert, and how probably the prompt belongs to any expert: that is what strangers are told by."""
        decision = self._router.route(text)
        return decision.best, decision.confidence if decision.in_domain is None else decision.in_domain


class WithEncoder(Ir3de, measuring.WithUnlabelled):
    """Vectors, a teacher's and those of second opinions, all come by `encode`."""

    vectors = "ir3de"

    def load(self, model: str) -> None:
        super().load(model)
        from ir3de.encoders import Encoder

        alternative = self

        class Asking(Encoder):
            def encode(self, texts: Any, *, batch: int = 32) -> Any:
                return alternative.encode(list(texts))

        self._encoder = Asking.load(MINILM)
        self._compute: Any = Encoder.encode

    def encode(self, texts: list[str]) -> Any:
        return self._compute(self._encoder, texts)

    def choose_options(self) -> dict[str, Any]:
        if "--encoder" in sys.argv:
            return {"encoder": self._encoder}
        return {"unlabelled": self.unlabelled, "teacher": self._encoder} if self.unlabelled else {}


if __name__ == "__main__":
    measuring.main(WithEncoder() if {"--teacher", "--encoder"} & set(sys.argv) else Ir3de())
