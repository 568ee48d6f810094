"""Routers from domains: fitting, and experts that come and go as if they had always, or never, been there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting, check_counting
from ir3de.errors import InputError
from ir3de.fitting.amendment import Amendment, give, remove_experts, remove_part
from ir3de.fitting.assumed_confidence import assume_calibration
from ir3de.fitting.background import count_background
from ir3de.fitting.domains import CHOOSE_AGAIN, check_choice, count_domain, read_addition
from ir3de.fitting.parts import Constant, Domain, KeptPrompt, Kind, OutcomeRows, RouterParts, ScorerChoice
from ir3de.outcomes.expectation import Validation
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import DecisionRules
from ir3de.routing.valuation import Once, Probabilities
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.blend import BlendParts
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.logistic_solver import ConvergenceError
from ir3de.scorers.table import Table
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Holding
from ir3de.statistics.counting import Recipe, recount
from ir3de.statistics.domain import Statistics
from ir3de.storage.ledger import Change

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.tuning import Trial
    from ir3de.tuning.choosing import ConfidenceModel
    from ir3de.tuning.held_out import HeldOut


Background: TypeAlias = Callable[[], "Statistics | None"]
ChosenBy = Literal["caller", "fit", "tuning"]


@dataclass(frozen=True)
class DomainTraining:
    """Statistics of every expert's domain, who gave them, and how scorer and selector were chosen."""

    scorer: Scorer
    statistics: Callable[[], Mapping[str, Statistics]]
    holdings: Callable[[], Mapping[str, Holding]] = dict  # of the experts that were given contributions
    trials: tuple[Mapping[str, Any], ...] = ()  # what tuning tried
    chosen_by: ChosenBy = "caller"  # by whom scorer and selector were
    reason: str = ""  # why a fit took the closed form without trying anything else
    windows: Mapping[str, int] = field(default_factory=dict)  # of experts that tuning counted again in other windows
    background: Background = field(default_factory=lambda: Constant(None))  # what belongs to no domain
    kind: Kind = "domains"
    validation: Validation = field(default_factory=Validation)
    held_out: Callable[[], HeldOut] | None = field(default=None, compare=False)  # where confidence was learnt here

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
        self,
        parts: RouterParts,
        name: str,
        domain: Domain,
        keep_sample: bool | None,
        scorer: ScorerChoice,
        counting: Counting,
    ) -> RouterParts:
        check_choice(scorer)  # before hours are spent on counting
        return self._change(parts, give(parts, name, domain, keep_sample, counting), scorer)

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> NoReturn:
        self.outcomes()

    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts:
        if contribution is None:
            return self._change(parts, remove_experts(parts, names), scorer)
        return self._change(parts, remove_part(parts, names[0], contribution), scorer)

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
        return replace(self, held_out=None, **read)

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
        return fit_statistics(self.statistics(), self.holdings(), embedding, self.scorer, rules, self.background)[0]

    def decide_kept(self, parts: RouterParts) -> list[KeptPrompt]:
        from ir3de.tuning.choosing import score_again

        rules, statistics = parts.compiled.rules, self.statistics()
        domains, background = list(statistics.values()), self.background()
        held = self.held_out() if self.held_out else None
        held = held or score_again(domains, parts.embedding(), self.scorer, rules.selector, background)
        if held is None:
            return []
        prompts = {name: own.sample.split() for name, own in statistics.items() if own.sample is not None}
        both = zip(held.experts.tolist(), held.places.tolist(), held.decide(rules), strict=True)
        owned = [(rules.experts[expert], place, decision) for expert, place, decision in both]
        return [KeptPrompt(name, prompts[name][place], decision) for name, place, decision in owned]

    def _change(self, parts: RouterParts, amended: Amendment, scorer: ScorerChoice) -> RouterParts:
        """Fit what is then there, with scorer and selector as they are or, if that is wanted, chosen again."""
        check_choice(scorer)
        statistics, rules = amended.statistics, parts.compiled.rules
        experts = tuple(statistics)
        default = None if rules.default is None else rules.experts[rules.default]
        rules = DecisionRules(  # without any confidence: that of the router before the change may not be known yet
            experts,
            rules.selector,
            experts.index(default) if default in experts else None,
            policy=rules.policy.among(experts),
        )
        held, embedding = _select_holdings(amended.holdings, statistics), parts.embedding()
        if scorer == "keep":
            compiled, training = self._keep_scorer(statistics, held, embedding, rules)
        elif self.chosen_by == "tuning":
            compiled, training = _tune_again(statistics, held, embedding, rules, self.background)
        elif type(rules.selector) is Average:
            compiled, training = fit_chosen(statistics, held, embedding, rules, self.background)
        else:  # a fit with this selector takes the closed form
            compiled, training = fit_statistics(statistics, held, embedding, Blend(), rules, self.background)
        return parts.change(compiled, training, amended.entries)

    def _keep_scorer(
        self,
        statistics: Mapping[str, Statistics],
        holdings: Mapping[str, Holding],
        embedding: Embedding,
        rules: DecisionRules,
    ) -> tuple[CompiledRouter, DomainTraining]:
        """Fit the scorer that is there. The record of its choice stays too, and so do the windows that tuning chose."""
        from ir3de.tuning.choosing import recount_all

        owned = dict(statistics)
        if self.windows:
            known = self.statistics()
            window = next(sums.window for name in self.windows if (sums := known[name].sums) is not None)
            own = {name: one for name, one in statistics.items() if name not in holdings}  # contributions keep theirs
            owned |= {name: recount_all(one, embedding, window) for name, one in own.items()}
        try:
            compiled, training = fit_statistics(
                owned, holdings, embedding, self.scorer, rules, self.background, defer=True
            )
        except ConvergenceError as error:
            raise InputError(f"{error}. The scorer cannot be kept: {CHOOSE_AGAIN} chooses another") from error
        record: dict[str, Any] = {"trials": self.trials, "chosen_by": self.chosen_by, "reason": self.reason}
        return compiled, replace(training, windows=_find_windows(statistics, owned), **record)


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
    parts = _prepare(scorer, domains, embedding)
    confidence = calibrate(domains, embedding, scorer, rules.selector, parts, background=background())
    owned, held = dict(statistics), _select_holdings(holdings, statistics)
    training = DomainTraining(scorer, Constant(owned), Constant(held), background=background)
    model = None if confidence is None else Once(confidence) if defer else Constant(confidence())
    return _compile(training, embedding, rules, model, parts)


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
    return _compile(training, embedding, rules, model, choice.parts)


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
    windows = _find_windows(statistics, owned)
    tried = tuple(trial.to_dict() for trial in choice.trials)
    training = DomainTraining(
        choice.scorer, Constant(owned), Constant(held), tried, "tuning", windows=windows, background=background
    )
    rules = replace(rules, selector=choice.selector)
    return *_compile(training, embedding, rules, Constant(choice.confidence), choice.parts), choice.trials


def _find_windows(counted: Mapping[str, Statistics], owned: Mapping[str, Statistics]) -> dict[str, int]:
    """The windows in which experts were counted that are now counted in others."""
    return {
        name: own.sums.window for name, own in counted.items() if own.sums is not None and own.sums != owned[name].sums
    }


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
) -> tuple[CompiledRouter, DomainTraining]:
    """The read side, and the training data with the held-out prompts that confidence is learnt from."""
    # Even where there is no calibration: one learnt with other experts would tell of them after they are gone.
    assumed = assume_calibration(training.statistics().values(), rules.selector) if confidence is None else None
    rules = replace(rules, valuation=Probabilities(assumed=assumed), familiarity=None, membership=None)
    if isinstance(confidence, Constant):
        known = confidence()
        valuation = Probabilities(known.calibration)
        rules = replace(rules, valuation=valuation, familiarity=known.familiarity, membership=known.membership)
    elif confidence is not None:
        valuation = Probabilities().defer({"calibration": lambda: confidence().calibration})
        rules = replace(rules, valuation=valuation).defer(
            {"familiarity": lambda: confidence().familiarity, "membership": lambda: confidence().membership}
        )
    has_familiarity = confidence is not None and not embedding.is_multilingual
    table = training._build_table(embedding, rules.selector, parts, familiarity=has_familiarity)
    held_out = None if confidence is None else lambda: confidence().held_out
    return CompiledRouter.build(rules, table), replace(training, held_out=held_out)


def _prepare(scorer: Scorer, domains: Sequence[Statistics], embedding: Embedding) -> BlendParts | LogisticParts | None:
    """What calibration and the table share."""
    if type(scorer) is Blend:
        return BlendParts(domains, embedding.rows)
    return LogisticParts(domains, embedding.rows) if type(scorer) is Logistic else None


def _select_holdings(holdings: Mapping[str, Holding], experts: Mapping[str, Statistics]) -> dict[str, Holding]:
    """Only those of experts that are there and have contributions: of the others the statistics say everything."""
    return {name: holdings[name] for name in experts if name in holdings and holdings[name].contributions}
