"""The files of a router's folder, each named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ir3de import files
from ir3de.errors import ArtifactError

LEDGER = "ledger.jsonl"
_STEMS = "statistics|contribution|outcomes|embedding|table|ballots|tokenizer"
_PART = rf"(?:{_STEMS})-[0-9a-f]{{16}}\.(?:safetensors|stats|json\.gz|tkz\.gz)"
_OURS = re.compile(
    rf"{_PART}|ledger\.jsonl|\.(?:{_PART}|ledger\.jsonl|router\.json)\.\w+\.part"
)  # finished, or left by a save that was cut short


class Parts:
    """The files of one save, named by their content, so that an unchanged one is not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[str, Callable[[], bytes]] = {}
        self._there: set[str] = set()  # read from this very folder: whole or not, they are not written again

    def add(self, stem: str, suffix: str, content: bytes) -> dict[str, str]:
        """Take a file into the save; its name and hash, for the header."""
        return self.add_file(stem, suffix, hashlib.sha256(content).hexdigest(), lambda: content)

    def add_file(
        self, stem: str, suffix: str, sha256: str, content: Callable[[], bytes], origin: Path | None = None
    ) -> dict[str, str]:
        """Take a file into the save that is not read where it comes from this very folder."""
        name = f"{stem}-{sha256[:16]}{suffix}"
        self._contents[name] = content
        if origin == self._folder / name:
            self._there.add(name)
        return {"name": name, "sha256": sha256}

    def write(self) -> None:
        """Write what is not there yet; what was written is taken back if the rest fails."""
        written: list[Path] = []
        try:
            for name, content in self._contents.items():
                path = self._folder / name
                if name in self._there and path.is_file():
                    continue
                wanted = content()
                if not (path.is_file() and path.read_bytes() == wanted):
                    files.write(path, wanted)
                    written.append(path)
        except BaseException:  # interrupted or out of space: no header names these files yet
            for path in written:
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()  # only if there was nothing in it before
            raise

    def drop_all_others(self) -> None:
        """Remove what earlier saves left and this one does not name, half-written files included."""
        for path in list(self._folder.iterdir()):
            if is_ours(path) and path.name not in (*self._contents, LEDGER):
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
            f"{path} is missing: it was deleted, or the router was replaced since it was loaded: load it again"
        )
    return path
