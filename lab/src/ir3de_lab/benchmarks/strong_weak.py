"""Strong and weak models: how well an outcome router orders prompts by their need for the strong one.

The folder holds `{set}_{train,test}.jsonl`, plain or compressed, with rows of `text`, `task` and the scores of two
models. A router is fitted on `train` alone, and so is the threshold of the wanted share of strong calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.corpora import read_rows
from ir3de.errors import InputError
from ir3de.evaluation import calibrate_strong_share, evaluate_outcomes

SHARE = 0.3


@dataclass(frozen=True)
class Row:
    """One set of prompts: what the router's order is worth on test prompts, and its share of strong calls."""

    name: str
    training_prompts: int
    prompts: int
    shrinkage: str
    strong: str
    weak: str
    apgr: float | None
    error: float | None
    cpt_50: float | None
    cpt_80: float | None
    wanted_share: float
    reached_share: float

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def measure(folder: Path) -> list[Row]:
    """Fit on the training rows of each set, and order its test prompts."""
    files = {path.name.split(".jsonl")[0]: path for path in sorted(folder.glob("*.jsonl*"))}
    names = [name.removesuffix("_train") for name in files if name.endswith("_train")]
    known = [name for name in names if f"{name}_test" in files]
    if not known:
        raise InputError(f"no set in {folder}: expected {{set}}_train.jsonl and {{set}}_test.jsonl, or compressed")
    return [_measure_set(name, files[f"{name}_train"], files[f"{name}_test"]) for name in known]


def _measure_set(name: str, train: Path, test: Path) -> Row:
    rows = list(read_rows([train]))
    router = Router.fit_outcomes(rows, guard=False)  # the order of the prompts counts here
    shared = calibrate_strong_share(router, None, SHARE)
    found = evaluate_outcomes(shared.router, read_rows([test])).strong_weak
    if found is None:
        raise InputError(f"no prompt in {test} has scores of two models: there is nothing to compare")
    order = (found.apgr, found.error, found.cpt_50, found.cpt_80)
    pair = (found.strong, found.weak)
    return Row(name, len(rows), found.prompts, str(router.scorer), *pair, *order, SHARE, found.strong_share)
