"""A router as a folder on disk: saved, loaded, inspected. docs/format.md describes the layout."""

from ir3de.artifact.damage import HEADER
from ir3de.artifact.folder import (
    KIND,
    VERSION,
    check_destination,
    parse_header,
    read_expert_names,
    read_header,
    read_history,
    save_policy,
    save_router,
)
from ir3de.artifact.inspection import FileState, RouterFiles, holds_router, inspect_router
from ir3de.artifact.loading import load_described, load_router, read_header_file, stamp
from ir3de.artifact.part_files import is_ours

__all__ = [
    "HEADER",
    "KIND",
    "VERSION",
    "FileState",
    "RouterFiles",
    "check_destination",
    "holds_router",
    "inspect_router",
    "is_ours",
    "load_described",
    "load_router",
    "parse_header",
    "read_expert_names",
    "read_header",
    "read_header_file",
    "read_history",
    "save_policy",
    "save_router",
    "stamp",
]
