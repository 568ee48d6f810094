"""Routers and statistics on disk: the only room that knows their file names. docs/format.md describes the layout."""

from ir3de.storage.folders import RouterParts, load_router, save_router
from ir3de.storage.statistics_files import load_statistics, save_statistics

__all__ = ["RouterParts", "load_router", "load_statistics", "save_router", "save_statistics"]
