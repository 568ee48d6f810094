"""Where a gateway without a configuration file keeps its state.

The folder is one of this user's state folders, `$XDG_STATE_HOME/ir3de/…` or `~/.local/state/ir3de/…`. Its name follows
from what is served: the router, and the experts that the command names. So the same command finds its changes again,
whichever port it listens on, and two gateways that serve other things never share a folder by accident. It is not next
to the router, because routers are shared, fetched from addresses, and often cannot be written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ir3de.serving import files, hide_user
from ir3de_gateway.admin.state import STATE

NOTE = "gateway.json"  # says which gateway a folder belongs to


def find_state_home(router: str, experts: Sequence[Mapping[str, Any]]) -> Path:
    """The folder for a gateway with that router and those experts, which may not exist yet.

    >>> find_state_home("/srv/router", [{"name": "law", "base_url": "http://a/v1"}]).name
    'router-85d5ae0a-316754ab'
    """
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "ir3de")
    shown = hide_user(router).rstrip("/")
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", shown.rpartition("/")[2])[:40] or "router"
    return home / f"{slug}-{_digest(shown)}-{_digest(_sort(experts))}"


def prepare_state_home(folder: Path, router: str, experts: Sequence[Mapping[str, Any]]) -> None:
    """Make the folder, with a note whose it is; raises `ArtifactError` if that cannot be."""
    files.make_folder(folder, mode=0o700)
    note = {"router": hide_user(router), "experts": _sort(experts)}
    files.write(folder / NOTE, json.dumps(note, indent=2).encode() + b"\n", private=True)


def find_relatives(folder: Path) -> list[Path]:
    """Folders with changes to the same router under other experts, if this one has none."""
    if (folder / STATE).exists() or not folder.parent.is_dir():
        return []
    family = folder.name.rpartition("-")[0]
    return sorted(path.parent for path in folder.parent.glob(f"{family}-*/{STATE}") if path.parent != folder)


def _sort(experts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(expert) for expert in experts), key=lambda expert: str(expert["name"]))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
