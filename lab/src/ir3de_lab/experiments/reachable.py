"""The reachable oracle: an item's best expert is chosen on some of its draws and scored on the others.

The oracle knows how every answer turned out, so it also takes what was luck. What is chosen on some draws and holds on
others is signal, and any router could learn it at most.

    oracle's lead = oracle on all draws − own expert
    signal        = reachable oracle − own expert        luck = oracle's lead − signal

    results/{setting}/draws.jsonl.xz   the points of every draw: a line an item, a list a column
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments.matrix import Floats, Matrix, Places, read_lines
from ir3de_lab.experiments.metrics import Judge
from ir3de_lab.experiments.provenance import this_process
from ir3de_lab.experiments.resampling import Bootstrap, Difference, compare_drawn, cover

KIND, VERSION = "ir3de.draws", 1
DRAWS = "draws.jsonl.xz"
DIGITS = 4  # of points that are kept


def write(points: Floats, columns: Sequence[str], matrix: Matrix, folder: Path) -> Path:
    """Keep the points of every draw (n, columns, draws) beside the outcomes."""
    head = {"kind": KIND, "version": VERSION, "setting": matrix.setting, "items": matrix.digest}
    head |= {"columns": list(columns), "draws": points.shape[2], "about": this_process()}
    lines = [json.dumps(head, ensure_ascii=False)]
    lines += [json.dumps({"points": np.round(item, DIGITS).tolist()}) for item in points]
    files.write(folder / DRAWS, lzma.compress("\n".join(lines).encode() + b"\n"))
    return folder / DRAWS


def read(folder: Path, matrix: Matrix) -> Floats | None:
    """The points of every draw of the experts and extras of a matrix, if they are there."""
    path = folder / DRAWS
    if not path.is_file():
        return None
    head, *rows = read_lines(path)
    files.check_kind(head, KIND, VERSION, path)
    try:
        found = np.array([row["points"] for row in rows], np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error!r}. Copy it again, or make it again") from error
    columns = tuple(head.get("columns", ()))
    if head.get("items") != matrix.digest or columns != matrix.columns or found.shape[:2] != matrix.values.shape:
        raise ArtifactError(
            f"{path} belongs to other outcomes: run `ir3de bench draws --setting {matrix.setting}` again"
        )
    return found


def split(draws: int) -> list[tuple[list[int], list[int]]]:
    """On which draws is chosen and on which is scored: halves both ways, or all but one where they cannot be halved.

    >>> split(3)
    [([1, 2], [0]), ([0, 2], [1]), ([0, 1], [2])]
    >>> split(4)
    [([0, 1], [2, 3]), ([2, 3], [0, 1])]
    """
    if draws < 2:
        raise InputError(f"a reachable oracle needs two draws an item or more, found {draws}")
    every = list(range(draws))
    if draws % 2 == 0:
        return [(every[: draws // 2], every[draws // 2 :]), (every[draws // 2 :], every[: draws // 2])]
    return [([one for one in every if one != left], [left]) for left in every]


def reach(points: Floats, own: Places, used: int | None = None) -> Floats:
    """(n,)  what the experts chosen on some draws score on the others, mean over the splits.

    `points` are of the experts (n, experts, draws). `used` chooses on so many of the draws alone. Among equals the
    domain's own expert is chosen, then the first.
    """
    items, found = np.arange(len(points)), []
    for chosen_on, scored_on in split(points.shape[2]):
        means = points[:, :, chosen_on[:used]].mean(axis=2)
        best = means.max(axis=1)
        is_own = means[items, own] >= best - 1e-12
        column = np.where(is_own, own, np.argmax(means >= best[:, None] - 1e-12, axis=1))
        found.append(points[:, :, scored_on].mean(axis=2)[items, column])
    return np.asarray(np.mean(found, axis=0))


@dataclass(frozen=True)
class Parted:
    """The oracle's lead over the own experts in points of the score, and how much of it is signal."""

    own: float
    oracle: float
    reachable: float
    fewer: tuple[float, ...]  # the reachable oracle, chosen on one draw and so on
    lead: Difference
    signal: Difference
    share: tuple[float, tuple[float, float]]  # signal ÷ lead, in percent


def part_lead(matrix: Matrix, points: Floats, places: Sequence[int], seed: int = 0) -> Parted:
    """The oracle's lead over the mean of the domains at these places, and how sure its parts are."""
    whole = replace(matrix, values=points.mean(axis=2))
    experts, judge = points[:, : len(matrix.experts)], Judge(whole, Bootstrap(seed))
    own, oracle = judge.of_experts(whole.own_expert), judge.oracle()
    most = len(split(points.shape[2])[0][0])
    reached = [judge.of_points(reach(experts, whole.own_expert, used)) for used in range(1, most + 1)]
    means = [float(np.mean([one.raw[place] for place in places])) for one in (own, oracle, *reached)]
    drawn = [np.mean([one.resampled.raw[p] for p in places], axis=0) for one in (own, oracle, reached[-1])]
    lead, signal = drawn[1] - drawn[0], drawn[2] - drawn[0]
    share = 100 * signal / np.where(lead > 0, lead, np.nan)
    value = 100 * (means[-1] - means[0]) / (means[1] - means[0]) if means[1] > means[0] else float("nan")
    return Parted(
        means[0],
        means[1],
        means[-1],
        tuple(means[2:-1]),
        compare_drawn(means[1] - means[0], lead),
        compare_drawn(means[-1] - means[0], signal),
        (value, cover(share[np.isfinite(share)]) if np.isfinite(share).any() else (np.nan, np.nan)),
    )


def compare_router(matrix: Matrix, columns: Places, places: Sequence[int], seed: int = 0) -> Difference:
    """How far a router's mean score over the domains at these places is above the own experts'."""
    judge = Judge(matrix, Bootstrap(seed))
    found, own = judge.of_experts(columns), judge.of_experts(matrix.own_expert)
    drawn = np.mean([found.resampled.raw[place] - own.resampled.raw[place] for place in places], axis=0)
    return compare_drawn(float(np.mean([found.raw[place] - own.raw[place] for place in places])), drawn)


def find_drawn(points: Floats, matrix: Matrix) -> Iterator[int]:
    """The places of the domains whose answers differ from draw to draw; options are chosen, not drawn."""
    varies = (points != points[:, :, :1]).any(axis=(1, 2))
    for place in range(len(matrix.domains)):
        if varies[matrix.domain == place].any():
            yield place
