"""Token familiarity: how common each token is in training, whatever the expert. It finds out-of-domain prompts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ir3de.statistics.domain import Statistics

FAMILIARITY_UNIT = 1 << 10  # parts of 1: familiarities are integers, so that sums are exact
RARE_TOKENS = 2.0  # a is this count,
RARE_SHARE = 1e-5  # or this share of all tokens, whichever is larger


def token_familiarity(domains: Sequence[Statistics], unknown: int | None = None) -> npt.NDArray[np.float32]:
    """−log(1 + a/(ñ_v + ½)) in whole parts of `FAMILIARITY_UNIT`: (V,). ñ are the counts, with equal weight per domain.

    Common tokens are all near 0, so they cannot compensate for strange ones. Tokens never seen have the lowest value.
    The token for `unknown` text counts as never seen.
    """
    size = float(np.mean([domain.tokens for domain in domains]))
    counts = np.zeros(domains[0].histogram.size)
    for domain in domains:
        counts += domain.histogram * (size / max(1, domain.tokens))
    return score_familiarity(counts, unknown)


def score_familiarity(
    counts: npt.NDArray[np.float64], unknown: int | npt.NDArray[np.intp] | None
) -> npt.NDArray[np.float32]:
    """The same from the counts ñ, which are changed in place where a token is `unknown`."""
    rare = max(RARE_TOKENS, RARE_SHARE * float(counts.sum()))
    if unknown is not None:
        counts[unknown] = 0.0
    return np.asarray(np.rint(-np.log1p(rare / (counts + 0.5)) * FAMILIARITY_UNIT), np.float32)
