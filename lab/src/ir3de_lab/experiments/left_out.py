"""The routers that were planned for a setting and not run, each with its reason: what a table shows as n/a."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ir3de.errors import ArtifactError
from ir3de_lab import files
from ir3de_lab.experiments.choices import Choices

KIND, VERSION = "ir3de.left-out", 1
LEFT_OUT = "left_out.json"


def read(folder: Path) -> dict[str, str]:
    """Reasons by the name of a router, or of the curve that it is on; nothing where there is no file."""
    path = folder / LEFT_OUT
    if not path.is_file():
        return {}
    reasons = files.read_json(path, kind=KIND, version=VERSION).get("routers")
    if not isinstance(reasons, dict) or not all(isinstance(reason, str) and reason for reason in reasons.values()):
        raise ArtifactError(f"{path} is damaged: expected a reason for each router. Make it again with `bench run`")
    return reasons


def update(folder: Path, reasons: Mapping[str, str], found: Iterable[Choices]) -> None:
    """Add reasons, and forget those of routers and curves that have been run since."""
    known = {name for one in found for name in (one.router, one.series)}
    kept = {name: why for name, why in {**read(folder), **reasons}.items() if name not in known}
    path = folder / LEFT_OUT
    if kept:
        files.write_json(path, {"kind": KIND, "version": VERSION, "routers": dict(sorted(kept.items()))})
    else:
        path.unlink(missing_ok=True)
