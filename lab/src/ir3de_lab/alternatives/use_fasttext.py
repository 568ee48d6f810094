"""fastText's supervised classifier; epochs and pairs of words are chosen on folds of the training prompts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import measuring

PREFIX = "__label__"
RATE = 1.0
BUCKETS, FOLD_BUCKETS = 2_000_000, 200_000  # for pairs of words: fastText's own number, and one for fits on folds
SETTINGS = tuple((epochs, words) for epochs in (25, 5, 100) for words in (2, 1))  # epochs, and words in a row


class FastText(measuring.Refitted):
    def load(self, model: str) -> None:
        import fasttext

        self._module: Any = fasttext

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)
        self._names = sorted(set(labels))
        places = {name: place for place, name in enumerate(self._names)}
        lines = [f"{PREFIX}{places[label]} {_clean(text)}" for text, label in zip(texts, labels, strict=True)]

        def rate(setting: tuple[int, int], split: measuring.Split) -> int:
            inside, outside = split
            model = self._train([lines[place] for place in inside], setting, FOLD_BUCKETS)
            return sum(self._ask(model, texts[place])[0] == labels[place] for place in outside)

        self._model = self._train(lines, measuring.choose(SETTINGS, texts, labels, rate), BUCKETS)

    def _train(self, lines: list[str], setting: tuple[int, int], buckets: int) -> Any:
        epochs, words = setting
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "train.txt")
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            # with one thread the same prompts make the same model every time
            return self._module.train_supervised(
                str(path), lr=RATE, epoch=epochs, wordNgrams=words, bucket=buckets, thread=1, verbose=0
            )

    def route(self, text: str) -> tuple[str | None, float]:
        return self._ask(self._model, text)

    def _ask(self, model: Any, text: str) -> tuple[str | None, float]:
        labels, shares = model.predict(_clean(text))
        return (self._names[int(labels[0][len(PREFIX) :])], float(shares[0])) if labels else (None, 0.0)


def _clean(text: str) -> str:
    """A line in lower case, as fastText's tutorial has it."""
    return " ".join(text.lower().split())


if __name__ == "__main__":
    measuring.main(FastText())
