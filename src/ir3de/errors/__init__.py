"""Every error IR3DE raises on purpose, each also the builtin a caller would expect.

    IR3DEError
    ├── InputError            ValueError    a text, a name, a field or a parameter that cannot be used
    ├── EmbeddingError        ValueError    an embedding that cannot be read or is not finite
    ├── MismatchError         ValueError    statistics or routers of different embeddings, mixed
    ├── UnknownExpertError    KeyError      an expert the router does not have
    ├── ArtifactError         OSError       a file that is missing, truncated, corrupt or not ours
    │   └── VersionError                    a file written by a newer IR3DE
    ├── EngineError           RuntimeError  an engine that cannot go on: its workers die, its cluster is not there
    └── MissingExtraError     ImportError   an optional package that is not installed

A message says what was wrong, what was found, and what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from ir3de.errors.installation import name_extra

__all__ = [
    "ArtifactError",
    "EmbeddingError",
    "EngineError",
    "IR3DEError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "UnknownExpertError",
    "VersionError",
    "describe_value",
    "name_some",
]


_MAX_NAMES = 10  # more names are not all listed
_MAX_VALUE_CHARS = 60  # longer values are cut where an error quotes them


class IR3DEError(Exception):
    """The root of the tree: `except IR3DEError` catches every error raised on purpose."""


class InputError(IR3DEError, ValueError):
    """A text, a name, a field or a parameter that cannot be used."""


class EmbeddingError(IR3DEError, ValueError):
    """An embedding that cannot be read, has the wrong shape, or is not finite."""


class MismatchError(IR3DEError, ValueError):
    """Statistics or routers of different embeddings, mixed."""


def name_embedding(fingerprint: str, version: int | None) -> str:
    """How messages name an embedding; `version` is that of the default embedding, None for any other.

    >>> name_embedding("0a049b450d48db15", 1), name_embedding("32bc3b26b8426711", None)
    ('version 1 of the default embedding', 'embedding 32bc3b26b842')
    """
    return f"embedding {fingerprint[:12]}" if version is None else f"version {version} of the default embedding"


def name_some(names: Iterable[str], wanted: str | None = None) -> str:
    """Names for a message: all if they are few, else those most like the `wanted` one, or the first, and a count.

    >>> name_some(["maths", "law"])
    'maths, law'
    >>> name_some([f"team-{number}" for number in range(77)], "taem-12")
    'team-12, team-2, team-1 and 74 others'
    """
    from difflib import get_close_matches  # here, because nearly every module imports this one

    every = list(names)
    if len(every) <= _MAX_NAMES:
        return ", ".join(every)
    shown = (get_close_matches(wanted, every) if wanted else []) or every[: _MAX_NAMES // 2]
    return f"{', '.join(shown)} and {len(every) - len(shown)} others"


def describe_value(value: object) -> str:
    """A wrong value for a message, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value[:_MAX_VALUE_CHARS] if isinstance(value, str) else value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


class UnknownExpertError(IR3DEError, KeyError):
    """An expert the router does not have."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class ArtifactError(IR3DEError, OSError):
    """A file that is missing, truncated, corrupt or not one of ours."""


class VersionError(ArtifactError):
    """A file written by a newer IR3DE than this one."""


class EngineError(IR3DEError, RuntimeError):
    """An engine that cannot go on: a worker that dies again and again, a cluster that is not there."""


class MissingExtraError(IR3DEError, ImportError):
    """An optional package that is not installed; `extra` brings it, or where it is "" the distribution itself."""

    def __init__(self, package: str, extra: str, purpose: str, distribution: str = "ir3de") -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed: {name_extra(extra, distribution)}"
        )
        self._given = package, extra, purpose, distribution

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str, str]]:
        return type(self), self._given  # it is not made from its message, and must come back from other processes
