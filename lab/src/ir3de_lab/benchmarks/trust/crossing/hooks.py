"""Hooks that look, and change nothing."""

from __future__ import annotations

from typing import Any


def look(event: dict[str, Any]) -> None:
    """Called before a request or after its answer."""
