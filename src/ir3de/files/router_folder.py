"""A saved router is a folder.

`router.json` names every other file by the hash of its content and is written last, by renaming: until then a reader
sees the old router, complete, and after it the new one, complete. No file is ever overwritten with another content.

    router.json                        what the router is, and which files belong to it
    statistics-<sha>.safetensors       one per expert: the truth, in integers
    contribution-<sha>.stats           what owners gave an expert, as they gave it
    ledger.jsonl                       what was done to the router; named by no header, nothing depends on it
    outcomes-<sha>.safetensors         instead of those, where the router was fitted from outcomes
    gram-<sha>.safetensors             one per expert where the embedding is wide; derived, like the table
    opinion-<sha>.safetensors          the head of the router's encoder, where it has one
    vectors-<sha>.safetensors          one per expert: the encoder's vectors of the kept prompts
    embedding-<sha>.safetensors        the matrix, unless it is the bundled one
    table-<sha>.safetensors            derived: may be deleted and is then rebuilt
    subjects-<sha>.safetensors         what the texts of each expert are about, for prompts out of domain
    ballots-<sha>.safetensors          derived from the table by the first process that maps it; named by no header
    tokenizer-<sha>.json.gz            the tokenizer
    tokenizer-<sha>.tkz.gz             derived: the fast engine's compiled form

A serving copy holds the table, the tokenizer, the subjects and the head alone, as far as there are such. This module
knows the files; `fitting.saving` and `fitting.loading` know what is in them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from ir3de import files
from ir3de.errors import ArtifactError, MismatchError
from ir3de.files.ledger import History, from_lines, to_lines, trim_history
from ir3de.files.tensors import Tensors, from_safetensors, map_tensors

ROUTER_HEADER_FILE, LEDGER = "router.json", "ledger.jsonl"
_KIND, _VERSION = "ir3de.router", 1
_STEMS = "statistics|background|contribution|outcomes|gram|opinion|vectors|embedding|table|subjects|ballots|tokenizer"
_PART = rf"(?:{_STEMS})-[0-9a-f]{{16}}\.(?:safetensors|stats|json\.gz|tkz\.gz)"
# complete, or left by a save that was interrupted
_OURS = re.compile(rf"{_PART}|ledger\.jsonl|\.(?:{_PART}|ledger\.jsonl|router\.json)\.\w+\.part")
_NO_LOWEST_ODDS = -1_000.0  # `policies.TOO_FEW_PROMPTS`, as headers store it

Part = Mapping[str, str]  # the name and the SHA-256 of a file, as headers have them


# --- reading a header


@contextmanager
def name_damage(folder: Path) -> Iterator[None]:
    """Report a damaged header where reading its fields fails."""
    try:
        yield
    except MismatchError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{folder / ROUTER_HEADER_FILE} is damaged: {error!r}. Copy it again from where it came from"
        ) from error


def refuse_serving(folder: Path, header: Mapping[str, Any]) -> None:
    """Reject a serving copy, which lacks what changes need."""
    if header["serving"]:
        raise ArtifactError(
            f"{folder} is a serving copy: it can route, but not change. Change the router it was made from"
        )


def holds_router(path: str | Path) -> bool:
    """Whether a folder holds a router; False for a path that the system cannot look up."""
    return files.find_kind(Path(path).expanduser() / ROUTER_HEADER_FILE) == "file"


def stamp(path: Path) -> tuple[int, int] | None:
    """Distinguishes a file from one that is renamed into its place."""
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


def read_header_file(folder: Path) -> bytes:
    """The bytes of a router's header file; or an error that names what is there instead."""
    try:
        found = "" if folder.is_dir() else "it is a file" if folder.exists() else "there is no such folder"
    except OSError as error:  # a name that is too long
        found = error.strerror or str(error)
    if found:
        raise ArtifactError(f"no router at {folder}: {found}. Name the folder of one, or make one with `ir3de fit`")
    if not (folder / ROUTER_HEADER_FILE).is_file():
        raise ArtifactError(
            f"no router at {folder}: it holds no {ROUTER_HEADER_FILE}. Name the folder of one, or copy the whole "
            "folder again"
        )
    return files.read(folder / ROUTER_HEADER_FILE)


def read_header(folder: Path) -> files.Header:
    """The header of a router's folder, checked against its seal."""
    return parse_header(files.read(folder / ROUTER_HEADER_FILE), folder)


def parse_header(content: bytes, folder: Path) -> files.Header:
    """The same from the bytes of the header file in `folder`."""
    header = files.parse_json(content, folder / ROUTER_HEADER_FILE, kind=_KIND, version=_VERSION)
    files.check_seal(header, folder / ROUTER_HEADER_FILE)
    with name_damage(folder):
        for expert in header["experts"]:
            if not isinstance(expert["name"], str):
                raise TypeError(f"an expert's name is {expert['name']!r}, which is not text")
    return header


def read_expert_names(path: str | Path) -> tuple[str, ...]:
    """The names of a router's experts; only the header is read."""
    folder = Path(path).expanduser()
    header = read_header(folder)
    with name_damage(folder):
        return tuple(expert["name"] for expert in header["experts"])


def read_history(folder: Path, router: str) -> History:
    """What was done to the router of that hash; empty in a folder without a ledger."""
    path = folder / LEDGER
    return trim_history(from_lines(files.read(path), path), router) if path.is_file() else ()


# --- writing


def seal_header(described: Mapping[str, Any]) -> files.Header:
    """The header of a router with its kind, its version and its hash."""
    return files.seal({"kind": _KIND, "version": _VERSION, **described})


def write_header(folder: Path, header: Mapping[str, Any], history: History) -> None:
    """Write the ledger and then the header, which replaces the router in one step; the folder must be locked.

    The ledger comes first: a surplus entry can be recognised, a missing one cannot. A serving copy has none.
    """
    if not header["serving"]:
        files.write(folder / LEDGER, to_lines(history))
    files.write(folder / ROUTER_HEADER_FILE, files.to_json(header))


def check_destination(path: str | Path, *, serving: bool = False) -> Path:
    """The folder to save a router in; rejects a file, a folder with other files, a serving copy over a whole router."""
    folder = Path(path).expanduser()
    is_router = (folder / ROUTER_HEADER_FILE).is_file()
    if folder.exists() and not folder.is_dir():
        raise ArtifactError(f"cannot save a router at {folder}: it is a file, and a router is a folder")
    if folder.is_dir() and not is_router and not all(map(is_ours, folder.iterdir())):
        raise ArtifactError(
            f"cannot save a router at {folder}: the folder holds other files; choose a new or empty one"
        )
    if serving and is_router and not read_header(folder)["serving"]:
        raise ArtifactError(
            f"{folder} holds a whole router, and a serving copy in its place would lose its statistics: "
            "choose another folder"
        )
    return folder


class Content(Protocol):
    """What a file of a save will hold."""

    @property
    def sha256(self) -> str: ...
    def is_at(self, path: Path) -> bool: ...
    def write(self, path: Path) -> object: ...


@dataclass(frozen=True)
class StoredContent:
    """Bytes that are in memory, or in a file at `origin`, which a save in place does not read."""

    sha256: str
    read: Callable[[], bytes]
    origin: Path | None = None

    def is_at(self, path: Path) -> bool:
        return path.is_file() and (self.origin == path or path.read_bytes() == self.read())

    def write(self, path: Path) -> None:
        files.write(path, self.read())


class Parts:
    """The files of one save, named by their content, so that an unchanged one is not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[str, Content] = {}

    def add(self, stem: str, suffix: str, given: bytes | Content) -> dict[str, str]:
        """Add a file to the save; its name and hash, for the header."""
        if isinstance(given, bytes):
            given = StoredContent(hashlib.sha256(given).hexdigest(), partial(bytes, given))
        sha256 = given.sha256
        name = f"{stem}-{sha256[:16]}{suffix}"
        self._contents[name] = given
        return {"name": name, "sha256": sha256}

    def write(self) -> None:
        """Write the files that are missing; if that fails, those written so far are deleted."""
        written: list[Path] = []
        try:
            for name, content in self._contents.items():
                path = self._folder / name
                if not content.is_at(path):
                    content.write(path)
                    written.append(path)
        except BaseException:  # interrupted or out of space: no header names these files yet
            for path in written:
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()  # only if there was nothing in it before
            raise

    def drop_all_others(self) -> None:
        """Delete the files of earlier saves that this one does not name, half-written ones included."""
        kept = {*self._contents, LEDGER}
        for path in list(self._folder.iterdir()):
            if is_ours(path) and path.name not in kept:
                with suppress(OSError):
                    path.unlink()


# --- the files that a header names


def is_ours(path: Path) -> bool:
    """Whether a file has a name that a save gives."""
    return _OURS.fullmatch(path.name) is not None


def read_part(folder: Path, part: Part) -> bytes:
    """A file that a header names, checked against its hash."""
    return files.read(checked_path(folder, part), sha256=part["sha256"])


def checked_path(folder: Path, part: Part) -> Path:
    """The path of a file that a header names; it exists, and is in the folder itself."""
    if Path(part["name"]).name != part["name"]:
        raise ArtifactError(f"{folder / ROUTER_HEADER_FILE} is damaged: '{part['name']}' is not a file name")
    path = folder / part["name"]
    if folder.is_dir() and not path.exists():
        raise ArtifactError(
            f"{path} is missing: it was deleted, the folder was copied only in part, or the router was replaced since "
            "it was loaded: copy the whole folder again from where it came from, or load it again"
        )
    return path


def map_table(folder: Path, part: Part, derived: Path) -> Tensors:
    """The tensors of the table, mapped: in the router's own folder if `derived` is that, else as a copy in `derived`.

    A process dies by SIGBUS if a file that it has mapped is truncated, as `cp` does: hence the copy. Where no copy can
    be made, the file is read into memory.
    """
    sha256 = part["sha256"]
    if derived == folder:
        return map_tensors(checked_path(folder, part), sha256=sha256)[0]
    copy = derived / f"table-{sha256[:16]}.safetensors"
    with suppress(ArtifactError):
        return map_tensors(copy, sha256=sha256)[0]
    with suppress(ArtifactError), files.lock_folder(derived):  # of processes that start together, one copies
        with suppress(ArtifactError):
            return map_tensors(copy, sha256=sha256)[0]
        files.copy(checked_path(folder, part), copy, sha256=sha256)
        drop_older(copy)
        return map_tensors(copy, sha256=sha256)[0]
    return from_safetensors(read_part(folder, part), folder / part["name"])[0]


def drop_older(path: Path) -> None:
    """Delete derived files of the same kind, and what a crash left; a process that has them mapped keeps them."""
    stem = path.name.partition("-")[0]
    for other in (*path.parent.glob(f"{stem}-*.safetensors"), *path.parent.glob(f".{stem}-*.part")):
        if other != path:
            with suppress(OSError):
                other.unlink()


# --- inspecting a folder without loading the router

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

    @property
    def routes(self) -> bool:
        """The same, or only files that changes need are missing, as where a router was fetched for serving."""
        if self.whole:
            return True
        found = {file.name: file.state for file in self.files}
        needed = [part["name"] for part in list_routing_parts(self.header)]
        return "damaged" not in found.values() and all(found[name] == "ok" for name in needed)

    def tells_out_of_domain(self, threshold: float | None = None) -> bool:
        """Whether it calls any prompt out of domain; `threshold` is used instead of its own."""
        if member := self.header.get("membership"):
            lowest = member.get("lowest")
            return lowest is not None and float(lowest) > _NO_LOWEST_ODDS
        own = (self.header.get("policy") or {}).get("threshold") or 0
        return bool(self.header.get("familiarity")) and (own if threshold is None else threshold) > 0

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def inspect_router(path: str | Path) -> RouterFiles:
    """Read a router's header and compare every file it names with the hash it records."""
    folder = Path(path).expanduser()
    header = files.read_json(folder / ROUTER_HEADER_FILE, kind=_KIND, version=_VERSION)
    own = FileState(ROUTER_HEADER_FILE, (folder / ROUTER_HEADER_FILE).stat().st_size, "ok")
    with name_damage(folder):
        rebuilt = set() if header.get("serving") else {_get_name(header.get("table"))}
        rebuilt.add(_get_name((header.get("tokenizer") or {}).get("fast_file")))
        dispensable = {_get_name(expert.get("gram")) for expert in header.get("experts", ())}  # even if damaged
    states = [
        _check_part(folder, part, part["name"] in rebuilt | dispensable, part["name"] in dispensable)
        for part in _list_parts(header)
    ]
    return RouterFiles(header, (own, *states))


def list_routing_parts(header: Mapping[str, Any]) -> list[Part]:
    """The files that routing needs, of those that a header names."""
    parts: list[Part] = [header["table"], header["tokenizer"]["file"]]
    parts += [part for part in ((header.get("membership") or {}).get("subjects"),) if part]
    return parts + ([header["opinion"]["file"]] if "opinion" in header else [])


def holds_statistics(folder: Path, header: Mapping[str, Any]) -> bool:
    """Whether the statistics that changes need are there: not in a serving copy, nor where only routing was fetched."""
    if header.get("serving"):
        return False
    by_outcomes = "outcomes" in header
    parts = [header["outcomes"]["file"]] if by_outcomes else [expert["statistics"] for expert in header["experts"]]
    return all((folder / part["name"]).is_file() for part in parts)


def _list_parts(value: object) -> Iterator[Part]:
    """Every {"name": …, "sha256": …} inside the header."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("sha256"), str):
            yield value
            return
        value = [inner for key, inner in value.items() if key != "recipe"]  # which owners write
    if isinstance(value, list):
        for inner in value:
            yield from _list_parts(inner)


def _get_name(part: object) -> object:
    return part.get("name") if isinstance(part, dict) else None


def _check_part(folder: Path, part: Part, rebuilt: bool, dispensable: bool) -> FileState:
    path = folder / Path(part["name"]).name
    if not path.is_file():
        return FileState(path.name, 0, "missing, rebuilt when needed" if rebuilt else "missing")
    state: State = "ok"
    try:
        files.check_file(path, sha256=part["sha256"])
    except ArtifactError:
        state = "damaged, rebuilt when needed" if dispensable else "damaged"
    return FileState(path.name, path.stat().st_size, state)
