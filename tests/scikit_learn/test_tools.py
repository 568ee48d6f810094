"""The estimator inside scikit-learn's own tools: pipelines, cross-validation, searches, calibration, processes."""

from __future__ import annotations

import io
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import tiny
from ir3de import Router
from ir3de.scorers import Blend, PromptRidge, TokenRidge
from labelled_texts import make_data, make_model

TEXTS, LABELS = make_data()
ASKED, RIGHT = make_data(6, seed=1)
FAST: dict[str, Any] = {"scorer": "blend", "keep_sample": False}


def lower(texts: list[str]) -> list[str]:
    return [text.lower() for text in texts]


def test_the_last_step_of_a_pipeline() -> None:
    model = Pipeline([("lower", FunctionTransformer(lower)), ("router", make_model(**FAST))]).fit(TEXTS, LABELS)
    shouted = [text.upper() for text in ASKED]
    assert model.predict(shouted).tolist() == make_model(**FAST).fit(TEXTS, LABELS).predict(lower(ASKED)).tolist()
    assert model.score(ASKED, RIGHT) > 0.8
    assert isinstance(model["router"].router_, Router)


def test_cross_validation_scores_like_folds_by_hand() -> None:
    folds = [(np.arange(12, 36), np.arange(12)), (np.arange(24), np.arange(24, 36))]
    scores = cross_val_score(make_model(**FAST), TEXTS, LABELS, cv=folds)
    by_hand = [
        make_model(**FAST).fit(TEXTS[12:], LABELS[12:]).score(TEXTS[:12], LABELS[:12]),
        make_model(**FAST).fit(TEXTS[:24], LABELS[:24]).score(TEXTS[24:], LABELS[24:]),
    ]
    assert scores.tolist() == by_hand


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_held_out_probabilities(method: str) -> None:
    rows = cross_val_predict(make_model(**FAST), np.array(TEXTS, object), LABELS, cv=3, method=method)
    assert rows.shape == (len(TEXTS), 3)
    assert np.mean(np.array(sorted(tiny.DOMAINS))[rows.argmax(axis=1)] == LABELS) > 0.8


def test_a_grid_over_the_scorer_and_its_strength() -> None:
    grid = [
        {"scorer": ["token-ridge", "prompt-ridge"], "strength": [0.01, 1e6]},
        {"scorer": [Blend(posterior=0.0), Blend(posterior=2.0)]},
    ]
    search = GridSearchCV(make_model(keep_sample=False), grid, cv=2).fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    found = search.best_estimator_.router_.scorer
    assert type(found) in (TokenRidge, PromptRidge, Blend)
    assert search.best_params_["scorer"] in ("token-ridge", "prompt-ridge", found)
    assert search.predict(ASKED).shape == (len(ASKED),)


def test_a_wrong_name_in_a_grid_is_reported_by_the_search() -> None:
    search = GridSearchCV(make_model(**FAST), {"scorer": ["ridge"]}, cv=2, error_score="raise")
    with pytest.raises(ValueError, match="unknown scorer 'ridge'"):
        search.fit(TEXTS, LABELS)


@pytest.mark.parametrize("name", ["roc_auc_ovr", "neg_log_loss", "f1_macro"])
def test_scores_that_need_probabilities(name: str) -> None:
    assert np.isfinite(get_scorer(name)(make_model(**FAST).fit(TEXTS, LABELS), ASKED, RIGHT))


def test_two_classes_have_a_roc_curve() -> None:
    model = make_model(**FAST).fit(TEXTS, np.array(LABELS) == "law")
    assert get_scorer("roc_auc")(model, ASKED, np.array(RIGHT) == "law") > 0.8


@pytest.mark.parametrize(
    "options", [{"method": "isotonic", "cv": 3}, {"method": "sigmoid", "cv": 2, "ensemble": False}], ids=str
)
def test_calibration_by_scikit_learn(options: dict[str, Any]) -> None:
    model = CalibratedClassifierCV(make_model(**FAST), **options).fit(TEXTS, LABELS)
    assert np.allclose(model.predict_proba(ASKED).sum(axis=1), 1.0)
    assert model.score(ASKED, RIGHT) > 0.7


def test_beside_the_usual_estimators() -> None:
    rival = make_pipeline(TfidfVectorizer(), LogisticRegression())
    for model in (rival, make_model(**FAST)):
        assert cross_val_score(model, TEXTS, LABELS, cv=2).mean() > 0.7


def test_joblib_keeps_it() -> None:
    model, file = make_model(**FAST).fit(TEXTS, LABELS), io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    assert (joblib.load(file).predict_proba(ASKED) == model.predict_proba(ASKED)).all()


@pytest.mark.slow
@pytest.mark.nightly
def test_other_processes_give_the_same_scores() -> None:
    """Real processes, each with a copy of estimator and embedding."""
    here = cross_val_score(make_model(**FAST), TEXTS, LABELS, cv=2)
    with joblib.parallel_config("loky", n_jobs=2):
        there = cross_val_score(make_model(**FAST), TEXTS, LABELS, cv=2, n_jobs=2)
    assert there.tolist() == here.tolist()
