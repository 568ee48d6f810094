"""Token familiarity: how much each token belongs to the router's domains, whichever the expert.

It finds out-of-domain prompts. It depends on counts alone, so experts come and go without reading texts again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ir3de.statistics.domain import Statistics

FAMILIARITY_UNIT = 1 << 10  # parts of 1: familiarities are integers, so that sums are exact
RARE_TOKENS = 2.0  # a is this count,
RARE_SHARE = 1e-5  # or this share of all tokens, whichever is larger
BACKGROUND_WEIGHT = 0.5  # of the log ratio to the background
BACKGROUND_PRIOR = 1.0  # as if each token had occurred once more in both

Counts = npt.NDArray[np.float64]


def token_familiarity(
    domains: Sequence[Statistics], background: Statistics | None = None, unknown: int | None = None
) -> npt.NDArray[np.float32]:
    """−log(1 + a/(ñ_v + ½)) + ½ log((k_v + 1)/(b_v + 1)) in whole parts of `FAMILIARITY_UNIT`: (V,).

    ñ are the counts of all domains, with equal weight per domain. k and b are those and the background's, scaled to the
    same size. Common tokens of the domains are near 0 in the first part, so they cannot compensate for strange ones.
    The second part is negative for tokens that the background has more often. Without a background there is none.
    The token for `unknown` text counts as never seen.
    """
    size = float(np.mean([domain.tokens for domain in domains]))
    counts = np.zeros(domains[0].histogram.size)
    for domain in domains:
        counts += domain.histogram * (size / max(1, domain.tokens))
    if background is None:
        return score_familiarity(counts, unknown)
    return score_familiarity(counts, unknown, background.histogram.astype(np.float64), background.tokens)


def score_familiarity(
    counts: Counts,
    unknown: int | npt.NDArray[np.intp] | None,
    background: Counts | None = None,
    background_tokens: float = 0.0,
) -> npt.NDArray[np.float32]:
    """The same from the counts ñ and the background's, for all tokens or some of them.

    The counts are changed in place where a token is `unknown`.
    """
    total = float(counts.sum())
    rare = max(RARE_TOKENS, RARE_SHARE * total)
    if unknown is not None:
        counts[unknown] = 0.0
    found = -np.log1p(rare / (counts + 0.5))
    if background is not None and total and background_tokens:
        if unknown is not None:
            background[unknown] = 0.0
        size = 2.0 / (1.0 / total + 1.0 / background_tokens)  # the harmonic mean: the smaller one says what is known
        k, b = counts * (size / total), background * (size / background_tokens)
        found += BACKGROUND_WEIGHT * np.log((k + BACKGROUND_PRIOR) / (b + BACKGROUND_PRIOR))
    return np.asarray(np.rint(found * FAMILIARITY_UNIT), np.float32)
