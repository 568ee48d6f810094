"""`RouterClassifier`: a router behind the methods that scikit-learn calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError, MissingExtraError
from ir3de.evaluation.scikit_learn.inputs import (
    AUTO,
    Labels,
    check_default,
    join_classes,
    load_embedding,
    make_scorer,
    name_expert,
    read_labels,
    read_texts,
)
from ir3de.fitting.domains import check_request
from ir3de.policies import Policy
from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Scorer
from ir3de.selectors import Selector
from ir3de.statistics.counting import collect
from ir3de.statistics.domain import Statistics

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "sklearn":
        raise
    raise MissingExtraError("scikit-learn", "sklearn", "RouterClassifier") from error

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Settings:
    """The parameters as they were at the last fit: what is set later counts from the next fit on."""

    scorer: Scorer | None
    selector: Selector | None
    embedding: Embedding
    background: Iterable[str] | Statistics | None
    policy: Policy
    default: Any
    tune: bool
    keep_sample: bool

    def fit(self, statistics: dict[str, Statistics]) -> Router:
        default = None if self.default is None else name_expert(self.default)
        return Router.fit(
            statistics,
            embedding=self.embedding,
            scorer=self.scorer,
            selector=self.selector,
            default=default if default in statistics else None,
            policy=self.policy,
            background=self.background,
            tune=self.tune,
            keep_sample=self.keep_sample,
        )


class RouterClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A router as a classifier of texts: each label is an expert.

    `scorer` is "auto" (chosen on held-out prompts), a name such as "blend", "logistic" or "token-ridge", or an object
    of `ir3de.scorers`; `strength` replaces the strength of a scorer that is named or given. `selector`, `background`,
    `tune` and `keep_sample` are those of `ir3de.Router.fit`. `embedding` is an `ir3de.Embedding`, or what
    `Embedding.load` reads.

    The router abstains where its confidence is below `threshold`, and on prompts out of domain. `predict` then gives
    `default`, which may be one of the labels or any other value of their type; without one it gives the likeliest
    label.

    The fitted router is `router_`: save it, and serve it. Its experts are named `str(label)`.

    >>> from ir3de.evaluation.scikit_learn import RouterClassifier
    >>> texts = ["What is 12 times 7?", "Solve x + 3 = 10.", "Is this contract void?", "Can my landlord evict me?"]
    >>> model = RouterClassifier().fit(texts, ["maths", "maths", "law", "law"])
    >>> model.predict(["Solve 3x = 12."]).tolist()
    ['maths']
    >>> model.partial_fit(["How long do I boil an egg?"], ["cooking"]).classes_.tolist()
    ['cooking', 'law', 'maths']
    """

    def __init__(
        self,
        *,
        scorer: str | Scorer | None = AUTO,
        strength: float | None = None,
        selector: Selector | None = None,
        embedding: Embedding | str | Path | None = None,
        background: Iterable[str] | Statistics | None = None,
        threshold: float = 0.0,
        default: Any = None,
        tune: bool = False,
        keep_sample: bool = True,
    ) -> None:
        self.scorer = scorer
        self.strength = strength
        self.selector = selector
        self.embedding = embedding
        self.background = background
        self.threshold = threshold
        self.default = default
        self.tune = tune
        self.keep_sample = keep_sample

    def fit(self, X: Iterable[str], y: Any) -> RouterClassifier:
        """Fit the texts X with one label each. An earlier fit is discarded."""
        texts, settings = read_texts(X), self._read_settings()
        labels = read_labels(y, texts)
        classes = np.unique(labels)
        check_default(self.default, classes)
        statistics = _count(texts, labels, settings)
        self._router: Router | None = settings.fit(_order(statistics, classes))
        self._settings, self._statistics, self._declared, self.classes_ = settings, statistics, False, classes
        return self

    def partial_fit(self, X: Iterable[str], y: Any, classes: Any = None) -> RouterClassifier:
        """Add texts, exactly as if they had been there from the beginning: `fit` on all of them gives the same router.

        New labels may come at any time. If `classes` lists the labels at the first call, as other estimators of
        scikit-learn demand, no others are accepted later. A listed class without a text yet has probability 0.

        Texts are counted at once. The router is fitted when it is next used.
        """
        texts, settings = read_texts(X), self._read_settings()
        labels = read_labels(y, texts)
        known = dict(self._statistics) if self.__sklearn_is_fitted__() else {}
        declared = (classes is not None) if not known else self._declared
        found = self._find_classes(np.unique(labels), classes, first=not known)
        check_default(self.default, found)
        for name, more in _count(texts, labels, settings).items():
            known[name] = known[name] + more if name in known else more
        self._settings, self._statistics, self._declared, self.classes_ = settings, known, declared, found
        self._router = None
        return self

    def _find_classes(self, seen: Labels, classes: Any, *, first: bool) -> Labels:
        """All classes there are after this call; refuses labels and lists that contradict those declared before."""
        if first and classes is None:
            return seen
        listed: Labels = np.unique(classes) if first else self.classes_
        if not first and classes is not None and not np.array_equal(np.unique(classes), listed):
            raise InputError(
                f"classes={classes!r} is not the same as on the first call to partial_fit, which was "
                f"{listed.tolist()}: leave classes out"
            )
        joined = join_classes(listed, seen)
        if (first or self._declared) and len(joined) > len(listed):
            unknown = [label for label in joined.tolist() if label not in listed]
            raise InputError(
                f"y has labels that are not in classes: {unknown}. classes lists {listed.tolist()}; list all labels "
                "at the first call, or leave classes out, and new labels may come at any time"
            )
        return joined

    def _read_settings(self) -> _Settings:
        """The parameters, checked: what a fit would refuse is refused before anything is counted."""
        scorer, embedding = make_scorer(self.scorer, self.strength), load_embedding(self.embedding)
        options: dict[str, Any] = {"tune": self.tune, "keep_sample": self.keep_sample}
        check_request({"any": ()}, embedding, scorer, self.selector, **options)
        policy = Policy(threshold=self.threshold)
        return _Settings(scorer, self.selector, embedding, self.background, policy, self.default, **options)

    @property
    def router_(self) -> Router:
        """The fitted router. After `partial_fit` it is fitted on first access."""
        check_is_fitted(self)
        if self._router is None:
            spoken = {name: own for name, own in self._statistics.items() if own.tokens}  # the others wait for a word
            self._router = self._settings.fit(_order(spoken, self.classes_))
        return self._router

    def predict(self, X: Iterable[str]) -> Labels:
        """The label of each text; where the router abstains, the `default`, or without one the likeliest label."""
        decisions, places = self._decide(X), self._place_experts()
        labels = self.classes_[[places[decision.best] for decision in decisions]]
        default, abstained = self._settings.default, [decision.abstained for decision in decisions]
        if default is None or not any(abstained):
            return labels
        filled = np.asarray([default], None if labels.dtype.kind == "U" else labels.dtype)  # a longer text fits, too
        return np.where(abstained, filled, labels)

    def predict_proba(self, X: Iterable[str]) -> Floats:
        """P(label | in domain): (texts, classes), columns in the order of `classes_`. Rows add up to one."""
        router = self.router_
        return self._spread(router.predict_proba(read_texts(X)), missing=0.0)

    def decision_function(self, X: Iterable[str]) -> Floats:
        """The log-odds of each label: (texts, classes), of which `predict_proba` is the softmax; for two classes
        (texts,), above zero for the second.

        Where confidence is not calibrated, they are the evidence. With few prompts and no calibration,
        `predict_proba` draws the softmax towards even odds.
        """
        decisions, valuation = self._decide(X), self.router_.compiled.rules.valuation
        calibration = valuation.in_force if isinstance(valuation, Probabilities) else None
        evidence = np.zeros((len(decisions), len(self.router_.experts)))
        for row, decision in zip(evidence, decisions, strict=True):
            values = np.array(decision.evidence)
            row[:] = values - values.mean()
            if calibration is not None:
                row *= calibration.scale * max(1, decision.counted) ** calibration.growth
        odds = self._spread(evidence, missing=np.finfo(np.float64).min)
        return odds[:, 1] - odds[:, 0] if len(self.classes_) == 2 else odds

    def _decide(self, X: Iterable[str]) -> list[Decision]:
        router = self.router_  # refused before X is looked at, if there is none
        return router.route_batch(read_texts(X))

    def _place_experts(self) -> dict[str, int]:
        """The place of each expert's label in `classes_`."""
        return {name_expert(label): place for place, label in enumerate(self.classes_)}

    def _spread(self, values: Floats, missing: float) -> Floats:
        """Columns of the router's experts as columns of `classes_`; those of classes without a text are `missing`."""
        places = self._place_experts()
        spread = np.full((len(values), len(self.classes_)), missing)
        spread[:, [places[name] for name in self.router_.experts]] = values
        return spread

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_statistics")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        return tags


def _count(texts: list[str], labels: Labels, settings: _Settings) -> dict[str, Statistics]:
    """The statistics of each label's texts, by the expert's name."""
    classes, places = np.unique(labels, return_inverse=True)
    return {
        name_expert(label): collect(
            [texts[place] for place in np.flatnonzero(places == number)],
            embedding=settings.embedding,
            keep_sample=settings.keep_sample,
        )
        for number, label in enumerate(classes)
    }


def _order(statistics: dict[str, Statistics], classes: Labels) -> dict[str, Statistics]:
    """The statistics in the order of the classes, so that the router does not depend on which label came first."""
    return {name: statistics[name] for label in classes if (name := name_expert(label)) in statistics}
