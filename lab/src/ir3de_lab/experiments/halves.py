"""Routing by outcomes where the best expert need not be the domain's: fitted on half of the items, tested on the other.

The items are halved by a hash of their question, so that its translations stay together. Each half is routed by what
was fitted on the outcomes of the other: no item's own outcome takes part in its choice, and all items are tested.
Beside it: the best single model, and the best model of each domain, as the other half shows them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ir3de import Router
from ir3de.errors import InputError
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.matrix import Floats, Matrix, Places
from ir3de_lab.experiments.metrics import Flags

FROM_OUTCOMES = "ir3de, from outcomes of the other half"
BY_DOMAIN = "ir3de, and the domain's best model in the other half"
SINGLE = "Best single model in the other half"


@dataclass(frozen=True, eq=False)
class Halved:
    """What was chosen for every item, by columns of the matrix."""

    name: str
    columns: Places
    about: Mapping[str, Any] = field(default_factory=dict)


def choose_by_halves(items: Sequence[Item], matrix: Matrix, domains: Sequence[str]) -> Iterator[Halved]:
    """The three ways; `domains` are those that a usual router names for the items."""
    scores = score(matrix)
    first = halve(items, matrix)
    for place, domain in enumerate(matrix.domains):
        if len(np.unique(first[matrix.domain == place])) < 2:
            raise InputError(
                f"the items of '{domain}' cannot be halved: all of them are of one question, or in one half"
            )
    learnt: list[Mapping[str, Any]] = []
    found = {name: np.zeros(len(items), np.intp) for name in (FROM_OUTCOMES, BY_DOMAIN, SINGLE)}
    for part in (first, ~first):
        others, here = np.flatnonzero(~part).tolist(), np.flatnonzero(part).tolist()
        router = Router.fit_outcomes([_row(items[i], matrix, scores[i]) for i in others])
        gain = router.validation.gain
        learnt.append({"gain": None if gain is None else vars(gain), "reason": router.validation.reason})
        column_of = {expert: column for column, expert in enumerate(matrix.experts)}
        chosen = router.route_batch([items[i].text for i in here])
        found[FROM_OUTCOMES][here] = [column_of[decision.best] for decision in chosen]
        means = {d: scores[[i for i in others if items[i].domain == d]].mean(axis=0) for d in matrix.domains}
        best = {domain: int(mean.argmax()) for domain, mean in means.items()}
        found[BY_DOMAIN][here] = [best[domains[i]] for i in here]
        found[SINGLE][here] = int(np.mean(list(means.values()), axis=0).argmax())
    for name, columns in found.items():
        yield Halved(name, columns, {"validation_by_half": learnt} if name == FROM_OUTCOMES else {})


def score(matrix: Matrix) -> Floats:
    """What each expert scored on each item, larger being better: (n, experts)."""
    values = matrix.values[:, : len(matrix.experts)] / matrix.weight[:, None]
    return np.asarray(-values if matrix.metric == "perplexity" else values)


def halve(items: Sequence[Item], matrix: Matrix) -> Flags:
    """Which items are in the first half: those of a question in several languages together."""
    keys = [str(i.row.get("id", i.id)).removeprefix(f"{g}/") for i, g in zip(items, matrix.group, strict=True)]
    return np.array([hashlib.sha256(key.encode()).digest()[0] % 2 == 0 for key in keys])


def _row(item: Item, matrix: Matrix, scores: Floats) -> dict[str, Any]:
    return {"text": item.text, "task": item.domain, "scores": dict(zip(matrix.experts, scores.tolist(), strict=True))}
