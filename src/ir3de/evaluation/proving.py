"""`prove`: fit without each fold, route it, compare, and sum up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labelled import Labelled, prompts_of, read_experts
from ir3de.corpora.labels import join_labels
from ir3de.engines.engine import Counting
from ir3de.errors import InputError
from ir3de.evaluation.accuracy import DecisionCounts
from ir3de.evaluation.folds import (
    DealtPrompts,
    Flags,
    Indices,
    Split,
    count_different,
    deal_prompts,
    keep_aside,
    split_folds,
)
from ir3de.evaluation.frontier import Frontier, compute_frontier
from ir3de.evaluation.intervals import Estimate, estimate_difference, estimate_doubling, estimate_weighted_share
from ir3de.evaluation.prompts import Floats, find_shares, weigh_by_mix, weigh_experts_alike
from ir3de.evaluation.proof import (
    ENOUGH_PROMPTS_EACH,
    MAJORITY,
    TFIDF,
    Abstentions,
    ConfusedPair,
    Contender,
    CurvePoint,
    Proof,
    describe_method,
    give_verdict,
)
from ir3de.evaluation.tfidf import choose_by_tfidf
from ir3de.fitting.domains import require_experts
from ir3de.fitting.inputs import read_by_label
from ir3de.fitting.teaching_report import Teaching
from ir3de.policies import Policy
from ir3de.router import Router
from ir3de.routing.decision import Decision, require_content
from ir3de.routing.html import shorten_prompt
from ir3de.scorers.logistic import sharing_fits
from ir3de.statistics.counting import collect
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import hash_text

ENOUGH_CURVE_PROMPTS = 800  # likewise for the learning curve, each point of which is one more fit
MIN_PROMPTS = 20  # held out in all
MIN_PROMPTS_EACH = 5  # of the median expert
MIN_CURVE_PROMPTS = 8  # of the median expert: a quarter of fewer is a single prompt
CURVE_SHARES = (0.25, 0.5)  # of the training prompts, besides all of them
MAX_CONFUSED = 10
MAX_EXAMPLES = 3
MAX_ABSTAINED_EXAMPLES = 5
MAX_EXAMPLE_CHARACTERS = 100


def prove(
    texts: Mapping[str, Iterable[str]] | Labelled | None = None,
    labels: Iterable[Any] | None = None,
    *,
    label: str | None = None,
    text: str | None = None,
    router: Router | None = None,
    folds: int = 5,
    held_out: Mapping[str, Iterable[str]] | Labelled | None = None,
    contenders: bool = True,
    curve: bool = True,
    **fit: Any,
) -> Proof:
    """Measure a router on prompts that it was not fitted on, and compare it with simpler ways to choose the expert.

    With `texts` alone, a router is fitted from them (`fit` are options of `Router.fit`) and cross-validated on them.
    With a `router` alone, it is cross-validated on the sample of prompts that it keeps. With both, the router's scorer
    and confidence are cross-validated on the texts. `held_out` are prompts that were kept aside instead: the router is
    measured on those as it is.

    Texts are {expert: prompts}; or prompts, and `labels` is then their experts; or labelled prompts of any shape with
    `label` and `text`, as in `Router.fit`. `skip_bad` rows may have no label. Held-out prompts may be a pair.
    Up to 1,024 prompts of an expert are used. Of many prompts, only some folds are held out in turn.

    >>> from ir3de.corpora import examples
    >>> proof = prove({name: texts[:20] for name, texts in examples.prompts().items()}, contenders=False)
    >>> proof.prompts, proof.folds, proof.accuracy.low < proof.accuracy.value < proof.accuracy.high
    (100, 5, True)
    """
    if isinstance(texts, Router):
        raise InputError("a router goes in by name: prove(router=router), or prove(data, label=…, router=router)")
    how: Counting = {"skip_bad": fit.pop("skip_bad", 0)}
    if labels is not None:
        texts = join_labels(texts, labels, label, text, "prove(")
    given: dict[str, list[str]] | None = None
    if isinstance(texts, Mapping):
        given = _list_prompts(read_experts(texts, label, text))
    elif texts is not None:
        given = read_by_label(texts, label, text, how)
    aside = None if held_out is None else _list_prompts(read_experts(held_out, label, text))
    if router is None:
        if given is None:
            raise InputError("prove needs texts, or a router that keeps a sample of its prompts: pass one of them")
        router = Router.fit(given, **fit)
    elif fit:
        raise InputError(f"the router is fitted already: leave out {', '.join(fit)}, or leave out router")
    router.require_probabilities("its held-out gain is in `validation`; measure it with evaluate_outcomes")
    teaching = router.teaching
    if aside is None:  # a teacher knows the labels of what is held out, so its labels cannot be measured on that
        router = router.without_teacher()
    dealt = deal_prompts(_count(given, router), router.embedding, folds)
    prompts = {**router.prompts, **{name: len(own) for name, own in (given or {}).items()}}
    known = {hash_text(text): text for own in (given or {}).values() for text in own}
    if aside is None:
        _check_enough(dealt, sum(prompts.values()))
        splits = split_folds(router, dealt)
    else:
        splits = [keep_aside(router, dealt, aside)]
    mix = list(prompts.values()) if aside is None else [len(aside.get(name, ())) for name in router.experts]
    measured = _Measured(router, dealt, known, np.array(mix, np.int64), np.array(list(prompts.values()), np.int64))
    with sharing_fits():
        for split in splits:
            measured.measure(split, contenders=contenders, curve=curve)
    return measured.conclude("cross-validation" if aside is None else "holdout", teaching)


def _list_prompts(experts: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    return {name: list(prompts_of(name, own)) for name, own in experts.items()}


def _count(given: Mapping[str, Sequence[str]] | None, router: Router) -> dict[str, Statistics]:
    """The statistics to take prompts out of: of these texts, or the router's own."""
    if given is None:
        return dict(router.statistics)
    require_experts(given, router.experts)
    counted = dict(router.statistics)
    for name, texts in given.items():
        recipe = router.recipe(name)
        window = {"window": recipe.window} if recipe.prompt_sums else {"prompt_sums": False}
        found = collect(texts, embedding=router.embedding, keep_sample=True, **window)
        if not found.tokens:
            raise InputError(f"expert '{name}' has no text: give it at least one prompt of its domain")
        counted[name] = found
    return counted


def _check_enough(dealt: DealtPrompts, prompts: int) -> None:
    if len(dealt.domains) < 2:
        raise InputError("a proof needs at least two experts: a single one gets every prompt")
    if not prompts:
        raise InputError(
            "the experts have descriptions and no prompts, so none can be held out: give each expert "
            f"{MIN_PROMPTS_EACH} different prompts, better {ENOUGH_PROMPTS_EACH}, or measure it with `ir3de eval`"
        )
    if not any(dealt.sizes):
        raise InputError("no prompts were kept, so none can be held out: fit without --no-sample, or use `ir3de eval`")
    each, total = median(size for size in count_different(dealt.samples) if size), int((dealt.folds >= 0).sum())
    if each < MIN_PROMPTS_EACH or total < MIN_PROMPTS:
        raise InputError(
            f"too few prompts to measure the router: half of the experts have {each:g} or fewer, and {total:,} in all "
            f"can be held out. Give each expert at least {MIN_PROMPTS_EACH} different prompts, better "
            f"{ENOUGH_PROMPTS_EACH}"
        )


@dataclass(eq=False)
class _Measured:
    """The findings in the splits so far."""

    router: Router
    dealt: DealtPrompts
    known: Mapping[int, str]  # texts by their hashes
    mix: Indices  # (C,)  how many prompts each expert has in what the figures are about
    prompts: Indices  # (C,)  how many each expert has in what the router is fitted on
    splits: int = 0
    training: int = 0  # prompts of the last split
    texts: list[str] = field(default_factory=list)
    experts: list[int] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    rivals: dict[str, list[int]] = field(default_factory=dict)
    curve: dict[float, list[bool]] = field(default_factory=dict)

    def measure(self, split: Split, *, contenders: bool, curve: bool) -> None:
        """Route the prompts of a split, and measure the rivals on them."""
        texts = split.texts or self._read(np.flatnonzero(split.held))
        self.splits += 1
        self.training = int((~split.held).sum())
        self.texts += texts
        self.experts += split.experts.tolist()
        self.decisions += _route(split.router, split.ids, texts)
        if contenders:
            self._measure_rivals(split, texts)
        needs_points = curve and len(self.curve.get(1.0, ())) < ENOUGH_CURVE_PROMPTS
        if needs_points and median(count_different(self.dealt.samples)) >= MIN_CURVE_PROMPTS:
            self._draw_curve(split, texts)

    def _read(self, places: Indices) -> list[str]:
        """The texts of dealt prompts: as they were given, else from their tokens."""
        found = [self.known.get(int(self.dealt.hashes[place])) for place in places]
        missing = [place for place, text in zip(places, found, strict=True) if text is None]
        written = iter(self.router.tokenizer.decode_batch([self.dealt.ids[place] for place in missing]))
        return [next(written) if text is None else text for text in found]

    def _measure_rivals(self, split: Split, texts: Sequence[str]) -> None:
        places = np.flatnonzero(~split.held)
        experts = self.dealt.experts[places]
        if not len(places):
            return
        stands_for = np.maximum(self.prompts / np.maximum(self.dealt.sizes, 1), 1.0)  # prompts, for each kept one
        chosen = choose_by_tfidf(self._read(places), experts, stands_for[experts], texts)
        if chosen is not None:
            self.rivals.setdefault(TFIDF, []).extend(chosen.tolist())
        self.rivals.setdefault(MAJORITY, []).extend([int(self.mix.argmax())] * len(texts))

    def _draw_curve(self, split: Split, texts: Sequence[str]) -> None:
        """Fit on a part of the training prompts, and route the same prompts."""
        shares = CURVE_SHARES if self.dealt.is_complete else (1.0, *CURVE_SHARES)  # the first shares the split's fit
        for share in shares:
            fitted = self.router.with_statistics(self.dealt.train_on(self.dealt.thin_out(split.held, share)))
            self.curve.setdefault(share, []).extend(self._mark(_route(fitted, split.ids, texts), split.experts))
        if self.dealt.is_complete:
            routed = self.decisions[-len(texts) :]
            self.curve.setdefault(1.0, []).extend(self._mark(routed, split.experts))

    def _mark(self, decisions: Sequence[Decision], experts: Indices) -> list[bool]:
        names = self.router.experts
        return [decision.best == names[expert] for decision, expert in zip(decisions, experts, strict=True)]

    def conclude(self, method: str, teaching: Teaching | None) -> Proof:
        """All findings, in one object."""
        names, truth = self.router.experts, np.array(self.experts, np.int64)
        place = {name: index for index, name in enumerate(names)}
        best = np.array([place[decision.best] for decision in self.decisions], np.int64)
        right, n, weights = best == truth, len(truth), weigh_by_mix(truth, self.mix)
        confusion = np.zeros((len(names), len(names)), np.int64)
        np.add.at(confusion, (truth, best), 1)
        counts = DecisionCounts(names)
        for index in np.unique(truth).tolist():
            own = np.flatnonzero(truth == index)
            counts.count(names[index], [self.decisions[at] for at in own], float(weights[own[0]]))
        counted = zip(confusion.diagonal().tolist(), confusion.sum(axis=1).tolist(), strict=True)
        recall = [own / size if size else None for own, size in counted]
        proof = Proof(
            method,
            prompts=n,
            known=int(self.prompts.sum()),
            known_each=dict(zip(names, self.prompts.tolist(), strict=True)),
            experts=names,
            folds=self.splits,
            of_folds=self.dealt.count if method == "cross-validation" else 1,
            mix=dict(zip(names, find_shares(np.bincount(truth, minlength=len(names)), self.mix).tolist(), strict=True)),
            accuracy=estimate_weighted_share(right, weights),
            mean_accuracy=estimate_weighted_share(right, weigh_experts_alike(truth, len(names))),
            recall=dict(zip(names, recall, strict=True)),
            contenders=self._compare(right, truth, weights),
            confused=self._find_confused(confusion, truth, best),
            confusion=tuple(map(tuple, confusion.tolist())),
            reliability=counts.reliability,
            calibration_error=counts.calibration_error,
            abstained=self._find_abstained(right, weights),
            curve=self._list_curve(),
            doubling=self._expect_doubling(),
            verdict=(),
            notes=(),
            frontier=self._find_frontier(truth, weights),
        )
        held = int((self.dealt.folds >= 0).sum())
        notes = describe_method(proof, self.router, teaching, can_be_held=held)
        return replace(proof, verdict=give_verdict(proof), notes=notes)

    def _compare(self, right: Flags, truth: Indices, weights: Floats) -> tuple[Contender, ...]:
        found, alike = [], weigh_experts_alike(truth, len(self.mix))
        for name, chosen in self.rivals.items():
            if len(chosen) == len(truth):  # fitted in every fold
                own = np.array(chosen, np.int64) == truth
                accuracy, mean = (estimate_weighted_share(own, one) for one in (weights, alike))
                found.append(Contender(name, accuracy, mean, estimate_difference(right, own, weights)))
        return tuple(found)

    def _find_confused(self, confusion: Indices, truth: Indices, best: Indices) -> tuple[ConfusedPair, ...]:
        wrong = confusion - np.diag(confusion.diagonal())
        stands_for = self.mix / np.maximum(confusion.sum(axis=1), 1)  # how many prompts one that was held out
        often = np.round(wrong * stands_for[:, None], 6)
        order = sorted(zip(*np.nonzero(wrong), strict=True), key=lambda pair: (-often[pair], pair))[:MAX_CONFUSED]
        names = self.router.experts
        return tuple(
            ConfusedPair(
                names[one],
                names[other],
                int(wrong[one, other]),
                float(wrong[one, other] / confusion[one].sum()),
                self._show(np.flatnonzero((truth == one) & (best == other)), MAX_EXAMPLES, surest=True),
            )
            for one, other in order
        )

    def _find_abstained(self, right: Flags, weights: Floats) -> Abstentions:
        abstained = np.array([decision.abstained for decision in self.decisions], bool)
        reasons = Counter(decision.reason for decision in self.decisions if decision.abstained)
        owners = np.array(self.experts, np.int64)[abstained]
        counts: list[int] = np.bincount(owners, minlength=len(self.router.experts)).tolist()
        answered = ~abstained
        return Abstentions(
            int(abstained.sum()),
            estimate_weighted_share(abstained, weights),
            dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
            dict(zip(self.router.experts, counts, strict=True)),
            estimate_weighted_share(right[answered], weights[answered]) if answered.any() else None,
            self._show(np.flatnonzero(abstained), MAX_ABSTAINED_EXAMPLES, surest=False),
        )

    def _show(self, places: Indices, most: int, *, surest: bool) -> tuple[str, ...]:
        """Some of the prompts, shortened, each once."""
        sign = -1 if surest else 1
        order = sorted(places.tolist(), key=lambda at: (sign * (self.decisions[at].confidence or 0.0), self.texts[at]))
        return tuple(dict.fromkeys(shorten_prompt(self.texts[at], MAX_EXAMPLE_CHARACTERS) for at in order))[:most]

    def _list_curve(self) -> tuple[CurvePoint, ...]:
        found = [(share, np.array(right, bool)) for share, right in sorted(self.curve.items())]
        parts = [(round(share * self.training), right) for share, right in found]
        return tuple(CurvePoint(n, estimate_weighted_share(right, self._curve_weights)) for n, right in parts)

    @property
    def _curve_weights(self) -> Floats:
        """Of the prompts that the curve was drawn with: those of the first splits."""
        return weigh_by_mix(np.array(self.experts[: len(self.curve[1.0])], np.int64), self.mix)

    def _expect_doubling(self) -> Estimate | None:
        if len(self.curve) < 3:
            return None
        quarter, half, whole = (np.array(right, bool) for _, right in sorted(self.curve.items()))
        return estimate_doubling(quarter, half, whole, self._curve_weights)

    def _find_frontier(self, truth: Indices, weights: Floats) -> Frontier | None:
        try:
            return compute_frontier(self.router, self.decisions, np.eye(len(self.mix))[truth], weights)
        except InputError:  # all cost the same, or the weights of the costs are not given
            return None


def _route(router: Router, prompts: Sequence[npt.NDArray[Any]], texts: Sequence[str]) -> list[Decision]:
    """The decisions by probability alone, whatever the experts cost."""
    free = router.with_policy(Policy(threshold=router.policy.threshold))
    routed = free.route_ids(prompts)
    return [require_content(decision, text) for decision, text in zip(routed, texts, strict=True)]
