"""Labelled texts of the made-up domains, and a small estimator for them."""

from typing import Any

import tiny
from ir3de.evaluation.scikit_learn import RouterClassifier


def make_data(number: int = 12, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts and labels, the labels in turn."""
    domains = tiny.domain_texts(number, seed=seed)
    rows = [
        (text, name) for texts in zip(*domains.values(), strict=True) for text, name in zip(texts, domains, strict=True)
    ]
    return [text for text, _ in rows], [name for _, name in rows]


def make_model(**parameters: Any) -> RouterClassifier:
    """The closed form with the tiny embedding, unless parameters say otherwise."""
    return RouterClassifier(**{"scorer": "blend", "embedding": tiny.embedding(), **parameters})
