"""Routers from outcomes: the scores that models had on prompts say who is best at what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting, check_counting
from ir3de.errors import InputError
from ir3de.fitting.descriptions import DescribedDomain
from ir3de.fitting.domains import check_name, describe_mismatch
from ir3de.fitting.parts import Constant, Domain, KeptPrompt, Kind, OutcomeRows, RouterParts, ScorerChoice
from ir3de.outcomes.expectation import Shrinkage, Validation
from ir3de.outcomes.sums import Outcomes
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import DecisionRules
from ir3de.routing.valuation import ExpectedScores
from ir3de.scorers.table import Table, check_experts
from ir3de.selectors import Selector
from ir3de.statistics.contributions import Holding
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Action, Change

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.outcomes.quality import Quality


@dataclass(frozen=True)
class OutcomeTraining:
    """The sums of every model's scores, and how the shrinkage was chosen."""

    scorer: Shrinkage
    outcomes: Callable[[], Outcomes]
    validation: Validation
    default_given: bool  # otherwise the default is the model of the best mean, whichever that becomes
    guard: bool = True  # whether routing is given up where it is worse than the best single model
    kind: Kind = "outcomes"
    trials: tuple[Mapping[str, Any], ...] = ()

    def statistics(self) -> NoReturn:
        self._refuse("it has no statistics of domains, but router.outcomes")

    def counted_statistics(self, embedding: Embedding) -> NoReturn:
        self.statistics()

    def holdings(self) -> Mapping[str, Holding]:
        return {}

    def recipe(self, name: str | None) -> NoReturn:
        self._refuse("models are added from rows with their scores (--outcomes on the command line)")

    def give(
        self,
        parts: RouterParts,
        name: str,
        domain: Domain,
        keep_sample: bool | None,
        scorer: ScorerChoice,
        counting: Counting,
    ) -> RouterParts:
        check_counting(counting)
        action: Action = "merge" if name in parts.compiled.experts else "add"
        more = _collect_model(name, domain, parts.embedding())
        return self._change(parts, self.outcomes() + more, [Change.now(action, expert=name)])

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> RouterParts:
        before, more = self.outcomes(), collect_rows(rows, parts.embedding(), field)
        known = [model for model in map(check_name, more.models) if model in parts.compiled.experts]
        if known and not merge:
            raise InputError(
                f"'{known[0]}' is an expert already: merge=True (--merge on the command line) gives it more rows, "
                "remove(name) (`ir3de remove`) takes it out"
            )
        changes = [Change.now("merge" if model in known else "add", expert=model) for model in more.models]
        return self._change(parts, before + more, changes)

    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts:
        if contribution is not None:
            self._refuse("it has no contributions; remove the model, and add it again from other rows")
        outcomes = self.outcomes()
        for name in names:
            outcomes = outcomes.without(name)
        return self._change(parts, outcomes, [Change.now("remove", expert=name) for name in names])

    def tune(self, parts: RouterParts) -> NoReturn:
        self._refuse("there is nothing to tune, its shrinkage is cross-validated at every fit")

    def replace_statistics(self, parts: RouterParts, statistics: Mapping[str, Statistics]) -> NoReturn:
        self.statistics()

    def fix_selector(self, selector: Selector) -> OutcomeTraining:
        return self

    def fix_default(self) -> OutcomeTraining:
        return replace(self, default_given=True)

    def read_all(self) -> OutcomeTraining:
        return replace(self, outcomes=Constant.call(self.outcomes))

    def require_probabilities(self, why_not: str) -> NoReturn:
        self._refuse(why_not)

    def build_table(self, embedding: Embedding, rules: DecisionRules) -> Table:
        return _compile(self.outcomes(), embedding, rules, self.scorer)[0].table

    def decide_kept(self, parts: RouterParts) -> list[KeptPrompt]:
        return []

    def refit(self, parts: RouterParts) -> CompiledRouter:
        return _compile(self.outcomes(), parts.embedding(), parts.compiled.rules, self.scorer)[0]

    def _change(self, parts: RouterParts, outcomes: Outcomes, changes: list[Change]) -> RouterParts:
        """Fit these outcomes; a default that was given stays while its model does."""
        rules = parts.compiled.rules
        assert rules.default is not None
        now = rules.experts[rules.default]
        best_before = rules.experts[int(rules.valuation.tally_nothing(len(rules.experts)).argmax())]
        given = now in outcomes.models and (self.default_given or now != best_before)
        default, guard = now if given else None, self.guard and rules.policy.strong_share is None
        compiled, training = _fit(outcomes, parts.embedding(), rules, default=default, guard=guard)
        return parts.change(compiled, training, changes)

    def _refuse(self, why_not: str) -> NoReturn:
        raise InputError(f"this router was fitted from outcomes: {why_not}")


def fit_outcomes(
    outcomes: Outcomes, embedding: Embedding, rules: DecisionRules, *, default: str | None, guard: bool
) -> RouterParts:
    """Fit and compile a new router; without a default, the model of the best mean is taken."""
    compiled, training = _fit(outcomes, embedding, rules, default=default, guard=guard)
    return RouterParts.create(compiled, embedding, training)


def _fit(
    outcomes: Outcomes, embedding: Embedding, rules: DecisionRules, *, default: str | None, guard: bool
) -> tuple[CompiledRouter, OutcomeTraining]:
    if not outcomes.cells:
        raise InputError("a router needs at least one model with a score")
    models = outcomes.models
    check_experts(len(models))
    outcomes = outcomes.shared()
    rules = replace(rules, experts=models, policy=rules.policy.among(models))
    compiled, quality = _compile(outcomes, embedding, rules, None, guard=guard)
    best = int(quality.expectation.at_rest.argmax())  # the first of equals
    rules = replace(compiled.rules, default=best if default is None else models.index(default))
    shrinkage, given = quality.expectation.shrinkage, default is not None
    training = OutcomeTraining(shrinkage, Constant(outcomes), quality.tried, given, guard)
    return replace(compiled, rules=rules), training


def _compile(
    outcomes: Outcomes, embedding: Embedding, rules: DecisionRules, shrinkage: Shrinkage | None, *, guard: bool = True
) -> tuple[CompiledRouter, Quality]:
    from ir3de.outcomes.quality import fit_quality
    from ir3de.outcomes.table import outcome_table

    quality = fit_quality(outcomes, embedding.rows, shrinkage, guard=guard)
    rules = replace(rules, valuation=ExpectedScores(quality.expectation))
    return CompiledRouter.build(rules, outcome_table(quality)), quality


def collect_rows(rows: OutcomeRows, embedding: Embedding, field: str) -> Outcomes:
    """The sums of rows, or sums made elsewhere with the same embedding."""
    if isinstance(rows, Outcomes):
        return _check_embedding(rows, embedding)
    from ir3de.outcomes.rows import collect_outcomes

    return collect_outcomes(rows, embedding=embedding, field=field)


def _collect_model(name: str, rows: object, embedding: Embedding) -> Outcomes:
    """One model's outcomes, whoever else has scores in those rows."""
    if isinstance(rows, Outcomes):
        if name not in rows.models:
            raise InputError(f"the outcomes have no score of '{name}': they are of {', '.join(rows.models)}")
        return _check_embedding(rows, embedding).only(name)
    if isinstance(rows, (str, bytes, Mapping, Statistics)) or not isinstance(rows, Iterable):
        raise InputError(
            f"this router was fitted from outcomes: '{name}' needs rows with its scores, found "
            + ("a description" if isinstance(rows, DescribedDomain) else type(rows).__name__)
        )
    from ir3de.outcomes.rows import collect_outcomes

    return collect_outcomes(rows, embedding=embedding, models=(name,))


def _check_embedding(outcomes: Outcomes, embedding: Embedding) -> Outcomes:
    if outcomes.fingerprint != embedding.fingerprint:
        raise describe_mismatch("the outcomes", outcomes, embedding)
    return outcomes
