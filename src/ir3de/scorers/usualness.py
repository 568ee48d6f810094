"""How usual each token is, whatever the expert: what tells a prompt of no domain at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ir3de.statistics import Statistics

USUALNESS_UNIT = 1 << 10  # whole numbers, so that sums are exact


def token_usualness(domains: Sequence[Statistics]) -> npt.NDArray[np.float32]:
    """log p(v), every domain alike, half a count for tokens never seen, in whole parts of `USUALNESS_UNIT`: (V,)."""
    size = float(np.mean([domain.tokens for domain in domains]))
    counts = np.full(domains[0].histogram.size, 0.5)
    for domain in domains:
        counts += domain.histogram * (size / max(1, domain.tokens))
    return np.asarray(np.rint(np.log(counts / counts.sum()) * USUALNESS_UNIT), np.float32)
