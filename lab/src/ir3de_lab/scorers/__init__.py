"""The paper's alternatives to the ridge, as plug-in scorers: `from ir3de.scorers import CrossEntropy, KernelRidge`.

The entry points of this distribution name them, so a saved router finds them wherever ir3de-lab is installed.
"""

from ir3de_lab.scorers.cross_entropy import CrossEntropy
from ir3de_lab.scorers.kernel_ridge import KernelRidge

__all__ = ["CrossEntropy", "KernelRidge"]
