"""Every error IR3DE raises on purpose, each also the builtin a caller would expect.

    IR3DEError
    ├── InputError            ValueError    a text, a name, a field or a parameter that cannot be used
    ├── EmbeddingError        ValueError    an embedding that cannot be read or is not finite
    ├── MismatchError         ValueError    statistics or routers of different embeddings, mixed
    ├── UnknownExpertError    KeyError      an expert the router does not have
    ├── ArtifactError         OSError       a file that is missing, truncated, corrupt or not written by IR3DE
    │   └── VersionError                    a file written by a newer IR3DE
    ├── EngineError           RuntimeError  an engine that cannot continue: its workers die, its cluster is unreachable
    └── MissingExtraError     ImportError   an optional package that is not installed

A message states what was wrong, what was found, and what to do. Hints about installation name the folder or the file
that this ir3de came from. They name no package index: until ir3de is published, anyone may claim its name there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = [
    "ArtifactError", "EmbeddingError", "EngineError", "IR3DEError", "InputError", "MismatchError", "MissingExtraError",
    "UnknownExpertError", "VersionError", "describe_value", "name_some",
]  # fmt: skip

FROM_WHERE = "from where you got this one"
FOLDERS = {"ir3de": "", "ir3de-gateway": "gateway", "ir3de-lab": "lab"}  # of the distributions in a checkout
_MAX_NAMES = 10  # a longer list of names is shortened
_MAX_VALUE_CHARS = 60  # a longer value is cut


class IR3DEError(Exception):
    """The root of the tree: `except IR3DEError` catches every error raised on purpose."""


class InputError(IR3DEError, ValueError):
    """A text, a name, a field or a parameter that cannot be used."""


class EmbeddingError(IR3DEError, ValueError):
    """An embedding that cannot be read, has the wrong shape, or is not finite."""


class MismatchError(IR3DEError, ValueError):
    """Statistics or routers of different embeddings, mixed."""


class UnknownExpertError(IR3DEError, KeyError):
    """An expert the router does not have."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class ArtifactError(IR3DEError, OSError):
    """A file that is missing, truncated, corrupt or not written by IR3DE."""


class VersionError(ArtifactError):
    """A file written by a newer IR3DE than this one."""


class EngineError(IR3DEError, RuntimeError):
    """An engine that cannot continue: a worker that dies repeatedly, a cluster that is unreachable."""


class MissingExtraError(IR3DEError, ImportError):
    """An optional package that is not installed; `extra` brings it, or the distribution itself if `extra` is ""."""

    def __init__(self, package: str, extra: str, purpose: str, distribution: str = "ir3de") -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed: {name_extra(extra, distribution)}"
        )
        self._given = package, extra, purpose, distribution

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str, str, str]]:
        return type(self), self._given  # the message alone cannot rebuild it in another process


def name_embedding(fingerprint: str, version: int | None) -> str:
    """Name an embedding in a message; `version` is that of the default embedding, None for any other.

    >>> name_embedding("0a049b450d48db15", 1), name_embedding("32bc3b26b8426711", None)
    ('version 1 of the default embedding', 'embedding 32bc3b26b842')
    """
    return f"embedding {fingerprint[:12]}" if version is None else f"version {version} of the default embedding"


def name_some(names: Iterable[str], wanted: str | None = None) -> str:
    """List names in a message: all if they are few, else those most like the `wanted` one, or the first, and a count.

    >>> name_some(["maths", "law"])
    'maths, law'
    >>> name_some([f"team-{number}" for number in range(77)], "taem-12")
    'team-12, team-2, team-1 and 74 others'
    """
    from difflib import get_close_matches  # imported here, because nearly every module imports this one

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


def name_extra(extra: str, distribution: str = "ir3de") -> str:
    """How to add an extra, as the end of a sentence; for the extra "", how to add the distribution itself.

    >>> name_extra("gguf")  # doctest: +SKIP
    "pip install -e '.[gguf]'"
    """
    brackets = f"[{extra}]" if extra else ""
    root = find_checkout()
    if root is not None:
        return f"pip install -e {_quote(_shorten(root / FOLDERS[distribution]) + brackets)}"
    origin = _read_origin(distribution)
    path = _find_path(origin)
    if path is not None and path.is_dir():
        return f"pip install {_quote(_shorten(path) + brackets)}"
    if address := _name_address(origin, path):
        return f"pip install {_quote(f'{distribution}{brackets} @ {address}')}"
    if extra:
        return f"install {distribution} again with its extra {extra!r}, {FROM_WHERE}"
    checkout = _find_path(_read_origin("ir3de"))  # the folder that ir3de was copied from may have the others too
    if (
        distribution != "ir3de"
        and checkout is not None
        and (checkout / FOLDERS[distribution] / "pyproject.toml").is_file()
    ):
        return f"pip install {_quote(_shorten(checkout / FOLDERS[distribution]))}"
    return f"install {distribution}, from where you got ir3de"


def name_upgrade(distribution: str = "ir3de") -> str:
    """How to get a newer version, as the end of a sentence.

    >>> name_upgrade()
    'install a newer ir3de, from where you got this one'
    """
    return f"install a newer {distribution}, {FROM_WHERE}"


def find_checkout() -> Path | None:
    """The folder of the sources if this package runs from them; None if it was copied into an environment."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "hatch_build.py").is_file() else None


def _shorten(folder: Path) -> str:
    """The folder relative to the current one: '.' and './lab' in the checkout itself."""
    try:
        here = folder.relative_to(Path.cwd())
    except (ValueError, OSError):  # not below the current folder, or the current folder was deleted
        return str(folder)
    return f"./{here.as_posix()}" if here.parts else "."


def _read_origin(distribution: str) -> dict[str, Any]:
    """pip's record of where it got the distribution from; {} for an index."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as find

    try:
        recorded = json.loads(find(distribution).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return recorded if isinstance(recorded, dict) and isinstance(recorded.get("url"), str) else {}


def _find_path(origin: dict[str, Any]) -> Path | None:
    """The folder or file on this machine that it came from, if it still exists."""
    if not origin.get("url", "").startswith("file:"):
        return None
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    path = Path(url2pathname(urlsplit(origin["url"]).path))
    return path if path.exists() else None


def _name_address(origin: dict[str, Any], path: Path | None) -> str | None:
    """The address behind the `@` of a requirement; None if there is none, or if it holds a user's name."""
    address: str = origin.get("url", "")
    if address.startswith("file:"):
        return address if path is not None else None
    if not address or "@" in address.partition("://")[2].partition("/")[0]:
        return None
    version_control = origin.get("vcs_info")
    if not isinstance(version_control, dict):
        return address
    return f"{version_control.get('vcs', 'git')}+{address}@{version_control.get('commit_id', '')}".rstrip("@")


def _quote(text: str) -> str:
    quote = '"' if os.name == "nt" else "'"
    return f"{quote}{text}{quote}"
