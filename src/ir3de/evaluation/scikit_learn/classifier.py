"""`RouterClassifier`: a router behind the methods that scikit-learn calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labels import is_missing
from ir3de.embedding import Embedding
from ir3de.errors import InputError, MissingExtraError
from ir3de.fitting.domains import check_embedding, check_request, check_strategies
from ir3de.policies import Policy
from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Scorer
from ir3de.scorers.registry import SCORERS
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
Labels = npt.NDArray[Any]

AUTO = "auto"  # the fit chooses the scorer
TINY = np.finfo(np.float64).tiny  # the logarithm of zero is not finite


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
        texts, options = read_texts(X), self._read_options()
        labels = read_labels(y, texts)
        classes = np.unique(labels)
        check_default(self.default, classes)
        statistics = _count(texts, labels, options)
        self._router: Router | None = _fit_router(statistics, classes, options)
        self._options, self._statistics, self._declared, self.classes_ = options, statistics, False, classes
        return self

    def partial_fit(self, X: Iterable[str], y: Any, classes: Any = None) -> RouterClassifier:
        """Add texts, exactly as if they had been there from the beginning: `fit` on all of them gives the same router.

        New labels may come at any time. If `classes` lists the labels at the first call, as other estimators of
        scikit-learn demand, no others are accepted later. A listed class without a text yet has probability 0.

        Texts are counted at once. The router is fitted when it is next used.
        """
        texts, options = read_texts(X), self._read_options()
        labels = read_labels(y, texts)
        known = dict(self._statistics) if self.__sklearn_is_fitted__() else {}
        declared = (classes is not None) if not known else self._declared
        found = self._find_classes(np.unique(labels), classes, first=not known)
        check_default(self.default, found)
        for name, more in _count(texts, labels, options).items():
            known[name] = known[name] + more if name in known else more
        self._options, self._statistics, self._declared, self.classes_ = options, known, declared, found
        self._router = None
        return self

    def _find_classes(self, seen: Labels, classes: Any, *, first: bool) -> Labels:
        """All classes after this call; rejects labels and lists that contradict those declared before."""
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

    def _read_options(self) -> dict[str, Any]:
        """The parameters as options of `Router.fit`, checked before anything is counted."""
        scorer, embedding = make_scorer(self.scorer, self.strength), load_embedding(self.embedding)
        options: dict[str, Any] = {"tune": self.tune, "keep_sample": self.keep_sample}
        check_request({"any": ()}, embedding, scorer, self.selector, **options)
        options |= {"scorer": scorer, "selector": self.selector, "embedding": embedding, "background": self.background}
        return options | {"policy": Policy(threshold=self.threshold), "default": self.default}

    @property
    def router_(self) -> Router:
        """The fitted router. After `partial_fit` it is fitted on first access."""
        check_is_fitted(self)
        if self._router is None:
            known = {name: own for name, own in self._statistics.items() if own.tokens}
            self._router = _fit_router(known, self.classes_, self._options)
        return self._router

    def predict(self, X: Iterable[str]) -> Labels:
        """The label of each text; where the router abstains, the `default`, or without one the likeliest label."""
        decisions, places = self._decide(X), self._place_experts()
        labels = self.classes_[[places[decision.best] for decision in decisions]]
        default, abstained = self._options["default"], [decision.abstained for decision in decisions]
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
            if calibration is not None and calibration.most:  # few prompts limit how sure an expert can be
                shares = np.log(np.maximum(decision._find_values(), TINY))
                row[:] = shares - shares.mean()
            elif calibration is not None:
                row *= calibration.scale * max(1, decision.counted) ** calibration.growth
        odds = self._spread(evidence, missing=np.finfo(np.float64).min)
        return odds[:, 1] - odds[:, 0] if len(self.classes_) == 2 else odds

    def _decide(self, X: Iterable[str]) -> list[Decision]:
        router = self.router_  # raises before X is read, if there is none
        return router.route_batch(read_texts(X))

    def _place_experts(self) -> dict[str, int]:
        """The place of each expert's label in `classes_`."""
        return {str(label): place for place, label in enumerate(self.classes_)}

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


def _fit_router(statistics: dict[str, Statistics], classes: Labels, options: Mapping[str, Any]) -> Router:
    """A router whose experts are in the order of the classes, so that it does not depend on which label came first."""
    names = [name for label in classes if (name := str(label)) in statistics]
    default = None if options["default"] is None else str(options["default"])
    default = default if default in statistics else None
    return Router.fit({name: statistics[name] for name in names}, **{**options, "default": default})


def _count(texts: list[str], labels: Labels, options: Mapping[str, Any]) -> dict[str, Statistics]:
    """The statistics of each label's texts, by the expert's name."""
    classes, places = np.unique(labels, return_inverse=True)
    how = {"embedding": options["embedding"], "keep_sample": options["keep_sample"]}
    return {
        str(label): collect([texts[place] for place in np.flatnonzero(places == number)], **how)
        for number, label in enumerate(classes)
    }


def read_texts(X: Any) -> list[str]:
    """The texts of X, one per prompt; anything else is rejected, and named."""
    if isinstance(X, (str, bytes, Mapping)) or not isinstance(X, Iterable):
        advice = ": put it in a list" if isinstance(X, str) else ""
        raise InputError(f"X must hold texts, one per prompt, found one {type(X).__name__}{advice}")
    shape = getattr(X, "shape", None)
    if shape is not None and len(shape) != 1:
        column = "X['prompt']" if hasattr(X, "columns") or hasattr(X, "column_names") else "X[:, 0]"
        kind = f"{type(X).__name__} {getattr(X, 'dtype', '')}".strip()
        raise InputError(
            f"X must hold texts, one per prompt, found a {kind} of shape {tuple(shape)}: pass one column of texts, "
            f"such as {column}"
        )
    texts = list(X)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"X must hold texts, but X[{place}] is {type(text).__name__}, not str: {text!r:.60}. Fill missing "
                "texts with '', or leave them out"
            )
    return texts


def read_labels(y: Any, texts: list[str]) -> Labels:
    """One label per text, as an array with the dtype that they came in."""
    from sklearn.utils import assert_all_finite, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

    if y is None:
        raise InputError("RouterClassifier requires y to be passed, but the target y is None: y has one label per text")
    labels = column_or_1d(y, warn=True)
    if len(labels) != len(texts):
        raise InputError(
            f"X has {len(texts):,} texts and y has {len(labels):,} labels, inconsistent numbers: each text needs one"
        )
    if not texts:
        raise InputError("X is empty: a fit needs at least one text, with its label in y")
    missing = [place for place, label in enumerate(labels.tolist()) if is_missing(label)]
    if missing:
        what = "NaN" if isinstance(labels.tolist()[missing[0]], float) else "None"
        raise InputError(
            f"Input y contains {what}: {len(missing):,} of {len(labels):,} texts have no label, the first is "
            f"y[{missing[0]}]. Leave these texts out"
        )
    try:
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        np.unique(labels)
    except TypeError as error:  # labels of several types have no order
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise InputError(f"the labels in y must be of one type, found {', '.join(kinds)}") from error
    return np.asarray(labels)


def join_classes(known: Labels, more: Labels) -> Labels:
    """The classes of both, sorted; labels of two types are rejected, because numpy would convert one into the other."""
    if _kind(known) != _kind(more):
        raise InputError(
            f"labels of several types, {known.dtype} as in {known.tolist()[:3]} and {more.dtype} as in "
            f"{more.tolist()[:3]}: use one type"
        )
    return np.union1d(known, more)


def _kind(labels: Labels) -> str:
    """The kind of a dtype; texts are one kind in any array."""
    return "text" if all(isinstance(label, str) for label in labels.tolist()) else labels.dtype.kind


def check_default(default: Any, classes: Labels) -> None:
    """Reject a default of another type than the labels."""
    if default is not None:
        join_classes(classes, np.asarray([default]))


def make_scorer(scorer: str | Scorer | None, strength: float | None) -> Scorer | None:
    """The scorer of that name, such as "token-ridge", or the one given; None if the fit chooses it."""
    if scorer is None or scorer == AUTO:
        if strength is not None:
            raise InputError(
                f"strength={strength!r} belongs to a scorer, and scorer={scorer!r} chooses it itself: name one, such "
                "as scorer='blend', or leave strength out"
            )
        return None
    made = _find_scorer(scorer) if isinstance(scorer, str) else check_strategies(scorer, None)[0]
    if strength is None:
        return made
    if not is_dataclass(made) or "strength" not in {field.name for field in fields(made)}:
        raise InputError(f"the scorer {made} has no strength: leave strength out")
    return replace(made, strength=strength)


def _find_scorer(name: str) -> Scorer:
    known = {_spell(one): one for one in SCORERS.names()}
    if _spell(name) not in known:
        listed = ", ".join(map(repr, (AUTO, *known)))
        raise InputError(f"unknown scorer {name!r}: there are {listed}; or pass an object, such as TokenRidge()")
    made: Scorer = SCORERS.restore({"name": known[_spell(name)]})
    return made


def _spell(name: str) -> str:
    """A class's name as the command line writes it: TokenRidge is token-ridge."""
    return "".join(f"-{c.lower()}" if c.isupper() and place else c.lower() for place, c in enumerate(name))


def load_embedding(embedding: Embedding | str | Path | None) -> Embedding:
    """The embedding given, or read from its source; the default one for None."""
    if embedding is None:
        return Embedding.default()
    return Embedding.load(embedding) if isinstance(embedding, (str, Path)) else check_embedding(embedding)
