"""What a router can be asked about itself: its experts, its rules, and what it was fitted from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ir3de.embedding import Embedding, Tokenizer
from ir3de.files.ledger import History
from ir3de.fitting.parts import Kind, RouterParts
from ir3de.policies import Policy
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.second_opinion import SecondOpinion
from ir3de.scorers import Scorer
from ir3de.scorers.expectation import Shrinkage, Validation
from ir3de.selectors import Selector
from ir3de.statistics import Statistics
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.outcomes import Outcomes

if TYPE_CHECKING:
    from ir3de.fitting.teaching_report import Teaching


class RouterFacts:
    """The properties of a `Router`."""

    _parts: RouterParts
    _compiled: CompiledRouter

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts' names, in the order they were added."""
        return self._compiled.experts

    @property
    def default(self) -> str | None:
        """The expert for prompts on which the router abstains, or None."""
        return None if (place := (rules := self._compiled.rules).default) is None else rules.experts[place]

    @property
    def policy(self) -> Policy:
        """What experts cost, what that is worth, and when to abstain."""
        return self._compiled.rules.policy

    @property
    def calibrated(self) -> bool:
        """Whether confidence was calibrated on held-out prompts."""
        return self._compiled.rules.calibration is not None

    @property
    def trials(self) -> tuple[Mapping[str, Any], ...]:
        """What the last tuning or choice of a scorer tried, best first; empty without one."""
        return self._parts.training.trials

    @property
    def teaching(self) -> Teaching | None:
        """What a teacher labelled and brought; None without one."""
        return self._parts.training.teaching

    @property
    def selector(self) -> Selector:
        """How a prompt's tokens decide."""
        return self._compiled.selector

    @property
    def compiled(self) -> CompiledRouter:
        """The read side: experts, table and ballots as one object."""
        return self._compiled

    @property
    def scorer(self) -> Scorer | Shrinkage:
        """How the router was fitted; for a router from outcomes, the chosen shrinkage."""
        return self._parts.training.scorer

    @property
    def tokenizer(self) -> Tokenizer:
        """Turns text into token ids."""
        return self._parts.tokenizer

    @property
    def statistics(self) -> Mapping[str, Statistics]:
        """Each expert's statistics: all that is needed to change the router."""
        return self._parts.training.statistics()

    @property
    def prompts(self) -> Mapping[str, int]:
        """How many prompts each expert was given, without its description."""
        return self._parts.count_prompts()

    @property
    def contributions(self) -> Mapping[str, tuple[Contribution, ...]]:
        """Each expert's contributions, in the order of their ids."""
        held = self.holdings
        return {name: held[name].contributions if name in held else () for name in self.experts}

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """Contributions and own texts of the experts that have any contribution."""
        return self._parts.training.holdings()

    @property
    def history(self) -> History:
        """The saved changes of the router, one entry a change: its ledger."""
        return self._parts.history()

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes that the router was fitted from: all that is needed to change it."""
        return self._parts.training.outcomes()

    @property
    def validation(self) -> Validation:
        """What cross-validation tried when the router was fitted from outcomes; empty otherwise."""
        return self._parts.training.validation

    @property
    def kind(self) -> Kind:
        """What the router was fitted from: "domains" or "outcomes"."""
        return self._parts.training.kind

    @property
    def embedding(self) -> Embedding:
        """The embedding the router was fitted with."""
        return self._parts.embedding()

    @property
    def opinion(self) -> SecondOpinion | None:
        """The head of the router's encoder, and when and how much it counts; None without an encoder."""
        return self._compiled.rules.opinion
