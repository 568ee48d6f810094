"""Is confidence worth what it claims, and do thresholds keep their promise? Measured on prompts that picked neither.

A suite's test prompts are parted by a hash of their text: from one part thresholds are picked, on the other it is
counted how many prompts are answered, and how many of them wrong.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from zlib import crc32

from ir3de.bench.accuracy import Suite
from ir3de.conformal import Calibrated, calibrate_threshold
from ir3de.counting import collect
from ir3de.errors import InputError
from ir3de.evaluation import Report, evaluate
from ir3de.router import Router

ERRORS = (0.01, 0.02, 0.05)


@dataclass(frozen=True)
class Kept:
    """A promised error rate and what was found: shares of all prompts."""

    error: float
    threshold: float
    answered: float
    wrong: float


@dataclass(frozen=True)
class Sureness:
    """One suite's expected calibration errors, in points, and its thresholds; `thresholds` lacks those out of reach.

    `plain` is the error without a calibration, `kept` with the one learnt from the prompts kept at fitting,
    `recalibrated` with the one learnt from held-out prompts.
    """

    suite: str
    prompts: int
    wrong: float
    plain: float
    kept: float
    recalibrated: float
    thresholds: tuple[Kept, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(suite: Suite) -> Sureness:
    """Fit the default router with and without a sample of prompts, and count."""
    statistics = {name: collect(suite.texts(name, "train"), keep_sample=True) for name in suite.folders}
    router, bare = Router.fit(statistics), Router.fit(statistics, keep_sample=False)
    test = {name: suite.texts(name, "test") for name in suite.folders}
    held = {name: [text for text in texts if _held(text)] for name, texts in test.items()}
    rest = {name: [text for text in texts if not _held(text)] for name, texts in test.items()}
    made = [found for error in ERRORS if (found := _calibrated(router, held, error))]
    found = [(one.chosen, evaluate(one.router, rest)) for one in made]
    kept = evaluate(router, rest)
    return Sureness(
        suite.name,
        kept.prompts,
        wrong=1 - kept.micro_accuracy,
        plain=100 * evaluate(bare, rest).calibration_error,
        kept=100 * kept.calibration_error,
        recalibrated=100 * found[-1][1].calibration_error if found else float("nan"),
        thresholds=tuple(
            Kept(chosen.error, chosen.threshold, _answered(report) / report.prompts, _wrong(report))
            for chosen, report in found
        ),
    )


def _held(text: str) -> bool:
    return bool(crc32(text.encode("utf-8", "replace")) & 2)  # the threshold's own parting goes by the last bit


def _calibrated(router: Router, held: dict[str, list[str]], error: float) -> Calibrated | None:
    try:
        return calibrate_threshold(router, held, error=error)
    except InputError:
        return None


def _answered(report: Report) -> int:
    return report.prompts - report.abstained


def _wrong(report: Report) -> float:
    return _answered(report) * (1 - (report.answered_accuracy or 0.0)) / report.prompts
