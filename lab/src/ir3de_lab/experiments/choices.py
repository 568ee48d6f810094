"""What a router chose for every item of a setting, what it cost, and what it needs: one JSON file a router.

Routers of a long curve share one compressed file, a line each. Choices are kept beside the outcomes, so that tables and
figures are rebuilt without texts, models or routers.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments.matrix import Matrix, Places

KIND, VERSION = "ir3de.choices", 1
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
LOAD = "load_per_core"  # what `about` says of how busy the machine was
SHARED = "shared_accelerator"  # and of whether other programs were on its accelerator
EMBEDDING = "embedding"  # what it says of whose embedding a router stands on, where that is not the usual one
DRAW = "draw"  # what `about` says of which draw of training prompts it was
FAMILIES = ("paper", "ours", "rivals")
AXES = (  # what a curve of routers may be drawn over; the tables show the best of the first three, as the paper does
    "k",  # tokens that vote
    "neighbours",
    "rate",  # of learning
    "prompts",  # of each domain that were fitted on
    "tokens",  # of each item that were read
    "strength",  # λ, the weight of the penalty
)
BUNDLED = {  # the file that all routers of curves over an axis share
    "prompts": "prompts.jsonl.xz",
    "tokens": "tokens.jsonl.xz",
    "strength": "strengths.jsonl.xz",
}


@dataclass(frozen=True)
class Traits:
    """What a router asks of its surroundings."""

    central_data: bool  # all domains' texts in one place to fit it
    language_model: bool  # a language model to run at every prompt
    adds_experts: bool  # another expert without fitting the others again


@dataclass(frozen=True, eq=False)
class Choices:
    """One router on one setting. `series`, `axis` and `at` place it on a curve: accuracy over k, say."""

    router: str
    family: str  # one of FAMILIES
    protocol: str
    columns: Places  # (n,)  the expert chosen for each item, by its place among the matrix's experts
    traits: Traits
    fit_seconds: float | None = None
    route_us: float | None = None
    parameters: int | None = None
    size_bytes: int | None = None
    series: str | None = None
    axis: str | None = None  # one of AXES
    at: float | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.axis not in (None, *AXES):
            raise InputError(f"{self.router} is on the axis {self.axis!r}; known are {', '.join(AXES)}")

    @property
    def slug(self) -> str:
        """The name of its file.

        >>> Choices("IR3DE, k=10 (authors)", "paper", "authors", np.array([0]), Traits(False, False, True)).slug
        'ir3de-k-10-authors'
        """
        return re.sub(r"[^a-z0-9.]+", "-", self.router.lower()).strip("-")


def write(choices: Choices, matrix: Matrix, folder: Path) -> Path:
    """Keep a router's choices beside the outcomes."""
    files.make_folder(folder)
    path = folder / f"{choices.slug}.json"
    files.write_json(path, _document(choices, matrix))
    return path


def write_bundles(made: Sequence[Choices], matrix: Matrix, folder: Path) -> list[Path]:
    """Keep the routers of long curves, all over one axis in one file. It replaces what was there, single files too."""
    paths = []
    for axis, name in BUNDLED.items():
        lines = [json.dumps(_document(one, matrix), ensure_ascii=False) for one in made if one.axis == axis]
        if lines:
            files.make_folder(folder)
            files.write(folder / name, lzma.compress("\n".join(lines).encode() + b"\n", preset=9))
            paths.append(folder / name)
            for path in folder.glob("*.json"):
                if files.read_json(path, kind=KIND, version=VERSION).get("axis") == axis:
                    path.unlink()
    return paths


def _document(choices: Choices, matrix: Matrix) -> dict[str, Any]:
    """All that is kept of a router."""
    if len(choices.columns) != len(matrix.items):
        raise InputError(f"{choices.router} chose for {len(choices.columns)} items, and there are {len(matrix.items)}")
    if len(matrix.experts) > len(DIGITS):
        raise InputError(
            f"choices are kept among {len(DIGITS)} experts at most, found {len(matrix.experts)}: name fewer"
        )
    return {
        "kind": KIND,
        "version": VERSION,
        "router": choices.router,
        "family": choices.family,
        "protocol": choices.protocol,
        "setting": matrix.setting,
        "experts": list(matrix.experts),
        "items": matrix.digest,
        "choices": "".join(DIGITS[column] for column in choices.columns),
        "traits": vars(choices.traits),
        "fit_seconds": _rounded(choices.fit_seconds),
        "route_us": _rounded(choices.route_us),
        "parameters": choices.parameters,
        "size_bytes": choices.size_bytes,
        "series": choices.series,
        "axis": choices.axis,
        "at": choices.at,
        "about": dict(choices.about),
    }


def read(path: Path, matrix: Matrix) -> Choices:
    """Read a router's choices, and check that they are choices among these experts for these items."""
    return _parse(files.read_json(path, kind=KIND, version=VERSION), path, matrix)


def read_bundle(path: Path, matrix: Matrix) -> Iterator[Choices]:
    """Read the routers of a long curve, each checked as a file of its own is."""
    try:
        documents = [json.loads(line) for line in lzma.decompress(files.read(path)).splitlines()]
    except (lzma.LZMAError, ValueError) as error:
        raise ArtifactError(f"{path} is truncated or damaged ({error}). Copy it again, or make it again") from error
    for document in documents:
        files.check_kind(document, KIND, VERSION, path)
        yield _parse(document, path, matrix)


def _parse(document: Mapping[str, Any], path: Path, matrix: Matrix) -> Choices:
    try:
        if document["items"] != matrix.digest or document["experts"] != list(matrix.experts):
            raise ArtifactError(
                f"{path} belongs to other outcomes (items {document['items']}, here {matrix.digest}): "
                f"run `ir3de bench run --setting {matrix.setting}` again"
            )
        columns = np.array([DIGITS.index(digit) for digit in document["choices"]], np.intp)
        if len(columns) != len(matrix.items) or columns.max(initial=0) >= len(matrix.experts):
            raise ArtifactError(f"{path} is damaged: it has {len(columns)} choices for {len(matrix.items)} items")
        _check_words(document, path)
        return Choices(
            document["router"],
            document["family"],
            document["protocol"],
            columns,
            Traits(**document["traits"]),
            document["fit_seconds"],
            document["route_us"],
            document["parameters"],
            document["size_bytes"],
            document["series"],
            document["axis"],
            document["at"],
            document["about"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Make the choices again") from error


def _check_words(document: Mapping[str, Any], path: Path) -> None:
    """Refuse what tables could not place: a router without a name, of no family, or on half a curve."""
    if not isinstance(document["router"], str) or not document["router"] or not isinstance(document["protocol"], str):
        raise ArtifactError(f"{path} is damaged: it names no router or no protocol. Make the choices again")
    if document["family"] not in FAMILIES:
        raise ArtifactError(f"{path} has the family {document['family']!r}; known are {', '.join(FAMILIES)}")
    curve = {name: document[name] for name in ("series", "axis", "at")}
    if document["axis"] not in (None, *AXES) or len({value is None for value in curve.values()}) > 1:
        raise ArtifactError(
            f"{path} has {curve}: all three say where it is on a curve, or none. Make the choices again"
        )


def read_all(folder: Path, matrix: Matrix) -> list[Choices]:
    """Every router's choices in a folder, in the order of their names."""
    found: dict[str, Path] = {}
    made = []
    for path in (*sorted(folder.glob("*.json")), *sorted(folder.glob("*.jsonl.xz"))):
        for one in [read(path, matrix)] if path.suffix == ".json" else read_bundle(path, matrix):
            if one.router in found:
                raise ArtifactError(
                    f"{found[one.router]} and {path} are of the same router '{one.router}': delete the older one"
                )
            found[one.router] = path
            made.append(one)
    return made


def columns_of(names: Sequence[str], matrix: Matrix) -> Places:
    """The places of the experts that were named, one an item."""
    place = {expert: column for column, expert in enumerate(matrix.experts)}
    unknown = next((name for name in names if name not in place), None)
    if unknown is not None:
        raise InputError(f"chose {unknown!r}, which is none of {', '.join(matrix.experts)}")
    return np.array([place[name] for name in names], np.intp)


def _rounded(value: float | None) -> float | None:
    return None if value is None else json.loads(f"{value:.4g}")
