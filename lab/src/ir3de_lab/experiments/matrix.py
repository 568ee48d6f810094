"""The outcome matrix: what every expert made of every test item. Any router can be scored from it, without a model.

A file of JSON lines, xz-packed. The first line says what it is and how it was made; every other one is an item:
`{"item": …, "domain": …, "group": …, "weight": …, "values": [one a column]}`, and `"costs": [one an expert]` where it
is known what their answers cost. Columns are the experts and then the
extras: models that no router chooses, such as the mean of the experts' weights.

Where the metric is perplexity, a value is the negative log-likelihood of the item's text in nats and its weight the
number of tokens predicted; where it is a score, a value is the points reached and the weight those that could be.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments.settings import METRICS

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
KIND, VERSION = "ir3de.outcome_matrix", 1
EARLIER_KIND = "ir3de.outcomes"  # until a file of the product had the same name


@dataclass(frozen=True, eq=False)
class Matrix:
    """Items by experts. `own` names, for each domain, the expert it is measured against."""

    setting: str
    metric: str
    domains: tuple[str, ...]
    experts: tuple[str, ...]
    own: Mapping[str, str]
    items: tuple[str, ...]
    domain: Places  # (n,)  places in `domains`
    group: tuple[str, ...]  # (n,)  within a domain, groups count alike: languages, say
    weight: Floats  # (n,)
    values: Floats  # (n, experts + extras)
    extras: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    costs: Floats | None = None  # (n, experts)  of each answer, where they are known
    clusters: Places | None = None  # (n,)  the same number where items belong together; not in the matrix's own file

    def __post_init__(self) -> None:
        _check(self)

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.experts, *self.extras)

    @cached_property
    def own_expert(self) -> Places:
        """(n,)  the column of the expert of each item's domain."""
        places = np.array([self.experts.index(self.own[domain]) for domain in self.domains])
        return np.asarray(places[self.domain])

    @property
    def cluster(self) -> Places:
        """(n,)  the cluster of each item; each is one of its own where nothing is known."""
        return np.arange(len(self.items)) if self.clusters is None else self.clusters

    @cached_property
    def place(self) -> dict[str, int]:
        """Where each item is."""
        return {item: place for place, item in enumerate(self.items)}

    def of_columns(self, columns: Places) -> Floats:
        """(n,)  each item's value in the column chosen for it."""
        return np.asarray(self.values[np.arange(len(self.items)), columns])

    @property
    def digest(self) -> str:
        """A hash of the items in their order, by which decisions are known to belong to it."""
        import hashlib

        return hashlib.sha256("\n".join(self.items).encode()).hexdigest()[:16]


def write(matrix: Matrix, path: Path) -> None:
    """Write the matrix so that it is there as a whole or not at all."""
    head = {
        "kind": KIND,
        "version": VERSION,
        "setting": matrix.setting,
        "metric": matrix.metric,
        "domains": list(matrix.domains),
        "experts": list(matrix.experts),
        "extras": list(matrix.extras),
        "own": dict(matrix.own),
        "about": dict(matrix.about),
    }
    lines = [json.dumps(head, ensure_ascii=False)]
    for place, item in enumerate(matrix.items):
        row = {
            "item": item,
            "domain": matrix.domains[matrix.domain[place]],
            "group": matrix.group[place],
            "weight": _short(matrix.weight[place]),
            "values": [_short(value) for value in matrix.values[place]],
        }
        if matrix.costs is not None:
            row["costs"] = [float(f"{cost:.6g}") for cost in matrix.costs[place]]
        lines.append(json.dumps(row, ensure_ascii=False))
    files.write(path, lzma.compress("\n".join(lines).encode() + b"\n"))


def read(path: Path) -> Matrix:
    """Read a matrix and check that it is whole."""
    head, *rows = read_lines(path)
    is_earlier = isinstance(head, dict) and head.get("kind") == EARLIER_KIND
    files.check_kind({**head, "kind": KIND} if is_earlier else head, KIND, VERSION, path)
    try:
        domains, columns = tuple(head["domains"]), len(head["experts"]) + len(head["extras"])
        place = {domain: index for index, domain in enumerate(domains)}
        for number, row in enumerate(rows, start=2):
            if row["domain"] not in place:
                raise ArtifactError(
                    f"{path}, line {number}: the domain {row['domain']!r} is none of {list(domains)}: "
                    "make the outcomes again"
                )
            if len(row["values"]) != columns:
                raise ArtifactError(
                    f"{path}, line {number}: the item {row['item']!r} has {len(row['values'])} values and there are "
                    f"{columns} columns ({', '.join([*head['experts'], *head['extras']])}): make its outcomes again"
                )
        return Matrix(
            head["setting"],
            head["metric"],
            domains,
            tuple(head["experts"]),
            head["own"],
            tuple(row["item"] for row in rows),
            np.array([place[row["domain"]] for row in rows], np.intp),
            tuple(row["group"] for row in rows),
            np.array([row["weight"] for row in rows], np.float64),
            np.array([row["values"] for row in rows], np.float64).reshape(len(rows), columns),
            tuple(head["extras"]),
            head["about"],
            np.array([row["costs"] for row in rows], np.float64) if rows and "costs" in rows[0] else None,
        )
    except InputError as error:
        raise ArtifactError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Copy it again, or make the outcomes again") from error


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of an xz-packed file, one a line."""
    try:
        lines = [json.loads(line) for line in lzma.decompress(files.read(path)).decode().splitlines()]
    except (lzma.LZMAError, ValueError) as error:
        raise ArtifactError(f"{path} is truncated or damaged ({error}). Copy it again") from error
    if not lines or not all(isinstance(line, dict) for line in lines):
        raise ArtifactError(f"{path} is damaged: expected one JSON object a line. Copy it again")
    return lines


def _short(value: float) -> float:
    """Three decimals, and no point where there is nothing behind it."""
    rounded = round(float(value), 3)
    return int(rounded) if rounded.is_integer() else rounded


def _check(matrix: Matrix) -> None:
    shapes = (len(matrix.items), len(matrix.columns))
    if matrix.metric not in METRICS:
        raise InputError(f"the metric is {matrix.metric!r}; known are {', '.join(METRICS)}")
    if matrix.values.shape != shapes or len(matrix.weight) != shapes[0] or len(matrix.domain) != shapes[0]:
        raise InputError(f"outcomes of shape {matrix.values.shape} for {shapes[0]} items and {shapes[1]} columns")
    if matrix.costs is not None and matrix.costs.shape != (shapes[0], len(matrix.experts)):
        raise InputError(f"costs of shape {matrix.costs.shape} for {shapes[0]} items and {len(matrix.experts)} experts")
    if matrix.costs is not None and not (np.isfinite(matrix.costs) & (matrix.costs >= 0)).all():
        raise InputError("what an answer costs must be a number of 0 or more: make the outcomes again")
    if len(set(matrix.items)) != len(matrix.items):
        twice = _repeated(matrix.items)
        raise InputError(f"the item {twice!r} is there twice: leave one of its outcomes out")
    missing = [domain for domain in matrix.domains if matrix.own.get(domain) not in matrix.experts]
    if missing:
        raise InputError(
            f"no column for the expert of the domain {missing[0]!r}; found {', '.join(matrix.experts)}: "
            "make the outcomes of that expert too"
        )
    holes = np.argwhere(~np.isfinite(matrix.values))
    if len(holes):
        row, column = holes[0]
        raise InputError(
            f"no outcome of the expert {matrix.columns[column]!r} for the item {matrix.items[row]!r}: "
            "make the outcomes of that expert again"
        )
    if not (matrix.weight > 0).all():
        raise InputError(f"the item {matrix.items[int(np.argmin(matrix.weight))]!r} has a weight of 0 or less")
    empty = [domain for place, domain in enumerate(matrix.domains) if not (matrix.domain == place).any()]
    if empty:
        raise InputError(f"no item of the domain {empty[0]!r}: make the outcomes of its items too")


def _repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
