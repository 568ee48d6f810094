"""The state folder: what /admin changed. The configuration file itself is never written.

    state.json            experts added, replaced and removed, and the router; written last, in one step
    router-<digest>/      the router as /admin changed it, and those that served before
    versions.json         the routers that went live, oldest first
    candidate.json        where the test of the candidate router stands
    audit.jsonl           one line per change, with its author
    gateway.json          what is served, where a command line named it
    cache/                routers that were fetched, and the files that workers map; may be deleted

`state.json` also holds the audit line of its last change. If a crash prevents the line, it is written later from there.
Only the gateway's own user may read the files: they name endpoints, and the authors of changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic.dataclasses import dataclass as validated_dataclass

from ir3de.errors import ArtifactError, InputError
from ir3de.serving import (
    ROUTER_HEADER_FILE,
    files,
    hide_user,
    holds_router,
    inspect_router,
    is_ours,
    read_header,
    stamp,
)
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.keys.key_changes import KeyChanges
from ir3de_gateway.keys.keys_file import KeyEntry
from ir3de_gateway.store.workers import is_first_report

log = logging.getLogger("ir3de.gateway")

KIND, VERSION = "ir3de.state", 1
STATE, AUDIT, CACHE = "state.json", "audit.jsonl", "cache"
VERSIONS, CANDIDATE = "versions.json", "candidate.json"
LEDGER, LEARNING = "ledger.jsonl", "learning.json"  # of a router: what was done to it, and the proof of `ir3de learn`
SHARED_MARK = "shared"  # a file in folders that are copies of a shared store
NOTE = "gateway.json"  # which gateway a folder belongs to
MAX_LINE_BYTES = 8_192  # of a line of the audit log

_LATER_FIELDS = ("drained", "candidate", "keys", "removed_keys")  # earlier versions do not know these
_OWN_NAMES = re.compile(
    rf"{STATE}|{AUDIT}|{VERSIONS}|{CANDIDATE}|{CACHE}|gateway\.json|\.?router-\w+|pins-.*|keys.*\.numbers.*|shared|.*\.before|\..*\.part"
)


class UnknownChangeError(ArtifactError):
    """A change was sent to a store that did not answer."""


@dataclass(frozen=True)
class RouterChoice:
    """A router in place of the configured one."""

    path: str  # a folder or an address; if `own`, the name of a folder next to `state.json`
    own: bool = False  # changed by /admin
    base: str = ""  # digest of the router that /admin changed first


@dataclass(frozen=True)
class CandidateEnd:
    """How the trial of a candidate router ended."""

    digest: str
    how: Literal["stopped", "withdrawn", "promoted"]
    time: str
    who: str
    why: str


@validated_dataclass(frozen=True)
class State:
    """Everything that /admin changed."""

    experts: tuple[ExpertConfig, ...] = ()  # added, or replacing configured experts of the same name
    removed: tuple[str, ...] = ()
    router: RouterChoice | None = None
    reloads: int = 0  # a worker that finds a new number reads the configuration file again
    changes: int = 0
    last: Mapping[str, Any] = field(default_factory=dict)  # the audit line of the last change
    sha256: str = ""  # of the file's content
    drained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # names of replicas, by their expert
    candidate: CandidateEnd | None = None  # the one whose trial ended last
    keys: tuple[KeyEntry, ...] = ()  # added, or replacing keys of the same name in the keys file
    removed_keys: tuple[str, ...] = ()

    @property
    def key_changes(self) -> KeyChanges:
        return KeyChanges(self.keys, self.removed_keys)

    def apply_to(self, base: Config, folder: Path) -> Config:
        """The configuration with the changes."""
        changed = {expert.name: expert for expert in self.experts}
        experts = [changed.pop(own.name, own) for own in base.experts if own.name not in self.removed]
        router = base.router
        if self.router is not None:
            path = str(folder / self.router.path) if self.router.own else self.router.path
            router = base.router.model_copy(update={"path": path})
        try:
            made = Config(**{**dict(base), "router": router, "experts": (*experts, *changed.values())})
            return made.with_prices(base.listed_prices)
        except ValidationError as error:
            found = "; ".join(fault["msg"].removeprefix("Value error, ") for fault in error.errors())
            raise InputError(
                f"the configuration and the changes made through /admin ({folder / STATE}) do not fit together: {found}"
            ) from error

    def with_expert(self, expert: ExpertConfig) -> State:
        """The state with that expert, which replaces one of the same name."""
        experts = {own.name: own for own in self.experts} | {expert.name: expert}
        removed = tuple(name for name in self.removed if name != expert.name)
        return replace(self, experts=tuple(experts.values()), removed=removed)

    def without(self, name: str, base: Config) -> State:
        """The state without that expert; `base` is the configuration, which may have it."""
        experts = tuple(own for own in self.experts if own.name != name)
        gone = (name,) if name in base.by_name and name not in self.removed else ()
        drained = {expert: labels for expert, labels in self.drained.items() if expert != name}
        return replace(self, experts=experts, removed=(*self.removed, *gone), drained=drained)

    def with_drained(self, name: str, label: str, *, is_drained: bool) -> State:
        """The state in which a replica of that expert gets no requests, or gets them again."""
        labels = [one for one in self.drained.get(name, ()) if one != label] + [label] * is_drained
        drained = {expert: own for expert, own in self.drained.items() if expert != name}
        return replace(self, drained=drained | ({name: tuple(labels)} if labels else {}))


class StateFolder:
    """The state folder. Writers hold its lock."""

    check_s: float | None = None  # between two looks for changes of others, where they cost more than a look at a file

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def lock(self, wait_s: float) -> Iterator[None]:
        """Keep other writers out, and remove what a crash left. The folder is made if there is none."""
        files.make_folder(self.path, mode=0o700)
        with files.lock_folder(self.path, wait_s=wait_s):
            for path in self.path.glob(f".{STATE}.*.part"):
                path.unlink(missing_ok=True)
            yield

    def prepare(self) -> None:
        """Make the folder, or take the permissions of others away, which earlier versions gave them."""
        try:
            files.make_folder(self.path, mode=0o700)
            for path in (self.path / STATE, self.path / AUDIT):
                if path.exists():
                    path.chmod(0o600)
            if all(_OWN_NAMES.fullmatch(path.name) for path in self.path.iterdir()):
                self.path.chmod(0o700)  # a folder that holds other things, too, is not only ours
        except OSError as error:
            if is_first_report(f"the state folder {self.path} cannot be used"):
                advice = "let this user write it, or name another folder (state, --state)"
                log.warning("the state folder %s cannot be used: %s; %s", self.path, error.strerror or error, advice)

    def stamp(self) -> object:
        """A value that differs from one state to the next and is cheap to read."""
        return stamp(self.path / STATE)

    def close(self) -> None:
        """Give back what is open."""

    def fetch(self, name: str) -> None:
        """Bring a document of this folder up to date, where machines share it elsewhere."""

    def put(self, name: str, content: bytes, number: int = 0) -> None:
        """Write a document of this folder; `number` counts the changes of the state."""
        files.write(self.path / name, content, private=True)

    def read(self) -> State:
        """The state; an empty one if there is no file."""
        self.fetch(STATE)
        path = self.path / STATE
        if not path.exists():
            return State()
        header = files.read_json(path, kind=KIND, version=VERSION)
        files.check_seal(header, path)
        try:
            fields = ("experts", "removed", "router", "reloads", "changes", "last", "sha256")
            later = {name: header[name] for name in _LATER_FIELDS if name in header}
            return State(**{name: header[name] for name in fields}, **later)
        except (KeyError, ValueError) as error:
            raise ArtifactError(f"{path} is damaged: {error!r}. Put a copy of it back, or delete it") from error

    def read_stamped(self) -> tuple[State, object]:
        """The state, and a stamp that is not newer than it: a change that comes meanwhile is seen later."""
        stamp = self.stamp()
        return self.read(), stamp

    def write(self, state: State, line: Mapping[str, Any]) -> State:
        """Write the state, with the audit line of its last change, in one step."""
        changes = state.changes + 1
        new = replace(state, changes=changes, last={**line, "change": changes})
        header = {name: value for name, value in asdict(new).items() if name != "sha256"}
        header["experts"] = [expert.model_dump(mode="json", exclude_defaults=True) for expert in new.experts]
        header["keys"] = [key.model_dump(mode="json", exclude_defaults=True) for key in new.keys]
        for name in _LATER_FIELDS:
            if not header[name]:
                del header[name]
        sealed = files.seal({"kind": KIND, "version": VERSION, **header})
        self.put(STATE, files.to_json(sealed), changes)
        return replace(new, sha256=sealed["sha256"])

    # routers ----------------------------------------------------------------------------------------------------

    def new_router(self, source: Path) -> Path:
        """A folder for the next router. It has links to the files of the last one, so that few are written."""
        folder = Path(tempfile.mkdtemp(prefix=".router-", dir=self.path))
        if source.parent == self.path:
            for path in filter(is_ours, source.iterdir()):
                with suppress(OSError):
                    os.link(path, folder / path.name)
        return folder

    def keep_router(self, source: Path, digest: str, base: str = "") -> RouterChoice:
        """A copy of a router in this folder. Its files have links where that is possible: they are never overwritten.

        A router that was fetched for serving lacks the statistics, and so does its copy. `ArtifactError` if `source`
        holds another router by now, or a damaged one.
        """
        name = f"router-{digest[:16]}"
        if source == self.path / name:
            return RouterChoice(name, own=True, base=base)
        try:
            made = Path(tempfile.mkdtemp(prefix=".router-", dir=self.path))
            found = inspect_router(source)
            names = [file.name for file in found.files if file.state == "ok"]
            for name in (*names, LEDGER, LEARNING):
                _copy(source / name, made / name)
            if not found.routes or read_header(made)["sha256"] != digest:
                raise ArtifactError(f"{source} holds another router than the one that was loaded, or a damaged one")
        except OSError as error:
            raise ArtifactError(f"the router cannot be kept in {self.path}: {error.strerror or error}") from error
        return self.adopt(made, base)

    def adopt(self, made: Path, base: str) -> RouterChoice:
        """Give a new router its name, by its digest."""
        choice = RouterChoice(f"router-{str(read_header(made)['sha256'])[:16]}", own=True, base=base)
        folder = self.path / choice.path
        there = inspect_router(folder) if holds_router(folder) else None
        # the same router existed before, and may be serving
        if there is not None and (there.whole or (there.routes and not inspect_router(made).whole)):
            shutil.rmtree(made)
            return choice
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
        return choice

    def cache_for(self, location: str, *, is_candidate: bool = False) -> Path:
        """The folder for what is fetched and mapped of the router at a location.

        A candidate has its own: the live router may come from the same location, and be another one.
        """
        name = hashlib.sha256(location.encode()).hexdigest()[:16]
        return self.path / CACHE / (f"candidate-{name}" if is_candidate else name)

    def drop_routers(self, state: State, base: Config, kept: Collection[str] = ()) -> None:
        """Remove routers that no longer serve, but those `kept`, and what a crash left.

        Processes that have them mapped keep them.
        """
        in_use = {self.cache_for(config.router.path) for config in (base, state.apply_to(base, self.path))}
        if base.routing.candidate is not None:
            in_use.add(self.cache_for(base.routing.candidate.router, is_candidate=True))
        for cache in (self.path / CACHE).glob("*"):
            if cache not in in_use:
                shutil.rmtree(cache, ignore_errors=True)
        for folder in (*self.path.glob("router-*"), *self.path.glob(".router-*")):
            if folder.name not in kept and (state.router is None or folder.name != state.router.path):
                shutil.rmtree(folder, ignore_errors=True)

    # audit ------------------------------------------------------------------------------------------------------

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the audit log, and wait until it is on disk."""
        path = self.path / AUDIT
        try:
            with open(path, "ab+", opener=_open_private) as file:
                torn = file.tell() > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
                file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error

    def complete_audit(self, state: State) -> None:
        """Write the audit line of the last change if a crash or a full disk prevented it."""
        if state.last and not self._has_line(state):
            self.record(state.last)

    def _has_line(self, state: State) -> bool:
        return any(line.get("change") == state.changes for line in self.history(50))

    def history(self, most: int) -> list[dict[str, Any]]:
        """The last lines of the audit log, newest first, without incomplete ones."""
        try:
            with (self.path / AUDIT).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most * MAX_LINE_BYTES))
                lines = file.read().splitlines()  # the first one may be incomplete
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ArtifactError(f"cannot read {self.path / AUDIT}: {error.strerror or error}") from error
        found: list[dict[str, Any]] = []
        for line in reversed(lines):
            with suppress(ValueError):
                entry = json.loads(line)
                found += [entry] if isinstance(entry, dict) else []
            if len(found) >= most:
                break
        return found


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _copy(path: Path, target: Path) -> None:
    """Copy a file of a router. Its part files are named by their content, so a second name for them is enough."""
    if path.name not in (ROUTER_HEADER_FILE, LEDGER, LEARNING):
        with suppress(OSError):  # another disk
            os.link(path, target)
            return
    if path.exists():  # not every router has a ledger, and few have learnt
        files.write(target, path.read_bytes())


# where it is ----------------------------------------------------------------------------------------------------


def find_state_folder(config: Config, config_path: Path | None) -> Path | None:
    """The configured folder for changes, or one next to the configuration file; None if there is neither."""
    if config.state_folder is not None:
        return Path(config.state_folder).expanduser()
    return None if config_path is None else config_path.resolve().parent / "ir3de-state"


def find_state_home(router: str, experts: Sequence[Mapping[str, Any]]) -> Path:
    """The folder for a gateway with that router and those experts, which may not exist yet.

    >>> find_state_home("/srv/router", [{"name": "law", "base_url": "http://a/v1"}]).name
    'router-85d5ae0a-316754ab'
    """
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "ir3de")
    shown = hide_user(router).rstrip("/")
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", shown.rpartition("/")[2])[:40] or "router"
    return home / f"{slug}-{_digest(shown)}-{_digest(_sort(experts))}"


def prepare_state_home(folder: Path, router: str, experts: Sequence[Mapping[str, Any]]) -> None:
    """Make the folder, with a note whose it is; raises `ArtifactError` if that cannot be."""
    files.make_folder(folder, mode=0o700)
    note = {"router": hide_user(router), "experts": _sort(experts)}
    files.write(folder / NOTE, json.dumps(note, indent=2).encode() + b"\n", private=True)


def find_relatives(folder: Path) -> list[Path]:
    """Folders with changes to the same router under other experts, if this one has none."""
    if (folder / STATE).exists() or not folder.parent.is_dir():
        return []
    family = folder.name.rpartition("-")[0]
    return sorted(path.parent for path in folder.parent.glob(f"{family}-*/{STATE}") if path.parent != folder)


def _sort(experts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(expert) for expert in experts), key=lambda expert: str(expert["name"]))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
