"""Routers from outcomes, the scores that models had on prompts: reading rows, fitting, adding and removing models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.engines.engine import check_counting
from ir3de.errors import InputError
from ir3de.files.ledger import Change
from ir3de.fitting.domains import Gift, OutcomeRows, ScorerChoice, check_embedding, check_name, describe_mismatch
from ir3de.fitting.inputs import DescribedDomain
from ir3de.fitting.parts import Constant, KeptPrompt, Kind, RouterParts
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import ExpectedScores
from ir3de.scorers.expectation import Shrinkage, Validation
from ir3de.scorers.table import Table, check_experts
from ir3de.selectors import Selector
from ir3de.statistics.compact import read_only, triangle_indices, triangle_size
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.counting import GRAM_WINDOWS, MEAN_PARTS, window_means
from ir3de.statistics.defaults import DEFAULT_CAP
from ir3de.statistics.domain import PromptSums, Statistics
from ir3de.statistics.outcomes import (
    EMPTY,
    LENGTH_PARTS,
    ONE_TASK,
    Key,
    Outcomes,
    OutcomeSample,
    OutcomeSums,
    PromptKey,
    ScoredPrompt,
    ScoreSum,
    checked_scores,
    digest_text,
    fold,
)
from ir3de.statistics.scored_traffic import sum_contributions

if TYPE_CHECKING:  # a process that only routes does not import it
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.quality import Quality

CHUNK_ROWS = 4_096
TASK_DECIMALS = 6  # of a task's score: what differs less is equal
WHOLE = 8_192  # a prompt is one window, of the tokens that routing reads


@dataclass(frozen=True)
class OutcomeTraining:
    """The sums of every model's scores, and how the shrinkage was chosen."""

    scorer: Shrinkage
    outcomes: Callable[[], Outcomes]
    validation: Validation
    default_given: bool  # otherwise the default is the model of the best mean
    guard: bool = True  # replace routing that is worse than the best single model by that model
    kind: Kind = "outcomes"
    held: Mapping[str, Holding] = field(default_factory=dict)  # scores of answered requests, by expert
    trials: tuple[Mapping[str, Any], ...] = ()
    teaching: None = None

    def statistics(self) -> NoReturn:
        self._refuse("it has no statistics of domains, but router.outcomes")

    def counted_statistics(self, embedding: Embedding) -> NoReturn:
        self.statistics()

    def holdings(self) -> Mapping[str, Holding]:
        return self.held

    def recipe(self, name: str | None) -> NoReturn:
        self._refuse("models are added from rows with their scores (--outcomes on the command line)")

    def give(self, parts: RouterParts, gift: Gift, scorer: ScorerChoice) -> RouterParts:
        check_counting(gift.counting)
        more = _collect_model(gift.name, gift.domain, parts.embedding())
        return self._add(parts, more)

    def give_rows(self, parts: RouterParts, rows: OutcomeRows, field: str, *, merge: bool) -> RouterParts:
        more = collect_rows(rows, parts.embedding(), field)
        known = [model for model in map(check_name, more.models) if model in parts.compiled.experts]
        if known and not merge:
            raise InputError(
                f"'{known[0]}' is an expert already: merge=True (--merge on the command line) gives it more rows, "
                "remove(name) (`ir3de remove`) takes it out"
            )
        return self._add(parts, more)

    def _add(self, parts: RouterParts, more: Outcomes) -> RouterParts:
        known = parts.compiled.experts
        changes = [Change.now("merge" if model in known else "add", expert=model) for model in more.models]
        return self._change(parts, self.outcomes() + more, changes, self.held)

    def remove(
        self, parts: RouterParts, names: Sequence[str], contribution: str | None, scorer: ScorerChoice
    ) -> RouterParts:
        if contribution is not None:
            return self.exchange(parts, dict.fromkeys(names, (contribution,)), {})
        outcomes = self.outcomes()
        for name in names:
            outcomes = outcomes.without(name)
        held = {name: own for name, own in self.held.items() if name not in names}
        return self._change(parts, outcomes, [Change.now("remove", expert=name) for name in names], held)

    def exchange(
        self,
        parts: RouterParts,
        gone: Mapping[str, Sequence[str]],
        given: Mapping[str, Sequence[Contribution]],
    ) -> RouterParts:
        """Take scores of answered requests out, by expert and id, and give others."""
        held, changes = dict(self.held), list[Change]()
        for name, ids in gone.items():
            for one in ids:
                taken, held[name] = held.get(name, NOTHING_HELD).take(one, name)
                changes.append(Change.now("remove", expert=name, given=taken.given))
        for name, more in given.items():
            held[name] = held.get(name, NOTHING_HELD).with_more(more, name)
            changes += [Change.now("merge", expert=name, given=one.given) for one in more]
        held = {name: own for name, own in sorted(held.items()) if own.contributions}
        return self._change(parts, self.outcomes(), changes, held) if changes else parts

    def teach(
        self, parts: RouterParts, lesson: Lesson, names: Sequence[str] | None, scorer: ScorerChoice | None
    ) -> NoReturn:
        self._refuse("a teacher labels texts, and outcomes have scores instead of labels")

    def forget_taught(self, parts: RouterParts) -> RouterParts:
        return parts

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

    def _change(
        self, parts: RouterParts, outcomes: Outcomes, changes: list[Change], held: Mapping[str, Holding]
    ) -> RouterParts:
        """Fit these outcomes. A default that the caller chose stays while its model does."""
        rules = parts.compiled.rules
        assert rules.default is not None
        now = rules.experts[rules.default]
        best_before = rules.experts[int(rules.valuation.tally_nothing(len(rules.experts)).argmax())]
        given = now in outcomes.models and (self.default_given or now != best_before)
        default, guard = now if given else None, self.guard and rules.policy.strong_share is None
        outcomes = add_held(outcomes, held)
        compiled, training = _fit(outcomes, parts.embedding(), rules, default=default, guard=guard)
        return parts.change(compiled, replace(training, held=held), changes)

    def _refuse(self, why_not: str) -> NoReturn:
        raise InputError(f"this router was fitted from outcomes: {why_not}")


NOTHING_HELD = Holding(None, ())


def add_held(outcomes: Outcomes, held: Mapping[str, Holding]) -> Outcomes:
    """The outcomes with the scores of answered requests that are held, and no others."""
    traffic = sum_contributions({name: own.contributions for name, own in held.items()}, outcomes.tasks)
    return replace(outcomes, traffic=traffic)


def fit_outcomes(
    outcomes: Outcomes, embedding: Embedding, rules: DecisionRules, *, default: str | None, guard: bool
) -> RouterParts:
    """Fit and compile a new router. Without a default, it is the model of the best mean."""
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
    from ir3de.fitting.quality import fit_quality

    quality = fit_quality(outcomes, embedding.rows, shrinkage, guard=guard)
    rules = replace(rules, valuation=ExpectedScores(quality.expectation))
    return CompiledRouter.build(rules, quality.build_table()), quality


def name_tasks(compiled: CompiledRouter, prompts: Iterable[npt.ArrayLike]) -> list[str]:
    """The task with the largest score for each prompt of token ids. Scores of answered requests do not change it."""
    valuation = compiled.rules.valuation
    if not isinstance(valuation, ExpectedScores):
        raise InputError("this router was fitted on labelled texts: only routers from outcomes have tasks")
    tasks, scores = valuation.expectation.tasks, compiled.table.scores
    found = []
    for ids in prompts:
        rows = scores[np.asarray(ids, np.intp)[:DEFAULT_CAP], : len(tasks)].astype(np.float64)
        means = rows.sum(axis=0) / max(1, len(rows))
        found.append(tasks[int(means.round(TASK_DECIMALS).argmax())])
    return found


def collect_rows(rows: OutcomeRows, embedding: Embedding, field: str) -> Outcomes:
    """The sums of rows, or existing sums of the same embedding."""
    check_embedding(embedding)
    if isinstance(rows, Outcomes):
        return _check_fingerprint(rows, embedding)
    return collect_outcomes(rows, embedding=embedding, field=field)


def _collect_model(name: str, rows: object, embedding: Embedding) -> Outcomes:
    """One model's outcomes. Scores of other models in those rows are ignored."""
    if isinstance(rows, Outcomes):
        if name not in rows.models:
            raise InputError(f"the outcomes have no score of '{name}': they are of {', '.join(rows.models)}")
        return _check_fingerprint(rows, embedding).only(name)
    if isinstance(rows, (str, bytes, Mapping, Statistics)) or not isinstance(rows, Iterable):
        raise InputError(
            f"this router was fitted from outcomes: '{name}' needs rows with its scores, found "
            + ("a description" if isinstance(rows, DescribedDomain) else type(rows).__name__)
        )
    return collect_outcomes(rows, embedding=embedding, models=(name,))


def _check_fingerprint(outcomes: Outcomes, embedding: Embedding) -> Outcomes:
    if outcomes.fingerprint != embedding.fingerprint:
        raise describe_mismatch("the outcomes", outcomes, embedding)
    return outcomes.without_traffic()  # which only a router can hold, as contributions that can be taken out


@dataclass(frozen=True)
class Row:
    """One prompt and the score of each model on it, checked."""

    text: str
    task: str
    scores: Mapping[str, int]
    named: frozenset[str]  # also models whose score is missing

    @classmethod
    def read(cls, number: int, row: object, field: str, models: Collection[str] | None = None) -> Row:
        """Check a row. Its scores are in `field`; with `models`, only theirs are read."""
        where = getattr(row, "place", None) or f"row {number}"  # a row of a file has its place there
        if not isinstance(row, Mapping):
            raise InputError(f"{where}: must be a mapping with 'text' and {field!r}, found {type(row).__name__}")
        text, task = row.get("text", row.get("prompt")), row.get("task")
        if not isinstance(text, str):
            raise InputError(f"{where}: 'text' (or 'prompt') must be a str, found {type(text).__name__}")
        if task is not None and not isinstance(task, str):
            raise InputError(f"{where}: 'task' must be a str or missing, found {type(task).__name__}")
        if field not in row:
            raise InputError(
                f"{where}: no {field!r}: found {', '.join(map(repr, row))}. Name the field that maps models to scores"
            )
        given = row[field]
        if models is not None and isinstance(given, Mapping):
            given = {model: score for model, score in given.items() if model in models}
        return cls(text, task or ONE_TASK, checked_scores(given, where), frozenset(given))


def collect_outcomes(
    rows: Iterable[Mapping[str, Any]],
    *,
    embedding: Embedding | None = None,
    field: str = "scores",
    models: Collection[str] | None = None,
) -> Outcomes:
    """Sum up rows of `text`, `task` (may be missing) and a mapping of model to score (any may be missing or None).

    With `models`, the scores of all other models are ignored.

    >>> import ir3de
    >>> from ir3de.evaluation import collect_outcomes
    >>> collect_outcomes([{"text": "2 + 2 = ?", "scores": {"small": 1, "large": 1.0}}])
    Outcomes(2 models, 1 tasks, 2 scores)
    """
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
        raise InputError(f"rows must be an iterable of mappings, found one {type(rows).__name__}: put rows in a list")
    used = embedding or Embedding.default()
    checked = (Row.read(number, row, field, models) for number, row in enumerate(rows, 1))
    named: set[str] = set()
    total = Outcomes(used.fingerprint, {}, used.default_version, has_length=True, sample=EMPTY)
    while chunk := list(islice(checked, CHUNK_ROWS)):
        named.update(*(row.named for row in chunk))
        total += _count(chunk, used)
    if not total.cells:
        whose = "" if models is None else f" of {', '.join(map(repr, models))}"
        raise InputError(f"no row has a prompt and a score{whose}: outcomes need at least one")
    if silent := sorted(named.difference(total.models)):
        raise InputError(f"no row has a score of {silent[0]!r}: give it one at least, or leave the model out")
    return total


def _count(rows: Sequence[Row], embedding: Embedding) -> Outcomes:
    """The outcomes of rows that are all in memory."""
    flat, counted = embedding.tokenizer.encode_batch([row.text for row in rows])
    lengths = counted.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    groups: dict[tuple[str, int, tuple[str, ...]], list[int]] = {}  # rows of a group have the same models
    for index, row in enumerate(rows):
        if lengths[index] and row.scores:
            groups.setdefault((row.task, fold(row.text), tuple(sorted(row.scores))), []).append(index)
    outcomes = Outcomes(embedding.fingerprint, {}, embedding.default_version, has_length=True)
    positions, unit = flat.astype(np.intp), embedding.stored.unit / MEAN_PARTS
    sample: list[tuple[Row, npt.NDArray[np.float64]]] = []
    for (task, part, models), members in groups.items():
        looked_at = np.minimum(lengths[members], DEFAULT_CAP)
        means = window_means(positions, starts[members], looked_at, embedding.stored.fixed_point)
        means = np.column_stack([means, np.rint(np.log2(looked_at) * LENGTH_PARTS)])
        scores = np.array([[rows[i].scores[model] for i in members] for model in models], np.int64)
        outcomes += replace(outcomes, cells=_sum_cells(task, part, models, means, scores, unit))
        sample.extend(zip([rows[i] for i in members], means, strict=True))
    return replace(outcomes, sample=_keep(sample))


def _keep(means: Iterable[tuple[Row, npt.NDArray[np.float64]]]) -> OutcomeSample:
    """The sample of rows and their mean embeddings."""
    prompts: dict[PromptKey, ScoredPrompt] = {}
    scores: dict[str, dict[PromptKey, ScoreSum]] = {}
    for row, mean in means:
        key = digest_text(row.text), row.task
        prompts[key] = ScoredPrompt(fold(row.text), read_only(mean.astype(np.int64)))
        for model, score in row.scores.items():
            own = scores.setdefault(model, {})
            count, total = own.get(key, (0, 0))
            own[key] = count + 1, total + score
    return EMPTY + OutcomeSample(prompts, scores)


def _sum_cells(
    task: str,
    part: int,
    models: Sequence[str],
    means: npt.NDArray[np.float64],
    scores: npt.NDArray[np.int64],
    unit: float,
) -> dict[Key, OutcomeSums]:
    """Sums over rows on which the same models were scored: `means` (rows, h) and `scores` (models, rows)."""
    width = means.shape[1]
    gram = np.zeros(triangle_size(width), np.int64)
    upper = triangle_indices(width)
    for begin in range(0, len(means), GRAM_WINDOWS):
        block = means[begin : begin + GRAM_WINDOWS]
        gram += (block.T @ block)[upper].astype(np.int64)  # exact, as in counting
    whole = means.astype(np.int64)
    prompts = PromptSums(WHOLE, unit, len(means), whole.sum(axis=0), gram)
    products = scores @ whole  # in integers: scores are too fine for float64 to add them without error
    return {
        (task, model, part): OutcomeSums(
            prompts, sum(column), sum(score * score for score in column), np.ascontiguousarray(row)
        )
        for model, column, row in zip(models, scores.tolist(), products, strict=True)
    }
