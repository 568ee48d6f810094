"""What the estimator is given: texts and labels are checked, and settings turned into what a fit takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labels import is_missing
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.fitting.domains import check_embedding, check_strategies
from ir3de.scorers import Scorer
from ir3de.scorers.registry import SCORERS

Labels = npt.NDArray[Any]

AUTO = "auto"  # the fit chooses the scorer


def read_texts(X: Any) -> list[str]:
    """The texts of X, one per prompt; what is something else is refused, and named."""
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
    """The classes of both, sorted; labels of another type are refused, as numpy would turn one type into the other."""
    if _kind(known) != _kind(more):
        raise InputError(
            f"labels of several types, {known.dtype} as in {known.tolist()[:3]} and {more.dtype} as in "
            f"{more.tolist()[:3]}: use one type"
        )
    return np.union1d(known, more)


def _kind(labels: Labels) -> str:
    """What numpy calls the kind of a dtype; texts are one kind, in whatever array they are."""
    return "text" if all(isinstance(label, str) for label in labels.tolist()) else labels.dtype.kind


def check_default(default: Any, classes: Labels) -> None:
    """Refuse a default of another type than the labels."""
    if default is not None:
        join_classes(classes, np.asarray([default]))


def name_expert(label: Any) -> str:
    """The expert's name for a label: 3 is '3'."""
    return str(label)


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
