"""Scorers and selectors by name: a header names them, never code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ir3de.errors import ArtifactError
from ir3de.scorers import Blend, CrossEntropy, KernelRidge, Posterior, PromptRidge, TokenRidge
from ir3de.selectors import AllTokens, Average, EntropyTopK

SCORERS: dict[str, type] = {
    "TokenRidge": TokenRidge,
    "PromptRidge": PromptRidge,
    "Posterior": Posterior,
    "Blend": Blend,
    "CrossEntropy": CrossEntropy,
    "KernelRidge": KernelRidge,
}
SELECTORS: dict[str, type] = {"EntropyTopK": EntropyTopK, "AllTokens": AllTokens, "Average": Average}


def describe(strategy: object, known: Mapping[str, type]) -> dict[str, Any]:
    """A strategy as plain values: its name and its parameters."""
    name = type(strategy).__name__
    if known.get(name) is not type(strategy):
        raise ArtifactError(f"cannot save {strategy!r}: only {', '.join(known)} can be written to a file")
    return {"name": name, **asdict(strategy)}  # type: ignore[call-overload]


def restore(described: Mapping[str, Any], known: Mapping[str, type]) -> Any:
    """The strategy that was described so."""
    parameters = dict(described)
    name = parameters.pop("name")
    if name not in known:
        raise ArtifactError(f"unknown strategy '{name}': this ir3de knows {', '.join(known)}. Upgrade ir3de")
    return known[name](**parameters)
