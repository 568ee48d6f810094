"""scikit-learn: TF-IDF of words and pairs of words, with logistic regression; its strength is chosen on folds."""

from __future__ import annotations

from typing import Any

import measuring

STRENGTHS = (1.0, 10.0, 100.0)


class Tfidf(measuring.Refitted):
    def load(self, model: str) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        def make(strength: float) -> Any:
            words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
            return make_pipeline(words, LogisticRegression(C=strength, class_weight="balanced", max_iter=1_000))

        self._make = make

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)

        def rate(strength: float, split: measuring.Split) -> int:
            inside, outside = split
            trained = self._make(strength).fit([texts[place] for place in inside], [labels[place] for place in inside])
            said = trained.predict([texts[place] for place in outside])
            return sum(str(one) == labels[place] for one, place in zip(said, outside, strict=True))

        self._pipeline = self._make(measuring.choose(STRENGTHS, texts, labels, rate)).fit(texts, labels)

    def route(self, text: str) -> tuple[str | None, float]:
        shares = self._pipeline.predict_proba([text])[0]
        best = int(shares.argmax())
        return str(self._pipeline.classes_[best]), float(shares[best])


if __name__ == "__main__":
    measuring.main(Tfidf())
