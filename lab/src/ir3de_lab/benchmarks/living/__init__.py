"""The router that lives: each figure of `ir3de bench living` is measured by the module of its name here.

Such a module has `measure(data, quick=…, note=…)`: it gets the folder of prompts, reports its progress with `note`, and
returns `Figure`s. The shared sets are streams of traffic, and labels and scores are revealed only as the figure says.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from ir3de_lab.benchmarks.measurement import Figure

FIGURES = {
    "cost": "what the journal costs a request to the gateway",
    "canary": "a candidate is stopped or promoted by the sequential test",
    "drift": "a new domain in the traffic is noticed, and false alarms are rare",
    "learning": "labels of a few requests, beside labels of all",
    "labels": "how many labels a router needs: chosen by `label`, and at random",
    "poisoning": "a source whose labels are all wrong",
    "scores": "scores of the chosen model alone, beside scores of all models",
    "coverage": "95 % intervals of `compare` that cover the truth: 93 to 97 %",
    "compare-speed": "`compare` of a log of 100,000 requests, from the journal on disk",
}

Note = Callable[[str], None]


class Measure(Protocol):
    """What a module of this package offers."""

    def __call__(self, data: Path, *, quick: bool, note: Note) -> list[Figure]: ...


def load_measure(name: str) -> Measure:
    """The function that measures the figure of that name."""
    module: Any = import_module(f"{__name__}.{name.replace('-', '_')}")
    return cast(Measure, module.measure)
