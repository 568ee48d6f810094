"""What tuning tries: `Router.tune()` and `Router.fit(tune=True)` return and record trials.

>>> from ir3de.tuning import Trial
>>> Trial.__name__
'Trial'
"""

from __future__ import annotations

from ir3de.files.package import export_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ir3de.fitting.tuning import Trial
else:
    __getattr__, __dir__ = export_lazily(__name__, {"fitting.tuning": "Trial"}, within="ir3de")

__all__ = ["Trial"]
