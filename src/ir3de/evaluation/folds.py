"""Prompts dealt out to folds, and every expert's statistics without the prompts that are held out.

The kept sample of each expert is dealt out. Copies of a prompt lie in one fold, whichever experts they belong to. A
prompt is never held out where a copy of it may be left in the statistics: if only its beginning was kept, if it has
as many copies as are kept at most, or if it is the last one that fitted into the sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.labelled import prompts_of
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.fitting.domains import require_experts
from ir3de.router import Router
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import MAX_COPIES, Sample

ENOUGH_PROMPTS = 1_500  # held out: further folds would take as long again, and narrow the interval little
NEVER = -1  # the fold of prompts that are never held out

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class DealtPrompts:
    """The kept prompts of all experts, one expert after the other, each in a fold."""

    domains: Mapping[str, Statistics]
    embedding: Embedding
    count: int  # of folds
    folds: Indices  # (n,)  of each prompt; −1 if it is never held out

    @cached_property
    def samples(self) -> list[Sample]:
        return [_sample_of(domain) for domain in self.domains.values()]

    @cached_property
    def sizes(self) -> list[int]:
        return list(map(len, self.samples))

    @cached_property
    def experts(self) -> Indices:
        """The place of each prompt's expert."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint32]:
        return np.concatenate([sample.hashes for sample in self.samples])

    @cached_property
    def ids(self) -> list[npt.NDArray[np.uint32]]:
        """The tokens of each prompt."""
        return [ids for one in self.samples for ids in np.split(one.ids, one.starts[1:]) if len(one)]

    @property
    def is_complete(self) -> bool:
        """Whether every prompt that was counted is in a sample, but for descriptions."""
        return not any(map(_is_cut, self.domains.values()))

    def hold_out(self, fold: int) -> Flags:
        return np.asarray(self.folds == fold)

    def thin_out(self, held: Flags, share: float) -> Flags:
        """Which of the prompts that are not held out are left of each expert when only a share of them is known."""
        left = np.zeros(len(held), bool)
        for expert in range(len(self.sizes)):
            training = np.flatnonzero(~held & (self.experts == expert))
            first: dict[int, int] = {}  # where each hash occurs first
            places = [first.setdefault(value, place) for place, value in enumerate(self.hashes[training].tolist())]
            _, rank = np.unique(np.array(places, np.int64), return_inverse=True)
            most = max(1, round(share * (int(rank.max(initial=-1)) + 1)))
            left[training[rank < most]] = True
        return left

    def train_without(self, held: Flags) -> dict[str, Statistics]:
        """Every expert's statistics without the prompts that are held out."""
        parts = np.split(held, np.cumsum(self.sizes)[:-1])
        both = zip(self.domains.items(), parts, strict=True)
        return {name: self._subtract(domain, own) for (name, domain), own in both}

    def train_on(self, kept: Flags) -> dict[str, Statistics]:
        """Every expert's statistics from these prompts alone; descriptions stay where all prompts are known."""
        if self.is_complete:
            return self.train_without(~kept)
        found = {}
        for (name, domain), own in zip(self.domains.items(), np.split(kept, np.cumsum(self.sizes)[:-1]), strict=True):
            rest = _sample_of(domain).take(np.flatnonzero(own))
            found[name] = self._count(domain, rest) if len(rest) else domain
        return found

    def _subtract(self, domain: Statistics, held: Flags) -> Statistics:
        if not held.any():
            return domain
        sample = _sample_of(domain)
        gone, rest = sample.take(np.flatnonzero(held)), sample.take(np.flatnonzero(~held))
        try:
            left = domain.without_sample() - self._count(domain, gone).without_sample()
        except InputError:  # counted in a way that cannot be repeated, so only the kept prompts are known exactly
            return self._count(domain, rest)
        return replace(left, sample=rest)

    def _count(self, domain: Statistics, sample: Sample) -> Statistics:
        window = None if domain.sums is None else domain.sums.window
        return recount(sample, self.embedding, window or 1, prompt_sums=window is not None)


def deal_prompts(domains: Mapping[str, Statistics], embedding: Embedding, folds: int) -> DealtPrompts:
    """Deal the kept prompts out, so that every fold has its share of every expert's prompts."""
    if not isinstance(folds, int) or isinstance(folds, bool) or folds < 2:
        raise InputError(f"cross-validation needs at least 2 folds, found {folds!r}")
    samples = {name: _sample_of(domain) for name, domain in domains.items()}
    groups = {name: Counter(sample.hashes.tolist()) for name, sample in samples.items()}  # copies of each prompt
    count = min(folds, max((len(own) for own in groups.values()), default=0))
    fold_of: dict[int, int] = {}  # of a hash
    totals = np.zeros(count, np.int64)
    for name in sorted(groups):  # the order of the experts makes no difference
        own = np.zeros(count, np.int64)
        for value, copies in groups[name].items():
            if value in fold_of:
                own[fold_of[value]] += copies
        for value, copies in groups[name].items():
            if value not in fold_of and len(groups[name]) > 1:
                chosen = min(range(count), key=lambda fold: (own[fold], totals[fold], fold))
                fold_of[value] = chosen
                own[chosen] += copies
                totals[chosen] += copies
    never = {int(value) for name, sample in samples.items() for value in _find_risky(domains[name], sample)}
    hashes = [value for sample in samples.values() for value in sample.hashes.tolist()]
    dealt = [NEVER if value in never else fold_of.get(value, NEVER) for value in hashes]
    return _keep_every_expert(DealtPrompts(domains, embedding, count, np.array(dealt, np.int64)))


def _keep_every_expert(dealt: DealtPrompts) -> DealtPrompts:
    """Where all that is known of an expert would be held out at once, those prompts and their copies never are."""
    never: set[int] = set()
    for place, domain in enumerate(dealt.domains.values()):
        own, kept = np.flatnonzero(dealt.experts == place), _sample_of(domain).kept
        for fold in range(dealt.count):
            held = dealt.folds[own] == fold
            if held.any() and (held.all() or int(kept[held].sum()) >= domain.tokens):
                never.update(dealt.hashes[own[held]].tolist())
    return replace(dealt, folds=np.where(np.isin(dealt.hashes, list(never)), NEVER, dealt.folds)) if never else dealt


def _sample_of(domain: Statistics) -> Sample:
    return domain.sample if domain.sample is not None else Sample.empty()


def _is_cut(domain: Statistics) -> bool:
    """Whether prompts were counted that are not in the sample, or not whole."""
    sample = _sample_of(domain)
    return len(sample) < domain.prompts and int(sample.kept.sum()) < domain.tokens


def _find_risky(domain: Statistics, sample: Sample) -> set[int]:
    """The hashes of prompts of which the statistics may hold more than the sample."""
    values = set(sample.hashes[sample.kept < sample.lengths].tolist())
    if _is_cut(domain) and len(sample):
        values |= {value for value, copies in Counter(sample.hashes.tolist()).items() if copies >= MAX_COPIES}
        values.add(int(sample.hashes[-1]))
    return values


def count_different(samples: Sequence[Sample]) -> list[int]:
    """How many different prompts each sample has."""
    return [len(np.unique(sample.hashes)) for sample in samples]


@dataclass(frozen=True, eq=False)
class Split:
    """Prompts to route, and a router that has not seen them."""

    router: Router
    held: Flags  # the dealt prompts that it has not seen
    ids: Sequence[npt.NDArray[Any]]
    texts: Sequence[str]
    experts: Indices


def split_folds(router: Router, dealt: DealtPrompts) -> Iterable[Split]:
    """One fold after the other, until enough prompts were held out."""
    routed = 0
    for fold in range(dealt.count):
        held = dealt.hold_out(fold)
        if routed >= ENOUGH_PROMPTS or not held.any():
            continue
        places = np.flatnonzero(held)
        ids = [dealt.ids[place] for place in places]
        yield Split(router.with_statistics(dealt.train_without(held)), held, ids, (), dealt.experts[places])
        routed += len(places)


def keep_aside(router: Router, dealt: DealtPrompts, held_out: Mapping[str, Iterable[str]]) -> Split:
    """The prompts that were kept aside, for the router as it is."""
    require_experts(held_out, router.experts)
    pairs = [(name, text) for name, own in held_out.items() for text in prompts_of(name, own)]
    if not pairs:
        raise InputError("no prompt was held out: give at least one")
    texts = [text for _, text in pairs]
    ids = [router.tokenizer.encode(text, router.compiled.cap) for text in texts]
    experts = np.array([router.experts.index(name) for name, _ in pairs], np.int64)
    return Split(router, np.zeros(len(dealt.folds), bool), ids, texts, experts)
