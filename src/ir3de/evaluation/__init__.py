"""How well a router does: accuracy, robustness, quality against cost, replayed traffic, thresholds."""

from typing import TYPE_CHECKING

from ir3de.storage.lazy_exports import export_lazily

if TYPE_CHECKING:
    from ir3de.evaluation.accuracy import ReliabilityBin, Report, evaluate
    from ir3de.evaluation.outcomes import OutcomeReport, evaluate_outcomes
    from ir3de.evaluation.perturbations import Case, DroppedWords, FirstTokens, Mixed, Perturbation, Typos
    from ir3de.evaluation.robustness import RobustnessReport, measure_robustness
    from ir3de.evaluation.threshold import Calibrated, Threshold, calibrate_threshold
    from ir3de.evaluation.verification import Check, verify
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "accuracy": "ReliabilityBin Report evaluate",
            "outcomes": "OutcomeReport evaluate_outcomes",
            "perturbations": "Case DroppedWords FirstTokens Mixed Perturbation Typos",
            "robustness": "RobustnessReport measure_robustness",
            "threshold": "Calibrated Threshold calibrate_threshold",
            "verification": "Check verify",
        },
    )

__all__ = [
    "Calibrated",
    "Case",
    "Check",
    "DroppedWords",
    "FirstTokens",
    "Mixed",
    "OutcomeReport",
    "Perturbation",
    "ReliabilityBin",
    "Report",
    "RobustnessReport",
    "Threshold",
    "Typos",
    "calibrate_threshold",
    "evaluate",
    "evaluate_outcomes",
    "measure_robustness",
    "verify",
]
