"""The estimator is the router: same decisions, same probabilities, and `partial_fit` is exact."""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score

import tiny
from ir3de import Embedding, EntropyTopK, Router
from ir3de.errors import InputError, MismatchError
from ir3de.evaluation.scikit_learn import RouterClassifier
from ir3de.scorers import Blend, PromptRidge, TokenRidge
from labelled_texts import make_data, make_model
from refused import refusal

TEXTS, LABELS = make_data()
ASKED, RIGHT = make_data(8, seed=1)
STRANGE = ["字 Ж 🙂 字 Ж 🙂 字"]
METHODS = ("predict", "predict_proba", "decision_function")


@dataclass(frozen=True)
class Plain:
    """A scorer without any parameter."""

    def scores(self, domains: Sequence[Any], embeddings: Any) -> Any:
        return np.zeros((len(embeddings), len(domains)))


def softmax(odds: Any) -> Any:
    powers = np.exp(odds - odds.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_it_is_the_router_that_is_fitted_from_the_same_texts() -> None:
    model = make_model().fit(TEXTS, LABELS)
    by_label = {
        name: [text for text, label in zip(TEXTS, LABELS, strict=True) if label == name] for name in model.classes_
    }
    router = Router.fit(by_label, embedding=tiny.embedding(), scorer=Blend())
    assert model.classes_.tolist() == sorted(tiny.DOMAINS) == list(model.router_.experts)
    assert tiny.same_table(model.router_, router) and tiny.same_samples(model.router_, router)
    assert model.predict(ASKED).tolist() == router.predict(ASKED).tolist()
    assert model.score(ASKED, RIGHT) == accuracy_score(RIGHT, model.predict(ASKED)) > 0.8


@pytest.mark.parametrize(
    "parameters", [{}, {"keep_sample": False}, {"selector": EntropyTopK(5)}, {"scorer": "auto"}], ids=str
)
def test_probabilities_agree_with_decisions(parameters: dict[str, Any]) -> None:
    model = make_model(**parameters).fit(TEXTS, LABELS)
    texts = [*ASKED, *tiny.mixed(12), *STRANGE, "", "🙂"]
    decisions, rows = model.router_.route_batch(texts), model.predict_proba(texts)
    assert rows.shape == (len(texts), 3) and np.allclose(rows.sum(axis=1), 1.0, atol=1e-12)
    for decision, row in zip(decisions, rows, strict=True):
        share = decision.in_domain or 1.0
        if decision.counted:
            ranked = {name: value / share for name, value in decision.ranking}
            assert row == pytest.approx([ranked[name] for name in model.classes_])
    odds, best = model.decision_function(texts), np.searchsorted(model.classes_, model.predict(texts))
    for values in (rows, odds):  # of equal ones, the router's rule for ties says which
        assert (np.take_along_axis(values, best[:, None], axis=1)[:, 0] == values.max(axis=1)).all()
    if model.router_.calibrated:
        assert softmax(odds) == pytest.approx(rows)


def test_two_classes_have_one_column_of_odds_and_one_class_has_one() -> None:
    two = make_model().fit(TEXTS, np.array(LABELS) == "law")
    odds = two.decision_function(ASKED)
    assert odds.shape == (len(ASKED),)
    assert ((odds > 0) == two.predict(ASKED)).all()
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(two.predict_proba(ASKED)[:, 1])
    one = make_model().fit(TEXTS, ["all"] * len(TEXTS))
    assert one.predict(ASKED).tolist() == ["all"] * len(ASKED)
    assert (one.predict_proba(ASKED) == 1.0).all()
    assert one.decision_function(ASKED).shape == (len(ASKED), 1)


@pytest.mark.parametrize("method", METHODS)
def test_no_prompts_no_rows(method: str) -> None:
    assert len(getattr(make_model().fit(TEXTS, LABELS), method)([])) == 0


# partial_fit --------------------------------------------------------------------------------------------------------


@cache
def fit_all(scorer: str) -> RouterClassifier:
    return make_model(scorer=scorer).fit(TEXTS, LABELS)


@tiny.law_settings(max_examples=6)
@given(cuts=st.lists(st.integers(1, len(TEXTS) - 1), max_size=4), order=st.permutations(range(len(TEXTS))))
def test_fitting_in_chunks_in_any_order_is_fitting_all(cuts: list[int], order: Sequence[int]) -> None:
    whole, chunks = fit_all("token-ridge"), make_model(scorer="token-ridge")
    edges = [0, *sorted(set(cuts)), len(order)]
    for begin, end in pairwise(edges):
        places = order[begin:end]
        chunks.partial_fit([TEXTS[place] for place in places], [LABELS[place] for place in places])
    assert chunks.classes_.tolist() == whole.classes_.tolist()
    assert tiny.same_table(chunks.router_, whole.router_) and tiny.same_samples(chunks.router_, whole.router_)


@pytest.mark.parametrize(
    "parameters",
    [
        {"scorer": "logistic"},
        pytest.param({"scorer": "auto"}, marks=pytest.mark.slow),
        pytest.param({"scorer": "auto", "tune": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_scorer_that_is_chosen_is_chosen_again(parameters: dict[str, Any]) -> None:
    whole, chunks = make_model(**parameters).fit(TEXTS, LABELS), make_model(**parameters)
    for begin in range(0, len(TEXTS), 12):
        chunks.partial_fit(TEXTS[begin : begin + 12], LABELS[begin : begin + 12]).predict(ASKED)
    assert tiny.same_table(chunks.router_, whole.router_)


def test_more_texts_after_a_fit_and_a_fit_that_forgets() -> None:
    half = len(TEXTS) // 2
    model = make_model().fit(TEXTS[:half], LABELS[:half]).partial_fit(TEXTS[half:], LABELS[half:])
    assert tiny.same_table(model.router_, make_model().fit(TEXTS, LABELS).router_)
    model.fit(TEXTS[:half], LABELS[:half])
    assert tiny.same_table(model.router_, make_model().fit(TEXTS[:half], LABELS[:half]).router_)


def test_classes_that_are_listed_first_stay_those() -> None:
    model = make_model().partial_fit(TEXTS[:2], LABELS[:2], classes=["maths", "law", "cooking"])
    assert model.classes_.tolist() == ["cooking", "law", "maths"]
    rows, odds = model.predict_proba(ASKED), model.decision_function(ASKED)
    assert (rows[:, 0] == 0).all() and np.allclose(rows.sum(axis=1), 1.0) and np.isfinite(odds).all()
    assert set(model.predict(ASKED)) <= {"law", "maths"} and model.router_.experts == ("law", "maths")
    before = model.router_
    for wrong in ({"y": ["art"]}, {"y": ["law"], "classes": ["law", "maths"]}):
        said = refusal(InputError, model.partial_fit, ["Who painted it?"], **wrong)
        assert "classes" in said and ("['art']" in said or "first call" in said)
    assert model.router_ is before  # a refused call changes nothing
    model.partial_fit(TEXTS, LABELS, classes=["cooking", "maths", "law"])
    assert (model.predict_proba(ASKED)[:, 0] > 0).all()
    assert "['art']" in refusal(InputError, make_model().partial_fit, ["x"], ["art"], classes=["law"])


def test_a_class_without_a_word_waits_for_one() -> None:
    assert "'law' has no text" in refusal(InputError, make_model().fit, ["", "a root of 7"], ["law", "maths"])
    model = make_model().partial_fit(["", "a root of 7"], ["law", "maths"])
    assert model.predict(["landlord"]).tolist() == ["maths"]
    assert model.partial_fit(["landlord"], ["law"]).predict(["landlord"]).tolist() == ["law"]


def test_statistics_of_two_embeddings_are_not_mixed() -> None:
    model = make_model().fit(TEXTS, LABELS).set_params(embedding=tiny.other_embedding())
    assert "embedding" in refusal(MismatchError, model.partial_fit, TEXTS, LABELS)


# labels, defaults, parameters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 2]), np.array([3, 1, 2], np.uint8), np.array([1.0, -1.0, 0.0]), np.array(["é", "b c", "ä"]),
        np.array(["x", "y", "z"], object), np.array([True, False, True]),
    ],
    ids=lambda labels: str(labels.dtype),
)  # fmt: skip
def test_labels_come_back_as_they_were_given(labels: Any) -> None:
    y = labels[[sorted(tiny.DOMAINS).index(label) for label in LABELS]]
    model = make_model().fit(TEXTS, y)
    assert model.classes_.dtype == model.predict(ASKED).dtype == labels.dtype
    assert model.classes_.tolist() == np.unique(labels).tolist()
    assert model.router_.experts == tuple(map(str, np.unique(labels)))
    assert model.partial_fit(TEXTS, y).classes_.dtype == labels.dtype


def test_texts_come_in_any_one_dimensional_container() -> None:
    expected = make_model().fit(TEXTS, LABELS).predict(ASKED).tolist()
    for wrap in (tuple, iter, np.array, lambda texts: np.array(texts, object)):
        assert make_model().fit(wrap(TEXTS), LABELS).predict(wrap(ASKED)).tolist() == expected


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_texts_and_labels_come_as_columns_of_a_frame(library: str) -> None:
    frame = pytest.importorskip(library).DataFrame({"prompt": TEXTS, "team": LABELS})
    model = make_model(keep_sample=False).fit(frame["prompt"], frame["team"])
    expected = make_model(keep_sample=False).fit(TEXTS, LABELS).predict(TEXTS).tolist()
    assert model.predict(frame["prompt"]).tolist() == expected
    assert model.partial_fit(["one"], ["new"]).classes_.tolist() == ["cooking", "law", "maths", "new"]
    assert "a DataFrame of shape (36, 2)" in refusal(InputError, model.predict, frame)


@pytest.mark.parametrize("default", ["law", "none of them, by a long name"])
def test_the_default_is_predicted_where_the_router_abstains(default: str) -> None:
    plain, model = make_model().fit(TEXTS, LABELS), make_model(default=default, threshold=0.7).fit(TEXTS, LABELS)
    texts = [*ASKED, *tiny.mixed(20)]
    abstained = [decision.abstained for decision in model.router_.route_batch(texts)]
    assert any(abstained) and not all(abstained)
    expected = [default if no else label for no, label in zip(abstained, plain.predict(texts), strict=True)]
    assert model.predict(texts).tolist() == expected
    assert model.router_.default == ("law" if default == "law" else None)
    assert model.classes_.tolist() == plain.classes_.tolist()


def test_a_number_may_stand_for_none_of_the_classes() -> None:
    y = [sorted(tiny.DOMAINS).index(label) for label in LABELS]
    predicted = make_model(default=-1, threshold=1.0).fit(TEXTS, y).predict(ASKED)
    assert predicted.dtype == np.asarray(y).dtype and set(predicted.tolist()) == {-1}


def test_parameters_are_stored_untouched_and_count_from_the_next_fit_on() -> None:
    given = {
        "scorer": TokenRidge(), "strength": 3, "selector": EntropyTopK(4), "embedding": tiny.embedding(),
        "background": ["a", "b"], "threshold": 0.25, "default": "law", "tune": False, "keep_sample": True,
    }  # fmt: skip
    model = RouterClassifier(**given)
    assert all(model.get_params()[name] is value for name, value in given.items()) and len(model.get_params()) == 9
    copied = clone(model).get_params()
    assert copied == given and copied["embedding"] is given["embedding"]  # an embedding may be large
    model.fit(TEXTS, LABELS)
    assert model.router_.scorer == TokenRidge(3) and model.router_.policy.threshold == 0.25
    model.partial_fit(TEXTS, LABELS).set_params(scorer="blend", selector=None, strength=None, default="nobody")
    assert model.router_.scorer == TokenRidge(3)
    assert model.fit(TEXTS, LABELS).router_.scorer == Blend()


def test_scorers_by_name_are_those_of_the_command_line() -> None:
    for name, scorer in (("blend", Blend()), ("prompt-ridge", PromptRidge()), ("TokenRidge", TokenRidge())):
        assert make_model(scorer=name).fit(TEXTS, LABELS).router_.scorer == scorer
    assert make_model(scorer="prompt-ridge", strength=2).fit(TEXTS, LABELS).router_.scorer == PromptRidge(2)
    assert make_model(scorer=None).fit(TEXTS, LABELS).router_.trials  # the fit has chosen among several


def test_an_embedding_may_be_named(tmp_path: Path) -> None:
    tiny.embedding().save(tmp_path / "embedding", compact=False)
    model = make_model(embedding=tmp_path / "embedding").fit(TEXTS, LABELS)
    assert model.router_.embedding.fingerprint == Embedding.load(tmp_path / "embedding").fingerprint


def test_pickles_predict_and_go_on_learning() -> None:
    model = make_model().partial_fit(TEXTS[:12], LABELS[:12])
    for state in (model, make_model().fit(TEXTS[:12], LABELS[:12])):
        again = pickle.loads(pickle.dumps(state))
        assert (again.predict_proba(ASKED) == model.predict_proba(ASKED)).all()
        again.partial_fit(TEXTS[12:], LABELS[12:])
        assert tiny.same_table(again.router_, make_model().fit(TEXTS, LABELS).router_)


def test_the_router_is_saved_and_loaded_apart(tmp_path: Path) -> None:
    model = make_model().fit(TEXTS, LABELS)
    model.router_.save(tmp_path / "router")
    assert Router.load(tmp_path / "router").predict(ASKED).tolist() == model.predict(ASKED).tolist()


# bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_an_estimator_that_is_not_fitted_says_so(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(RouterClassifier(), method)(TEXTS)
    assert not hasattr(RouterClassifier(), "router_")


@pytest.mark.parametrize(
    ("X", "found"),
    [
        ("one text", "one str: put it in a list"),
        (b"bytes", "one bytes"),
        ({"a": "text"}, "one dict"),
        (7, "one int"),
        ([b"bytes"], "X[0] is bytes"),
        (["a", None], "X[1] is NoneType, not str: None"),
        (["a", float("nan")], "X[1] is float, not str: nan"),
        ([["a"], ["b"]], "X[0] is list"),
        (np.zeros((2, 3)), "ndarray float64 of shape (2, 3)"),
        (np.array([["a"], ["b"]]), "of shape (2, 1): pass one column"),
        (np.array([1, 2]), "X[0] is int64"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_text_is_refused_and_named(X: Any, found: str) -> None:
    assert found in refusal(InputError, make_model().fit, X, ["a", "b"])
    fitted = make_model().fit(TEXTS, LABELS)
    for method in METHODS:
        assert found in refusal(InputError, getattr(fitted, method), X)
    assert found in refusal(InputError, fitted.partial_fit, X, ["a", "b"])


@pytest.mark.parametrize(
    ("y", "found"),
    [
        (None, "requires y to be passed"),
        (["a"], "X has 2 texts and y has 1 labels"),
        (np.array(["a", 1], object), "of one type"),
        ([0.5, 1.5], "Unknown label type"),
        ([float("nan"), 1.0], r"Input y contains NaN: 1 of 2 texts have no label, the first is y\[0\]"),
        (["a", None], r"Input y contains None: 1 of 2 texts have no label, the first is y\[1\]"),
        ([["a", "b"], ["a", "b"]], "1d array"),
        (["", "b"], "non-empty string"),
        (["a\n", "b"], "control characters"),
    ],
    ids=str,
)
def test_labels_that_cannot_be_used(y: Any, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        make_model().fit(["prove it", "void"], y)


def test_nothing_to_fit() -> None:
    assert "X is empty" in refusal(InputError, make_model().fit, [], [])


def test_labels_of_another_type_later() -> None:
    model = make_model().fit(TEXTS, LABELS)
    assert "of several types" in refusal(InputError, model.partial_fit, ["one"], [1])
    assert "of several types" in refusal(InputError, make_model(default=-1).fit, TEXTS, LABELS)
    numbers = make_model().fit(TEXTS, [len(label) for label in LABELS])
    assert "of several types" in refusal(InputError, numbers.partial_fit, ["one"], [1.0])  # '1' and '1.0' are two names
    assert model.partial_fit(["one"], np.array(["one"], object)).classes_.tolist() == ["cooking", "law", "maths", "one"]


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"scorer": "ridge"}, "unknown scorer 'ridge': there are 'auto', 'token-ridge'"),
        ({"scorer": 7}, "scorer must be an object"),
        ({"scorer": "auto", "strength": 2.0}, "name one, such as scorer='blend'"),
        ({"scorer": Plain(), "strength": 2.0}, "has no strength"),
        ({"strength": -1.0}, "positive number"),
        ({"selector": "average"}, "selector must be an object"),
        ({"embedding": 7}, "embedding must be an Embedding"),
        ({"threshold": 2}, "between 0 and 1"),
        ({"tune": True}, "leave them out"),
        ({"scorer": "auto", "tune": True, "keep_sample": False}, "keeps none"),
        ({"background": "one text"}, "an iterable of str"),
    ],
    ids=str,
)
def test_parameters_that_cannot_be_used(parameters: dict[str, Any], found: str) -> None:
    assert found in refusal(InputError, make_model(**parameters).fit, TEXTS, LABELS)
    if "background" not in parameters:  # it is counted with the fit
        assert found in refusal(InputError, make_model(**parameters).partial_fit, TEXTS, LABELS)


def test_without_scikit_learn_the_extra_is_named() -> None:
    script = """
import sys
sys.modules["sklearn"] = None
import ir3de.evaluation.scikit_learn
try:
    ir3de.evaluation.scikit_learn.RouterClassifier
except ImportError as error:
    print(type(error).__name__, error)
"""
    command, environment = tiny.python_command(script)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtraError") and "[sklearn]" in done.stdout
