"""Statistics to scores: what each token says of each expert, S ∈ R^{V×C}.

A scorer is a small frozen object. It sees the domains' statistics and the embedding matrix E, nothing else.
"""

from ir3de.scorers.cross_entropy import CrossEntropy
from ir3de.scorers.kernel_ridge import KernelRidge
from ir3de.scorers.ridge import PromptRidge, TokenRidge
from ir3de.scorers.scorer import Embeddings, Floats, Scorer

__all__ = ["CrossEntropy", "Embeddings", "Floats", "KernelRidge", "PromptRidge", "Scorer", "TokenRidge"]
