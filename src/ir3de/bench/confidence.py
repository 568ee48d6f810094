"""Is confidence worth what it claims, and do thresholds keep their promise? Measured on prompts that picked neither.

A suite's test prompts are parted by a hash of their text: from one part thresholds are picked, on the other it is
counted how many prompts are answered, and how many of them wrong.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

from ir3de.bench.accuracy import Suite
from ir3de.conformal import Calibrated, calibrate_threshold
from ir3de.counting import collect
from ir3de.errors import InputError
from ir3de.evaluation import Report, evaluate
from ir3de.router import Router

Texts = dict[str, list[str]]

CAPS = (1_024, 32)
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
    cap: int  # tokens of a prompt that are read
    prompts: int
    wrong: float
    plain: float
    kept: float
    recalibrated: float | None
    thresholds: tuple[Kept, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(suite: Suite) -> list[Sureness]:
    """Fit the default router with and without a sample of prompts, and count, prompts whole and cut short."""
    statistics = {name: collect(suite.texts(name, "train"), keep_sample=True) for name in suite.folders}
    router, bare = Router.fit(statistics), Router.fit(statistics, keep_sample=False)
    test = {name: suite.texts(name, "test") for name in suite.folders}
    held = {name: [text for text in texts if _held(text)] for name, texts in test.items()}
    rest = {name: [text for text in texts if not _held(text)] for name, texts in test.items()}
    return [_row(suite.name, cap, _first(router, cap), _first(bare, cap), held, rest) for cap in CAPS]


def _row(suite: str, cap: int, router: Router, bare: Router, held: Texts, rest: Texts) -> Sureness:
    made = [_calibrated(router, held, error) for error in ERRORS]
    found = [(one.chosen, evaluate(one.router, rest)) for one in made if one]
    kept = evaluate(router, rest)
    return Sureness(
        suite,
        cap,
        kept.prompts,
        wrong=1 - kept.micro_accuracy,
        plain=100 * evaluate(bare, rest).calibration_error,
        kept=100 * kept.calibration_error,
        recalibrated=100 * found[-1][1].calibration_error if found else None,
        thresholds=tuple(
            Kept(chosen.error, chosen.threshold, _answered(report) / report.prompts, _wrong(report))
            for chosen, report in found
        ),
    )


def _first(router: Router, tokens: int) -> Router:
    """The router that reads so many tokens of a prompt."""
    return router.with_selector(replace(router.selector, cap=tokens))  # type: ignore[type-var]


def _held(text: str) -> bool:
    return bool(crc32(text.encode("utf-8", "replace")) & 2)  # the threshold's own parting goes by the last bit


def _calibrated(router: Router, held: Texts, error: float) -> Calibrated | None:
    try:
        return calibrate_threshold(router, held, error=error)
    except InputError:
        return None


def _answered(report: Report) -> int:
    return report.prompts - report.abstained


def _wrong(report: Report) -> float:
    return _answered(report) * (1 - (report.answered_accuracy or 0.0)) / report.prompts
