"""A router as an estimator of scikit-learn: texts and labels in, in pipelines, cross-validation and grid searches.

It needs the extra `sklearn`, which is looked for when the estimator is first used.
"""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.evaluation.scikit_learn.classifier import RouterClassifier
else:
    __getattr__, __dir__ = export_lazily(__name__, {"classifier": "RouterClassifier"})

__all__ = ["RouterClassifier"]
