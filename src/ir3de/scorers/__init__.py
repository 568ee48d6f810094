"""Statistics to scores: what each token says of each expert, S ∈ R^{V×C}.

A scorer is a small frozen object. It sees the domains' statistics and the embedding matrix E, nothing else.
"""

from ir3de.scorers.blend import Blend, token_weight, unit_pairs, unit_size
from ir3de.scorers.cross_entropy import CrossEntropy
from ir3de.scorers.familiarity import USUALNESS_UNIT, token_usualness
from ir3de.scorers.grams import Gram, part_of, remember, remembered, remembers_grams
from ir3de.scorers.kernel_ridge import KernelRidge
from ir3de.scorers.posterior import Posterior, balanced
from ir3de.scorers.ridge import PromptRidge, TokenRidge
from ir3de.scorers.scorer import Embeddings, Floats, PairScorer, Scorer

__all__ = [
    "USUALNESS_UNIT",
    "Blend",
    "CrossEntropy",
    "Embeddings",
    "Floats",
    "Gram",
    "KernelRidge",
    "PairScorer",
    "Posterior",
    "PromptRidge",
    "Scorer",
    "TokenRidge",
    "balanced",
    "part_of",
    "remember",
    "remembered",
    "remembers_grams",
    "token_usualness",
    "token_weight",
    "unit_pairs",
    "unit_size",
]
