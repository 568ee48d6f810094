"""How this ir3de was installed, and so how something is added to it.

No package index is named: until ir3de is published, whoever claims its name there decides what people install. So a
hint names the folder or the file that this ir3de came from, or says it in words.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FROM_WHERE = "from where you got this one"
FOLDERS = {"ir3de": "", "ir3de-gateway": "gateway", "ir3de-lab": "lab"}  # of the distributions in a checkout


def name_extra(extra: str, distribution: str = "ir3de") -> str:
    """How to add an extra, as the end of a sentence; of "" as the extra, how to add the distribution itself.

    >>> name_extra("gguf")  # doctest: +SKIP
    "pip install -e '.[gguf]'"
    """
    brackets = f"[{extra}]" if extra else ""
    root = find_checkout()
    if root is not None:
        folder = root / FOLDERS[distribution]
        return f"pip install -e {_quote(_shorten(folder) + brackets)}"
    origin = _read_origin(distribution)
    path = _find_path(origin)
    if path is not None and path.is_dir():
        return f"pip install {_quote(_shorten(path) + brackets)}"
    if address := _name_address(origin, path):
        return f"pip install {_quote(f'{distribution}{brackets} @ {address}')}"
    if extra:
        return f"install {distribution} again with its extra {extra!r}, {FROM_WHERE}"
    return f"install {distribution}, from where you got ir3de"


def name_upgrade(distribution: str = "ir3de") -> str:
    """How to get a newer version, as the end of a sentence.

    >>> name_upgrade()
    'install a newer ir3de, from where you got this one'
    """
    return f"install a newer {distribution}, {FROM_WHERE}"


def find_checkout() -> Path | None:
    """The folder of the sources, if this package runs from them; None if it was copied into an environment."""
    root = Path(__file__).resolve().parents[3]
    return root if (root / "pyproject.toml").is_file() and (root / "hatch_build.py").is_file() else None


def _shorten(folder: Path) -> str:
    """The folder as it can be written here: '.' and './lab' in the checkout itself."""
    try:
        here = folder.relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere, or in a folder that is gone
        return str(folder)
    return f"./{here.as_posix()}" if here.parts else "."


def _read_origin(distribution: str) -> dict[str, Any]:
    """What pip wrote down about where it got the distribution from; {} for an index."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import distribution as find

    try:
        said = json.loads(find(distribution).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return said if isinstance(said, dict) and isinstance(said.get("url"), str) else {}


def _find_path(origin: dict[str, Any]) -> Path | None:
    """The folder or file on this machine that it came from, if it is still there."""
    if not origin.get("url", "").startswith("file:"):
        return None
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    path = Path(url2pathname(urlsplit(origin["url"]).path))
    return path if path.exists() else None


def _name_address(origin: dict[str, Any], path: Path | None) -> str | None:
    """The address behind the `@` of a requirement, without a user's name or password; None if there is none."""
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
