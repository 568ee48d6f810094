"""The rival of a proof has the features and the minimum of scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

from ir3de.corpora import examples
from ir3de.evaluation import tfidf
from ir3de.evaluation.tfidf import choose_by_tfidf


def split_examples() -> tuple[list[str], np.ndarray, list[str]]:
    """Training texts, their experts, and other texts. The first expert has few."""
    texts = {name: own[:4] if place == 0 else own for place, (name, own) in enumerate(examples.prompts().items())}
    training = [(text, place) for place, own in enumerate(texts.values()) for text in own[::2]]
    others = [text for own in examples.prompts().values() for text in own[1::2]]
    return [text for text, _ in training], np.array([place for _, place in training]), others


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pairs", [False, True])
def test_it_chooses_as_scikit_learn_does(weighted: bool, pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    linear = pytest.importorskip("sklearn.linear_model")
    monkeypatch.setattr(tfidf, "MAX_PAIR_CHARACTERS", 10**9 if pairs else 0)
    texts, experts, held = split_examples()
    weights = np.where(experts == 0, 9.0, 1.0) if weighted else np.ones(len(texts))
    words = text.TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2 if pairs else 1))
    model = linear.LogisticRegression(C=10.0, max_iter=1_000, tol=1e-6)
    model.fit(words.fit_transform(texts), experts, sample_weight=weights)
    odds = model.decision_function(words.transform(held))
    found = choose_by_tfidf(texts, experts, weights, held)
    assert found is not None
    own, best = odds[np.arange(len(held)), found], odds.max(axis=1)
    assert (best - own).max() < 0.1  # near ties may fall either way
    assert (own == best).mean() > 0.97


def test_a_text_without_known_words_gets_the_expert_of_most_prompts() -> None:
    texts, experts, _ = split_examples()
    found = choose_by_tfidf(texts, experts, np.where(experts == 1, 5.0, 1.0), ["xyzzy plugh", ""])
    assert found is not None and found.tolist() == [1, 1]


def test_without_a_word_there_is_no_choice() -> None:
    assert choose_by_tfidf(["1 + 2", "?"], np.array([0, 1]), np.ones(2), ["some words"]) is None


def test_experts_without_training_texts_are_never_chosen() -> None:
    texts, experts, held = split_examples()
    found = choose_by_tfidf(texts, experts * 3, np.ones(len(texts)), held)
    assert found is not None and set(found.tolist()) <= set((experts * 3).tolist())
