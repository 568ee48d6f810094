"""What a router expects every model to score on every item: all that is needed to weigh quality against money.

`results/{setting}/expectations/*.json.xz`, a file a router. Whatever is spent, the choices follow from it: with a price
of quality, each item goes to the model whose expected score, less what its answers usually cost, is the highest; with
a share of strong calls, those items go to the strong model on which it is expected to lie furthest above the weak one.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments.choices import FAMILIES
from ir3de_lab.experiments.matrix import Floats, Matrix

KIND, VERSION = "ir3de.expectations", 1
DECIMALS = 4  # scores are shares, and no router is surer than that


@dataclass(frozen=True, eq=False)
class Expectations:
    """One router on one setting."""

    router: str
    family: str  # one of FAMILIES
    scores: Floats  # (n, experts)
    costs: Floats | None = None  # (experts,)  what an answer cost on average in the training rows, where it is known
    fit_seconds: float | None = None
    route_us: float | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise InputError(f"{self.router} is of the family {self.family!r}; known are {', '.join(FAMILIES)}")

    @property
    def slug(self) -> str:
        """The name of its file."""
        return re.sub(r"[^a-z0-9.]+", "-", self.router.lower()).strip("-")


def write(found: Expectations, matrix: Matrix, folder: Path) -> Path:
    """Keep what a router expects beside the outcomes."""
    if found.scores.shape != (len(matrix.items), len(matrix.experts)) or not np.isfinite(found.scores).all():
        raise InputError(
            f"{found.router} must expect a number of each of {len(matrix.experts)} models on each of "
            f"{len(matrix.items)} items, found scores of shape {found.scores.shape}"
        )
    document = {
        "kind": KIND,
        "version": VERSION,
        "router": found.router,
        "family": found.family,
        "setting": matrix.setting,
        "experts": list(matrix.experts),
        "items": matrix.digest,
        "fit_seconds": _shorten(found.fit_seconds),
        "route_us": _shorten(found.route_us),
        "about": dict(found.about),
        "costs": None if found.costs is None else [float(f"{cost:.6g}") for cost in found.costs],
        "scores": np.round(found.scores, DECIMALS).tolist(),
    }
    path = folder / f"{found.slug}.json.xz"
    files.write(path, lzma.compress(json.dumps(document, ensure_ascii=False).encode()))
    return path


def read(path: Path, matrix: Matrix) -> Expectations:
    """Read what a router expects, and check that it is about these models and items."""
    try:
        document = json.loads(lzma.decompress(files.read(path)))
    except (lzma.LZMAError, ValueError) as error:
        raise ArtifactError(f"{path} is truncated or damaged ({error}). Copy it again") from error
    files.check_kind(document, KIND, VERSION, path)
    try:
        if document["items"] != matrix.digest or document["experts"] != list(matrix.experts):
            raise ArtifactError(
                f"{path} belongs to other outcomes (items {document['items']}, here {matrix.digest}): "
                f"run `ir3de bench run --setting {matrix.setting} --only expectations` again"
            )
        scores = np.array(document["scores"], np.float64)
        if scores.shape != (len(matrix.items), len(matrix.experts)) or not np.isfinite(scores).all():
            raise ArtifactError(f"{path} is damaged: its scores have the shape {scores.shape}. Make it again")
        return Expectations(
            document["router"],
            document["family"],
            scores,
            None if document["costs"] is None else np.array(document["costs"], np.float64),
            document["fit_seconds"],
            document["route_us"],
            document["about"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Make it again") from error


def read_all(folder: Path, matrix: Matrix) -> list[Expectations]:
    """Every router's expectations in a folder, in the order of their names."""
    return [read(path, matrix) for path in sorted(folder.glob("*.json.xz"))]


def _shorten(value: float | None) -> float | None:
    return None if value is None else json.loads(f"{value:.4g}")
