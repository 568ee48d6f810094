"""Routers and statistics on disk: the only room that knows their file names. docs/format.md describes the layout."""

from ir3de.storage.contributions import Contribution, Holding
from ir3de.storage.folders import (
    HEADER,
    KIND,
    VERSION,
    RouterParts,
    check_destination,
    read_header,
    read_history,
    save_policy,
    save_router,
)
from ir3de.storage.inspection import FileState, RouterFiles, holds_router, inspect_router
from ir3de.storage.loading import load_router, stamp
from ir3de.storage.outcome_files import OutcomeParts
from ir3de.storage.parts import is_ours
from ir3de.storage.statistics_files import load_statistics, save_statistics

__all__ = [
    "HEADER",
    "KIND",
    "VERSION",
    "Contribution",
    "FileState",
    "Holding",
    "OutcomeParts",
    "RouterFiles",
    "RouterParts",
    "check_destination",
    "holds_router",
    "inspect_router",
    "is_ours",
    "load_router",
    "load_statistics",
    "read_header",
    "read_history",
    "save_policy",
    "save_router",
    "save_statistics",
    "stamp",
]
