"""A router in one line, and as HTML for notebooks: what it was fitted from, how, and how accurate that was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir3de.errors import IR3DEError, name_some

if TYPE_CHECKING:
    from ir3de.fitting.parts import RouterParts


def describe_router(parts: RouterParts) -> str:
    """The router in one line, however many experts it has."""
    compiled = parts.compiled
    return f"Router({name_some(compiled.experts)}; {parts.training.scorer}, {compiled.selector})"


def draw_router(parts: RouterParts) -> str:
    """Facts about the router, and its experts with the prompts they were given and those that were kept."""
    from ir3de.routing.notebook import draw_router as draw

    compiled, training = parts.compiled, parts.training
    default = compiled.default
    facts = {
        "scorer": str(training.scorer),
        "selector": str(compiled.selector),
        "accuracy": describe_accuracy(parts),
        "confidence": "not calibrated" if compiled.rules.calibration is None else "calibrated on held-out prompts",
        "default expert": "none was named" if default is None else compiled.experts[default],
        "table": f"{_measure_bytes(parts) / 1e6:.1f} MB",
    }
    if training.kind == "outcomes":
        del facts["confidence"]
    columns, counts = _count_prompts(parts)
    return draw(compiled.experts, facts, counts, columns)


def describe_accuracy(parts: RouterParts) -> str:
    """What was measured on held-out prompts when the router was fitted, if anything was."""
    training = parts.training
    chosen = next((trial for trial in training.trials if trial.get("chosen")), None)
    if chosen is not None:
        return f"{100 * chosen['accuracy']:.1f} % on held-out prompts, best of {len(training.trials)} trials"
    if (gain := training.validation.gain) is not None:
        return f"{gain.mean:+.3f} ± {gain.error:.3f} over the best single model, on {gain.prompts:,} held-out prompts"
    return "not measured"


def _count_prompts(parts: RouterParts) -> tuple[tuple[str, ...], Mapping[str, tuple[int, ...]]]:
    """The prompts that each expert was given, and those that were kept; nothing in a serving copy."""
    if parts.training.kind == "outcomes":
        return (), {}
    try:
        known = parts.training.statistics()
    except IR3DEError:  # a serving copy, or a damaged file: a notebook shows what there is
        return (), {}
    kept = {name: 0 if own.sample is None else len(own.sample) for name, own in known.items()}
    return ("prompts", "kept"), {name: (own.prompts, kept[name]) for name, own in known.items()}


def _measure_bytes(parts: RouterParts) -> int:
    table = parts.compiled.table
    arrays = (table.scores, table.vote, table.familiarity, table.pairs)
    return sum(array.nbytes for array in arrays if array is not None)
