"""Scorers turn statistics into scores: one per token and expert, S ∈ R^{V×C}.

A scorer is a small frozen object. It sees the statistics of the domains and the embedding matrix E, nothing else.
`CrossEntropy` and `KernelRidge`, the paper's alternatives, are plug-ins of the distribution ir3de-lab.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.scorers.arithmetic import (
        Arithmetic,
        NumpyArithmetic,
        Rows,
        TorchArithmetic,
        current,
        select_rows,
        using,
    )
    from ir3de.scorers.blend import Blend, Posterior
    from ir3de.scorers.logistic import Logistic
    from ir3de.scorers.registry import PairScorer, Scorer, register
    from ir3de.scorers.ridge import PromptRidge, TokenRidge

    # of the laboratory, which the library must not import
    CrossEntropy: TypeAlias = Any
    KernelRidge: TypeAlias = Any
else:
    __getattr__, __dir__ = export_lazily(
        __name__,
        {
            "arithmetic": "Arithmetic NumpyArithmetic Rows TorchArithmetic current select_rows using",
            "blend": "Blend Posterior",
            "logistic": "Logistic",
            "registry": "PairScorer Scorer register",
            "ridge": "PromptRidge TokenRidge",
        },
        lab={"scorers": "CrossEntropy KernelRidge"},
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
    "Rows",
    "Scorer",
    "TokenRidge",
    "TorchArithmetic",
    "current",
    "register",
    "select_rows",
    "using",
]

if not TYPE_CHECKING:
    __all__ = __dir__()  # `import *` and `help` work without the laboratory
