"""Folds: some prompts of the sample held out, and the statistics without them. The data is not read again.

Statistics are sums. So what the held-out prompts contributed can be counted and subtracted. Only these prompts are
missing from training, so what is measured is close to what is deployed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.scorers.arithmetic import Rows, select_rows
from ir3de.scorers.ridge import mark_part
from ir3de.scorers.table import score_familiarity
from ir3de.statistics.counting import MEAN_PARTS, draw_windows, recount, sum_rows
from ir3de.statistics.defaults import DEFAULT_CAP
from ir3de.statistics.domain import Statistics, find_tokens, pair_buckets, within_prompts
from ir3de.statistics.sample import Sample

SHORT_TOKENS = 32  # of a shortened prompt
MAX_CACHED_WIDTH = 1_024  # of the embedding: wider vectors are computed again, so that memory stays bounded
CACHE = "prompts"  # key of `Statistics.derived`
FEW_PROMPTS = 200  # per domain: with fewer, there are five folds, which leave more prompts to train on
VERY_FEW_PROMPTS = (
    30  # of some domain: with fewer, there are ten folds, which leave one prompt in ten out, or one alone
)
FEW_DOMAINS = 100  # with more, there are always three folds
MAX_PROMPTS = 6_000  # held out in all, so that hundreds of experts take no longer than five
MAX_TOKENS = 1_000_000
GATHERED_NUMBERS = 1 << 18  # of a table looked up at a time

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Sums = npt.NDArray[np.float32]  # integers below 2²⁴, which float32 holds exactly


@dataclass(frozen=True, eq=False)
class SampledPrompts:
    """An expert's prompts that are held out in turn, with sums of the fixed-point rows of their tokens.

    They do not depend on other experts, so they are cached with the expert's statistics.
    """

    sample: Sample
    longest: int  # tokens that are read of a prompt
    window: int | None  # tokens of the windows of the prompt sums, where the expert has any
    totals: Sums  # (n, h)  over all kept tokens
    whole: Sums  # (n, h)  over the tokens that are read
    short: Sums  # (n, h)  over the first ones
    windows: Sums  # (k, h)  means, in the unit of the prompt sums, of the windows that entered them
    window_prompts: Indices  # (k,)  the prompt of each window
    window_times: Indices  # (k,)  how often it was counted

    @classmethod
    def prepare(cls, domain: Statistics, sample: Sample, embedding: Embedding, longest: int) -> SampledPrompts:
        """The sums for the first prompts of a domain's sample, from the cache if they are there."""
        window = None if domain.sums is None else domain.sums.window
        found: SampledPrompts | None = domain.derived.get(CACHE)
        if (
            found is not None
            and (found.longest, found.window) == (longest, window)
            and len(found.sample) >= len(sample)
        ):
            return found.take_first(sample)
        tokens, counts = np.unique(sample.ids, return_counts=True)
        if (domain.histogram[tokens] < counts).any():  # they could not be subtracted
            raise InputError(
                "a sample holds prompts that its statistics did not count: collect statistics and sample together, or "
                "leave the sample out with without_sample()"
            )
        made = cls._sum(sample, embedding, longest, window)
        if embedding.width <= MAX_CACHED_WIDTH:
            domain.derived[CACHE] = made
        return made

    def take_first(self, sample: Sample) -> SampledPrompts:
        """The same for the first of the prompts, which are in this sample."""
        if (n := len(sample)) == len(self.sample):
            return self
        k = int(np.searchsorted(self.window_prompts, n))
        parts: dict[str, Any] = {name: getattr(self, name)[:n] for name in ("totals", "whole", "short")}
        parts |= {name: getattr(self, name)[:k] for name in ("windows", "window_prompts", "window_times")}
        return replace(self, sample=sample, **parts)

    @classmethod
    def _sum(cls, sample: Sample, embedding: Embedding, longest: int, window: int | None) -> SampledPrompts:
        positions, starts, fixed_point = sample.ids.astype(np.intp), sample.starts, embedding.stored.fixed_point
        exact = sum_rows(positions, starts, sample.kept, fixed_point)
        totals = exact.astype(np.float32)

        def sum_first(tokens: int) -> Sums:
            cut = np.flatnonzero(sample.kept > tokens)
            if not cut.size:
                return totals
            sums = totals.copy()
            sums[cut] = sum_rows(positions, starts[cut], np.full(len(cut), tokens), fixed_point)
            return sums

        first = size = prompt = np.zeros(0, np.int64)
        if window is not None:
            first, size, prompt = draw_windows(sample.hashes, starts, sample.lengths, sample.kept, window, sample.every)
        whole = (first == starts[prompt]) & (size == sample.kept[prompt])  # the window is the prompt: nearly always
        sums = np.empty((len(first), embedding.width))
        sums[whole] = exact[prompt[whole]]
        sums[~whole] = sum_rows(positions, first[~whole], size[~whole], fixed_point)
        means = np.rint(sums * MEAN_PARTS / size[:, None]).astype(np.float32)
        read, short = sum_first(longest), sum_first(min(longest, SHORT_TOKENS))
        return cls(sample, longest, window, totals, read, short, means, prompt, sample.every[prompt])


@dataclass(frozen=True, eq=False)
class HeldOutPrompts:
    """Held-out prompts, whole or shortened."""

    flat: npt.NDArray[np.unsignedinteger]  # the table rows of all tokens, prompt after prompt
    lengths: Indices
    experts: Indices  # the expert that each prompt belongs to
    buckets: npt.NDArray[np.integer]  # of neighbouring tokens: a prompt has one fewer than tokens
    sums: npt.NDArray[np.float32]  # (prompts, h)  of the fixed-point rows of a prompt's tokens

    @cached_property
    def starts(self) -> Indices:
        return np.cumsum(self.lengths) - self.lengths

    def select(self, chosen: Booleans) -> HeldOutPrompts:
        """Some of the prompts."""
        flat, pairs = np.repeat(chosen, self.lengths), np.repeat(chosen, np.maximum(self.lengths - 1, 0))
        of_prompts = self.lengths[chosen], self.experts[chosen]
        return HeldOutPrompts(self.flat[flat], *of_prompts, self.buckets[pairs], self.sums[chosen])

    def join(self, other: HeldOutPrompts) -> HeldOutPrompts:
        """These prompts and the others."""
        names = ("flat", "lengths", "experts", "buckets", "sums")
        return HeldOutPrompts(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


class Deal:
    """Every expert's sampled prompts, dealt out to folds: prompt i of an expert is held out in fold i modulo `count`.

    Arrays over prompts, tokens and windows have those of all experts one after the other.
    """

    def __init__(
        self, domains: Sequence[Statistics], embedding: Embedding, longest: int, background: Statistics | None = None
    ) -> None:
        self.domains, self.embedding, self.longest, self.background = domains, embedding, longest, background
        self._joined: dict[str, npt.NDArray[Any]] = {}
        samples = [_select_prompts(domain, len(domains)) for domain in domains]
        largest = max((len(sample) for sample in samples), default=0)
        self.count = 0  # there is no fold when no domain has two prompts, or one has no sample
        if largest < 2 or any(domain.sample is None for domain in domains):
            return
        self.count = 3
        is_taught = any(own.sample is not None and own.sample.is_taught.any() for own in domains)  # then much is left
        if largest < FEW_PROMPTS and len(domains) <= FEW_DOMAINS and not is_taught:
            self.count = 10 if min(len(sample) for sample in samples) < VERY_FEW_PROMPTS else 5
        both = zip(domains, samples, strict=True)
        self.prompts = [SampledPrompts.prepare(domain, sample, embedding, longest) for domain, sample in both]
        self.seen = find_tokens(domains)
        sizes = [len(sample) for sample in samples]
        self.experts = np.repeat(np.arange(len(domains)), sizes)  # of each prompt
        self.place = np.concatenate([np.arange(size) for size in sizes])  # in its expert's sample
        self.kept = self.join("sample.kept")
        self.tokens = np.array([domain.tokens for domain in domains], np.float64)  # of each expert
        self.windows = np.array([0 if domain.sums is None else domain.sums.windows for domain in domains], np.float64)
        self.window_prompts = np.concatenate(
            [own.window_prompts + begin for own, begin in zip(self.prompts, np.cumsum([0, *sizes]), strict=False)]
        )

    @cached_property
    def rows(self) -> Rows:
        """(tokens, h)"""
        return select_rows(self.embedding.rows, self.seen)

    def join(self, name: str) -> npt.NDArray[Any]:
        """An array of all experts' prompts."""
        if name not in self._joined:
            self._joined[name] = np.concatenate([attrgetter(name)(own) for own in self.prompts])
        return self._joined[name]

    def take(self, name: str, chosen: Booleans) -> npt.NDArray[Any]:
        """Some rows of such an array. Those of the others are not copied."""
        arrays = [attrgetter(name)(own) for own in self.prompts]
        ends = np.cumsum([len(array) for array in arrays])[:-1]
        return np.concatenate([array[own] for array, own in zip(arrays, np.split(chosen, ends), strict=True)])

    def kept_pairs(self, held: Booleans) -> tuple[npt.NDArray[np.uint16], Indices]:
        """The buckets of all kept pairs of these prompts, and the expert of each."""
        ids, lengths = self.join("sample.ids")[np.repeat(held, self.kept)], self.kept[held]
        within = within_prompts(len(ids), np.cumsum(lengths) - lengths, lengths)
        return pair_buckets(ids)[within], np.repeat(self.experts[held], np.maximum(lengths - 1, 0))

    @cached_property
    def token_rows(self) -> npt.NDArray[np.intp]:
        """The table row of every kept token."""
        return np.asarray(self._row_of[self.join("sample.ids")])

    @cached_property
    def counts(self) -> Floats:
        """How often each token occurred for each expert: (tokens, C)."""
        found = np.zeros((len(self.seen), len(self.domains)))
        for c, domain in enumerate(self.domains):
            found[:, c] = domain.histogram[self.seen]
        return found

    @cached_property
    def _row_of(self) -> npt.NDArray[np.intp]:
        """The table row of each token that occurs."""
        rows = np.zeros(len(self.domains[0].histogram), np.intp)
        rows[self.seen] = np.arange(len(self.seen))
        return rows

    def find_rows(self, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.intp]:
        """The table rows of those of these tokens that occur."""
        return np.asarray(self._row_of[ids[np.isin(ids, self.seen)]])

    @cached_property
    def subjects(self) -> Sums | None:
        """What each token that occurs is about: (tokens, k); None without subject rows."""
        known = self.embedding.subjects
        return None if known is None else known.rows[self.seen].astype(np.float32)

    @cached_property
    def whole(self) -> HeldOutPrompts:
        return self._view(self.longest, "whole")

    @cached_property
    def short(self) -> HeldOutPrompts:
        return self._view(min(self.longest, SHORT_TOKENS), "short")

    def _view(self, tokens: int, sums: str) -> HeldOutPrompts:
        cut = [own.sample.truncate(tokens) for own in self.prompts]
        ids, lengths = np.concatenate([one.ids for one in cut]), np.concatenate([one.kept for one in cut])
        buckets = pair_buckets(ids)[within_prompts(len(ids), np.cumsum(lengths) - lengths, lengths)]
        return HeldOutPrompts(self._row_of[ids].astype(np.uint32), lengths, self.experts, buckets, self.join(sums))


class Fold:
    """Some held-out prompts, and every domain without them. Only tokens that occur have rows."""

    def __init__(self, deal: Deal, held: Booleans) -> None:
        self.deal = deal
        C, prompt = len(deal.domains), deal.window_prompts
        tokens = np.bincount(deal.experts[held], weights=deal.kept[held], minlength=C)
        windows = np.bincount(deal.experts[prompt], weights=deal.join("window_times") * held[prompt], minlength=C)
        # If nothing of a domain would be left, none of its prompts is held out.
        empty = (deal.tokens <= tokens) | ((deal.windows > 0) & (deal.windows <= windows))
        self.held = held & ~empty[deal.experts]  # (prompts,)
        tokens[empty] = windows[empty] = 0
        self.tokens = deal.tokens - tokens  # (C,) that are left to train on
        self.windows = deal.windows - windows  # (C,)

    @property
    def embeddings(self) -> Rows:
        return self.deal.rows

    def find_held(self) -> Booleans:
        """Which prompts of each expert's sample are held out: (C, places)."""
        deal = self.deal
        samples = [0 if domain.sample is None else len(domain.sample) for domain in deal.domains]
        found = np.zeros((len(deal.domains), max(samples)), bool)
        found[deal.experts[self.held], deal.place[self.held]] = True
        return found

    @cached_property
    def training(self) -> tuple[Statistics, ...]:
        """The domains' statistics without the held-out prompts, for scorers that need statistics."""
        deal, found = self.deal, []
        for c, domain in enumerate(deal.domains):
            held = deal.prompts[c].sample.take(np.flatnonzero(self.held[deal.experts == c]))
            rest = domain.without_sample()
            if len(held):
                window = None if rest.sums is None else rest.sums.window
                gone = recount(held, deal.embedding, window or 1, prompt_sums=window is not None)
                rest = rest - gone.without_sample()
            found.append(mark_part(rest.restrict_to(deal.seen), domain.restrict_to(deal.seen)))
        return tuple(found)

    @cached_property
    def held_token_rows(self) -> tuple[npt.NDArray[np.intp], Indices]:
        """The table row of every token of the held-out prompts, also of those beyond `longest`, and its expert."""
        deal = self.deal
        held = np.repeat(self.held, deal.kept)
        return deal.token_rows[held], np.repeat(deal.experts[self.held], deal.kept[self.held])

    def count_tokens(self, weights: Floats) -> Floats:
        """Σ_c w_c n_c over what is left to train on: (tokens,)."""
        rows, experts = self.held_token_rows
        return self.deal.counts @ weights - np.bincount(rows, weights=weights[experts], minlength=len(self.deal.seen))

    @cached_property
    def familiarity(self) -> npt.NDArray[np.float32]:
        """(tokens,)"""
        background = self.deal.background
        counts = None if background is None else background.histogram[self.deal.seen].astype(np.float64)
        return self.score_familiarity(counts, 0 if background is None else background.tokens)

    def score_familiarity(
        self, background: Floats | None, background_tokens: float, experts: Indices | None = None
    ) -> npt.NDArray[np.float32]:
        """Token familiarity from what is left of these experts, or of all, against a background: (tokens,)."""
        unknown, sizes = self.deal.embedding.tokenizer.unknown_id, np.maximum(1.0, self.tokens)
        chosen = np.zeros(len(sizes), bool)
        chosen[slice(None) if experts is None else experts] = True
        counts = self.count_tokens(np.where(chosen, float(sizes[chosen].mean()) / sizes, 0.0))
        place = None if unknown is None else np.flatnonzero(self.deal.seen == unknown)
        return score_familiarity(counts, place, background, background_tokens)

    @cached_property
    def whole(self) -> HeldOutPrompts:
        return self.deal.whole.select(self.held)

    @cached_property
    def short(self) -> HeldOutPrompts:
        return self.deal.short.select(self.held)

    @cached_property
    def cut(self) -> npt.NDArray[np.intp]:
        """Which of the prompts are shorter when they are shortened."""
        return np.flatnonzero(self.short.lengths < self.whole.lengths)

    @cached_property
    def views(self) -> HeldOutPrompts:
        """The prompts whole, then those shortened that differ."""
        if not self.cut.size:
            return self.whole
        chosen = np.zeros(len(self.short.lengths), bool)
        chosen[self.cut] = True
        return self.whole.join(self.short.select(chosen))


def make_folds(
    domains: Sequence[Statistics], embedding: Embedding, background: Statistics | None = None, *, cap: int = DEFAULT_CAP
) -> list[Fold]:
    """Deal every domain's sampled prompts out to folds. There is none when no domain has two prompts."""
    deal = Deal(domains, embedding, min(cap, DEFAULT_CAP), background)
    folds = [Fold(deal, deal.place % deal.count == part) for part in range(deal.count)]
    return [fold for fold in folds if fold.held.any()]


def _select_prompts(domain: Statistics, domains: int) -> Sample:
    """The prompts of a domain that are held out in turn, within the limits above; none if it has only one."""
    sample = domain.sample
    if sample is None or (labelled := sample.labelled) < 2:
        return Sample.empty()
    tokens = np.cumsum(np.minimum(sample.kept, DEFAULT_CAP))
    most = min(labelled, max(5, MAX_PROMPTS // domains))
    enough = int(np.searchsorted(tokens, max(MAX_TOKENS // domains, int(tokens[: min(5, most)][-1])), "right"))
    chosen = sample.take(np.arange(min(most, enough)))
    return chosen if domain.prompts > 1 and len(chosen) > 1 else Sample.empty()


def mean_rows(rows: npt.NDArray[np.floating], held: HeldOutPrompts) -> Floats:
    """The mean over each prompt's tokens of a table's rows: (prompts, columns)."""
    return sum_table_rows(rows, held.flat, held.lengths) / held.lengths[:, None]


def mean_pair_rows(rows: npt.NDArray[np.floating], held: HeldOutPrompts) -> Floats:
    """The same for the rows of a prompt's pairs: their sum, divided by the number of its tokens."""
    several = np.flatnonzero(held.lengths > 1)
    means = np.zeros((len(held.lengths), rows.shape[1]))
    if several.size:
        lengths = held.lengths[several]
        means[several] = sum_table_rows(rows, held.buckets, lengths - 1) / lengths[:, None]
    return means


def sum_table_rows(rows: npt.NDArray[np.floating], flat: npt.NDArray[np.integer], lengths: Indices) -> Floats:
    """The sum of the rows of each stretch of `flat`, in blocks, so that memory is bounded. No stretch is empty."""
    starts = np.cumsum(lengths) - lengths
    bounds = np.append(starts, len(flat))
    edges = np.flatnonzero(np.diff(starts // max(1, GATHERED_NUMBERS // rows.shape[1]), prepend=-1))
    totals = np.empty((len(lengths), rows.shape[1]))
    for first, last in pairwise([*edges.tolist(), len(lengths)]):
        gathered = rows.take(flat[bounds[first] : bounds[last]], axis=0)
        totals[first:last] = np.add.reduceat(gathered, starts[first:last] - starts[first], axis=0)
    return totals
