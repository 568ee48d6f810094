"""The modules of the library that commands use, each imported when it is first used, so that `--help` is fast.

A command writes `lib.labels.guess_label(rows)`. What `ir3de` exports itself, such as `ir3de.Router`, is not here.
"""

# mypy: implicit-reexport
# ruff: noqa: F401
from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # see `files.package`
if TYPE_CHECKING:
    from types import ModuleType

    from ir3de import corpora, engines, evaluation, policies, scorers, selectors, statistics, traffic
    from ir3de.corpora import examples, labelled, labels, repeats
    from ir3de.embedding import copies, huggingface, multilingual, readers
    from ir3de.engines import shards
    from ir3de.evaluation import accuracy, frontier, intervals, prompts, proof, report, threshold
    from ir3de.files import formats, ledger, router_folder, sources, streams
    from ir3de.fitting import domains, lessons, outcomes, saving
    from ir3de.routing import explanation, html
    from ir3de.scorers import arithmetic, registry
    from ir3de.statistics import contributions, sample
    from ir3de.traffic import (
        comparison_page,
        decision_log,
        drift_report,
        imports,
        journal,
        labelling,
        learning,
        new_domains,
        prices,
        score_learning,
        sequential,
        verdict,
    )

PACKAGES = {
    "": "corpora engines evaluation policies scorers selectors statistics traffic",
    ".corpora": "examples labelled labels repeats",
    ".embedding": "copies huggingface multilingual readers",
    ".engines": "shards",
    ".evaluation": "accuracy frontier intervals prompts proof report threshold",
    ".files": "formats ledger router_folder sources streams",
    ".fitting": "domains lessons outcomes saving",
    ".routing": "explanation html",
    ".scorers": "arithmetic registry",
    ".statistics": "contributions sample",
    ".traffic": "comparison_page decision_log drift_report imports journal "
    "labelling learning new_domains prices score_learning sequential verdict",
}
PATHS = {name: f"ir3de{package}.{name}" for package, names in PACKAGES.items() for name in names.split()}


def __getattr__(name: str) -> ModuleType:
    if name not in PATHS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = import_module(PATHS[name])  # the next use does not call this function
    return found
