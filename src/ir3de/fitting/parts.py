"""`RouterParts`: everything a router is made of, as one value that a change replaces."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding, Tokenizer
from ir3de.errors import ArtifactError, IR3DEError, name_some
from ir3de.files.ledger import Change, History
from ir3de.fitting.domains import Gift, OutcomeRows, ScorerChoice, check_removal, find_default, require_experts
from ir3de.fitting.inputs import count_described
from ir3de.policies import Calibration, Policy, check_policy
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import Decision
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Scorer
from ir3de.scorers.expectation import Shrinkage, Validation
from ir3de.scorers.table import Table
from ir3de.selectors import Selector
from ir3de.statistics.contributions import Holding
from ir3de.statistics.counting import Recipe
from ir3de.statistics.domain import Statistics
from ir3de.statistics.outcomes import Outcomes

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.teaching_report import Teaching
    from ir3de.fitting.tuning import Trial

Kind = Literal["domains", "outcomes"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class KeptPrompt:
    """A prompt of the sample, its expert, and the decision of a fit that did not see it."""

    expert: str
    ids: npt.NDArray[np.uint32]
    decision: Decision


class Once(Generic[T]):
    """A function without arguments that is called once, also by several threads. Its closure is then released."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute: Callable[[], T] | None = compute
        self._lock = threading.Lock()

    def __call__(self) -> T:
        with self._lock:
            if self._compute is not None:
                self._value = self._compute()
                self._compute = None
        return self._value


@dataclass(frozen=True)
class Constant(Generic[T]):
    """A function without arguments whose result, or error, is known. Unlike a lambda it can be pickled."""

    value: T | None = None
    error: ArtifactError | None = None

    @classmethod
    def call(cls, read: Callable[[], T]) -> Constant[T]:
        """Call a function now, so that its result is in memory. A serving copy stores the error instead."""
        try:
            return cls(read())
        except ArtifactError as error:
            return cls(error=error)

    def __call__(self) -> T:
        if self.error is not None:
            raise self.error
        return cast(T, self.value)


class TrainingData(Protocol):
    """What a router was fitted from: the domains of its experts, or the outcomes of its models.

    A change takes the parts of the router and returns those of the changed router. An operation that this kind of
    training data does not support raises an `InputError`.
    """

    @property
    def kind(self) -> Kind: ...
    @property
    def scorer(self) -> Scorer | Shrinkage: ...
    @property
    def trials(self) -> tuple[Mapping[str, Any], ...]: ...
    @property
    def validation(self) -> Validation: ...
    @property
    def statistics(self) -> Callable[[], Mapping[str, Statistics]]: ...
    @property
    def holdings(self) -> Callable[[], Mapping[str, Holding]]: ...
    @property
    def teaching(self) -> Teaching | None: ...
    @property
    def outcomes(self) -> Callable[[], Outcomes]: ...

    # as they were counted, before tuning recounted the prompts in other windows
    def counted_statistics(self, embedding: Embedding) -> Mapping[str, Statistics]: ...
    def give(self, parts: RouterParts, gift: Gift, scorer: ScorerChoice) -> RouterParts: ...
    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> RouterParts: ...
    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts: ...
    def tune(self, parts: RouterParts) -> tuple[RouterParts, tuple[Trial, ...]]: ...
    def teach(
        self, parts: RouterParts, lesson: Lesson, names: Sequence[str] | None, scorer: ScorerChoice | None
    ) -> RouterParts: ...
    # as if there had been no teacher
    def forget_taught(self, parts: RouterParts) -> RouterParts: ...
    def recipe(self, name: str | None) -> Recipe: ...
    # the same scorer, rules and confidence, fitted to other statistics of the same experts
    def replace_statistics(self, parts: RouterParts, statistics: Mapping[str, Statistics]) -> RouterParts: ...

    # the training data of a router whose selector or default expert the caller chose
    def fix_selector(self, selector: Selector) -> TrainingData: ...
    def fix_default(self) -> TrainingData: ...
    # the same with everything in memory, ready to be pickled
    def read_all(self) -> TrainingData: ...
    # raises an error with that reason if the experts' values are not probabilities
    def require_probabilities(self, why_not: str) -> None: ...
    # fits from scratch with the same scorer and selector: what the parts must contain
    def refit(self, parts: RouterParts) -> CompiledRouter: ...
    # every kept prompt, decided by a fit that did not see it; empty if none can be held out
    def decide_kept(self, parts: RouterParts) -> list[KeptPrompt]: ...
    def build_table(self, embedding: Embedding, rules: DecisionRules) -> Table: ...


@dataclass(frozen=True)
class RouterParts:
    """All that a router is made of: the read side at hand, what only changes need behind a call."""

    compiled: CompiledRouter
    tokenizer: Tokenizer
    fingerprint: str  # of the embedding
    embedding: Callable[[], Embedding]
    training: TrainingData
    history: Callable[[], History] = tuple  # the saved changes
    changes: tuple[Change, ...] = ()  # the changes since
    saved: str | None = None  # hash of the saved header

    @classmethod
    def create(
        cls, compiled: CompiledRouter, embedding: Embedding, training: TrainingData, changes: Sequence[Change] = ()
    ) -> RouterParts:
        """The parts of a new router."""
        read, fingerprint = Constant(embedding), embedding.fingerprint
        return cls(compiled, embedding.tokenizer, fingerprint, read, training, changes=tuple(changes))

    def add(self, gift: Gift, scorer: ScorerChoice) -> RouterParts:
        """The parts with a new expert."""
        gift.check_new(self.compiled.experts)
        return self.training.give(self, gift, scorer)

    def merge(self, gift: Gift, scorer: ScorerChoice) -> RouterParts:
        """The parts in which an expert has more."""
        require_experts((gift.name,), self.compiled.experts)
        return self.training.give(self, gift, scorer)

    def remove(self, names: Sequence[str], contribution: str | None, scorer: ScorerChoice) -> RouterParts:
        """The parts without these experts, or without one contribution of an expert."""
        found = check_removal(names, self.compiled.experts, contribution)
        return self.training.remove(self, found, contribution, scorer)

    def teach(
        self, lesson: Lesson | None, names: Sequence[str] | None = None, scorer: ScorerChoice | None = None
    ) -> RouterParts:
        """The parts with what a teacher labels, if there is one."""
        return self if lesson is None else self.training.teach(self, lesson, names, scorer)

    def with_selector(self, selector: Selector) -> RouterParts:
        """The same fit with another selector, which later changes keep."""
        compiled, training = self.compiled.with_selector(selector), self.training.fix_selector(selector)
        return replace(self, compiled=compiled, training=training)

    def with_policy(self, policy: Policy, default: str | None) -> RouterParts:
        """The same fit with another policy, and another default expert if one is given."""
        rules = replace(self.compiled.rules, policy=check_policy(policy, self.compiled.experts))
        if default is None:
            return replace(self, compiled=replace(self.compiled, rules=rules))
        rules = replace(rules, default=find_default(default, self.compiled.experts))
        return replace(self, compiled=replace(self.compiled, rules=rules), training=self.training.fix_default())

    def with_calibration(self, calibration: Calibration) -> RouterParts:
        """The same fit with another calibration."""
        self.training.require_probabilities("it has expected scores, not probabilities to calibrate")
        rules = replace(self.compiled.rules, valuation=Probabilities(calibration))
        return replace(self, compiled=replace(self.compiled, rules=rules))

    def count_prompts(self) -> dict[str, int]:
        """How many prompts people gave each expert: without those that stand for its description, and taught ones."""
        described = count_described([*(entry.change for entry in self.history()), *self.changes])
        counted, holdings, found = self.training.statistics(), self.training.holdings(), {}
        for name, own in counted.items():
            more = described[name] + (holdings[name].taught_prompts if name in holdings else 0)
            found[name] = max(own.prompts - more, 0 if own.sample is None else own.sample.labelled)
        return found

    def as_saved(self, history: History) -> RouterParts:
        """The same router, whose changes are in that ledger."""
        return replace(self, history=lambda: history, changes=(), saved=history[-1].router_after)

    def read_all(self) -> RouterParts:
        """The same parts with everything in memory, ready to be pickled."""
        embedding, history = Constant.call(self.embedding), Constant.call(self.history)
        return replace(self, embedding=embedding, training=self.training.read_all(), history=history)

    def change(self, compiled: CompiledRouter, training: TrainingData, changes: Sequence[Change]) -> RouterParts:
        """The parts after a change, with a longer history."""
        return replace(self, compiled=compiled, training=training, changes=(*self.changes, *changes))


def describe_router(parts: RouterParts) -> str:
    """The router in one line, however many experts it has."""
    compiled = parts.compiled
    return f"Router({name_some(compiled.experts)}; {parts.training.scorer}, {compiled.selector})"


def draw_router(parts: RouterParts) -> str:
    """The router as HTML for notebooks: facts about it, and its experts with the prompts given and kept."""
    from ir3de.routing.html import draw

    compiled, training, table = parts.compiled, parts.training, parts.compiled.table
    arrays = (table.scores, table.vote, table.familiarity, table.pairs, table.subjects)
    facts = {
        "scorer": str(training.scorer),
        "selector": str(compiled.selector),
        "accuracy": describe_accuracy(parts),
        "confidence": "not calibrated" if compiled.rules.calibration is None else "calibrated on held-out prompts",
        "default expert": "none" if compiled.default is None else compiled.experts[compiled.default],
        "table": f"{sum(array.nbytes for array in arrays if array is not None) / 1e6:.1f} MB",
    }
    if training.kind == "outcomes":
        del facts["confidence"]
    columns, counts = _count_prompts(parts)
    return draw("router", experts=compiled.experts, facts=facts, counts=counts, columns=columns)


def describe_accuracy(parts: RouterParts) -> str:
    """What was measured on held-out prompts when the router was fitted, if anything was."""
    training = parts.training
    chosen = next((trial for trial in training.trials if trial.get("chosen")), None)
    if chosen is not None:
        return f"{100 * chosen['accuracy']:.1f} % on held-out prompts, best of {len(training.trials)} trials"
    if (gain := training.validation.gain) is not None:
        return f"{gain.mean:+.3f} ± {gain.error:.3f} over the best single model, on {gain.prompts:,} held-out prompts"
    return "not measured"


def _count_prompts(parts: RouterParts) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]]]:
    """How many prompts each expert was given, and how many were kept. Empty for a serving copy."""
    try:
        known = {} if parts.training.kind == "outcomes" else parts.training.statistics()
    except IR3DEError:  # a serving copy, or a damaged file: a notebook shows what there is
        known = {}
    columns = ("prompts", "kept") if known else ()
    return columns, {name: (own.prompts, len(own.sample or ())) for name, own in known.items()}
