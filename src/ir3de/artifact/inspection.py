"""What lies on disk, checked file by file, without putting a router together."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ir3de.artifact.damage import HEADER, name_damage
from ir3de.artifact.folder import KIND, VERSION
from ir3de.policies import TOO_FEW_PROMPTS
from ir3de.storage import files

State = Literal["ok", "missing, rebuilt when needed", "damaged, rebuilt when needed", "missing", "damaged"]


@dataclass(frozen=True)
class FileState:
    """One file a router names: its size, and whether its content is what was recorded."""

    name: str
    bytes: int
    state: State


@dataclass(frozen=True)
class RouterFiles:
    """A router's header, as written, and the state of every file it names."""

    header: Mapping[str, Any]
    files: tuple[FileState, ...]

    @property
    def whole(self) -> bool:
        """Whether the router can be loaded from these files."""
        return all(file.state not in ("missing", "damaged") for file in self.files)

    def tells_out_of_domain(self, threshold: float | None = None) -> bool:
        """Whether it calls any prompt out of domain; `threshold` is used instead of its own."""
        if member := self.header.get("membership"):
            lowest = member.get("lowest")
            return lowest is not None and float(lowest) > TOO_FEW_PROMPTS
        own = (self.header.get("policy") or {}).get("threshold") or 0
        return bool(self.header.get("familiarity")) and (own if threshold is None else threshold) > 0

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def holds_router(path: str | Path) -> bool:
    """Whether a folder holds a router; a path that the system cannot look up holds none."""
    return files.find_kind(Path(path).expanduser() / HEADER) == "file"


def inspect_router(path: str | Path) -> RouterFiles:
    """Read a router's header and compare every file it names with the hash it records."""
    folder = Path(path).expanduser()
    header = files.read_json(folder / HEADER, kind=KIND, version=VERSION)
    own = FileState(HEADER, (folder / HEADER).stat().st_size, "ok")
    with name_damage(folder):
        rebuilt = set() if header.get("serving") else {_name(header.get("table"))}
        rebuilt.add(_name((header.get("tokenizer") or {}).get("fast_file")))
        forgettable = {_name(expert.get("gram")) for expert in header.get("experts", ())}  # even where it is damaged
    states = [
        _state(folder, part, part["name"] in rebuilt | forgettable, part["name"] in forgettable)
        for part in _parts(header)
    ]
    return RouterFiles(header, (own, *states))


def _parts(value: object) -> Iterator[Mapping[str, str]]:
    """Every {"name": …, "sha256": …} inside the header."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("sha256"), str):
            yield value
            return
        value = [inner for key, inner in value.items() if key != "recipe"]  # which owners write
    if isinstance(value, list):
        for inner in value:
            yield from _parts(inner)


def _name(part: object) -> object:
    return part.get("name") if isinstance(part, dict) else None


def _state(folder: Path, part: Mapping[str, str], rebuilt: bool, forgettable: bool) -> FileState:
    path = folder / Path(part["name"]).name
    if not path.is_file():
        return FileState(path.name, 0, "missing, rebuilt when needed" if rebuilt else "missing")
    if _hash(path) != part["sha256"]:
        damaged: State = "damaged, rebuilt when needed" if forgettable else "damaged"
        return FileState(path.name, path.stat().st_size, damaged)
    return FileState(path.name, path.stat().st_size, "ok")


def _hash(path: Path) -> str | None:
    """Of the file's bytes, which need not fit in memory; None where they cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
    return None
