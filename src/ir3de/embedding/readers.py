"""Where an embedding comes from: the versions of the bundled one, and the module that reads each other kind of source.

A version of the default embedding never changes once it is released, and stays in the package, so that routers and
statistics that were made with it still work when a later version becomes the default. Files name the version; those of
ir3de 0.1 do not, and are recognised by their fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ir3de.embedding.copies import COPY_HEADER, EmbeddingParts
from ir3de.errors import EmbeddingError, name_upgrade

MULTILINGUAL = "multilingual"
INSTALL_MULTILINGUAL = "ir3de embedding install multilingual"
BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True)
class DefaultEmbedding:
    """One version of the default embedding in this package."""

    fingerprint: str
    folder: Path


DEFAULTS = {
    # SmolLM2-135M, 4-bit blocks
    1: DefaultEmbedding("0a049b450d48db152474f83994437f227554729e32db524ea4d92d94bf06449c", BUNDLED / "v1"),
    # the same, and 128 columns distilled from a sentence encoder, which help where prompts are few
    2: DefaultEmbedding("719682b5b24a1129bbf75b365c6d530525908feca6c17903a5b5f5d94250fc96", BUNDLED / "v2"),
    # version 1, and 256 columns distilled from a sentence encoder on prompts: better where prompts are few
    3: DefaultEmbedding("e11eb7e3cada51c1370a1a2dd1cc7c45c8fffdc0d15e31e784fef340a4b65aea", BUNDLED / "v3"),
}
CURRENT_VERSION = 3


def current_version() -> int:
    """The version that is used where none is named."""
    return CURRENT_VERSION


def find_version(fingerprint: str) -> int | None:
    """The version of the default embedding with this fingerprint, or None if it is another embedding."""
    return next((version for version, default in DEFAULTS.items() if default.fingerprint == fingerprint), None)


def get_default(version: int) -> DefaultEmbedding:
    """A version of the default embedding; rejects one that is not in this package."""
    if version not in DEFAULTS:
        raise EmbeddingError(
            f"version {version} of the default embedding is not part of this ir3de, which has "
            f"{', '.join(map(str, sorted(DEFAULTS)))}: {name_upgrade()}"
        )
    return DEFAULTS[version]


def parse_default(source: str) -> int | None:
    """The version that 'default' or 'default@1' stands for; None if the source is something else."""
    name, _, version = source.partition("@")
    if name != "default":
        return None
    if not version:
        return current_version()
    if not version.isdecimal():
        raise EmbeddingError(f"'{source}' names no version of the default embedding: write for instance 'default@1'")
    return int(version)


class Reader(NamedTuple):
    """A kind of source, and the function that reads it: `module:function`, imported when it is first used."""

    matches: Callable[[str, Path], bool]
    function: str


def _is_hub_id(source: str, path: Path) -> bool:
    return re.fullmatch(r"[\w.-]+/[\w.-]+", source) is not None and not path.exists() and not path.parent.is_dir()


# The first that matches reads the source. A new kind of model file is a line here and a module with such a function.
READERS = (
    Reader(lambda source, path: source == MULTILINGUAL, "multilingual:load"),
    Reader(lambda source, path: (path / COPY_HEADER).is_file(), "copies:load_copy"),
    Reader(lambda source, path: path.is_dir(), "huggingface:load_folder"),
    Reader(lambda source, path: path.is_file() and path.suffix == ".gguf", "gguf:load_gguf"),
    Reader(_is_hub_id, "huggingface:load_hub"),
)


def load(source: str | Path, *, tokenizer: str | Path | None = None) -> EmbeddingParts:
    """Read an embedding from `source`; `tokenizer` names a tokenizer.json to use instead of the source's own."""
    version = parse_default(str(source))
    path = Path(source).expanduser() if version is None else get_default(version).folder
    replacement = None if tokenizer is None else Path(tokenizer).expanduser()
    for reader in READERS:
        if reader.matches(str(source), path):
            module, _, function = reader.function.partition(":")
            read = getattr(import_module(f"ir3de.embedding.{module}"), function)
            found: EmbeddingParts = read(str(source) if reader.matches is _is_hub_id else path, tokenizer=replacement)
            return found
    if path.is_file():
        raise EmbeddingError(f"{path} is not an embedding: expected a .gguf file or a folder, found '{path.suffix}'")
    raise EmbeddingError(
        f"no embedding at '{source}': it is neither a file, nor a folder, nor a hub id of the form 'owner/model'. "
        "'default' is the bundled one, 'default@1' a given version of it. To install for other languages than English: "
        f"'{MULTILINGUAL}' ({INSTALL_MULTILINGUAL})"
    )
