"""The differences between two versions of the router: experts, contributions, settings, proof, decisions on traffic."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ir3de.errors import IR3DEError
from ir3de.serving import read_header
from ir3de_gateway.admin.state import StateFolder
from ir3de_gateway.admin.versions import RouterVersion, find_version, is_kept, read_versions
from ir3de_gateway.api_errors import ApiError

SETTINGS = ("scorer", "selector", "default", "policy", "embedding")  # of a router's header
MAX_REQUESTS = 5_000  # of the journal, the newest, that both versions route again
MAX_MOVES = 20


def find_pair(folder: StateFolder, before: str, after: str) -> tuple[RouterVersion, RouterVersion]:
    """Two versions by number or digest; by default the newest one, and the last kept one with another router."""
    versions = read_versions(folder)
    if not versions:
        raise ApiError(404, "no router has gone live here yet", "version_not_found")
    second = find_version(folder, after, "") if after else versions[-1]
    return find_version(folder, before, second.digest), second


def compare_versions(
    folder: StateFolder, before: RouterVersion, after: RouterVersion, journal: Path | None = None
) -> dict[str, Any]:
    """The differences. Settings and contributions are null where a router is no longer kept."""
    found: dict[str, Any] = {
        "from": _name(before),
        "to": _name(after),
        "experts": _list_changes(before.experts, after.experts),
        "prompts": [before.prompts, after.prompts],
        "proof": [before.proof, after.proof],
    }
    if not (is_kept(folder, before) and is_kept(folder, after)):
        return {**found, "contributions": None, "settings": None, "traffic": None}
    paths = folder.path / before.folder, folder.path / after.folder
    one, other = (read_header(path) for path in paths)
    settings = {name: [one.get(name), other.get(name)] for name in SETTINGS if one.get(name) != other.get(name)}
    given = _list_changes(_list_contributions(one), _list_contributions(other))
    return {
        **found,
        "contributions": given,
        "settings": settings,
        "traffic": None if journal is None else _compare_traffic(*paths, journal),
    }


def _name(version: RouterVersion) -> dict[str, Any]:
    return {"number": version.number, "digest": version.digest, "time": version.time}


def _list_changes(before: tuple[str, ...], after: tuple[str, ...]) -> dict[str, list[str]]:
    added, removed = [name for name in after if name not in before], [name for name in before if name not in after]
    return {"added": added, "removed": removed}


def _list_contributions(header: Mapping[str, Any]) -> tuple[str, ...]:
    rows = ((expert["name"], one["id"]) for expert in header["experts"] for one in expert.get("contributions", ()))
    return tuple(f"{name}: {contribution}" for name, contribution in rows)


def _compare_traffic(before: Path, after: Path, folder: Path) -> dict[str, Any]:
    """On how many logged prompts the two decide differently, or why that is not known."""
    from ir3de import Router
    from ir3de.traffic import Journal, compare

    try:
        with Journal.open(folder) as journal:
            records = deque(journal.read(on_damage=lambda _: None), maxlen=MAX_REQUESTS)
        found = compare(Router.load(before), Router.load(after), records)
    except IR3DEError as error:
        return {"requests": 0, "different": None, "unknown": str(error), "moves": []}
    moves = [{"from": one.live, "to": one.candidate, "requests": one.requests} for one in found.moves]
    different = sum(one.requests for one in found.moves)
    return {"requests": found.requests, "different": different, "unknown": None, "moves": moves[:MAX_MOVES]}
