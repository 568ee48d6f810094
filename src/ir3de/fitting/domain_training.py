"""Routers from domains: fitting, and experts that come and go as if they had always, or never, been there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting, check_counting
from ir3de.errors import InputError
from ir3de.fitting.background import count_background
from ir3de.fitting.domains import count_domain, describe_given, read_addition
from ir3de.fitting.parts import Constant, Domain, Kind, OutcomeRows, RouterParts
from ir3de.outcomes.expectation import Validation
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import DecisionRules
from ir3de.routing.deferral import Once
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.blend import BlendParts
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.logistic_solver import ConvergenceError
from ir3de.scorers.table import Table
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Holding
from ir3de.statistics.counting import Recipe, recount
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Action, Change

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.tuning import Trial
    from ir3de.tuning.choosing import ConfidenceModel


Background: TypeAlias = Callable[[], "Statistics | None"]
ChosenBy = Literal["caller", "fit", "tuning"]


@dataclass(frozen=True)
class DomainTraining:
    """Statistics of every expert's domain, who gave them, and how scorer and selector were chosen."""

    scorer: Scorer
    statistics: Callable[[], Mapping[str, Statistics]]
    holdings: Callable[[], Mapping[str, Holding]] = dict  # of the experts that were given contributions
    trials: tuple[Mapping[str, Any], ...] = ()  # what tuning tried
    chosen_by: ChosenBy = "caller"  # by whom scorer and selector were; all but the caller choose again at every change
    reason: str = ""  # why a fit took the closed form without trying anything else
    windows: Mapping[str, int] = field(default_factory=dict)  # of experts that tuning counted again in other windows
    background: Background = field(default_factory=lambda: Constant(None))  # what belongs to no domain
    kind: Kind = "domains"
    validation: Validation = field(default_factory=Validation)

    def outcomes(self) -> NoReturn:
        raise InputError(
            "this router was fitted from texts, not from outcomes: Router.fit_outcomes(rows) makes such a one; experts "
            "are added from their texts (NAME=PATH on the command line)"
        )

    def counted_statistics(self, embedding: Embedding) -> Mapping[str, Statistics]:
        """Each expert's statistics as they were counted, before tuning counted the prompts again in other windows."""
        found = dict(self.statistics())
        for name, window in self.windows.items():
            sample = found[name].sample
            again = None if sample is None else recount(sample, embedding, window)
            if again is not None and again.tokens == found[name].tokens:  # tuning does so where every prompt is kept
                found[name] = again
        return found

    def recipe(self, name: str | None) -> Recipe:
        known = self.statistics()
        like = name if name is not None and name in known else next(iter(known))
        sums, keep_sample = known[like].sums, any(own.sample is not None for own in known.values())
        if sums is None:
            return Recipe(prompt_sums=False, keep_sample=keep_sample)
        return Recipe(self.windows.get(like, sums.window), keep_sample=keep_sample)

    def give(
        self, parts: RouterParts, name: str, domain: Domain, keep_sample: bool | None, counting: Counting
    ) -> RouterParts:
        check_counting(counting)
        action: Action = "merge" if name in parts.compiled.experts else "add"
        embedding, recipe = parts.embedding(), self.recipe(name)
        known = self.counted_statistics(embedding)
        holding = self.holdings().get(name, Holding(known.get(name), ()))
        count = partial(
            count_domain,
            name,
            embedding=embedding,
            keep_sample=recipe.keep_sample if keep_sample is None else keep_sample,
            window=recipe.window,
            counting=counting,
        )
        given = read_addition(name, domain, count, embedding, keep_sample=keep_sample is not False, holding=holding)
        own = holding.own if given.own is None else given.own if holding.own is None else holding.own + given.own
        holding = Holding(own, holding.contributions).with_more(given.contributions, name)
        total = known[name] + given.total if name in known else given.total
        before, after = known[name].digest if name in known else None, total.digest
        changes = [Change.now(action, expert=name, given=one, before=before, after=after) for one in given.entries]
        return self._change(parts, {**known, name: total}, {name: holding}, changes)

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> NoReturn:
        self.outcomes()

    def remove(self, parts: RouterParts, names: Sequence[str]) -> RouterParts:
        known, holdings, changes = dict(self.counted_statistics(parts.embedding())), self.holdings(), []
        for name in names:
            gone = known.pop(name)
            contributions = holdings.get(name, Holding(None, ())).contributions
            given = [one.given for one in contributions]  # each has an entry of its own, for its owner
            changes += [
                Change.now("remove", expert=name, given=one, before=gone.digest)
                for one in (*given, describe_given(gone))
            ]
        return self._change(parts, known, {}, changes)

    def remove_contribution(self, parts: RouterParts, name: str, contribution: str) -> RouterParts:
        """Sums are integers, so the difference is the sum of the others; their sample of prompts is drawn again."""
        known, holdings = self.counted_statistics(parts.embedding()), self.holdings()
        if name not in holdings:
            raise InputError(f"'{name}' has no contributions: its texts were counted here and cannot be told apart")
        gone, left = holdings[name].without(contribution, name)
        before, taken = known[name], gone.statistics()
        rest = before.without_sample() - taken.without_sample()
        after = replace(rest, sample=left.sample() if gone.kept else before.sample)
        change = Change.now("remove", expert=name, given=gone.given, before=before.digest, after=after.digest)
        return self._change(parts, {**known, name: after}, {name: left}, [change])

    def tune(self, parts: RouterParts) -> tuple[RouterParts, tuple[Trial, ...]]:
        embedding = parts.embedding()
        compiled, training, trials = fit_tuned(
            self.counted_statistics(embedding), self.holdings(), embedding, parts.compiled.rules, self.background
        )
        return parts.change(compiled, training, [Change.now("tune")]), trials

    def replace_statistics(self, parts: RouterParts, statistics: Mapping[str, Statistics]) -> RouterParts:
        """Parameters that depend on the number of prompts alone are worked out anew."""
        embedding, rules = parts.embedding(), parts.compiled.rules
        training = replace(self, statistics=Constant(dict(statistics)), holdings=dict, windows={})
        if self.chosen_by == "fit" and isinstance(self.scorer, Logistic):
            before, now = (Logistic.for_prompts(list(known.values())) for known in (self.statistics(), statistics))
            closed = now.closed if self.scorer.closed == before.closed else self.scorer.closed
            training = replace(training, scorer=replace(now, closed=closed))
        try:
            table = training.build_table(embedding, rules)
        except ConvergenceError:  # a fit of these prompts would take the closed form too
            training = replace(training, scorer=Blend())
            table = training.build_table(embedding, rules)
        return parts.change(CompiledRouter.build(rules, table), training, [])

    def fix_selector(self, selector: Selector) -> DomainTraining:
        if self.chosen_by == "fit" and type(selector) is Average:
            return self  # the choice never depends on the selector's other fields
        return replace(self, chosen_by="caller", windows={})  # changes keep this selector, and the scorer with it

    def fix_default(self) -> DomainTraining:
        return self

    def read_all(self) -> DomainTraining:
        read: dict[str, Any] = {
            name: Constant.call(getattr(self, name)) for name in ("statistics", "holdings", "background")
        }
        return replace(self, **read)

    def require_probabilities(self, why_not: str) -> None:
        return

    def build_table(self, embedding: Embedding, rules: DecisionRules) -> Table:
        return self._build_table(embedding, rules.selector, None, familiarity=rules.familiarity is not None)

    def _build_table(
        self, embedding: Embedding, selector: Selector, parts: BlendParts | LogisticParts | None, *, familiarity: bool
    ) -> Table:
        return Table.of(
            self.scorer,
            list(self.statistics().values()),
            embedding.rows,
            log_offset=selector.log_offset,
            familiarity=familiarity,
            background=self.background(),
            unknown=embedding.tokenizer.unknown_id,
            parts=parts,
        )

    def refit(self, parts: RouterParts) -> CompiledRouter:
        embedding, rules = parts.embedding(), parts.compiled.rules
        if self.chosen_by == "fit":
            return fit_chosen(self.statistics(), self.holdings(), embedding, rules, self.background)[0]
        return fit_statistics(self.statistics(), self.holdings(), embedding, self.scorer, rules, self.background)[0]

    def _change(
        self,
        parts: RouterParts,
        statistics: Mapping[str, Statistics],
        changed: Mapping[str, Holding],
        changes: list[Change],
    ) -> RouterParts:
        """Fit these statistics, with scorer and selector as they are, or chosen again where the router is tuned."""
        rules, experts = parts.compiled.rules, tuple(statistics)
        default = None if rules.default is None else rules.experts[rules.default]
        rules = DecisionRules(  # without any confidence: that of the router before the change may not be known yet
            experts,
            rules.selector,
            experts.index(default) if default in experts else None,
            policy=rules.policy.among(experts),
        )
        held, embedding = {**self.holdings(), **changed}, parts.embedding()
        if self.chosen_by == "tuning":
            compiled, training = _tune_again(statistics, held, embedding, rules, self.background)
        elif self.chosen_by == "fit":
            compiled, training = fit_chosen(statistics, held, embedding, rules, self.background)
        else:
            compiled, training = fit_statistics(
                statistics, held, embedding, self.scorer, rules, self.background, defer=True
            )
        return parts.change(compiled, training, changes)


def fit_domains(
    domains: Mapping[str, Domain],
    embedding: Embedding,
    scorer: Scorer | None,
    rules: DecisionRules,
    background: Iterable[str] | Statistics | None,
    *,
    tune: bool,
    keep_sample: bool,
    counting: Counting,
) -> RouterParts:
    """Count, fit and compile a new router. Without a scorer, the fit chooses one."""
    check_counting(counting)
    beside = Constant(count_background(background, embedding))
    statistics, holdings, changes = {}, {}, []
    for name, domain in domains.items():
        count = partial(count_domain, name, embedding=embedding, keep_sample=keep_sample, counting=counting)
        given = read_addition(name, domain, count, embedding, keep_sample=keep_sample)
        statistics[name] = given.total
        holdings[name] = Holding(given.own, ()).with_more(given.contributions, name)
        after = given.total.digest
        changes += [Change.now("fit", expert=name, given=one, after=after) for one in given.entries]
    if tune:
        compiled, training, _ = fit_tuned(statistics, holdings, embedding, rules, beside)
        changes.append(Change.now("tune"))
    elif scorer is None:
        compiled, training = fit_chosen(statistics, holdings, embedding, rules, beside)
    else:
        compiled, training = fit_statistics(statistics, holdings, embedding, scorer, rules, beside)
    return RouterParts.create(compiled, embedding, training, changes)


def fit_statistics(
    statistics: Mapping[str, Statistics],
    holdings: Mapping[str, Holding],
    embedding: Embedding,
    scorer: Scorer,
    rules: DecisionRules,
    background: Background,
    *,
    defer: bool = False,
) -> tuple[CompiledRouter, DomainTraining]:
    """Fit, calibrate and compile. With `defer`, confidence is calibrated when it is first asked for: the same bits."""
    from ir3de.tuning.choosing import calibrate

    domains = list(statistics.values())
    parts = BlendParts(domains, embedding.rows) if type(scorer) is Blend else None
    confidence = calibrate(domains, embedding, scorer, rules.selector, parts, background=background())
    owned, held = dict(statistics), _select_holdings(holdings, statistics)
    training = DomainTraining(scorer, Constant(owned), Constant(held), background=background)
    model = None if confidence is None else confidence if defer else Constant(confidence())
    return _compile(training, embedding, rules, model, parts), training


def fit_chosen(
    statistics: Mapping[str, Statistics],
    holdings: Mapping[str, Holding],
    embedding: Embedding,
    rules: DecisionRules,
    background: Background,
) -> tuple[CompiledRouter, DomainTraining]:
    """Choose between the closed form, the discriminative fit and their sum; then fit and compile."""
    from ir3de.tuning.mixing import choose_default

    assert isinstance(rules.selector, Average)
    choice = choose_default(list(statistics.values()), embedding, rules.selector, background())
    tried = tuple(trial.to_dict() for trial in choice.trials)
    owned, held = dict(statistics), _select_holdings(holdings, statistics)
    training = DomainTraining(
        choice.scorer, Constant(owned), Constant(held), tried, "fit", choice.reason, background=background
    )
    model = None if choice.confidence is None else Constant(choice.confidence())
    return _compile(training, embedding, rules, model, choice.parts), training


def fit_tuned(
    statistics: Mapping[str, Statistics],
    holdings: Mapping[str, Holding],
    embedding: Embedding,
    rules: DecisionRules,
    background: Background,
) -> tuple[CompiledRouter, DomainTraining, tuple[Trial, ...]]:
    """Choose scorer, selector and window size, fit and compile; also returns what was tried.

    The statistics must be those that were counted: the result depends on nothing else. Contributions stay in the
    windows that they came in, so that they can be taken out again.
    """
    from ir3de.tuning.choosing import choose
    from ir3de.tuning.mixing import try_discriminative

    held = _select_holdings(holdings, statistics)
    choice = choose(
        list(statistics.values()), embedding, cap=rules.selector.cap, windows=not held, background=background()
    )
    choice = try_discriminative(choice, embedding, background())
    owned = dict(zip(statistics, choice.domains, strict=True))
    windows = {
        name: own.sums.window
        for name, own in statistics.items()
        if own.sums is not None and own.sums != owned[name].sums
    }
    tried = tuple(trial.to_dict() for trial in choice.trials)
    training = DomainTraining(
        choice.scorer, Constant(owned), Constant(held), tried, "tuning", windows=windows, background=background
    )
    rules = replace(rules, selector=choice.selector)
    compiled = _compile(training, embedding, rules, Constant(choice.confidence), choice.parts)
    return compiled, training, choice.trials


def _tune_again(
    statistics: Mapping[str, Statistics],
    holdings: Mapping[str, Holding],
    embedding: Embedding,
    rules: DecisionRules,
    background: Background,
) -> tuple[CompiledRouter, DomainTraining]:
    """Tune as a new router of these statistics would be; take the default scorer where too few prompts are kept."""
    try:
        compiled, training, _ = fit_tuned(statistics, holdings, embedding, rules, background)
    except InputError:
        default = replace(rules, selector=Average(rules.selector.cap))
        compiled, training = fit_statistics(statistics, holdings, embedding, Blend(), default, background)
        training = replace(training, chosen_by="tuning")
    return compiled, training


def _compile(
    training: DomainTraining,
    embedding: Embedding,
    rules: DecisionRules,
    confidence: Callable[[], ConfidenceModel] | None,
    parts: BlendParts | LogisticParts | None,
) -> CompiledRouter:
    # Even where there is no calibration: one learnt with other experts would tell of them after they are gone.
    rules = replace(rules, valuation=Probabilities(), familiarity=None, membership=None)
    if isinstance(confidence, Constant):
        known = confidence()
        valuation = Probabilities(known.calibration)
        rules = replace(rules, valuation=valuation, familiarity=known.familiarity, membership=known.membership)
    elif confidence is not None:
        model = Once(confidence)
        valuation = Probabilities().defer({"calibration": lambda: model().calibration})
        rules = replace(rules, valuation=valuation).defer(
            {"familiarity": lambda: model().familiarity, "membership": lambda: model().membership}
        )
    has_familiarity = confidence is not None and not embedding.is_multilingual
    table = training._build_table(embedding, rules.selector, parts, familiarity=has_familiarity)
    return CompiledRouter.build(rules, table)


def _select_holdings(holdings: Mapping[str, Holding], experts: Mapping[str, Statistics]) -> dict[str, Holding]:
    """Only those of experts that are there and have contributions: of the others the statistics say everything."""
    return {name: holdings[name] for name in experts if name in holdings and holdings[name].contributions}
