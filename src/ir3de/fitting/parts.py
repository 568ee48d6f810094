"""`RouterParts`: everything a router is made of, as one value that a change replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding, Tokenizer
from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting
from ir3de.errors import ArtifactError
from ir3de.fitting.descriptions import count_described
from ir3de.fitting.domains import find_default
from ir3de.outcomes.expectation import Shrinkage, Validation
from ir3de.outcomes.sums import Outcomes
from ir3de.policies import Calibration, Policy, check_policy
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import Decision, DecisionRules
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Scorer
from ir3de.scorers.table import Table
from ir3de.selectors import Selector
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.counting import Recipe
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Change, History

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.tuning import Trial

Counted: TypeAlias = "Statistics | Contribution"
OutcomeRows: TypeAlias = "Iterable[Mapping[str, Any]] | Outcomes"  # rows, or what was summed up from them
# an expert's texts (str, or rows of `text` and `source`), or what was counted from them; for a router from outcomes,
# rows with its scores
Domain: TypeAlias = "Iterable[str | Mapping[str, Any]] | Files | Counted | Sequence[Counted] | OutcomeRows"
Kind = Literal["domains", "outcomes"]
ScorerChoice = Literal["keep", "choose"]  # what a change does about the scorer
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class KeptPrompt:
    """A prompt of the sample, its expert, and the decision of a fit that did not see it."""

    expert: str
    ids: npt.NDArray[np.uint32]
    decision: Decision


@dataclass(frozen=True)
class Constant(Generic[T]):
    """A function without arguments whose result, or error, is known. Unlike a lambda it can be pickled."""

    value: T | None = None
    error: ArtifactError | None = None

    @classmethod
    def call(cls, read: Callable[[], T]) -> Constant[T]:
        """Call a function now: what it reads is then in memory. A serving copy has an error in its place."""
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

    A change takes the parts of the router and returns those of the changed router. What makes no sense for a kind of
    training data raises an `InputError` that says so.
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

    def counted_statistics(self, embedding: Embedding) -> Mapping[str, Statistics]:
        """Each expert's statistics as they were counted, before tuning counted the prompts again in other windows."""

    @property
    def holdings(self) -> Callable[[], Mapping[str, Holding]]: ...

    @property
    def outcomes(self) -> Callable[[], Outcomes]: ...

    def give(
        self,
        parts: RouterParts,
        name: str,
        domain: Domain,
        keep_sample: bool | None,
        scorer: ScorerChoice,
        counting: Counting,
    ) -> RouterParts:
        """Add an expert, or give one that is there more."""

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> RouterParts:
        """Add the models of outcome rows; `merge` lets those that are there have more rows."""

    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts:
        """Take experts out, or what one owner gave an expert, as if it had never been there."""

    def tune(self, parts: RouterParts) -> tuple[RouterParts, tuple[Trial, ...]]:
        """Choose scorer and selector again; also returns what was tried."""

    def recipe(self, name: str | None) -> Recipe:
        """How texts must be counted elsewhere to be given to that expert, or to a new one."""

    def replace_statistics(self, parts: RouterParts, statistics: Mapping[str, Statistics]) -> RouterParts:
        """The same scorer and rules, confidence included, fitted to other statistics of the same experts."""

    def fix_selector(self, selector: Selector) -> TrainingData:
        """The training data of a router whose selector was chosen by hand."""

    def fix_default(self) -> TrainingData:
        """The training data of a router whose default expert was chosen by hand."""

    def read_all(self) -> TrainingData:
        """The same training data, with everything in memory: it can be pickled."""

    def require_probabilities(self, why_not: str) -> None:
        """Refuse, with that reason, where the values of experts are no probabilities."""

    def refit(self, parts: RouterParts) -> CompiledRouter:
        """Fit from scratch with scorer and selector as they are: what the parts must have."""

    def decide_kept(self, parts: RouterParts) -> list[KeptPrompt]:
        """Every kept prompt, decided by a fit that did not see it; none where none can be held out."""

    def build_table(self, embedding: Embedding, rules: DecisionRules) -> Table:
        """The table that this training data gives with its scorer."""


@dataclass(frozen=True)
class RouterParts:
    """All that a router is made of: the read side at hand, what only changes need behind a call."""

    compiled: CompiledRouter
    tokenizer: Tokenizer
    fingerprint: str  # of the embedding
    embedding: Callable[[], Embedding]
    training: TrainingData
    history: Callable[[], History] = tuple  # what was done to the router as far as it was saved
    changes: tuple[Change, ...] = ()  # and what was done since
    saved: str | None = None  # the hash of its header as it was saved

    @classmethod
    def create(
        cls, compiled: CompiledRouter, embedding: Embedding, training: TrainingData, changes: Sequence[Change] = ()
    ) -> RouterParts:
        """The parts of a new router."""
        return cls(
            compiled, embedding.tokenizer, embedding.fingerprint, Constant(embedding), training, changes=tuple(changes)
        )

    def with_selector(self, selector: Selector) -> RouterParts:
        """The same fit with another selector, which later changes keep."""
        compiled, training = self.compiled.with_selector(selector), self.training.fix_selector(selector)
        return replace(self, compiled=compiled, training=training)

    def with_policy(self, policy: Policy, default: str | None) -> RouterParts:
        """The same fit with another policy, and another default expert if one is given."""
        rules = replace(self.compiled.rules, policy=check_policy(policy, self.compiled.experts))
        if default is None:
            return replace(self, compiled=replace(self.compiled, rules=rules))
        chosen = find_default(default, self.compiled.experts)
        compiled = replace(self.compiled, rules=replace(rules, default=chosen))
        return replace(self, compiled=compiled, training=self.training.fix_default())

    def with_calibration(self, calibration: Calibration) -> RouterParts:
        """The same fit with another calibration."""
        self.training.require_probabilities("it has expected scores, not probabilities to calibrate")
        rules = replace(self.compiled.rules, valuation=Probabilities(calibration))
        return replace(self, compiled=replace(self.compiled, rules=rules))

    def count_prompts(self) -> dict[str, int]:
        """How many prompts each expert was given, without those that stand for its description."""
        described = count_described([*(entry.change for entry in self.history()), *self.changes])
        counted = self.training.statistics()
        return {name: max(own.prompts - described[name], len(own.sample or ())) for name, own in counted.items()}

    def as_saved(self, history: History) -> RouterParts:
        """The same router, whose changes are in that ledger."""
        return replace(self, history=lambda: history, changes=(), saved=history[-1].router_after)

    def read_all(self) -> RouterParts:
        """The same parts with everything in memory: they can be pickled."""
        embedding, history = Constant.call(self.embedding), Constant.call(self.history)
        return replace(self, embedding=embedding, training=self.training.read_all(), history=history)

    def change(self, compiled: CompiledRouter, training: TrainingData, changes: Sequence[Change]) -> RouterParts:
        """The parts after a change: the history goes on."""
        return replace(self, compiled=compiled, training=training, changes=(*self.changes, *changes))
