"""The expected score of every model on a prompt, from the mean of its tokens' scores: small, and without a table.

q_m = Σ_t p_t · μ_tm + δ_m + γ_m · (log₂ tokens − ℓ̄),    p = softmax(SHARPNESS · task scores)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError
from ir3de.statistics.compact import ArrayFields

Floats = npt.NDArray[np.float64]

SHARPNESS = 10.0  # the factor that shares of the average are read by
FINE = 9  # decimals of a quality: what differs less is equal


@dataclass(frozen=True)
class Shrinkage:
    """How far outcomes are trusted. Pull and strength count rows.

    With infinite strength only the task mean counts; with infinite pull as well, all prompts are alike.
    """

    pull: float  # weight, in rows, of other tasks and models in a task's mean
    strength: float  # of the ridge on x̄
    length: float = 0.0  # variance of the prompt's length relative to that of x̄ in the ridge; 0 leaves it out

    def __post_init__(self) -> None:
        if not (self.pull > 0 and self.strength > 0 and 0 <= self.length < math.inf):
            limits = "pull and strength must be positive, and length at least 0"
            raise InputError(f"{limits}, found {self}: try Shrinkage(16, 1024)")


@dataclass(frozen=True)
class HeldOutGain:
    """How much higher the chosen models score than the best single model, on prompts held out in turn."""

    mean: float
    error: float  # standard error
    prompts: int

    @property
    def is_loss(self) -> bool:
        """Whether it is below zero by more than its standard error; a single prompt's loss equals its error."""
        return self.mean < -(1 + 1e-9) * self.error


@dataclass(frozen=True)
class Validation:
    """What cross-validation tried: each candidate, the most cautious first, with its squared error a score.

    `gain` compares the chosen shrinkage with the best single model. `reason` is why the best single model replaced
    routing, or why the two were not compared.
    """

    pulls: tuple[tuple[float, float], ...] = ()
    strengths: tuple[tuple[float, float], ...] = ()
    lengths: tuple[tuple[float, float], ...] = ()
    gain: HeldOutGain | None = None
    reason: str = ""


def weigh_tasks(scores: Floats) -> Floats:
    """p = softmax(SHARPNESS · task scores) of each row."""
    powers = np.exp(SHARPNESS * (scores - scores.max(axis=1, keepdims=True)))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Expectation(ArrayFields):
    """Expected quality of every model; `tasks` + models scores come in, one quality a model goes out."""

    tasks: tuple[str, ...]
    means: Floats  # (tasks, models)  μ
    shrinkage: Shrinkage
    unit: float = 1.0  # what 1 in a model's score is worth: scores are kept small
    slopes: Floats | None = None  # (models,)  γ: score gained when a prompt is twice as long; None without lengths
    typical_length: float = 0.0  # ℓ̄: the mean of log₂ tokens

    def __post_init__(self) -> None:
        if self.slopes is not None and (
            self.slopes.shape != self.means.shape[1:] or not np.isfinite([*self.slopes, self.typical_length]).all()
        ):
            raise InputError(f"{self.means.shape[1:]} models need as many finite slopes, found {self.slopes.shape}")
        if self.means.ndim != 2 or len(self.means) != len(self.tasks) or not np.isfinite(self.means).all():
            raise InputError(f"{len(self.tasks)} tasks need as many rows of finite means, found {self.means.shape}")

    @cached_property
    def at_rest(self) -> Floats:
        """Qualities of a prompt without a known token: each model's mean over the tasks."""
        return np.asarray(self.means.mean(axis=0).round(FINE))

    def of(self, scores: Sequence[float], tokens: int) -> Floats:
        """Qualities (models,) of a prompt of that many tokens whose scores have this mean (tasks + models,).

        No BLAS and no vectorised exponential: their rounding differs between processors.
        """
        of_tasks, of_models = scores[: len(self.tasks)], scores[len(self.tasks) :]
        best, exp = max(of_tasks), math.exp
        powers = [exp(SHARPNESS * (score - best)) for score in of_tasks]
        quality = (np.array(powers)[:, None] * self.means).sum(axis=0) / math.fsum(powers)
        quality += self.unit * np.array(of_models)
        if self.slopes is not None:
            quality += self.slopes * (math.log2(tokens) - self.typical_length)
        return np.asarray(quality.round(FINE))

    def alone(self, scores: npt.NDArray[np.floating], tokens: int | None = None) -> Floats:
        """Qualities (rows, models), each row being the mean of a prompt, of usual length where none is given."""
        rows, tasks = np.asarray(scores, np.float64), len(self.tasks)
        powers = np.exp(SHARPNESS * (rows[:, :tasks] - rows[:, :tasks].max(axis=1, keepdims=True)))
        quality = powers @ self.means / powers.sum(axis=1, keepdims=True) + self.unit * rows[:, tasks:]
        if self.slopes is not None and tokens is not None:
            quality += self.slopes * (math.log2(tokens) - self.typical_length)
        return np.asarray(quality.round(FINE))


def describe_shrinkage(shrinkage: Shrinkage) -> dict[str, Any]:
    """The header's field `scorer`."""
    length = {"length": shrinkage.length} if shrinkage.length else {}
    return {"name": "Shrinkage", "pull": _finite(shrinkage.pull), "strength": _finite(shrinkage.strength), **length}


def describe_expectation(expectation: Expectation, validation: Validation) -> dict[str, Any]:
    """The header's field `outcomes`, without what changes need."""
    slopes = expectation.slopes
    length = {"slopes": slopes.tolist(), "typical": expectation.typical_length} if slopes is not None else None
    return {
        "tasks": list(expectation.tasks),
        "means": expectation.means.tolist(),
        "unit": expectation.unit,
        **({"length": length} if length else {}),
        "tried": {
            "pull": [list(pair) for pair in validation.pulls],
            "strength": [[_finite(strength), error] for strength, error in validation.strengths],
            "length": [list(pair) for pair in validation.lengths],
        },
        **({"gain": vars(validation.gain)} if validation.gain else {}),
    }


def restore_expectation(
    described: Mapping[str, Any], scorer: Mapping[str, Any], models: int
) -> tuple[Expectation, Validation]:
    """The expectation of a router's header, from its fields `outcomes` and `scorer`."""
    if scorer["name"] != "Shrinkage":
        raise ValueError(f"a router from outcomes is fitted with Shrinkage, found {scorer['name']!r}")
    shrinkage = Shrinkage(_infinite(scorer["pull"]), _infinite(scorer["strength"]), scorer.get("length", 0.0))
    means = np.array(described["means"], np.float64)
    if means.shape != (len(described["tasks"]), models):
        raise ValueError(f"{len(described['tasks'])} tasks and {models} models, but means of {means.shape}")
    validation = Validation(
        tuple((pull, error) for pull, error in described["tried"]["pull"]),
        tuple((_infinite(strength), error) for strength, error in described["tried"]["strength"]),
        tuple((length, error) for length, error in described["tried"].get("length", ())),
        HeldOutGain(**described["gain"]) if "gain" in described else None,
    )
    length = described.get("length")
    slopes, typical = (np.array(length["slopes"], np.float64), float(length["typical"])) if length else (None, 0.0)
    unit = float(described["unit"])
    return Expectation(tuple(described["tasks"]), means, shrinkage, unit, slopes, typical), validation


def _finite(rows: float) -> float | None:
    return None if math.isinf(rows) else rows  # JSON has no infinity


def _infinite(described: float | None) -> float:
    return math.inf if described is None else described
