"""The default embedding and its versions.

A version never changes once it is released, and stays in the package, so that routers and statistics that were made
with it go on working when a later version becomes the default. Files name the version; those of ir3de 0.1 do not, and
are recognised by their fingerprint.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ir3de.errors import EmbeddingError
from ir3de.errors.installation import name_upgrade

_BUNDLED = Path(__file__).parent / "bundled"


@dataclass(frozen=True)
class DefaultEmbedding:
    """One version of the default embedding, as it lies in this package."""

    fingerprint: str
    folder: Path


DEFAULTS = {
    # SmolLM2-135M, 4-bit blocks
    1: DefaultEmbedding("0a049b450d48db152474f83994437f227554729e32db524ea4d92d94bf06449c", _BUNDLED / "v1"),
    # the same, and 128 columns distilled from a sentence encoder, which help where prompts are few
    2: DefaultEmbedding("719682b5b24a1129bbf75b365c6d530525908feca6c17903a5b5f5d94250fc96", _BUNDLED / "v2"),
}
CURRENT_VERSION = 1


def current_version() -> int:
    """The version that is used where none is named."""
    return CURRENT_VERSION


def find_version(fingerprint: str) -> int | None:
    """The version of the default embedding with this fingerprint, or None if it is another embedding."""
    return next((version for version, default in DEFAULTS.items() if default.fingerprint == fingerprint), None)


def get_default(version: int) -> DefaultEmbedding:
    """A version of the default embedding; refuses one that is not in this package."""
    if version not in DEFAULTS:
        raise EmbeddingError(
            f"version {version} of the default embedding is not part of this ir3de, which has "
            f"{' and '.join(map(str, sorted(DEFAULTS)))}: {name_upgrade()}"
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
