"""Accuracy, confusion, calibration and coverage of a router on prompts whose experts are known."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labelled import Labelled, prompts_of, read_experts
from ir3de.errors import InputError
from ir3de.evaluation.intervals import ExactSum, JSONReport
from ir3de.evaluation.prompts import PromptMemory, route_in_batches
from ir3de.fitting.domains import require_experts, require_router
from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.routing.html import draw

CONFIDENCE_BINS = 10  # of equal width
STEPS = 1_000  # of confidence: prompts of one step are counted together, so that memory stays bounded
COVERAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # of the known prompts
SURE = 0.9
FALSE_ALARMS = 0.05  # of the known prompts
MEASURE_INSTEAD = (
    "Measure on prompts that were kept aside (`ir3de.corpora.split_held_out`), or cross-validate: "
    "`prove(router=router)`"
)

Counts = npt.NDArray[np.int64]
OnDecision = Callable[[str, str, Decision], None]  # called with the domain, the prompt and the decision


@dataclass(frozen=True)
class ReliabilityBin:
    """The decisions whose confidence lies in one interval: their mean confidence and their accuracy."""

    low: float
    high: float
    count: int
    confidence: float | None  # the mean; None without a decision
    accuracy: float | None
    share: float  # of all prompts


@dataclass(frozen=True)
class CoveragePoint:
    """The effect of a threshold: the share of prompts answered, and the share of those that are wrong."""

    threshold: float
    coverage: float
    error: float
    error_with_unknown: float | None  # the same with the unknown prompts; None without them


@dataclass(frozen=True)
class UnknownReport:
    """Prompts that belong to none of the experts.

    `told` is the share on which the router abstains, `sure` the share above 90 % confidence. `area` is the probability
    that a known prompt has more confidence than an unknown one: ½ is chance. `told_at_5` is the share below the
    confidence that 5 % of the known prompts do not reach.
    """

    prompts: int
    told: float
    sure: float
    area: float
    told_at_5: float


@dataclass(frozen=True)
class Report(JSONReport):
    """The result of `evaluate`.

    `accuracy` is the share of the prompts whose most probable expert is their own, as in `Proof`. Costs and
    abstentions do not count. `mean_accuracy` is the same as a mean over the experts, so that a large expert does not
    hide a small one.

    The other figures are about where prompts went. `confusion[i][j]` counts the prompts of expert i that went to
    expert j, both in the order of `experts`, and `routed_accuracy` is the share that went to their own expert. A
    recall is None without a prompt, a precision without a decision. A prompt on which the router abstains counts as
    routed to the default expert, and as wrong where there is none. In `reliability` it counts for the most probable
    expert, because confidence is about that one.
    """

    experts: tuple[str, ...]
    prompts: int
    abstained: int
    abstained_because: Mapping[str, int]  # by reason
    out_of_domain: int  # out-of-domain prompts, abstained on or not
    accuracy: float
    mean_accuracy: float
    routed_accuracy: float
    recall: Mapping[str, float | None]
    precision: Mapping[str, float | None]
    confusion: tuple[tuple[int, ...], ...]
    sizes: Mapping[str, int]  # prompts of each expert
    answered_accuracy: float | None  # of the prompts not abstained on; None when there are none
    calibration_error: float
    reliability: tuple[ReliabilityBin, ...]
    area: float | None  # how often a right answer has more confidence than a wrong one; None without either
    coverage: tuple[CoveragePoint, ...]
    unknown: UnknownReport | None  # None without unknown prompts

    def __repr__(self) -> str:  # the tables would fill a screen: they have names, and `to_dict` gives everything
        figures = ("accuracy", "mean_accuracy", "calibration_error")
        shown = ", ".join(f"{name}={getattr(self, name):.3f}" for name in figures)
        return f"Report(prompts={self.prompts}, {shown}, abstained={self.abstained}, …)"

    def _repr_html_(self) -> str:
        return draw("report", report=self)


def evaluate(
    router: Router,
    domains: Mapping[str, Iterable[str]] | Labelled,
    labels: Iterable[Any] | None = None,
    *,
    label: str | None = None,
    text: str | None = None,
    unknown: Iterable[str] = (),
    on_decision: OnDecision | None = None,
) -> Report:
    """Route each expert's prompts and compare. Of streamed prompts only a hash each is kept.

    `domains` is {expert: prompts}; or prompts, and `labels` is then their experts; or labelled prompts of any shape
    with `label` and `text`, as in `Router.fit`. `unknown` are prompts that belong to none of the experts: the router
    should abstain on them. If prompts were in the fit, a warning reports it: the accuracy is then too optimistic.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> evaluate(router, {"maths": ["Solve 3x = 12."], "law": ["Is the contract valid?"]}).accuracy
    1.0
    """
    require_router(router, "evaluate(router, data, label=…)")
    router.require_probabilities("measure it with evaluate_outcomes, or with eval --outcomes")
    given = read_experts(domains, label, text, labels, call="evaluate(router, ")
    memory = PromptMemory.of(router)

    def observe(name: str, prompt: str, decision: Decision) -> None:
        if memory is not None:
            memory.look_up(name, prompt)
        if on_decision is not None:
            on_decision(name, prompt, decision)

    report = route_and_compare(router, given, unknown, observe)
    seen = None if memory is None else memory.count()
    if seen is not None and (warning := seen.describe(MEASURE_INSTEAD)) is not None:
        warnings.warn(warning, stacklevel=2)
    return report


def route_and_compare(
    router: Router,
    domains: Mapping[str, Iterable[str]],
    unknown: Iterable[str] = (),
    on_decision: OnDecision | None = None,
) -> Report:
    """Do the work of `evaluate`, for prompts that may have been in the fit."""
    router.require_probabilities("measure it with evaluate_outcomes, or with eval --outcomes")
    if not domains:
        raise InputError("an evaluation needs at least one domain: pass {expert: prompts}")
    require_experts(domains, router.experts)
    counts = DecisionCounts(router.experts)
    for name, texts in domains.items():
        before = counts.prompts
        for batch, decisions in route_in_batches(router, prompts_of(name, texts), str):
            counts.count(name, decisions)
            if on_decision is not None:
                for text, decision in zip(batch, decisions, strict=True):
                    on_decision(name, text, decision)
        if counts.prompts == before:
            raise InputError(f"'{name}' has no prompt to evaluate: give it at least one, or leave it out")
    for _, decisions in route_in_batches(router, prompts_of("unknown", unknown), str):
        counts.coverage.count_unknown(decisions)
    return counts.report()


class DecisionCounts:
    """The counts that a report is made of. A prompt may stand for several: it then has a weight."""

    def __init__(self, experts: tuple[str, ...]) -> None:
        self._experts = experts
        self._index = {name: index for index, name in enumerate(experts)}
        self._confusion: Counts = np.zeros((len(experts), len(experts)), np.int64)
        self._sizes: Counts = np.zeros(len(experts), np.int64)  # prompts of each expert, also those abstained on
        self._best: Counts = np.zeros(len(experts), np.int64)  # and how many of them it is the most probable one for
        self._abstained: Counter[str] = Counter()
        self._out_of_domain = self._answered_right = 0
        self._binned: Counts = np.zeros(CONFIDENCE_BINS, np.int64)
        # Σ w, Σ w right, Σ w confidence of each bin
        self._weights, self._right, self._confidence = ([ExactSum() for _ in range(CONFIDENCE_BINS)] for _ in range(3))
        self.coverage = ConfidenceCounts()

    @property
    def prompts(self) -> int:
        return int(self._binned.sum())

    def count(self, name: str, decisions: list[Decision], weight: float = 1.0) -> None:
        chosen = np.array([self._index[one.expert] for one in decisions if one.expert is not None], np.int64)
        confidence = np.array([decision.confidence for decision in decisions], np.float64)
        self._abstained.update(decision.reason for decision in decisions if decision.abstained)
        self._out_of_domain += sum(decision.out_of_domain for decision in decisions)
        self._answered_right += sum(decision.expert == name and not decision.abstained for decision in decisions)
        self._sizes[self._index[name]] += len(decisions)
        self._confusion[self._index[name]] += np.bincount(chosen, minlength=len(self._experts))
        right = np.array([decision.best == name for decision in decisions])
        self._best[self._index[name]] += int(right.sum())
        self.coverage.count(decisions, right)
        bins = np.minimum((confidence * CONFIDENCE_BINS).astype(np.int64), CONFIDENCE_BINS - 1)
        inside = np.bincount(bins, minlength=CONFIDENCE_BINS)
        self._binned += inside
        hits = np.bincount(bins[right], minlength=CONFIDENCE_BINS)
        for place, (many, correct) in enumerate(zip(inside.tolist(), hits.tolist(), strict=True)):
            self._weights[place].add(weight * many)
            self._right[place].add(weight * correct)
        for place, number in zip(bins.tolist(), confidence.tolist(), strict=True):
            self._confidence[place].add(weight * number)

    def report(self) -> Report:
        right = np.diagonal(self._confusion)
        present = [share for share in _divide(self._best, self._sizes) if share is not None]
        abstained = self._abstained.total()
        return Report(
            experts=self._experts,
            prompts=self.prompts,
            abstained=abstained,
            abstained_because=dict(sorted(self._abstained.items())),
            out_of_domain=self._out_of_domain,
            accuracy=int(self._best.sum()) / self.prompts,
            mean_accuracy=sum(present) / len(present),
            routed_accuracy=int(right.sum()) / self.prompts,
            recall=dict(zip(self._experts, _divide(right, self._sizes), strict=True)),
            precision=dict(zip(self._experts, _divide(right, self._confusion.sum(axis=0)), strict=True)),
            sizes=dict(zip(self._experts, self._sizes.tolist(), strict=True)),
            confusion=tuple(tuple(row) for row in self._confusion.tolist()),
            answered_accuracy=self._answered_right / (self.prompts - abstained) if self.prompts > abstained else None,
            calibration_error=self.calibration_error,
            reliability=self.reliability,
            area=self.coverage.area,
            coverage=self.coverage.find_points(),
            unknown=self.coverage.report_unknown(),
        )

    @property
    def calibration_error(self) -> float:
        """Σ n/N |accuracy − confidence| over the bins."""
        weights, right, confidence = self._sums
        return float(np.abs(right - confidence).sum() / weights.sum())

    @property
    def reliability(self) -> tuple[ReliabilityBin, ...]:
        weights, right, confidence = self._sums
        means, accuracy = _divide(confidence, weights), _divide(right, weights)
        edges = [index / CONFIDENCE_BINS for index in range(CONFIDENCE_BINS + 1)]
        shares = (weights / weights.sum()).tolist()
        return tuple(map(ReliabilityBin, edges[:-1], edges[1:], self._binned.tolist(), means, accuracy, shares))

    @property
    def _sums(self) -> npt.NDArray[np.float64]:
        """Weights, weights of right decisions and weighted confidences: (3, bins)."""
        return np.array([[float(one) for one in sums] for sums in (self._weights, self._right, self._confidence)])


class ConfidenceCounts:
    """How many right, wrong and unknown prompts have which confidence. Prompts on which it abstains come last."""

    def __init__(self) -> None:
        self._right, self._wrong, self._unknown = np.zeros((3, STEPS + 2), np.int64)  # step 0: abstained
        self._abstained = self._sure = 0

    def count(self, decisions: Sequence[Decision], right: npt.NDArray[np.bool_]) -> None:
        """Count prompts whose experts are known."""
        steps = _find_steps(decisions)
        self._right += np.bincount(steps[right], minlength=STEPS + 2)
        self._wrong += np.bincount(steps[~right], minlength=STEPS + 2)

    def count_unknown(self, decisions: Sequence[Decision]) -> None:
        """Count prompts that belong to no expert."""
        self._unknown += np.bincount(_find_steps(decisions), minlength=STEPS + 2)
        self._abstained += sum(decision.abstained for decision in decisions)
        self._sure += sum((decision.confidence or 0.0) > SURE for decision in decisions)

    @property
    def area(self) -> float | None:
        """How often a right answer has more confidence than a wrong one; None without either."""
        return measure_area(self._right, self._wrong)

    def find_points(self) -> tuple[CoveragePoint, ...]:
        """The thresholds that cover certain shares of the known prompts, the smallest first."""
        # how many prompts have each step or a higher one
        right, wrong, unknown = (np.cumsum(one[::-1])[::-1] for one in (self._right, self._wrong, self._unknown))
        answered = right + wrong
        total, points = int(self._right.sum() + self._wrong.sum()), dict[int, CoveragePoint]()
        for coverage in COVERAGES:
            step = 1 + int(np.argmax(answered[1:] <= coverage * total))  # the last one covers nothing
            if not answered[step]:
                continue
            routed = int(answered[step] + unknown[step])
            with_unknown = int(wrong[step] + unknown[step]) / routed if self._unknown.any() else None
            points[step] = CoveragePoint(
                (step - 1) / STEPS, int(answered[step]) / total, int(wrong[step]) / int(answered[step]), with_unknown
            )
        return tuple(points.values())

    def report_unknown(self) -> UnknownReport | None:
        """The figures of the unknown prompts; None if there were none."""
        prompts, known = int(self._unknown.sum()), self._right + self._wrong
        if not prompts:
            return None
        area = measure_area(known, self._unknown)
        assert area is not None
        allowed = FALSE_ALARMS * int(known.sum())
        step = int(np.searchsorted(np.cumsum(known), allowed, "right"))  # so many known prompts lie below this step
        told_at_5 = int(self._unknown[:step].sum()) / prompts
        return UnknownReport(prompts, self._abstained / prompts, self._sure / prompts, area, told_at_5)


def measure_area(higher: npt.NDArray[Any], lower: npt.NDArray[Any]) -> float | None:
    """P(one of `higher` > one of `lower`) + ½ P(they are equal), from counts for each step.

    >>> measure_area(np.array([0, 1, 1]), np.array([1, 1, 0]))
    0.875
    """
    pairs = int(higher.sum()) * int(lower.sum())
    below = np.cumsum(lower) - lower
    return float((higher * (below + lower / 2)).sum() / pairs) if pairs else None


def _find_steps(decisions: Sequence[Decision]) -> Counts:
    """0 for prompts on which the router abstains, else 1 + the step of the confidence."""
    steps = [0 if one.abstained else 1 + int((one.confidence or 0.0) * STEPS) for one in decisions]
    return np.array(steps, np.int64)


def _divide(parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> list[float | None]:
    return [part / whole if whole else None for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True)]
