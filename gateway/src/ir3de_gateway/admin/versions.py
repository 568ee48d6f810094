"""The routers that went live: who put each one there, when, why, and what was known of it. The last ones are kept.

A version is noted after its router went live. If a crash prevents the note, the next start or change makes it, from the
audit line that `state.json` holds: what serves is in `state.json` alone.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError
from ir3de.serving import files, holds_router
from ir3de_gateway.admin.changes import AdminState
from ir3de_gateway.admin.state import LEARNING, VERSIONS, StateFolder
from ir3de_gateway.api_errors import ApiError

log = logging.getLogger("ir3de.gateway")

KIND, VERSION = "ir3de.versions", 1
MIN_DIGEST_CHARS = 6  # of a digest that names a version
MAX_NOTES = 1_000  # versions that are listed; the routers of most of them are not kept


@dataclass(frozen=True)
class RouterVersion:
    """A router that went live."""

    number: int
    digest: str
    time: str
    who: str  # who put it there; empty if it was found at its location
    action: str  # of the audit log, or load
    why: str
    path: str  # where it came from
    experts: tuple[str, ...]
    prompts: int | None  # it was fitted on
    proof: dict[str, Any]  # accuracy, on held-out prompts of its fit; learning, the proof of `ir3de learn`
    folder: str = ""  # in the state folder, if it is kept


def read_versions(folder: StateFolder) -> list[RouterVersion]:
    """The versions of a state folder, oldest first."""
    folder.fetch(VERSIONS)
    path = folder.path / VERSIONS
    if not path.exists():
        return []
    header = files.read_json(path, kind=KIND, version=VERSION)
    files.check_seal(header, path)
    try:
        return [RouterVersion(**{**row, "experts": tuple(row["experts"])}) for row in header["versions"]]
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Put a copy of it back, or delete it") from error


def note_version(folder: StateFolder, now: AdminState) -> None:
    """Note the router that serves, unless it is the last version, and keep a copy. The folder must be locked.

    A full disk is logged: it must not keep a router from serving.
    """
    try:
        versions = read_versions(folder)
        if versions and versions[-1].digest == now.digest:
            return
        most, kept = now.config.router.versions, ""
        if most:
            kept = folder.keep_router(now.loaded.folder, now.digest).path
        versions.append(_describe_version(now, versions[-1].number + 1 if versions else 1, kept))
        write_versions(folder, versions[-MAX_NOTES:], most)
    except (ArtifactError, OSError) as error:
        log.warning("the router that serves is not kept as a version: %s", error)


def write_versions(folder: StateFolder, versions: list[RouterVersion], most: int) -> None:
    """Write the versions; only the last `most` routers stay kept."""
    named = list(dict.fromkeys(version.folder for version in reversed(versions) if version.folder))[:most]
    rows = [asdict(one if one.folder in named else replace(one, folder="")) for one in versions]
    sealed = files.seal({"kind": KIND, "version": VERSION, "versions": rows})
    folder.put(VERSIONS, files.to_json(sealed))


def list_kept(folder: StateFolder) -> set[str]:
    """The names of the folders whose routers are kept; all of them if the list cannot be read."""
    try:
        return {version.folder for version in read_versions(folder) if version.folder}
    except ArtifactError as error:
        log.warning("no router of an earlier version is dropped: %s", error)
        return {path.name for path in folder.path.glob("router-*")}


def find_version(folder: StateFolder, wanted: str, live: str) -> RouterVersion:
    """The version of that number, or whose digest begins so. Empty means the last one before the live router."""
    versions = read_versions(folder)
    if not wanted:
        found = [one for one in versions if one.digest != live and is_kept(folder, one)]
    else:
        is_digest = len(wanted) >= MIN_DIGEST_CHARS
        found = [one for one in versions if str(one.number) == wanted or (is_digest and one.digest.startswith(wanted))]
    if not found:
        listed = "GET /admin/router/history lists them"
        what = f"no version {wanted[:64]!r}: {listed}" if wanted else f"no other version is kept: {listed}"
        raise ApiError(404, what, "version_not_found", "to")
    return found[-1]


def is_kept(folder: StateFolder, version: RouterVersion) -> bool:
    """Whether its router is still there."""
    return bool(version.folder) and holds_router(folder.path / version.folder)


def describe_versions(folder: StateFolder, live: str) -> list[dict[str, Any]]:
    """All versions for /admin and the command line, newest first."""
    versions = read_versions(folder)
    rows = []
    for place, one in enumerate(versions):
        row = {name: value for name, value in asdict(one).items() if name != "folder"}
        rows.append({**row, "kept": is_kept(folder, one), "live": place == len(versions) - 1 and one.digest == live})
    return rows[::-1]


def _describe_version(now: AdminState, number: int, kept: str) -> RouterVersion:
    header, line = now.loaded.header, now.state.last
    by_change = line.get("router_after") == now.digest != line.get("router_before")
    when = str(line["time"]) if by_change else datetime.now(UTC).isoformat(timespec="milliseconds")
    who, action = (str(line.get("who", "")), str(line.get("action", ""))) if by_change else ("", "load")
    why = str(line.get("why", "")) if by_change else ""
    path = str(line.get("path") or now.follower.shown) if by_change else now.follower.shown
    experts = header.get("experts", ())
    prompts = [one.get("prompts") for one in experts]
    total = sum(prompts) if prompts and None not in prompts else None
    names, proof = tuple(now.loaded.router.experts), read_proof(now.loaded.folder, header)
    return RouterVersion(number, now.digest, when, who, action, why, path, names, total, proof, kept)


def read_proof(folder: Path, header: Any) -> dict[str, Any]:
    """What is known of a router's worth: of its fit, and of what it learnt from feedback."""
    chosen = [one.get("accuracy") for one in header.get("trials") or () if one.get("chosen")]
    proof: dict[str, Any] = {"accuracy": round(float(chosen[0]), 6)} if chosen and chosen[0] is not None else {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        learnt = json.loads((folder / LEARNING).read_bytes())
        if learnt["sha256"] == header["sha256"]:
            proof["learning"] = learnt["proof"]
    return proof
