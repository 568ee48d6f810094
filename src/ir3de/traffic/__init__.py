"""What a router saw in production: the journal of requests and feedback, and what can be learnt from it."""

from typing import TYPE_CHECKING

from ir3de.files.package import export_lazily

if TYPE_CHECKING:
    from ir3de.traffic.journal import Journal, Selection
    from ir3de.traffic.records import Feedback, JournalPrompt, TrafficRecord
else:
    __getattr__, __dir__ = export_lazily(
        __name__, {"journal": "Journal Selection", "records": "Feedback JournalPrompt TrafficRecord"}
    )

__all__ = ["Feedback", "Journal", "JournalPrompt", "Selection", "TrafficRecord"]
