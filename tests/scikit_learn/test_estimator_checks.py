"""scikit-learn's own checks of estimators, all of them.

They feed tables of numbers, and an estimator of texts is spared most of them. So they also run on a subclass that
writes each row of numbers as a text and changes nothing else: labels, shapes, pickles, parameters and refusals are
those of `RouterClassifier`. No check is expected to fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import SkipTestWarning
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from sklearn.utils.validation import validate_data

import tiny
from ir3de.evaluation.scikit_learn import RouterClassifier
from labelled_texts import make_model


class RouterOfNumbers(RouterClassifier):
    """Rows of numbers as texts: column, sign and size of each number make a word."""

    def fit(self, X: Any, y: Any) -> RouterOfNumbers:
        super().fit(self._write(X, first=True), y)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> RouterOfNumbers:
        super().partial_fit(self._write(X, first=not self.__sklearn_is_fitted__()), y, classes)
        return self

    def predict(self, X: Any) -> Any:
        return self._ask(super().predict, X)

    def predict_proba(self, X: Any) -> Any:
        return self._ask(super().predict_proba, X)

    def decision_function(self, X: Any) -> Any:
        return self._ask(super().decision_function, X)

    def _ask(self, method: Callable[[Any], Any], X: Any) -> Any:
        return method(self._write(X, first=False) if self.__sklearn_is_fitted__() else X)

    def _write(self, X: Any, *, first: bool) -> list[str]:
        rows = np.rint(2 * np.asarray(validate_data(self, X, reset=first), np.float64)).astype(np.int64)
        return [" ".join(f"{chr(97 + j % 26)}{value}" for j, value in enumerate(row)) for row in rows.tolist()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, False, True
        tags.classifier_tags.poor_score = True  # numbers as words are no way to learn from numbers
        return tags


FAST = {"scorer": "token-ridge", "keep_sample": False}
OF_NUMBERS = RouterOfNumbers(embedding=tiny.embedding(), **FAST)


@parametrize_with_checks([OF_NUMBERS])
def test_check(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_the_checks_are_many() -> None:
    """Or the test above would say nothing."""
    assert len(list(estimator_checks_generator(OF_NUMBERS))) > 40


def test_the_checks_that_an_estimator_of_texts_is_not_spared() -> None:
    with pytest.warns(SkipTestWarning, match="string=True"):
        checks = list(estimator_checks_generator(make_model(**FAST)))
    assert checks
    for estimator, check in checks:
        check(estimator)


def test_tags_say_that_it_takes_texts() -> None:
    tags = get_tags(RouterClassifier())
    assert tags.input_tags.string and tags.input_tags.one_d_array and not tags.input_tags.two_d_array
    assert tags.target_tags.required and tags.estimator_type == "classifier" and tags.classifier_tags.multi_class
