"""scikit-learn: TF-IDF of words and pairs of words, with logistic regression."""

from __future__ import annotations

from typing import Any

import measuring


class Tfidf(measuring.Refitted):
    def load(self, model: str) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        def make() -> Any:
            words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
            return make_pipeline(words, LogisticRegression(C=10, class_weight="balanced", max_iter=1_000))

        self._make = make

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)
        self._pipeline = self._make().fit(texts, labels)

    def route(self, text: str) -> tuple[str | None, float]:
        shares = self._pipeline.predict_proba([text])[0]
        best = int(shares.argmax())
        return str(self._pipeline.classes_[best]), float(shares[best])


if __name__ == "__main__":
    measuring.main(Tfidf())
