"""The candidate router in the administration: loading it, ending its trial, promoting it, and rolling a router back."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from ir3de.errors import IR3DEError
from ir3de.serving import files, hide_user, inspect_router
from ir3de_gateway.admin.changes import AdminState, CandidateRouter, Changed
from ir3de_gateway.admin.router_source import FetchBudget, RouterFollower
from ir3de_gateway.admin.state import CANDIDATE, CandidateEnd, RouterChoice, State, StateFolder
from ir3de_gateway.admin.versions import RouterVersion, find_version, is_kept, read_versions
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import Part

log = logging.getLogger("ir3de.gateway")

LOCK_WAIT_S = 5.0  # for a change that a gateway makes

Why = Annotated[str, Field(max_length=1_000)]


class Promotion(Part):
    """Why a candidate goes live, or its trial ends."""

    why: Why = ""
    """The reason, for the history."""


class Rollback(Part):
    """A version to serve again."""

    to: Annotated[str, Field(max_length=64)] = ""
    """Its number, or the beginning of its digest; by default the last version before the live router."""
    why: Why = ""
    """The reason, for the history."""


def attach_candidate(
    now: AdminState, folder: StateFolder, before: AdminState | None, budget: FetchBudget
) -> AdminState:
    """The state with the configured candidate, which `before` may have loaded already."""
    wanted = now.config.routing.candidate
    if wanted is None:
        return now
    trial = None if before is None else before.trial
    if trial is None or trial.follower.location != wanted.router:
        follower = RouterFollower(wanted.router, folder.cache_for(wanted.router, is_candidate=True))
        try:
            trial = CandidateRouter(follower, follower.load(budget))
        except IR3DEError as error:
            if now.state.candidate is None:
                raise
            trial = None  # its trial may have ended, and its folder may be gone
            log.warning("no candidate is tried: %s", error)
    return now.with_trial(trial)


# changes --------------------------------------------------------------------------------------------------------


def promote(
    digest: str | None, who: str, why: str, now: AdminState, folder: StateFolder, stop: threading.Event
) -> Changed:
    """The state in which the candidate is the live router. It is copied, so that its own folder may go."""
    trial = _require_trial(now, digest)
    kept = folder.keep_router(trial.loaded.folder, trial.loaded.digest, _find_base(now.state, now.digest))
    return Changed(replace(now.state, router=kept, candidate=_end(trial, "promoted", who, why)))


def end_trial(
    how: Literal["stopped", "withdrawn"],
    digest: str | None,
    who: str,
    why: str,
    now: AdminState,
    folder: StateFolder,
    stop: threading.Event,
) -> Changed:
    """The state in which the candidate decides no more."""
    return Changed(replace(now.state, candidate=_end(_require_trial(now, digest), how, who, why)))


def roll_back(wanted: str, now: AdminState, folder: StateFolder, stop: threading.Event) -> Changed:
    """The state in which an earlier version serves again."""
    version = find_rollback(folder, wanted, now.digest)
    return Changed(replace(now.state, router=_choose_version(version, now.state, now.digest)))


def roll_back_folder(folder: StateFolder, wanted: str, who: str, why: str) -> RouterVersion:
    """Let an earlier version serve again, without a gateway; one that serves from this folder takes it over."""
    with folder.lock(LOCK_WAIT_S):
        state, versions = folder.read(), read_versions(folder)
        live = versions[-1].digest if versions else ""
        version = find_rollback(folder, wanted, live)
        folder.complete_audit(state)
        line = {"time": _read_clock(), "request_id": "", "who": who, "action": "roll back", "to": wanted, "why": why}
        line |= {"router_before": live, "router_after": version.digest, "outcome": "done"}
        folder.complete_audit(folder.write(replace(state, router=_choose_version(version, state, live)), line))
    return version


def find_rollback(folder: StateFolder, wanted: str, live: str) -> RouterVersion:
    """The version to roll back to, or an `ApiError`."""
    version = find_version(folder, wanted, live)
    if version.digest == live:
        raise ApiError(409, f"version {version.number} serves already", "serves_already", "to")
    if not is_kept(folder, version) or not inspect_router(folder.path / version.folder).routes:
        message = f"the router of version {version.number} is no longer kept, or damaged (router.versions keeps more)"
        raise ApiError(409, message, "version_gone", "to")
    return version


def _choose_version(version: RouterVersion, state: State, live: str) -> RouterChoice:
    return RouterChoice(version.folder, own=True, base=_find_base(state, live))


def _find_base(state: State, live: str) -> str:
    """The digest of the configured router, as long as it serves or is what changes began with."""
    return state.router.base if state.router is not None and state.router.own else live


def _require_trial(now: AdminState, digest: str | None) -> CandidateRouter:
    """The candidate that is tried now; with a digest, only that one."""
    if now.candidate is None or now.trial is None:
        state = describe_state(now)
        text = "names none" if state == "none" else f"names one whose trial has ended ({state})"
        raise ApiError(409, f"no candidate is tried now: routing.candidate {text}", "no_candidate")
    if digest is not None and now.candidate.digest != digest:
        raise ApiError(409, "another candidate is tried now", "stale")
    return now.trial


def _end(trial: CandidateRouter, how: Any, who: str, why: str) -> CandidateEnd:
    return CandidateEnd(trial.loaded.digest, how, _read_clock(), who, why)


def _read_clock() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# descriptions ---------------------------------------------------------------------------------------------------


def describe_state(now: AdminState) -> str:
    """`none`, `trial`, or how the trial of the configured candidate ended."""
    if now.trial is None:
        return "none"
    if now.candidate is not None:
        return "trial"
    ended = now.state.candidate
    return ended.how if ended is not None and ended.digest == now.trial.loaded.digest else "live"


def describe_candidate(now: AdminState, folder: StateFolder) -> dict[str, Any]:
    """The candidate for /admin: what it is, where its test stands, and how its trial ended."""
    config, trial, state = now.config.routing.candidate, now.trial, describe_state(now)
    if config is None or trial is None:
        return {"object": "candidate", "state": "none"}
    ended = now.state.candidate
    return {
        "object": "candidate",
        "state": state,
        "router": hide_user(config.router),
        "digest": trial.loaded.digest,
        "experts": list(trial.loaded.router.experts),
        "mode": config.mode,
        "share": config.share,
        "promote": config.promote,
        "level": config.level,
        "test": read_test(folder, trial.loaded.digest),
        "ended": None if ended is None or state in ("trial", "live") else _describe_end(ended),
    }


def _describe_end(ended: CandidateEnd) -> dict[str, str]:
    return {"how": ended.how, "time": ended.time, "who": ended.who, "why": ended.why}


def read_test(folder: StateFolder, digest: str) -> dict[str, Any] | None:
    """Where the test of that candidate stands, as the worker that tests wrote it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        folder.fetch(CANDIDATE)
        found = json.loads((folder.path / CANDIDATE).read_bytes())
        return dict(found["test"]) if found["digest"] == digest else None
    return None


def write_test(folder: StateFolder, digest: str, test: dict[str, Any]) -> None:
    """Write where the test stands, for the other workers."""
    files.make_folder(folder.path, mode=0o700)
    content = json.dumps({"digest": digest, "test": test}).encode()
    folder.put(CANDIDATE, content + b"\n")
