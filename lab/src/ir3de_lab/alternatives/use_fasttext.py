"""fastText's supervised classifier, with pairs of words."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import measuring

PREFIX = "__label__"
EPOCHS, RATE = 25, 1.0


class FastText(measuring.Refitted):
    def load(self, model: str) -> None:
        import fasttext

        self._module: Any = fasttext

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)
        self._names = sorted(set(labels))
        places = {name: place for place, name in enumerate(self._names)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.txt")
            lines = [f"{PREFIX}{places[label]} {_clean(text)}" for text, label in zip(texts, labels, strict=True)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            self._model = self._module.train_supervised(
                str(path), lr=RATE, epoch=EPOCHS, wordNgrams=2, thread=2, verbose=0
            )

    def route(self, text: str) -> tuple[str | None, float]:
        labels, shares = self._model.predict(_clean(text))
        return (self._names[int(labels[0][len(PREFIX) :])], float(shares[0])) if labels else (None, 0.0)


def _clean(text: str) -> str:
    """A line in lower case, as fastText's tutorial has it."""
    return " ".join(text.lower().split())


if __name__ == "__main__":
    measuring.main(FastText())
