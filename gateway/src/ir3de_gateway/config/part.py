"""What all parts of the configuration have in common."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # the name of a variable


class Part(BaseModel):
    """A part of the configuration: unknown fields are refused, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """The question whether another name was meant, where one is much like it; else nothing."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}? " if close else ""


def read_variable(variable: str | None) -> str | None:
    """The value of an environment variable; None if it is not set or empty."""
    return (os.environ.get(variable) or "").strip() or None if variable else None


def resolve_path(path: Path, given: str) -> str:
    """A path of the configuration, relative to the file that names it; addresses stay as they are."""
    if "://" in given:
        return given
    return str((path.parent / Path(given).expanduser()).resolve())
