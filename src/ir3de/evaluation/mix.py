"""The mix of the experts' prompts: what each held-out prompt stands for.

Of a large expert only a sample of prompts is kept, so an expert's share of the held-out prompts is not its share of all
prompts. Figures are about all prompts: each held-out prompt weighs as many of them as it stands for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NOTABLE = 0.01  # a mean over the experts that differs by more from the figure on the mix is shown beside it

Indices = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def weigh_by_mix(experts: Indices, prompts: Indices) -> Floats:
    """One weight per held-out prompt, Σ = 1: an expert's weigh its share of all prompts.

    `experts` (n,) are the places of their experts, `prompts` (C,) says how many prompts each expert has. Experts
    without a held-out prompt are left out.

    >>> weigh_by_mix(np.array([0, 0, 1]), np.array([900, 100, 500]))
    array([0.45, 0.45, 0.1 ])
    """
    sizes = np.bincount(experts, minlength=len(prompts))
    shares = find_shares(sizes, prompts)
    return np.asarray(shares[experts] / sizes[experts])


def find_shares(held: Indices, prompts: Indices) -> Floats:
    """Each expert's share of all prompts, among those that have held-out prompts."""
    measured = np.where(held > 0, prompts, 0)
    return np.asarray(measured / measured.sum())


def weigh_experts_alike(experts: Indices, count: int) -> Floats:
    """One weight per held-out prompt, Σ = 1: every expert has the same."""
    return weigh_by_mix(experts, np.ones(count, np.int64))
