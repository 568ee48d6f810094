"""The labels of a teacher: how sure they are, which of them are used, and what they bring.

Encoder and table teach together: the log-probabilities of both are added, with weights from held-out predictions. In a
second round a table learns the labels of one half of the texts, and corrects those of the other half.

What the labels bring is measured on labelled prompts that are held out in turn. Each time the teacher, too, is fitted
without them: otherwise the texts near a held-out prompt would carry its label, and the figure would be too good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ir3de.fitting.calibration import Scored, fit_calibration
from ir3de.fitting.encoder_head import fit_head
from ir3de.scorers.arithmetic import Rows, steps
from ir3de.scorers.logistic import Logistic
from ir3de.scorers.prompt_features import TAUGHT_WEIGHT, Features, Prompts
from ir3de.scorers.solver import fit_logistic
from ir3de.scorers.sparse import Numbers

SHARES = (1.0, 0.85, 0.7)  # of the labels, the surest ones, that are tried
FOLDS = 5
MAX_TRIED_TEXTS = 3_000  # unlabelled ones, while the share is chosen
TRIAL_TOLERANCE = 0.1  # of a fit that is only compared
TEACHER_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
TABLE_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
SECOND_WEIGHT = 1.0  # of a table fitted to the other half of the texts, with the labels of the first round
SURE = 0.9  # the probability of an expert that a teacher names, before weights are chosen
TRYING = "trying taught labels"  # the stage that is reported

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Score: TypeAlias = Callable[[Indices], Floats]  # from places of prompts to logits (n, C)


@dataclass(frozen=True, eq=False)
class Material:
    """Labelled prompts, then unlabelled texts, as tokens; and what the teacher knows of each."""

    prompts: Prompts  # `experts` is −1 for unlabelled texts
    folds: Indices  # (labelled,)  −1 where a prompt is its expert's only one, which is never held out
    experts: int
    embeddings: Rows
    few: Logistic  # the parameters of a fit of the labelled prompts
    many: Logistic  # and of one with the texts
    vectors: Numbers | None  # (prompts and texts, width), of an encoder
    named: Floats | None  # (prompts and texts, C)  probabilities of other teachers; zeros where they have no answer

    @cached_property
    def labelled(self) -> Indices:
        return np.arange(len(self.folds))

    @cached_property
    def texts(self) -> Indices:
        return np.arange(len(self.folds), len(self.prompts))

    @property
    def labels(self) -> Indices:
        return self.prompts.experts[: len(self.folds)]

    @cached_property
    def _features(self) -> dict[Logistic, Features]:
        both = dict.fromkeys((self.few, self.many))
        return {one: Features.build(self.prompts, self.embeddings, means=one.means, pairs=one.pairs) for one in both}

    def fit_table(self, places: Indices, labels: Indices, scorer: Logistic, tolerance: float) -> Score:
        """A discriminative fit of these prompts and texts."""
        features = self._features[scorer]
        trust = np.where(places < len(self.folds), 1.0, TAUGHT_WEIGHT).astype(np.float32)
        chosen = replace(features.take(places), experts=labels, trust=trust)
        W = fit_logistic(chosen, self.experts, scorer.strength, tolerance)
        return lambda some: features.take(some).project(W).astype(np.float64)

    def fit_teacher(self, places: Indices) -> Score:
        """The teacher's logits; an encoder has a head that is fitted to these prompts."""
        if self.vectors is not None:
            vectors, labels = self.vectors, self.labels[places]
            known = np.unique(labels)
            head = fit_head(vectors[places], np.searchsorted(known, labels), len(known))

            def score(some: Indices) -> Floats:
                logits = np.full((len(some), self.experts), -30.0)
                logits[:, known] = head.predict(vectors[some])
                return logits

            return score
        assert self.named is not None
        named = self.named
        spread = (1.0 - SURE) / max(1, self.experts - 1)
        return lambda some: np.where(
            named[some].any(axis=1, keepdims=True), np.log(SURE * named[some] + spread * (1.0 - named[some])), 0.0
        )


class Weights(NamedTuple):
    """Of the teacher's and the table's logits."""

    teacher: float
    table: float


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each text and its probability."""

    experts: Indices
    sureness: Floats

    @classmethod
    def read(cls, logits: Floats) -> Labels:
        p = softmax(logits)
        return cls(p.argmax(axis=1), p.max(axis=1))

    def choose(self, share: float, allowed: Flags) -> Indices:
        """The surest share of the allowed texts, in their order."""
        places = np.flatnonzero(allowed)
        order = places[np.argsort(-self.sureness[places], kind="stable")]
        return np.sort(order[: round(share * len(places))])


def softmax(z: Floats) -> Floats:
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Verdict:
    """The chosen share and labels, and what held-out prompts show."""

    labels: Labels
    chosen: Indices  # places among the texts
    share: float
    trust: float  # of a calibration that is measured with these labels
    weights: Weights
    held: Indices  # labelled prompts that were held out
    teacher_right: Flags  # on each of them: encoder and table together, or the other teacher and the table
    right: Flags  # on each of them: a table fitted with the labels


class _Fold(NamedTuple):
    held: Indices
    kept: Indices
    teacher: Score
    table: Score


def judge(material: Material, allowed: Flags, wanted: Sequence[int] | None = None) -> Verdict:
    """Choose weights and share on held-out prompts, and label the texts.

    `allowed` are the texts that may be used; `wanted` are the experts whose labels are used, None for all.
    """
    folds = [_fit_fold(material, fold) for fold in np.unique(material.folds[material.folds >= 0]).tolist()]
    weights = _choose_weights(material, folds)
    held = np.concatenate([fold.held for fold in folds])
    truth = material.labels[held]
    tried = material.texts[:MAX_TRIED_TEXTS]

    def may_be_used(labels: Labels, among: Flags) -> Flags:
        return among if wanted is None else among & np.isin(labels.experts, wanted)

    def student(fold: _Fold, labels: Labels, share: float) -> Floats:
        chosen = labels.choose(share, may_be_used(labels, allowed[: len(tried)]))
        places = np.concatenate([fold.kept, tried[chosen]])
        known = np.concatenate([material.labels[fold.kept], labels.experts[chosen]])
        return material.fit_table(places, known, material.many, TRIAL_TOLERANCE)(fold.held)

    by_fold = [_label(material, fold, weights, tried, allowed[: len(tried)]) for fold in folds]
    results: dict[float, Floats] = {}
    with steps(TRYING, (len(SHARES) + 1) * len(folds)) as advance:
        for share in SHARES:
            parts = []
            for fold, labels in zip(folds, by_fold, strict=True):
                parts.append(student(fold, labels, share))
                advance(1)
            results[share] = np.concatenate(parts)
        share = max(SHARES, key=lambda one: (_is_right(results[one], truth).mean(), one))
        whole = _fit_fold(material, None)
        all_labels = _label(material, whole, weights, material.texts, allowed)
        known = Labels(all_labels.experts[: len(tried)], all_labels.sureness[: len(tried)])
        biased = []
        for fold in folds:
            biased.append(student(fold, known, share))
            advance(1)
    trust = min(1.0, _fit_scale(results[share], truth) / _fit_scale(np.concatenate(biased), truth))
    return Verdict(
        all_labels,
        all_labels.choose(share, may_be_used(all_labels, allowed)),
        share,
        trust,
        weights,
        held,
        _is_right(np.concatenate([_add(fold, weights, fold.held) for fold in folds]), truth),
        _is_right(results[share], truth),
    )


def _fit_fold(material: Material, fold: int | None) -> _Fold:
    """Teacher and table without the prompts of a fold; None for all prompts."""
    is_held = np.zeros(len(material.folds), bool) if fold is None else material.folds == fold
    held, kept = np.flatnonzero(is_held), np.flatnonzero(~is_held)
    table = material.fit_table(kept, material.labels[kept], material.few, TRIAL_TOLERANCE)
    return _Fold(held, kept, material.fit_teacher(kept), table)


def _add(fold: _Fold, weights: Weights, places: Indices) -> Floats:
    found = weights.teacher * fold.teacher(places)
    return found + weights.table * fold.table(places) if weights.table else found


def _label(material: Material, fold: _Fold, weights: Weights, texts: Indices, allowed: Flags) -> Labels:
    """The labels of texts, in two rounds."""
    logits = _add(fold, weights, texts)
    first, second = Labels.read(logits), np.zeros_like(logits)
    is_even = np.arange(len(texts)) % 2 == 0
    for half in (is_even, ~is_even):
        others = np.flatnonzero(allowed & ~half)
        places = np.concatenate([fold.kept, texts[others]])
        labels = np.concatenate([material.labels[fold.kept], first.experts[others]])
        second[half] = material.fit_table(places, labels, material.many, TRIAL_TOLERANCE)(texts[half])
    return Labels.read(np.log(softmax(logits) + 1e-30) + SECOND_WEIGHT * np.log(softmax(second) + 1e-30))


def _choose_weights(material: Material, folds: Sequence[_Fold]) -> Weights:
    """The weights of least log loss on the held-out prompts that the teacher answered."""
    rows = []
    for fold in folds:
        places = fold.held if material.named is None else fold.held[material.named[fold.held].any(axis=1)]
        if len(places):
            rows.append((fold.teacher(places), fold.table(places), material.labels[places]))
    if not rows:
        return Weights(1.0, 1.0)
    teacher, table, truth = (np.concatenate(part) for part in zip(*rows, strict=True))

    def measure_loss(weights: Weights) -> float:
        p = softmax(weights.teacher * teacher + weights.table * table)
        return float(-np.log(np.maximum(p[np.arange(len(p)), truth], 1e-12)).mean())

    return min((Weights(*one) for one in product(TEACHER_WEIGHTS, TABLE_WEIGHTS)), key=measure_loss)


def _is_right(logits: Floats, truth: Indices) -> Flags:
    return np.asarray(logits.argmax(axis=1) == truth)


def _fit_scale(logits: Floats, truth: Indices) -> float:
    return fit_calibration(Scored(logits, np.ones(len(truth), np.int64), truth))[0].scale
