"""Routers from domains: fitting, and changes after which experts have always, or never, been there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting
from ir3de.errors import InputError
from ir3de.files.ledger import Change
from ir3de.fitting.domains import CHOOSE_AGAIN, Amendment, Domain, Gift, OutcomeRows, ScorerChoice, check_choice
from ir3de.fitting.inputs import count_background
from ir3de.fitting.parts import Constant, KeptPrompt, Kind, Once, RouterParts
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.rules import DecisionRules
from ir3de.routing.second_opinion import SecondOpinion
from ir3de.routing.valuation import Probabilities
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.blend import BlendParts
from ir3de.scorers.expectation import Validation
from ir3de.scorers.logistic import Logistic, LogisticParts
from ir3de.scorers.solver import ConvergenceError
from ir3de.scorers.table import Table
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Holding
from ir3de.statistics.counting import Recipe, recount
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:  # a process that only routes does not import them
    from ir3de.fitting.calibration import HeldOut
    from ir3de.fitting.encoded_prompts import EncodedPrompts
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.teaching_report import Teaching
    from ir3de.fitting.tuning import ConfidenceModel, Trial

Background: TypeAlias = Callable[[], "Statistics | None"]
Fitted: TypeAlias = "tuple[CompiledRouter, DomainTraining]"
Parts: TypeAlias = "BlendParts | LogisticParts | None"
ChosenBy = Literal["caller", "fit", "tuning"]
USUAL_CHOICES: Mapping[ChosenBy, ScorerChoice] = {"caller": "keep", "fit": "choose", "tuning": "choose"}  # of a teacher


@dataclass(frozen=True)
class DomainTraining:
    """Statistics and contributions of every expert's domain, and how scorer and selector were chosen."""

    scorer: Scorer
    statistics: Callable[[], Mapping[str, Statistics]]
    holdings: Callable[[], Mapping[str, Holding]] = dict  # of the experts that have contributions
    trials: tuple[Mapping[str, Any], ...] = ()  # of tuning, or of the default choice
    chosen_by: ChosenBy = "caller"  # of scorer and selector
    reason: str = ""  # why a fit took the closed form without trials
    windows: Mapping[str, int] = field(default_factory=dict)  # counted, of experts that tuning recounted in others
    background: Background = field(default_factory=lambda: Constant(None))  # prompts of no domain
    kind: Kind = "domains"
    validation: Validation = field(default_factory=Validation)
    held_out: Callable[[], HeldOut] | None = field(default=None, compare=False)  # the prompts behind the confidence
    encoded: EncodedPrompts | None = field(default=None, compare=False)  # where the router has an encoder
    teaching: Teaching | None = field(default=None, compare=False)  # what the last teacher brought

    def outcomes(self) -> NoReturn:
        raise InputError(
            "this router was fitted from texts, not from outcomes: Router.fit_outcomes(rows) makes such a one; experts "
            "are added from their texts (NAME=PATH on the command line)"
        )

    def counted_statistics(self, embedding: Embedding) -> Mapping[str, Statistics]:
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

    def give(self, parts: RouterParts, gift: Gift, scorer: ScorerChoice) -> RouterParts:
        check_choice(scorer)  # before hours are spent on counting
        return self.change(parts, self.now(parts).give(gift, self.recipe(gift.name), parts.embedding()), scorer)

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> NoReturn:
        self.outcomes()

    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts:
        check_choice(scorer)
        now = self.now(parts)
        left = now.remove_experts(names) if contribution is None else now.remove_parts(names[0], (contribution,))
        return self.change(parts, left, scorer)

    def now(self, parts: RouterParts) -> Amendment:
        """What the experts have before a change."""
        return Amendment(self.counted_statistics(parts.embedding()), self.holdings(), ())

    def change(self, parts: RouterParts, amended: Amendment, scorer: ScorerChoice) -> RouterParts:
        """Fit the changed statistics, with the same scorer and selector or with a new choice."""
        rules, experts = parts.compiled.rules, tuple(amended.statistics)
        default = None if rules.default is None else rules.experts[rules.default]
        rules = DecisionRules(  # without any confidence: that of the router before the change may not be known yet
            experts,
            rules.selector,
            experts.index(default) if default in experts else None,
            policy=rules.policy.among(experts),
        )
        encoded = self._follow(parts, amended.statistics)
        fit = DomainFit(amended.statistics, amended.holdings, parts.embedding(), rules, self.background, encoded)
        if scorer == "keep":
            fitted = self._keep_scorer(fit)
        elif self.chosen_by == "tuning":
            fitted = fit.tune_if_possible()
        elif type(rules.selector) is Average:
            fitted = fit.choose()
        else:  # a fit with this selector takes the closed form
            fitted = fit.with_scorer(Blend())
        return parts.change(fitted[0], self._keep_teaching(fitted[1]), amended.entries)

    def _keep_teaching(self, changed: DomainTraining) -> DomainTraining:
        """The report of the teacher stays as long as any of its labels do."""
        is_taught = any(held.taught_prompts for held in changed.holdings().values())
        return replace(changed, teaching=self.teaching if is_taught else None)

    def teach(
        self, parts: RouterParts, lesson: Lesson, names: Sequence[str] | None, scorer: ScorerChoice | None
    ) -> RouterParts:
        """Let a teacher label texts, for some experts or for all: then what an earlier one taught is replaced."""
        from ir3de.fitting.teaching import find_taught

        plain = parts if names is not None else self.forget_taught(parts, scorer)
        training = cast(DomainTraining, plain.training)
        found = find_taught(plain, training.hold_out(plain), lesson, names)
        if found.contributions:
            now = training.now(plain)
            for name, one in found.contributions.items():
                now = now.give(Gift(name, one), self.recipe(name), parts.embedding())
            plain = training.change(plain, now, scorer or USUAL_CHOICES[self.chosen_by])
        return replace(plain, training=replace(cast(DomainTraining, plain.training), teaching=found.report))

    def forget_taught(self, parts: RouterParts, scorer: ScorerChoice | None = None) -> RouterParts:
        now = self.now(parts).remove_taught()
        return self.change(parts, now, scorer or USUAL_CHOICES[self.chosen_by]) if now.entries else parts

    def _follow(self, parts: RouterParts, after: Mapping[str, Statistics]) -> EncodedPrompts | None:
        """The vectors of the prompts after a change; None for a router without an encoder."""
        if self.encoded is None:
            return None
        return self.encoded.follow(self.statistics(), after, self.background(), parts.tokenizer)

    def _keep_scorer(self, fit: DomainFit) -> Fitted:
        """Fit the same scorer. The record of its choice stays too, and so do the windows that tuning chose."""
        from ir3de.fitting.tuning import find_windows, recount_all

        owned = dict(fit.statistics)
        if self.windows:
            known = self.statistics()
            window = next(sums.window for name in self.windows if (sums := known[name].sums) is not None)
            own = {name: one for name, one in owned.items() if name not in fit.held}  # contributions keep theirs
            owned |= {name: recount_all(one, fit.embedding, window) for name, one in own.items()}
        try:
            compiled, training = replace(fit, statistics=owned).with_scorer(self.scorer, defer=True)
        except ConvergenceError as error:
            raise InputError(f"{error}. The scorer cannot be kept: {CHOOSE_AGAIN} chooses another") from error
        record: dict[str, Any] = {"trials": self.trials, "chosen_by": self.chosen_by, "reason": self.reason}
        return compiled, replace(training, windows=find_windows(fit.statistics, owned), **record)

    def tune(self, parts: RouterParts) -> tuple[RouterParts, tuple[Trial, ...]]:
        now, rules = self.now(parts), parts.compiled.rules
        fit = DomainFit(now.statistics, now.holdings, parts.embedding(), rules, self.background, self.encoded)
        (compiled, training), trials = fit.tune()
        return parts.change(compiled, self._keep_teaching(training), [Change.now("tune")]), trials

    def replace_statistics(self, parts: RouterParts, statistics: Mapping[str, Statistics]) -> RouterParts:
        """Parameters that depend on the number of prompts alone are computed again, unless the fit chose others."""
        embedding, rules = parts.embedding(), parts.compiled.rules
        training = replace(self, statistics=Constant(dict(statistics)), holdings=dict, windows={}, encoded=None)
        rules = replace(rules, opinion=None)  # it was fitted to other prompts
        if self.chosen_by == "fit" and isinstance(self.scorer, Logistic):
            before, now = (Logistic.for_prompts(list(known.values())) for known in (self.statistics(), statistics))
            usual = {
                name: value for name, value in vars(now).items() if getattr(self.scorer, name) == vars(before)[name]
            }
            training = replace(training, scorer=replace(self.scorer, **usual))
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
        names = ("statistics", "holdings", "background")
        read: dict[str, Any] = {name: Constant.call(getattr(self, name)) for name in names}
        encoded = None if self.encoded is None else self.encoded.read_all()
        return replace(self, held_out=None, encoded=encoded, **read)

    def require_probabilities(self, why_not: str) -> None:
        return

    def build_table(self, embedding: Embedding, rules: DecisionRules) -> Table:
        return self.compile_table(embedding, rules.selector, None, familiarity=rules.familiarity is not None)

    def compile_table(self, embedding: Embedding, selector: Selector, parts: Parts, *, familiarity: bool) -> Table:
        """The table, from the parts of the scorer if they are known. With familiarities it has subject rows too."""
        table = Table.of(
            self.scorer,
            list(self.statistics().values()),
            embedding.rows,
            log_offset=selector.log_offset,
            familiarity=familiarity,
            background=self.background(),
            unknown=embedding.tokenizer.unknown_id,
            parts=parts,
        )
        subjects = embedding.subjects if familiarity else None
        return table if subjects is None else replace(table, subjects=subjects.rows)

    def refit(self, parts: RouterParts) -> CompiledRouter:
        embedding, rules = parts.embedding(), parts.compiled.rules
        fit = DomainFit(self.statistics(), {}, embedding, rules, self.background, self.encoded)
        return fit.with_scorer(self.scorer)[0]

    def hold_out(self, parts: RouterParts) -> HeldOut | None:
        """The evidence for kept prompts from fits without them; None if none can be held out."""
        from ir3de.fitting.tuning import ConfidenceSetting

        known = parts.embedding(), self.scorer, parts.compiled.rules.selector, self.background()
        setting = ConfidenceSetting(list(self.statistics().values()), *known)
        return self.held_out() if self.held_out else setting.score_again()

    def decide_kept(self, parts: RouterParts) -> list[KeptPrompt]:
        rules, statistics = parts.compiled.rules, self.statistics()
        if (held := self.hold_out(parts)) is None:
            return []
        prompts = {name: own.sample.split() for name, own in statistics.items() if own.sample is not None}
        both = zip(held.experts.tolist(), held.places.tolist(), held.decide(rules), strict=True)
        owned = [(rules.experts[expert], place, decision) for expert, place, decision in both]
        return [KeptPrompt(name, prompts[name][place], decision) for name, place, decision in owned]


@dataclass(frozen=True)
class DomainFit:
    """What a fit starts from. The result depends on nothing else."""

    statistics: Mapping[str, Statistics]  # as they were counted
    holdings: Mapping[str, Holding]
    embedding: Embedding
    rules: DecisionRules
    background: Background
    encoded: EncodedPrompts | None = None  # the vectors of the kept prompts, where the router has an encoder

    @property
    def held(self) -> dict[str, Holding]:
        """The holdings with contributions. For all other experts the statistics are enough."""
        known = self.holdings
        return {name: known[name] for name in self.statistics if name in known and known[name].contributions}

    @property
    def domains(self) -> list[Statistics]:
        return list(self.statistics.values())

    def with_scorer(self, scorer: Scorer, *, defer: bool = False) -> Fitted:
        """Fit, calibrate and compile. With `defer`, confidence is calibrated at its first use: the same bits."""
        from ir3de.fitting.tuning import ConfidenceSetting

        parts: Parts = None
        if type(scorer) in (Blend, Logistic):
            parts = (BlendParts if type(scorer) is Blend else LogisticParts)(self.domains, self.embedding.rows)
        setting = ConfidenceSetting(self.domains, self.embedding, scorer, self.rules.selector, self.background())
        confidence = setting.calibrate(parts)
        model = None if confidence is None else Once(confidence) if defer else Constant(confidence())
        return self._compile(self._train(scorer), self.rules, model, parts)

    def choose(self) -> Fitted:
        """Choose between the closed form, the discriminative fit and their sum; then fit and compile."""
        from ir3de.fitting.default_scorer import choose_default

        assert isinstance(self.rules.selector, Average)
        choice = choose_default(self.domains, self.embedding, self.rules.selector, self.background())
        training = self._train(choice.scorer, choice.trials, chosen_by="fit", reason=choice.reason)
        model = None if choice.confidence is None else Constant(choice.confidence())
        return self._compile(training, self.rules, model, choice.parts)

    def tune(self) -> tuple[Fitted, tuple[Trial, ...]]:
        """Choose scorer, selector and window size, fit and compile; also returns what was tried.

        Contributions stay in the windows that they came in, so that they can be removed again.
        """
        from ir3de.fitting.default_scorer import try_discriminative
        from ir3de.fitting.tuning import choose, find_windows

        cap, background = self.rules.selector.cap, self.background()
        choice = choose(self.domains, self.embedding, cap=cap, windows=not self.held, background=background)
        choice = try_discriminative(choice, self.embedding, background)
        owned = dict(zip(self.statistics, choice.domains, strict=True))
        training = self._train(choice.scorer, choice.trials, chosen_by="tuning", statistics=Constant(owned))
        training = replace(training, windows=find_windows(self.statistics, owned))
        rules = replace(self.rules, selector=choice.selector)
        return self._compile(training, rules, Constant(choice.confidence), choice.parts), choice.trials

    def tune_if_possible(self) -> Fitted:
        """Tune, or take the default scorer if too few prompts are kept."""
        try:
            return self.tune()[0]
        except InputError:
            rules = replace(self.rules, selector=Average(self.rules.selector.cap))
            compiled, training = replace(self, rules=rules).with_scorer(Blend())
            return compiled, replace(training, chosen_by="tuning")

    def _train(self, scorer: Scorer, trials: Iterable[Trial] = (), **more: Any) -> DomainTraining:
        common = {"background": self.background, "encoded": self.encoded}
        known = {"statistics": Constant(dict(self.statistics)), **common, **more}
        tried = tuple(trial.to_dict() for trial in trials)
        return DomainTraining(scorer, holdings=Constant(self.held), trials=tried, **known)

    def _compile(
        self,
        training: DomainTraining,
        rules: DecisionRules,
        confidence: Callable[[], ConfidenceModel] | None,
        parts: Parts,
    ) -> Fitted:
        """The read side, and the training data with the held-out prompts that confidence is learnt from."""
        from ir3de.fitting.calibration import assume_calibration

        # Even without a calibration: one learnt with other experts would reveal them after they are gone.
        assumed = assume_calibration(training.statistics().values(), rules.selector) if confidence is None else None
        nothing: dict[str, Any] = {"familiarity": None, "membership": None, "opinion": None}
        rules = replace(rules, valuation=Probabilities(assumed=assumed), **nothing)
        held_out = None if confidence is None else lambda: confidence().held_out
        fit_opinion = None if self.encoded is None else lambda: self._fit_opinion(rules, held_out)
        if confidence is not None and not isinstance(confidence, Constant):
            valuation = Probabilities().defer({"calibration": lambda: confidence().calibration})
            later: dict[str, Callable[[], Any]] = {
                "familiarity": lambda: confidence().familiarity,
                "membership": lambda: confidence().membership,
                **({} if fit_opinion is None else {"opinion": Once(fit_opinion)}),
            }
            rules = replace(rules, valuation=valuation).defer(later)
        else:
            if confidence is not None:
                known = confidence()
                valuation = Probabilities(known.calibration)
                rules = replace(rules, valuation=valuation, familiarity=known.familiarity, membership=known.membership)
            rules = rules if fit_opinion is None else replace(rules, opinion=fit_opinion())
        has_familiarity = confidence is not None and not self.embedding.is_multilingual
        table = training.compile_table(self.embedding, rules.selector, parts, familiarity=has_familiarity)
        return CompiledRouter.build(rules, table), replace(training, held_out=held_out)

    def _fit_opinion(self, rules: DecisionRules, held_out: Callable[[], HeldOut] | None) -> SecondOpinion:
        from ir3de.fitting.second_opinion import fit_opinion

        assert self.encoded is not None
        known = self.encoded, self.statistics, self.embedding, self.background()
        return fit_opinion(*known, rules, None if held_out is None else held_out())


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
    encoded: EncodedPrompts | None = None,
    lesson: Lesson | None = None,
) -> RouterParts:
    """Count, fit and compile a new router. Without a scorer, the fit chooses one. `encoded` has no prompts yet."""
    known = Constant(count_background(background, embedding))
    counted = Amendment.count(domains, embedding, keep_sample=keep_sample, counting=counting)
    changes = list(counted.entries)
    if encoded is not None:
        encoded = encoded.follow({}, counted.statistics, known(), embedding.tokenizer)
    fit = DomainFit(counted.statistics, counted.holdings, embedding, rules, known, encoded)
    if tune:
        (compiled, training), _ = fit.tune()
        changes.append(Change.now("tune"))
    else:
        compiled, training = fit.choose() if scorer is None else fit.with_scorer(scorer)
    return RouterParts.create(compiled, embedding, training, changes).teach(lesson)
