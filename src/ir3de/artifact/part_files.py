"""The files of a router's folder, each named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ir3de.errors import ArtifactError
from ir3de.storage import files

LEDGER = "ledger.jsonl"
_STEMS = "statistics|background|contribution|outcomes|gram|embedding|table|ballots|tokenizer"
_PART = rf"(?:{_STEMS})-[0-9a-f]{{16}}\.(?:safetensors|stats|json\.gz|tkz\.gz)"
# finished, or left by a save that was cut short
_OURS = re.compile(rf"{_PART}|ledger\.jsonl|\.(?:{_PART}|ledger\.jsonl|router\.json)\.\w+\.part")


class Content(Protocol):
    """What a file of a save will hold."""

    @property
    def sha256(self) -> str: ...
    def is_at(self, path: Path) -> bool: ...
    def write(self, path: Path) -> object: ...


@dataclass(frozen=True)
class Bytes:
    """The content of a file, in memory."""

    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def is_at(self, path: Path) -> bool:
        return path.is_file() and path.read_bytes() == self.content

    def write(self, path: Path) -> None:
        files.write(path, self.content)


@dataclass(frozen=True)
class ExistingFile:
    """A file that exists already: a save does not read it where it is in its place."""

    sha256: str
    read: Callable[[], bytes]
    origin: Path

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
        """Take a file into the save; its name and hash, for the header."""
        content = Bytes(given) if isinstance(given, bytes) else given
        sha256 = content.sha256
        name = f"{stem}-{sha256[:16]}{suffix}"
        self._contents[name] = content
        return {"name": name, "sha256": sha256}

    def write(self) -> None:
        """Write what is not there yet; what was written is taken back if the rest fails."""
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
        """Remove what earlier saves left and this one does not name, half-written files included."""
        kept = {*self._contents, LEDGER}
        for path in list(self._folder.iterdir()):
            if is_ours(path) and path.name not in kept:
                with suppress(OSError):
                    path.unlink()


def is_ours(path: Path) -> bool:
    """Whether a file is named as a save names its files."""
    return _OURS.fullmatch(path.name) is not None


def read_part(folder: Path, part: Mapping[str, str]) -> bytes:
    """A file that a header names, checked against its hash."""
    return files.read(checked_path(folder, part), sha256=part["sha256"])


def checked_path(folder: Path, part: Mapping[str, str]) -> Path:
    """Where a file that a header names lies; it is there, and in the folder itself."""
    if Path(part["name"]).name != part["name"]:
        raise ArtifactError(f"{folder / 'router.json'} is damaged: '{part['name']}' is not a file name")
    path = folder / part["name"]
    if folder.is_dir() and not path.exists():
        raise ArtifactError(
            f"{path} is missing: it was deleted, the folder was copied only in part, or the router was replaced since "
            "it was loaded: copy the whole folder again from where it came from, or load it again"
        )
    return path
