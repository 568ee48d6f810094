"""Routers and statistics on disk: the only room that knows their file names. docs/format.md describes the layout."""

from ir3de.storage.folders import (
    RouterParts,
    check_destination,
    load_router,
    read_header,
    save_policy,
    save_router,
    stamp,
)
from ir3de.storage.inspection import FileState, RouterFiles, holds_router, inspect_router, named_parts
from ir3de.storage.outcome_files import OutcomeParts
from ir3de.storage.statistics_files import load_statistics, save_statistics

__all__ = [
    "FileState",
    "OutcomeParts",
    "RouterFiles",
    "RouterParts",
    "check_destination",
    "holds_router",
    "inspect_router",
    "load_router",
    "load_statistics",
    "named_parts",
    "read_header",
    "save_policy",
    "save_router",
    "save_statistics",
    "stamp",
]
