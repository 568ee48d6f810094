"""Prompts held out of their own fit, without reading the data again.

The statistics are sums and a sample of the prompts is at hand, so what a prompt contributed can be counted and taken
out again: training without a fold is a subtraction. Of the whole data only the held-out prompts are missing, so what is
measured is close to what is deployed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.scorers.arithmetic import chosen
from ir3de.scorers.familiarity import token_familiarity
from ir3de.scorers.grams import part_of
from ir3de.scorers.scorer import Embeddings
from ir3de.statistics.counting import recount
from ir3de.statistics.domain import Statistics
from ir3de.statistics.pairs import pair_buckets, within_prompts
from ir3de.statistics.sample import Sample

FEW_PROMPTS = 200  # of a domain: below this every prompt counts, and more is left to train on
FEW_DOMAINS = 100
MOST_PROMPTS = 6_000  # held out in all, so that hundreds of experts take no longer than five
MOST_TOKENS = 1_000_000
LONGEST = 1_024  # tokens of a prompt that are looked at
SHORT = 32
GATHERED_NUMBERS = 1 << 18  # of a table looked up at a time

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out prompts, as they are or cut short: rows of a table end to end, and whose each prompt is."""

    flat: npt.NDArray[np.unsignedinteger]  # of tokens
    lengths: Indices
    experts: Indices
    buckets: npt.NDArray[np.uint16]  # of neighbouring tokens, one fewer a prompt

    @cached_property
    def starts(self) -> Indices:
        return np.cumsum(self.lengths) - self.lengths

    @classmethod
    def of(cls, samples: Sequence[Sample], longest: int, seen: Indices) -> Held:
        cut = [sample.truncate(longest) for sample in samples]
        ids, lengths = np.concatenate([sample.ids for sample in cut]), np.concatenate([sample.kept for sample in cut])
        within = within_prompts(len(ids), np.cumsum(lengths) - lengths, lengths)
        experts = np.repeat(np.arange(len(cut)), [len(sample) for sample in cut])
        return cls(np.searchsorted(seen, ids).astype(np.uint32), lengths, experts, pair_buckets(ids)[within])


@dataclass(frozen=True, eq=False)
class Fold:
    """One part of the prompts held out, and every domain's statistics without them.

    Only tokens that occur at all have rows: with few prompts, a fraction of the vocabulary.
    """

    training: tuple[Statistics, ...]
    embeddings: Embeddings  # (tokens, h)
    familiarity: npt.NDArray[np.float32]  # (tokens,)
    whole: Held
    short: Held

    @property
    def views(self) -> tuple[Held, Held]:
        return self.whole, self.short


def folds_of(domains: Sequence[Statistics], embedding: Embedding, *, cap: int = LONGEST) -> Iterator[Fold]:
    """Every domain's sampled prompts dealt out to folds; none when no domain has two prompts to spare.

    One at a time: a fold holds the statistics of every domain once more.
    """
    samples = [_bounded(domain, len(domains)) for domain in domains]
    largest = max((len(sample) for sample in samples), default=0)
    if largest < 2 or any(domain.sample is None for domain in domains):
        return
    count = 5 if largest < FEW_PROMPTS and len(domains) <= FEW_DOMAINS else 3
    seen = np.flatnonzero(np.any([domain.histogram > 0 for domain in domains], axis=0))
    rows = chosen(embedding.rows, seen)
    for part in range(count):
        fold = _fold(domains, samples, part, count, embedding, seen, rows, min(cap, LONGEST))
        if fold is not None:
            yield fold


def _fold(
    domains: Sequence[Statistics],
    samples: Sequence[Sample],
    part: int,
    count: int,
    embedding: Embedding,
    seen: Indices,
    rows: Embeddings,
    longest: int,
) -> Fold | None:
    dealt = [sample.take(np.arange(part, len(sample), count)) for sample in samples]
    parted = [_without(domain, sample, embedding) for domain, sample in zip(domains, dealt, strict=True)]
    held = [sample for _, sample in parted]
    if not any(len(sample) for sample in held):
        return None
    training = tuple(rest for rest, _ in parted)
    return Fold(
        tuple(
            part_of(rest.restrict_to(seen), whole.restrict_to(seen))
            for rest, whole in zip(training, domains, strict=True)
        ),
        rows,
        token_familiarity(training, embedding.tokenizer.unknown_id)[seen],
        Held.of(held, longest, seen),
        Held.of(held, min(longest, SHORT), seen),
    )


def _without(domain: Statistics, held: Sample, embedding: Embedding) -> tuple[Statistics, Sample]:
    """A domain without the prompts held out, and those prompts; or all of it and none, if nothing would be left."""
    alone = domain.without_sample()
    if not len(held):
        return alone, held
    window = None if alone.sums is None else alone.sums.window
    rest = alone - recount(held, embedding, window or 1, prompt_sums=window is not None).without_sample()
    if rest.tokens == 0 or (rest.sums is not None and rest.sums.windows == 0):
        return alone, Sample.empty()
    return rest, held


def _bounded(domain: Statistics, domains: int) -> Sample:
    """The prompts of a domain that are held out in turn: never all it has at once."""
    sample = domain.sample
    if sample is None or len(sample) < 2:
        return Sample.empty()
    tokens = np.cumsum(np.minimum(sample.kept, LONGEST))
    most = min(len(sample), max(5, MOST_PROMPTS // domains))
    enough = int(np.searchsorted(tokens, max(MOST_TOKENS // domains, int(tokens[: min(5, most)][-1])), "right"))
    chosen = sample.take(np.arange(min(most, enough)))
    return chosen if domain.prompts > 1 and len(chosen) > 1 else Sample.empty()


def mean_rows(rows: npt.NDArray[np.floating], held: Held) -> Floats:
    """The mean over each prompt's tokens of a table's rows: (prompts, columns)."""
    parts = [np.add.reduceat(rows[block.flat], block.starts, axis=0) for block in _blocks(held, rows.shape[1])]
    return np.asarray(np.concatenate(parts) / held.lengths[:, None])


def mean_pair_rows(rows: npt.NDArray[np.floating], held: Held) -> Floats:
    """The same for rows of buckets of neighbours, of which a prompt has one fewer than tokens: sums / tokens."""
    several = np.flatnonzero(held.lengths > 1)
    means = np.zeros((len(held.lengths), rows.shape[1]))
    if several.size:
        met = Held(held.buckets, held.lengths[several] - 1, held.experts[several], held.buckets[:0])
        means[several] = mean_rows(rows, met) * ((met.lengths / held.lengths[several])[:, None])
    return means


def _blocks(held: Held, columns: int) -> Iterator[Held]:
    """The same prompts, a bounded amount of memory at a time."""
    tokens = max(1, GATHERED_NUMBERS // columns)
    edges = np.flatnonzero(np.diff(held.starts // tokens, prepend=-1))
    for first, last in zip(edges, np.append(edges[1:], len(held.lengths)), strict=True):
        begin = held.starts[first]
        end = held.starts[last] if last < len(held.lengths) else len(held.flat)
        yield Held(held.flat[begin:end], held.lengths[first:last], held.experts[first:last], held.buckets[:0])
