"""Scorers turn statistics into scores: one per token and expert, S ∈ R^{V×C}.

A scorer is a small frozen object. It sees the statistics of the domains and the embedding matrix E, nothing else.
"""

from typing import TYPE_CHECKING

from ir3de.storage.lazy_exports import export_lazily

if TYPE_CHECKING:
    from ir3de.scorers.arithmetic import Arithmetic, NumpyArithmetic, TorchArithmetic, using
    from ir3de.scorers.blend import Blend, Posterior
    from ir3de.scorers.cross_entropy import CrossEntropy
    from ir3de.scorers.kernel_ridge import KernelRidge
    from ir3de.scorers.logistic import Logistic
    from ir3de.scorers.registry import PairScorer, Scorer, register
    from ir3de.scorers.ridge import PromptRidge, TokenRidge
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "arithmetic": "Arithmetic NumpyArithmetic TorchArithmetic using",
            "blend": "Blend Posterior",
            "cross_entropy": "CrossEntropy",
            "kernel_ridge": "KernelRidge",
            "logistic": "Logistic",
            "registry": "PairScorer Scorer register",
            "ridge": "PromptRidge TokenRidge",
        },
    )

__all__ = [
    "Arithmetic",
    "Blend",
    "CrossEntropy",
    "KernelRidge",
    "Logistic",
    "NumpyArithmetic",
    "PairScorer",
    "Posterior",
    "PromptRidge",
    "Scorer",
    "TokenRidge",
    "TorchArithmetic",
    "register",
    "using",
]
