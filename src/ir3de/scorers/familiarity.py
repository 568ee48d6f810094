"""How usual each token is, whatever the expert: what tells a prompt of no domain at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ir3de.statistics.domain import Statistics

USUALNESS_UNIT = 1 << 10  # whole numbers, so that sums are exact
RARE_TOKENS = 2.0  # seen so often, or in this share of all tokens, a token is half way to being usual
RARE_SHARE = 1e-5


def token_usualness(domains: Sequence[Statistics], unknown: int | None = None) -> npt.NDArray[np.float32]:
    """−log(1 + a/(ñ_v + ½)), ñ the counts with every domain alike, in whole parts of `USUALNESS_UNIT`: (V,).

    Usual tokens are all worth nothing, so that common words cannot make up for strange ones; those never seen are worth
    least. The token that stands for `unknown` text counts as never seen, however often it was.
    """
    size = float(np.mean([domain.tokens for domain in domains]))
    counts = np.zeros(domains[0].histogram.size)
    for domain in domains:
        counts += domain.histogram * (size / max(1, domain.tokens))
    rare = max(RARE_TOKENS, RARE_SHARE * float(counts.sum()))
    if unknown is not None:
        counts[unknown] = 0.0
    return np.asarray(np.rint(-np.log1p(rare / (counts + 0.5)) * USUALNESS_UNIT), np.float32)
