"""What is known of each expert's sampled prompts, whatever the other experts are.

It is computed once per expert and cached with its statistics. A change then pays for the expert that changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.statistics.counting import MEAN_PARTS, draw_windows, sum_rows
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import Sample

SHORT_TOKENS = 32  # of a shortened prompt
MAX_CACHED_WIDTH = 1_024  # of the embedding: wider vectors are computed again, so that memory stays bounded
CACHE = "prompts"  # key of `Statistics.derived`

Indices = npt.NDArray[np.int64]
Sums = npt.NDArray[np.float32]  # integers below 2²⁴, which float32 holds exactly


@dataclass(frozen=True, eq=False)
class SampledPrompts:
    """An expert's prompts that are held out in turn, with sums of the fixed-point rows of their tokens."""

    sample: Sample
    longest: int  # tokens of a prompt that are looked at
    window: int | None  # tokens of the windows of the prompt sums, where the expert has any
    totals: Sums  # (n, h)  over all tokens that were kept
    whole: Sums  # (n, h)  over the tokens that are looked at
    short: Sums  # (n, h)  over the first ones
    windows: Sums  # (k, h)  means, in the unit of the prompt sums, of the windows that entered them
    window_prompts: Indices  # (k,)  the prompt of each window
    window_times: Indices  # (k,)  how often it was counted

    def __len__(self) -> int:
        return len(self.sample)


def prepare_prompts(domain: Statistics, sample: Sample, embedding: Embedding, longest: int) -> SampledPrompts:
    """The sums for the first prompts of a domain's sample, from the cache if they are there."""
    window = None if domain.sums is None else domain.sums.window
    found: SampledPrompts | None = domain.derived.get(CACHE)
    if found is not None and (found.longest, found.window, len(found)) == (longest, window, len(sample)):
        return found
    _check_counted(domain, sample)
    made = _sum_prompts(sample, embedding, longest, window)
    if embedding.width <= MAX_CACHED_WIDTH:
        domain.derived[CACHE] = made
    return made


def _check_counted(domain: Statistics, sample: Sample) -> None:
    """Refuse prompts that the statistics did not count: they cannot be subtracted."""
    tokens, counts = np.unique(sample.ids, return_counts=True)
    if (domain.histogram[tokens] < counts).any():
        raise InputError(
            "a sample holds prompts that its statistics did not count: collect statistics and sample together, or "
            "leave the sample out with without_sample()"
        )


def _sum_prompts(sample: Sample, embedding: Embedding, longest: int, window: int | None) -> SampledPrompts:
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
        drawn = (sample.hashes, starts, sample.lengths, sample.kept, window, sample.every)
        first, size, prompt = draw_windows(*drawn)
    whole = (first == starts[prompt]) & (size == sample.kept[prompt])  # the window is the prompt: nearly always
    sums = np.empty((len(first), embedding.width))
    sums[whole] = exact[prompt[whole]]
    sums[~whole] = sum_rows(positions, first[~whole], size[~whole], fixed_point)
    means = np.rint(sums * MEAN_PARTS / size[:, None]).astype(np.float32)
    return SampledPrompts(
        sample,
        longest,
        window,
        totals,
        sum_first(longest),
        sum_first(min(longest, SHORT_TOKENS)),
        means,
        prompt,
        sample.every[prompt],
    )
