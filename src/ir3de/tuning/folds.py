"""Folds: some prompts of the sample held out, and the statistics without them. The data is not read again.

Statistics are sums. So what the held-out prompts contributed can be counted and subtracted. Only these prompts are
missing from training, so what is measured is close to what is deployed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.scorers.arithmetic import select_rows
from ir3de.scorers.familiarity import token_familiarity
from ir3de.scorers.grams import mark_part
from ir3de.scorers.scorer import Embeddings
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics
from ir3de.statistics.pairs import pair_buckets, within_prompts
from ir3de.statistics.sample import Sample

FEW_PROMPTS = 200  # per domain: with fewer, there are five folds, which leave more prompts to train on
FEW_DOMAINS = 100  # with more, there are always three folds
MAX_PROMPTS = 6_000  # held out in all, so that hundreds of experts take no longer than five
MAX_TOKENS = 1_000_000
MAX_PROMPT_TOKENS = 1_024
SHORT_TOKENS = 32  # of a shortened prompt
GATHERED_NUMBERS = 1 << 18  # of a table looked up at a time

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HeldOutPrompts:
    """Held-out prompts, whole or shortened."""

    flat: npt.NDArray[np.unsignedinteger]  # the table rows of all tokens, prompt after prompt
    lengths: Indices
    experts: Indices  # the expert that each prompt belongs to
    buckets: npt.NDArray[np.uint16]  # of neighbouring tokens: a prompt has one fewer than tokens

    @cached_property
    def starts(self) -> Indices:
        return np.cumsum(self.lengths) - self.lengths

    @classmethod
    def of(cls, samples: Sequence[Sample], longest: int, seen: Indices) -> HeldOutPrompts:
        cut = [sample.truncate(longest) for sample in samples]
        ids, lengths = np.concatenate([sample.ids for sample in cut]), np.concatenate([sample.kept for sample in cut])
        within = within_prompts(len(ids), np.cumsum(lengths) - lengths, lengths)
        experts = np.repeat(np.arange(len(cut)), [len(sample) for sample in cut])
        return cls(np.searchsorted(seen, ids).astype(np.uint32), lengths, experts, pair_buckets(ids)[within])


@dataclass(frozen=True, eq=False)
class Fold:
    """Some held-out prompts, and every domain's statistics without them. Only tokens that occur have rows."""

    training: tuple[Statistics, ...]
    embeddings: Embeddings  # (tokens, h)
    familiarity: npt.NDArray[np.float32]  # (tokens,)
    whole: HeldOutPrompts
    short: HeldOutPrompts

    @property
    def views(self) -> tuple[HeldOutPrompts, HeldOutPrompts]:
        return self.whole, self.short


def make_folds(domains: Sequence[Statistics], embedding: Embedding, *, cap: int = MAX_PROMPT_TOKENS) -> Iterator[Fold]:
    """Deal every domain's sampled prompts out to folds. There is none when no domain has two prompts.

    Folds come one at a time, because each holds a copy of every domain's statistics.
    """
    samples = [_select_prompts(domain, len(domains)) for domain in domains]
    largest = max((len(sample) for sample in samples), default=0)
    if largest < 2 or any(domain.sample is None for domain in domains):
        return
    count = 5 if largest < FEW_PROMPTS and len(domains) <= FEW_DOMAINS else 3
    seen = np.flatnonzero(np.any([domain.histogram > 0 for domain in domains], axis=0))
    rows = select_rows(embedding.rows, seen)
    for part in range(count):
        dealt = [sample.take(np.arange(part, len(sample), count)) for sample in samples]
        fold = _make_fold(domains, dealt, embedding, seen, rows, min(cap, MAX_PROMPT_TOKENS))
        if fold is not None:
            yield fold


def _make_fold(
    domains: Sequence[Statistics],
    dealt: Sequence[Sample],
    embedding: Embedding,
    seen: Indices,
    rows: Embeddings,
    longest: int,
) -> Fold | None:
    pairs = [_hold_out(domain, sample, embedding) for domain, sample in zip(domains, dealt, strict=True)]
    training, held = zip(*pairs, strict=True)
    if not any(len(sample) for sample in held):
        return None
    return Fold(
        tuple(
            mark_part(rest.restrict_to(seen), whole.restrict_to(seen))
            for rest, whole in zip(training, domains, strict=True)
        ),
        rows,
        token_familiarity(training, embedding.tokenizer.unknown_id)[seen],
        HeldOutPrompts.of(held, longest, seen),
        HeldOutPrompts.of(held, min(longest, SHORT_TOKENS), seen),
    )


def _hold_out(domain: Statistics, held: Sample, embedding: Embedding) -> tuple[Statistics, Sample]:
    """A domain without the held-out prompts, and those prompts. If nothing would be left, none are held out."""
    bare = domain.without_sample()
    if not len(held):
        return bare, held
    window = None if bare.sums is None else bare.sums.window
    rest = bare - recount(held, embedding, window or 1, prompt_sums=window is not None).without_sample()
    if rest.tokens == 0 or (rest.sums is not None and rest.sums.windows == 0):
        return bare, Sample.empty()
    return rest, held


def _select_prompts(domain: Statistics, domains: int) -> Sample:
    """The prompts of a domain that are held out in turn, within the limits above; none if it has only one."""
    sample = domain.sample
    if sample is None or len(sample) < 2:
        return Sample.empty()
    tokens = np.cumsum(np.minimum(sample.kept, MAX_PROMPT_TOKENS))
    most = min(len(sample), max(5, MAX_PROMPTS // domains))
    enough = int(np.searchsorted(tokens, max(MAX_TOKENS // domains, int(tokens[: min(5, most)][-1])), "right"))
    chosen = sample.take(np.arange(min(most, enough)))
    return chosen if domain.prompts > 1 and len(chosen) > 1 else Sample.empty()


def mean_rows(rows: npt.NDArray[np.floating], held: HeldOutPrompts) -> Floats:
    """The mean over each prompt's tokens of a table's rows: (prompts, columns)."""
    parts = [np.add.reduceat(rows[block.flat], block.starts, axis=0) for block in _blocks(held, rows.shape[1])]
    return np.asarray(np.concatenate(parts) / held.lengths[:, None])


def mean_pair_rows(rows: npt.NDArray[np.floating], held: HeldOutPrompts) -> Floats:
    """The same for the rows of a prompt's pairs: their sum, divided by the number of its tokens."""
    several = np.flatnonzero(held.lengths > 1)
    means = np.zeros((len(held.lengths), rows.shape[1]))
    if several.size:
        met = HeldOutPrompts(held.buckets, held.lengths[several] - 1, held.experts[several], held.buckets[:0])
        means[several] = mean_rows(rows, met) * ((met.lengths / held.lengths[several])[:, None])
    return means


def _blocks(held: HeldOutPrompts, columns: int) -> Iterator[HeldOutPrompts]:
    """The same prompts in blocks, so that memory is bounded."""
    tokens = max(1, GATHERED_NUMBERS // columns)
    edges = np.flatnonzero(np.diff(held.starts // tokens, prepend=-1))
    for first, last in zip(edges, np.append(edges[1:], len(held.lengths)), strict=True):
        begin = held.starts[first]
        end = held.starts[last] if last < len(held.lengths) else len(held.flat)
        yield HeldOutPrompts(held.flat[begin:end], held.lengths[first:last], held.experts[first:last], held.buckets[:0])
