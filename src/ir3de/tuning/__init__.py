"""Choosing and calibrating on held-out prompts, from the statistics and a sample alone."""

from typing import TYPE_CHECKING

from ir3de.storage.lazy_exports import export_lazily

if TYPE_CHECKING:
    from ir3de.tuning.choosing import Trial
else:
    __getattr__, __dir__ = export_lazily(__name__, {"choosing": "Trial"})

__all__ = ["Trial"]
