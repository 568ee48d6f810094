"""Accuracy, confusion and calibration of a router on prompts whose experts are known."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labelled import Labelled, prompts_of, read_experts
from ir3de.errors import InputError
from ir3de.evaluation.coverage import ConfidenceCounts, CoveragePoint, UnknownReport
from ir3de.evaluation.exact_sum import ExactSum
from ir3de.evaluation.json_report import JSONReport
from ir3de.evaluation.seen import PromptMemory
from ir3de.fitting.domains import require_experts, require_router
from ir3de.router import Router
from ir3de.routing.decision import Decision

CONFIDENCE_BINS = 10  # of equal width
BATCH_PROMPTS = 4_096
BATCH_CHARACTERS = 4_000_000

Counts = npt.NDArray[np.int64]
Item = TypeVar("Item")
MEASURE_INSTEAD = (
    "Measure on prompts that were kept aside (`ir3de.corpora.split_held_out`), or cross-validate: "
    "`prove(router=router)`"
)
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
class Report(JSONReport):
    """What `evaluate` found.

    `accuracy` is the share of the prompts whose most probable expert is their own, as in `Proof`. Costs and
    abstentions play no part. `mean_accuracy` is the same as a mean over the experts, so that a large expert does not
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

    def _repr_html_(self) -> str:  # what notebooks show
        from ir3de.routing.notebook import draw_figures

        rows = [
            (name, f"{self.sizes[name]:,}", _percent(self.recall[name]), _percent(self.precision[name]))
            for name in self.experts
        ]
        told = (
            f"Accuracy {_percent(self.accuracy)}: the share of the prompts whose most probable expert is their own; "
            f"mean over experts {_percent(self.mean_accuracy)}. "
            f"Calibration error {_percent(self.calibration_error)}. "
            f"The router abstained on {self.abstained:,} prompts."
        )
        heads = "expert", "prompts", "recall", "precision"
        return draw_figures(f"Report: {self.prompts:,} prompts", [told], heads, rows, self.experts)


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
    should abstain on them. If prompts were in the fit, a warning says that the accuracy is too good.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> evaluate(router, {"maths": ["Solve 3x = 12."], "law": ["Is the contract valid?"]}).accuracy
    1.0
    """
    require_router(router, "evaluate(router, data, label=…)")
    router.require_probabilities("measure it with evaluate_outcomes, or with eval --outcomes")
    given = read_experts(domains, label, text, labels, call="evaluate(router, ")
    memory = PromptMemory.of(router)

    def hear(name: str, prompt: str, decision: Decision) -> None:
        if memory is not None:
            memory.look_up(name, prompt)
        if on_decision is not None:
            on_decision(name, prompt, decision)

    report = route_and_compare(router, given, unknown, hear)
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
        self._sizes: Counts = np.zeros(len(experts), np.int64)  # prompts of each expert, also where none fitted
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


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _divide(parts: npt.NDArray[Any], wholes: npt.NDArray[Any]) -> list[float | None]:
    return [part / whole if whole else None for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True)]


def route_in_batches(
    router: Router, items: Iterable[Item], text_of: Callable[[Item], str]
) -> Iterator[tuple[list[Item], list[Decision]]]:
    """Route the texts of many items, a bounded number of prompts and characters at a time."""
    batch: list[Item] = []
    characters = 0
    for item in items:
        batch.append(item)
        characters += len(text_of(item))
        if len(batch) >= BATCH_PROMPTS or characters >= BATCH_CHARACTERS:
            yield batch, router.route_batch([text_of(one) for one in batch])
            batch, characters = [], 0
    if batch:
        yield batch, router.route_batch([text_of(one) for one in batch])
