"""Single figures of the raw files, found by a path and shown in a format.

    living_labels > banking77 > raw > draws > * > chosen > labels | mean .0f

The first word is the file. After it, in a file with figures, comes the figure that has all parts of a name, joined
by &. `*` takes every element of a list or an object. The format is a reduction if there are several values (mean,
median, least, most, sum, count), a factor such as ×100 if one is wanted, and Python's format; or `reached`, which says
whether a figure met its bar.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median
from typing import Any

from pages import raw

REDUCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "mean": fmean,
    "median": median,
    "least": min,
    "most": max,
    "sum": sum,
    "count": len,
}


def show_raw(path: str, form: str) -> str:
    """What a path of a raw file leads to, in a format."""
    file, *steps = (step.strip() for step in path.split(" > "))
    values = [raw(file)]
    for place, step in enumerate(steps):
        found = [_take(value, step, is_first=place == 0) for value in values]
        values = [one for some in found for one in some]
    return show(values, form)


def show(values: list[Any], form: str) -> str:
    """Values in a format.

    >>> show([1, 2, 6], "mean ,.1f"), show([0.25], "×100 .0f"), show([-2], "+.1f"), show([{"reached": 0}], "reached")
    ('3.0', '25', '−2.0', '**missed**')
    >>> show([None], "×0.001 .1f")  # what could not be measured
    '–'
    """
    words = form.split()
    if words == ["reached"]:
        return "reached" if values[0]["reached"] else "**missed**"
    if values == [None]:
        return "–"
    value: Any = REDUCTIONS[words.pop(0)](values) if words[0] in REDUCTIONS else values[0]
    if len(values) > 1 and len(words) == len(form.split()):
        raise SystemExit(f"sentences.txt leads to {len(values)} values: say mean, median, least or most")
    if words[0].startswith("×"):
        value *= float(words.pop(0)[1:])
    return format(value, words[0]).replace("-", "−") if words else str(value)


def _take(value: Any, step: str, is_first: bool) -> list[Any]:
    """What a step leads to: all elements, a figure by its name, an element by its place or name."""
    if step == "*":
        return list(value.values() if isinstance(value, dict) else value)
    if is_first and "figures" in value and step not in value:
        parts = [part.strip() for part in step.split("&")]
        found = [one for one in value["figures"] if one["name"] == step] or [
            one for one in value["figures"] if all(part in one["name"] for part in parts)
        ]
        if len(found) != 1:
            raise SystemExit(f"sentences.txt names a figure that is there {len(found)} times, and not once: {step}")
        return found
    try:
        if isinstance(value, list):
            return [value[int(step)] if step.isdigit() else {one["name"]: one for one in value}[step]]
        return [value[step]]
    except (KeyError, IndexError, TypeError):
        raise SystemExit(f"sentences.txt names something that is not in the raw file: {step}") from None
