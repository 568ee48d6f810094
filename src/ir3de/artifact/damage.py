"""What keeps a folder from being read: damage to its header, or that it is a serving copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, MismatchError

HEADER = "router.json"


@contextmanager
def name_damage(folder: Path) -> Iterator[None]:
    """Say that the header is damaged where reading its fields goes wrong."""
    try:
        yield
    except MismatchError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{folder / HEADER} is damaged: {error!r}. Copy it again from where it came from"
        ) from error


def refuse_serving(folder: Path, header: Mapping[str, Any]) -> None:
    """Refuse to read from a serving copy what only changes need."""
    if header["serving"]:
        raise ArtifactError(
            f"{folder} is a serving copy: it can route, but not change. Change the router it was made from"
        )
