"""Files of results: written whole or not at all, and read with errors that name the file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ir3de.errors import ArtifactError, IR3DEError, VersionError


@contextmanager
def open_atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write. It appears under its name once it is complete; after an error nothing has changed."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
            Path(temporary).chmod(0o644)  # mkstemp makes files that only their owner can read
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except IR3DEError:  # raised by the caller, and not about this file
        raise
    except OSError as error:
        raise ArtifactError(
            f"cannot write {path}: {error.strerror or error}. What was there before is unchanged"
        ) from error


def write(path: Path, content: bytes) -> None:
    """Write a file, and the folder that it lies in."""
    make_folder(path.parent)
    with open_atomic(path) as file:
        file.write(content)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as JSON."""
    write(path, to_json(document))


def to_json(document: Mapping[str, Any]) -> bytes:
    """Encode a document as readable JSON. Half of a surrogate pair, which UTF-8 cannot say, becomes an escape."""
    return json.dumps(document, ensure_ascii=False, indent=1).encode(errors="backslashreplace") + b"\n"


def make_folder(folder: Path) -> None:
    """Make a folder with its parents, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(f"cannot make the folder {folder}: {error.strerror or error}") from error


def read(path: Path) -> bytes:
    """Read a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error


def read_json(path: Path, *, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON document of the given kind, no newer than `version`."""
    try:
        document = json.loads(read(path))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is damaged: it is not JSON ({error}). Copy it again from where it came from"
        ) from error
    check_kind(document, kind, version, path)
    assert isinstance(document, dict)
    return document


def check_kind(document: object, kind: str, version: int, path: Path) -> None:
    """Refuse a document of another kind or of a newer version."""
    found = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(document, dict) or found != kind:
        raise ArtifactError(f"{path} is not an {kind} file: its kind is {found!r}")
    if not isinstance(document.get("version"), int) or document["version"] > version:
        raise VersionError(
            f"{path} is in version {document.get('version')!r} of the {kind} format; this one "
            f"reads up to {version}: install a newer ir3de-lab, from where you got this one"
        )
