"""Is confidence worth what it claims, and do thresholds keep their promise? Measured on prompts that picked neither.

Thresholds promise an error rate in expectation. So the test prompts are parted at random many times, a quarter to
calibrate, a quarter to pick the threshold, and half to count how many prompts are answered, and how many of them wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.evaluation import (
    RoutedPrompt,
    count_needed_prompts,
    evaluate,
    fit_confidence,
    pick_threshold,
    route_held_out,
    score_held_out,
)
from ir3de.selectors import DEFAULT_CAP
from ir3de.statistics import collect
from ir3de_lab.benchmarks.accuracy import Suite

CAPS = (DEFAULT_CAP, 32)
ERRORS = (0.01, 0.02, 0.05)
PARTINGS = 100


@dataclass(frozen=True)
class Promise:
    """An error rate promised, and the shares of all prompts found: means over the partings.

    `wrong_at_worst` is the share that one parting in twenty exceeds; `without` that of no threshold at all.
    """

    error: float
    threshold: float
    answered: float
    wrong: float
    wrong_at_worst: float
    without: float


@dataclass(frozen=True)
class Sureness:
    """One suite's expected calibration error, in points, without a calibration and with that of the fit; its promises.

    Error rates that the prompts are too few for have no promise.
    """

    suite: str
    cap: int  # tokens of a prompt that are read
    prompts: int
    plain: float
    calibrated: float
    promises: tuple[Promise, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(suite: Suite) -> list[Sureness]:
    """Fit the default router with and without a sample of prompts, and count, prompts whole and cut short."""
    statistics = {name: collect(suite.texts(name, "train"), keep_sample=True) for name in suite.folders}
    router, bare = Router.fit(statistics), Router.fit(statistics, keep_sample=False)
    test = {name: suite.texts(name, "test") for name in suite.folders}
    return [_row(suite.name, cap, _first(router, cap), _first(bare, cap), test) for cap in CAPS]


def _row(suite: str, cap: int, router: Router, bare: Router, test: dict[str, list[str]]) -> Sureness:
    report, heard = evaluate(router, test), route_held_out(router, test)
    return Sureness(
        suite,
        cap,
        report.prompts,
        plain=100 * evaluate(bare, test).calibration_error,
        calibrated=100 * report.calibration_error,
        promises=tuple(
            promise(heard, router, error)
            for error in ERRORS
            if count_needed_prompts(error) <= len(heard) // 2 - len(heard) // 4
        ),
    )


def promise(heard: Sequence[RoutedPrompt], router: Router, error: float, partings: int = PARTINGS) -> Promise:
    """What comes of an error rate, over random partings of the prompts."""
    draw, found = np.random.default_rng(0), []
    for _ in range(partings):
        mixed = [heard[index] for index in draw.permutation(len(heard)).tolist()]
        quarter, half = len(heard) // 4, len(heard) // 2
        calibrated = router.with_calibration(fit_confidence(mixed[:quarter], router.experts))
        threshold = pick_threshold(score_held_out(mixed[quarter:half], calibrated), error).threshold
        counted = score_held_out(mixed[half:], calibrated)
        answered, free = counted.is_answered(threshold), counted.is_answered(0.0)
        wrong = (answered & ~counted.right).mean()
        found.append((threshold, answered.mean(), wrong, (free & ~counted.right).mean()))
    threshold, share, wrong, without = np.mean(found, axis=0).tolist()
    worst = float(np.quantile([one[2] for one in found], 0.95))
    return Promise(error, threshold, share, wrong, worst, without)


def _first(router: Router, tokens: int) -> Router:
    """The router that reads so many tokens of a prompt."""
    return router.with_selector(replace(router.selector, cap=tokens))  # type: ignore[type-var]
