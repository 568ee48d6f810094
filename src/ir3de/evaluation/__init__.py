"""How well a router does: accuracy, proof on held-out prompts, robustness, cost, thresholds."""

from typing import TYPE_CHECKING, Any, TypeAlias

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.evaluation.accuracy import CoveragePoint, ReliabilityBin, Report, UnknownReport, evaluate
    from ir3de.evaluation.advice import Advice, Help, advise
    from ir3de.evaluation.change import ChangeReport, MovedPrompt, RouterFigures, measure_change
    from ir3de.evaluation.frontier import CostQuality, Frontier, FrontierPoint, compute_frontier, measure_frontier
    from ir3de.evaluation.intervals import Estimate
    from ir3de.evaluation.outcomes import (
        OutcomeReport,
        ShareCalibration,
        StrongWeakReport,
        calibrate_strong_share,
        evaluate_outcomes,
        measure_order,
    )
    from ir3de.evaluation.proof import Abstentions, ConfusedPair, Contender, CurvePoint, Proof
    from ir3de.evaluation.proving import prove
    from ir3de.evaluation.threshold import (
        HeldOut,
        RoutedPrompt,
        Threshold,
        ThresholdCalibration,
        calibrate_confidence,
        calibrate_threshold,
        count_needed_prompts,
        fit_confidence,
        pick_threshold,
        route_held_out,
        score_held_out,
    )
    from ir3de.evaluation.verification import Check, verify
    from ir3de.fitting.outcomes import collect_outcomes
    from ir3de.fitting.tuning import Trial
    from ir3de.scorers.expectation import Shrinkage
    from ir3de.statistics.outcomes import Outcomes

    # from the laboratory, which the library must not import
    Case: TypeAlias = Any
    DroppedWords: TypeAlias = Any
    FirstTokens: TypeAlias = Any
    Mixed: TypeAlias = Any
    Perturbation: TypeAlias = Any
    RobustnessReport: TypeAlias = Any
    Typos: TypeAlias = Any
    Wrapped: TypeAlias = Any
    measure_robustness: Any
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "accuracy": "CoveragePoint ReliabilityBin Report UnknownReport evaluate",
            "advice": "Advice Help advise",
            "change": "ChangeReport MovedPrompt RouterFigures measure_change",
            "frontier": "CostQuality Frontier FrontierPoint compute_frontier measure_frontier",
            "intervals": "Estimate",
            "outcomes": "OutcomeReport ShareCalibration StrongWeakReport calibrate_strong_share evaluate_outcomes "
            "measure_order",
            "proof": "Abstentions ConfusedPair Contender CurvePoint Proof",
            "proving": "prove",
            "threshold": "HeldOut RoutedPrompt Threshold ThresholdCalibration calibrate_confidence calibrate_threshold "
            "count_needed_prompts fit_confidence pick_threshold route_held_out score_held_out",
            "verification": "Check verify",
            "ir3de.fitting.outcomes": "collect_outcomes",
            "ir3de.fitting.tuning": "Trial",
            "ir3de.scorers.expectation": "Shrinkage",
            "ir3de.statistics.outcomes": "Outcomes",
        },
        lab={
            "robustness": "Case DroppedWords FirstTokens Mixed Perturbation RobustnessReport Typos Wrapped "
            "measure_robustness"
        },
    )

__all__ = [
    "Abstentions", "Advice", "Case", "ChangeReport", "Check", "ConfusedPair", "Contender", "CostQuality",
    "CoveragePoint", "CurvePoint", "DroppedWords", "Estimate", "FirstTokens", "Frontier", "FrontierPoint",
    "HeldOut", "Help", "Mixed", "MovedPrompt", "OutcomeReport", "Outcomes", "Perturbation", "Proof", "ReliabilityBin",
    "Report", "RobustnessReport", "RoutedPrompt", "RouterFigures", "ShareCalibration", "Shrinkage",
    "StrongWeakReport", "Threshold", "ThresholdCalibration", "Trial", "Typos", "UnknownReport", "Wrapped", "advise",
    "calibrate_confidence", "calibrate_strong_share", "calibrate_threshold", "collect_outcomes", "compute_frontier",
    "count_needed_prompts", "evaluate", "evaluate_outcomes", "fit_confidence", "measure_change", "measure_frontier",
    "measure_order", "measure_robustness", "pick_threshold", "prove", "route_held_out",
    "score_held_out", "verify",
]  # fmt: skip

if not TYPE_CHECKING:
    __all__ = __dir__()  # `import *` and `help` work without the laboratory
