"""Encoders in the user's cache: reading and listing them, and rejecting what has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de import files
from ir3de.embedding.huggingface import TOKENIZER
from ir3de.encoders.running import Parts, make_digest, open_session
from ir3de.encoders.settings import parse_settings
from ir3de.encoders.sources import Source, encoders_folder, find_source, name_install
from ir3de.errors import ArtifactError

HEADER, MODEL, KIND, VERSION = "encoder.json", "model.onnx", "ir3de-encoder", 1


@dataclass(frozen=True)
class Installed:
    """An encoder in the cache."""

    folder: Path
    header: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())


def load_installed(source: Source) -> Parts | None:
    """The installed encoder, or None; rejects one whose files or whose source have changed since."""
    folder = source.installed
    if not folder.is_dir():
        return None
    again = f"To make it again: {name_install(source.name)}"
    try:
        header = read_header(folder)
        model = files.read(folder / MODEL, sha256=header["model_sha256"])
        tokenizer = files.read(folder / TOKENIZER, sha256=header["tokenizer_sha256"])
        settings = parse_settings(header["settings"])
        changed = source.folder is not None and _is_changed(source.folder, header["source"])
    except (ArtifactError, KeyError, TypeError) as error:
        raise ArtifactError(f"{error}. {again}") from error
    if changed:
        raise ArtifactError(f"the weights in {source.folder} have changed since '{source.name}' was installed. {again}")
    session = open_session(model, source.name)
    return Parts(source.name, session, tokenizer, settings, header["model_sha256"], is_ours=True)


def read_header(folder: Path) -> files.Header:
    """The header of an installed encoder."""
    header = files.read_json(folder / HEADER, kind=KIND, version=VERSION)
    files.check_seal(header, folder / HEADER)
    return header


def list_installed() -> list[Installed]:
    """The encoders in the cache, by name."""
    found = encoders_folder().iterdir() if encoders_folder().is_dir() else ()
    folders = [folder for folder in found if (folder / HEADER).is_file() and not folder.name.startswith(".")]
    return sorted((Installed(folder, read_header(folder)) for folder in folders), key=lambda one: one.header["name"])


def find_installed(name: str) -> Installed:
    """An encoder in the cache; rejects a name that is not installed."""
    source = find_source(name)
    if not source.installed.is_dir():
        raise ArtifactError(f"the encoder '{name}' is not installed: {name_install(name)}")
    return Installed(source.installed, read_header(source.installed))


def read_digest(installed: Installed) -> str:
    """The digest of an encoder in the cache, from its header and its tokenizer."""
    header = installed.header
    settings = parse_settings(header["settings"])
    return make_digest(header["model_sha256"], header["tokenizer_sha256"], settings)


def describe_file(path: Path) -> dict[str, Any]:
    """By which a file is known again: its time is looked at first, because reading takes longer."""
    found = path.stat()
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"file": path.name, "bytes": found.st_size, "modified_ns": found.st_mtime_ns, "sha256": sha256}


def _is_changed(folder: Path, recorded: list[Mapping[str, Any]]) -> bool:
    """Whether the weights in a folder are others than those recorded. Deleted ones are not needed any more."""
    for known in recorded:
        path = folder / known["file"]
        if not path.is_file():
            continue
        found = path.stat()
        if (found.st_size, found.st_mtime_ns) == (known["bytes"], known["modified_ns"]):
            continue
        if found.st_size != known["bytes"] or describe_file(path)["sha256"] != known["sha256"]:
            return True
    return False
