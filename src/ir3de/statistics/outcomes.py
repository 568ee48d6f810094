"""What models achieved on prompts, as additive statistics: integers with + and −, exact in any order.

A row is a prompt, the task it belongs to, and a score for each model that answered it. For each model, task and fold
there are Σ 1, Σ x̄, Σ x̄x̄ᵀ, Σ y, Σ y² and Σ y·x̄ over the rows it was scored on: x̄ the prompt's mean embedding, with
the logarithm of its length as one more column, and y its score, all in fixed point. A model's sums know nothing of
other models, so it can come later, from its own rows. Folds, drawn by a hash of the prompt, are kept apart so that the
shrinkage can be validated without the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b, sha256
from heapq import nsmallest
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from ir3de.errors import InputError, MismatchError
from ir3de.statistics.compact import ArrayFields, Integers, read_only
from ir3de.statistics.domain import PromptSums, describe_other_embedding
from ir3de.statistics.sample import hash_text

MAX_PROMPTS = 2_048  # of each model

PromptKey = tuple[int, str]  # digest of the text, task
ScoreSum = tuple[int, int]  # how often the prompt was scored, Σ y / SCORE_UNIT


def digest_text(text: str) -> int:
    """63 bits that depend on the text alone."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, eq=False)
class ScoredPrompt(ArrayFields):
    """A prompt's fold, and its mean embedding in fixed point as in the sums."""

    fold: int
    vector: Integers  # (h,)


@dataclass(frozen=True)
class OutcomeSample:
    """The kept prompts, and the scores that each model had on those it keeps."""

    prompts: Mapping[PromptKey, ScoredPrompt]
    scores: Mapping[str, Mapping[PromptKey, ScoreSum]]

    def __add__(self, other: OutcomeSample) -> OutcomeSample:
        return self._combine(other, +1)

    def __sub__(self, other: OutcomeSample) -> OutcomeSample:
        """Without the other's scores. Prompts that did not fit in before do not come back."""
        return self._combine(other, -1)

    def select(self, is_kept: Callable[[str], bool]) -> OutcomeSample:
        """The scores of some models."""
        return self._keep({name: own for name, own in self.scores.items() if is_kept(name)})

    def without_length(self) -> OutcomeSample:
        """The same prompts without the last column."""
        shorter = {key: ScoredPrompt(prompt.fold, prompt.vector[:-1]) for key, prompt in self.prompts.items()}
        return OutcomeSample(shorter, self.scores)

    def _combine(self, other: OutcomeSample, sign: int) -> OutcomeSample:
        scores = dict(self.scores)
        for model, theirs in other.scores.items():
            own = dict(scores.get(model, {}))
            for key, (count, total) in theirs.items():
                before = own.get(key, (0, 0))
                if sign > 0 or before[0] > count:
                    own[key] = before[0] + sign * count, before[1] + sign * total
                else:
                    own.pop(key, None)
            scores[model] = {key: own[key] for key in nsmallest(MAX_PROMPTS, own)}
        return OutcomeSample({**other.prompts, **self.prompts}, scores)._keep(scores)

    def _keep(self, scores: Mapping[str, Mapping[PromptKey, ScoreSum]]) -> OutcomeSample:
        """These scores, and their prompts in the order of their keys."""
        kept = {model: own for model, own in sorted(scores.items()) if own}
        used = sorted(set().union(*kept.values()))
        return OutcomeSample({key: self.prompts[key] for key in used}, kept)


EMPTY = OutcomeSample({}, {})


SCORE_UNIT = 2.0**-14  # real value of the integer 1 of a score
LENGTH_PARTS = 4_096  # log₂ tokens are kept as integers this much finer
SCORE_LIMIT = 1_000  # scores lie within ±this: below 2²⁴ units, times x̄ below 2¹⁹, so a million rows fit 64 bits
FOLDS = 4
ONE_TASK = ""  # of rows that name none

Key = tuple[str, str, int]  # task, model, fold


class ScoreCount(NamedTuple):
    """Scores of a model on the requests of a task and fold, in fixed point as in `OutcomeSums`."""

    rows: int = 0
    total: int = 0
    squares: int = 0

    def __add__(self, other: tuple[Any, ...]) -> ScoreCount:  # of numbers, unlike that of tuples
        return ScoreCount(*(one + more for one, more in zip(self, other, strict=True)))


@dataclass(frozen=True, eq=False)
class OutcomeSums(ArrayFields):
    """What one model achieved on the rows of one task and fold; models scored on the same rows share `prompts`."""

    prompts: PromptSums  # Σ 1, Σ x̄, Σ x̄x̄ᵀ: one window a prompt
    total: int  # Σ y / SCORE_UNIT
    squares: int  # Σ y² / SCORE_UNIT²
    products: Integers  # (h,)  Σ y·x̄ / (SCORE_UNIT · prompts.unit)

    def __post_init__(self) -> None:
        object.__setattr__(self, "products", read_only(self.products))
        if self.products.shape != self.prompts.vector.shape:
            raise InputError(
                f"outcomes of width {self.prompts.width} need as many products, found {self.products.size}"
            )
        if self.squares < 0:
            raise InputError("outcomes fell below zero: what was subtracted was never added")

    @property
    def rows(self) -> int:
        return self.prompts.windows

    def combined(self, other: OutcomeSums, prompts: PromptSums, sign: int) -> OutcomeSums:
        """This and `sign` times the other, whose `prompts` are combined already."""
        return OutcomeSums(
            prompts,
            self.total + sign * other.total,
            self.squares + sign * other.squares,
            self.products + sign * other.products,
        )


@dataclass(frozen=True, eq=False)
class Outcomes(ArrayFields):
    """Everything known of every model, task and fold: add, subtract and compare like numbers."""

    fingerprint: str  # of the embedding whose means these are
    cells: Mapping[Key, OutcomeSums] = field(repr=False)  # no cell is empty
    embedding_version: int | None = field(default=None, compare=False)  # of the default embedding; None for any other
    has_length: bool = False  # whether the last column of x̄ is the length; sums of version 0.1 have none
    sample: OutcomeSample | None = field(default=None, repr=False)  # earlier versions kept none
    traffic: Mapping[Key, ScoreCount] = field(default_factory=dict, repr=False)  # scores of answered requests

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """In the order of their names: the order of the rows leaves no trace."""
        return tuple(sorted({task for task, _, _ in self.cells}))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """In the order of their names."""
        return tuple(sorted({model for _, model, _ in self.cells}))

    @property
    def unit(self) -> float:
        """The real value of the integer 1 of x̄."""
        return next(iter(self.cells.values())).prompts.unit

    def __add__(self, other: Outcomes) -> Outcomes:
        return self._combined(other, +1)

    def __radd__(self, other: Any) -> Outcomes:
        return self if other == 0 else NotImplemented  # so that sum() works

    def __sub__(self, other: Outcomes) -> Outcomes:
        return self._combined(other, -1)

    def without(self, model: str) -> Outcomes:
        """The same outcomes had that model never been scored."""
        return self._select(lambda name: name != model)

    def only(self, model: str) -> Outcomes:
        """That model's outcomes alone."""
        return self._select(lambda name: name == model)

    def _select(self, is_kept: Callable[[str], bool]) -> Outcomes:
        cells = {key: sums for key, sums in self.cells.items() if is_kept(key[1])}
        traffic = {key: count for key, count in self.traffic.items() if is_kept(key[1])}
        return replace(self, cells=cells, sample=self.sample and self.sample.select(is_kept), traffic=traffic)

    def without_traffic(self) -> Outcomes:
        """The same rows without the scores of answered requests."""
        return replace(self, traffic={}) if self.traffic else self

    def rows(self, model: str) -> int:
        """How many scores a model has."""
        return sum(sums.rows for key, sums in self.cells.items() if key[1] == model)

    def shared(self) -> Outcomes:
        """The same, equal sums of prompts being one object: then a fit does not depend on how it came together."""
        objects = {id(sums.prompts): sums.prompts for sums in self.cells.values()}
        firsts: dict[tuple[int, bytes], PromptSums] = {}
        found = {
            name: firsts.setdefault(
                (prompts.windows, sha256(prompts.vector.tobytes() + prompts.gram.tobytes()).digest()), prompts
            )
            for name, prompts in objects.items()
        }
        cells = {
            key: OutcomeSums(found[id(sums.prompts)], sums.total, sums.squares, sums.products)
            for key, sums in self.cells.items()
        }
        return replace(self, cells=cells)

    def without_length(self) -> Outcomes:
        """The same outcomes without the column of lengths."""
        if not self.has_length:
            return self
        width = next((sums.prompts.width for sums in self.cells.values()), 0)
        ends = np.cumsum(np.arange(width, 0, -1)) - 1  # of the rows of the triangle
        shorter = {
            id(one): replace(one, vector=one.vector[:-1], gram=np.delete(one.gram, ends))
            for one in (sums.prompts for sums in self.cells.values())
        }
        cells = {
            key: OutcomeSums(shorter[id(sums.prompts)], sums.total, sums.squares, sums.products[:-1])
            for key, sums in self.cells.items()
        }
        return replace(self, cells=cells, has_length=False, sample=self.sample and self.sample.without_length())

    def _combined(self, other: Outcomes, sign: int) -> Outcomes:
        if not isinstance(other, Outcomes):
            return NotImplemented
        if self.fingerprint != other.fingerprint:
            raise MismatchError(describe_other_embedding("outcomes", self, other))
        if self.has_length != other.has_length:  # what one of them never counted cannot be made up
            return self.without_length()._combined(other.without_length(), sign)
        cells = dict(self.cells)
        joined: dict[tuple[int, int], PromptSums] = {}  # what models share they go on sharing
        for key, theirs in other.cells.items():
            ours = cells.get(key)
            if ours is None:
                if sign < 0:
                    raise InputError(f"no outcomes of {key[1]!r} to take out: what was subtracted was never added")
                cells[key] = theirs
                continue
            pair = (id(ours.prompts), id(theirs.prompts))
            if pair not in joined:
                joined[pair] = ours.prompts + theirs.prompts if sign > 0 else ours.prompts - theirs.prompts
            cells[key] = ours.combined(theirs, joined[pair], sign)
            if cells[key].rows == 0:
                del cells[key]
        sample = None
        if self.sample is not None and other.sample is not None:
            sample = self.sample + other.sample if sign > 0 else self.sample - other.sample
        traffic = dict(self.traffic)
        for key, count in other.traffic.items():
            traffic[key] = traffic.get(key, ScoreCount()) + tuple(sign * value for value in count)
            if not traffic[key].rows:
                del traffic[key]
        return replace(self, cells=cells, sample=sample, traffic=dict(sorted(traffic.items())))

    def __repr__(self) -> str:
        scores = sum(sums.rows for sums in self.cells.values())
        return f"Outcomes({len(self.models)} models, {len(self.tasks)} tasks, {scores:,} scores)"


def fold(text: str) -> int:
    """The fold of a prompt: a function of its text and of nothing else."""
    return hash_text(text) % FOLDS


def checked_scores(scores: object, where: str) -> dict[str, int]:
    """The scores of one row in fixed point, without those that are missing; `where` names the row in errors."""
    if not isinstance(scores, Mapping):
        raise InputError(f"{where}: scores must be a mapping of model to number, found {type(scores).__name__}")
    checked = {}
    for model, score in scores.items():
        if not isinstance(model, str) or not model:
            raise InputError(f"{where}: a model's name must be a non-empty str, found {model!r}")
        if score is None:
            continue
        value = math.nan
        if isinstance(score, (Real, np.bool_)):
            with suppress(OverflowError):  # a whole number too large for a float
                value = float(score)  # True and False too: right and wrong
        if not math.isfinite(value):
            raise InputError(
                f"{where}: the score of {model!r} must be a finite number, found {score!r:.60}: "
                "leave it out, or write null, where there is none"
            )
        if abs(value) > SCORE_LIMIT:
            raise InputError(
                f"{where}: the score of {model!r} must lie within ±{SCORE_LIMIT:,}, found {score!r}: "
                "divide all scores by the same number"
            )
        checked[model] = round(value / SCORE_UNIT)
    return checked
