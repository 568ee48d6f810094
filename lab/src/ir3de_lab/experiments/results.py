"""A setting's raw files, read for tables and figures: what is missing is noted, what is damaged is refused.

results/{setting}/outcomes.jsonl.xz     every test item by every expert
                  reference.jsonl.xz    the same, of the reference answers' likelihood
                  drawn.jsonl.xz        the same, of answers that were drawn at a temperature
                  draws.jsonl.xz        the points of every single draw
                  clusters.jsonl.xz     which items belong together
                  choices/*.json        what each router chose
                  expectations/*.xz     what each router expects of every model, where quality is weighed against money
                  training.json         the experts' loss curves
                  dynamic.json          experts added and removed, one after another
                  decentralised.json    whether statistics collected apart give the same router
                  complexity.json       times and bytes of routers as domains, texts and prompts grow
                  left_out.json         routers that were not run, and why
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import ArtifactError
from ir3de_lab import files
from ir3de_lab.experiments import choices as choice_files
from ir3de_lab.experiments import clusters, complexity, left_out, reachable, settings
from ir3de_lab.experiments import expectations as expectation_files
from ir3de_lab.experiments import matrix as matrix_files
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.expectations import Expectations
from ir3de_lab.experiments.matrix import Floats, Matrix, Places
from ir3de_lab.experiments.metrics import routing_accuracy

OUTCOMES, REFERENCE, DRAWN, CHOICES = "outcomes.jsonl.xz", "reference.jsonl.xz", "drawn.jsonl.xz", "choices"
EXPECTATIONS = "expectations"
TRAINING, DYNAMIC, DECENTRALISED = "training.json", "dynamic.json", "decentralised.json"


@dataclass(frozen=True, eq=False)
class Results:
    """All that is kept of one setting; `notes` say what is not there."""

    folder: Path
    matrix: Matrix
    choices: tuple[Choices, ...] = ()
    reference: Matrix | None = None
    drawn: Matrix | None = None
    losses: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # (step, loss) by expert
    dynamic: Sequence[Mapping[str, Any]] = ()
    decentralised: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # reasons, by the name of a router or a curve
    expectations: tuple[Expectations, ...] = ()
    complexity: Mapping[str, Any] = field(default_factory=dict)
    draws: Floats | None = None  # (n, columns, draws)  points, of the items of `drawn`

    @property
    def setting(self) -> str:
        return self.matrix.setting

    @property
    def title(self) -> str:
        return settings.load(self.setting).title if settings.is_shipped(self.setting) else self.setting

    @property
    def unseen(self) -> tuple[str, ...]:
        """The domains that no router was fitted on."""
        return settings.load(self.setting).unseen if settings.is_shipped(self.setting) else ()

    def accuracy(self, columns: Places) -> float:
        """Share of items sent to their domain's own expert, mean over the domains, in percent."""
        return routing_accuracy(self.matrix, columns)


def outcomes(folder: Path) -> Matrix:
    """What every expert made of every item of one setting."""
    if not (folder / OUTCOMES).is_file():
        raise ArtifactError(
            f"no {OUTCOMES} in {folder}: make it with `ir3de bench outcomes --setting {folder.name}`, or copy it there"
        )
    return matrix_files.read(folder / OUTCOMES)


def read(folder: Path) -> Results:
    """The raw files of one setting."""
    matrix = outcomes(folder)
    matrix = replace(matrix, clusters=clusters.read(folder, matrix))
    chosen = tuple(choice_files.read_all(folder / CHOICES, matrix))
    drawn = _beside(folder / DRAWN, matrix)
    training, dynamic = _optional(folder / TRAINING, {}), _optional(folder / DYNAMIC, [])
    return Results(
        folder,
        matrix,
        chosen,
        _beside(folder / REFERENCE, matrix),
        drawn,
        _losses(training, folder / TRAINING),
        _rows(dynamic, folder / DYNAMIC),
        _optional(folder / DECENTRALISED, {}),
        tuple(_missing(folder, matrix, chosen)),
        left_out.read(folder),
        tuple(expectation_files.read_all(folder / EXPECTATIONS, matrix)),
        complexity.read(folder),
        None if drawn is None else reachable.read(folder, drawn),
    )


def find(root: Path, chosen: Iterable[str] = ()) -> tuple[list[Results], list[str]]:
    """Every setting under a folder that has outcomes, the shipped ones first, and notes on those that have none."""
    wanted = tuple(chosen)
    others = sorted(path.parent.name for path in root.glob(f"*/{OUTCOMES}") if path.parent.name not in settings.SHIPPED)
    names = wanted or (*settings.SHIPPED, *others)
    found = [name for name in names if (root / name / OUTCOMES).is_file()]
    notes = [f"{name}: no {root / name / OUTCOMES}, so it has no tables" for name in names if name not in found]
    return [read(root / name) for name in found], notes


def carried_over(columns: Places, matrix: Matrix, other: Matrix) -> Places:
    """Choices made for one matrix's items, for those of another that is about the same items or some of them."""
    return np.asarray(columns[[matrix.place[item] for item in other.items]])


def _beside(path: Path, matrix: Matrix) -> Matrix | None:
    """Another matrix of the same items or some of them, if it is there."""
    if not path.is_file():
        return None
    other = matrix_files.read(path)
    strange = next((item for item in other.items if item not in matrix.place), None)
    if strange is not None or other.experts != matrix.experts:
        found = f"the item {strange!r} is not among the outcomes" if strange else f"its experts are {other.experts}"
        raise ArtifactError(
            f"{path} belongs to other outcomes ({found}): run `ir3de bench outcomes --setting {matrix.setting}` again"
        )
    return replace(other, clusters=carried_over(matrix.cluster, matrix, other))


def _missing(folder: Path, matrix: Matrix, chosen: Sequence[Choices]) -> Iterable[str]:
    spec = settings.load(matrix.setting) if settings.is_shipped(matrix.setting) else None
    if spec is not None and spec.priced:  # nothing else is made of these settings
        if not any((folder / EXPECTATIONS).glob("*.json.xz")):
            yield f"{folder.name}: no {folder / EXPECTATIONS}, so no router is shown: `ir3de bench run` makes them"
        return
    if not chosen:
        yield f"{folder.name}: no choices in {folder / CHOICES}, so no router is shown: `ir3de bench run` makes them"
    expected = (
        [] if spec is not None and spec.scored else [TRAINING, *([REFERENCE] if matrix.metric == "score" else [])]
    )
    for name in (*expected, DYNAMIC, DECENTRALISED):
        if not (folder / name).is_file():
            yield f"{folder.name}: no {folder / name}, so what it says is left out"


def _optional(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        return json.loads(files.read(path))
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged: it is not JSON ({error}). Copy it again, or make it again") from error


def _losses(document: Any, path: Path) -> dict[str, list[tuple[float, float]]]:
    """Each expert's losses: those of a training record, one a step, or (step, loss) pairs."""
    try:
        curves = {}
        for name, record in (document["experts"] if document else {}).items():
            pairs = enumerate(record["losses"], start=1) if isinstance(record, dict) else record
            curves[name] = [(float(step), float(loss)) for step, loss in pairs]
        return curves
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Train the experts again, or copy it again") from error


def _rows(document: Any, path: Path) -> list[Mapping[str, Any]]:
    rows = document.get("rows") if isinstance(document, dict) else document
    needed = {"action", "expert", "experts", "accuracy", "seconds"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
        raise ArtifactError(f"{path} is damaged: expected rows of {', '.join(sorted(needed))}. Make it again")
    return rows


def step_name(row: Mapping[str, Any]) -> str:
    """A step of experts that come and go, as tables and figures show it.

    >>> step_name({"action": "add", "expert": "math"}), step_name({"action": "begin", "experts": ["math", "law"]})
    ('+ Math', 'Math, Law')
    """
    if row["action"] == "begin":
        return ", ".join(map(shown_name, row["experts"]))
    return f"{'+' if row['action'] == 'add' else '−'} {shown_name(row['expert'])}"


def shown_name(name: str) -> str:
    """A domain's name as tables show it.

    >>> shown_name("math"), shown_name("arc_challenge"), shown_name("gsm8k")
    ('Math', 'ARC-C', 'GSM8K')
    """
    known = {
        "mmlu": "MMLU",
        "gsm8k": "GSM8K",
        "cmmlu": "CMMLU",
        "arc_challenge": "ARC-C",
        "humaneval": "HumanEval",
        "MATH_prealgebra": "Pre-algebra",
        "mbpp": "MBPP",
        "javascript": "JavaScript",
        "ceval": "C-Eval",
        "winograde": "Winogrande",
    }
    return known.get(name, (name[:1].upper() + name[1:]).replace("_", " "))
