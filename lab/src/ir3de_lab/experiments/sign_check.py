"""Every published sign held against bootstraps by cluster with several seeds.

A sign of the tables comes from the jackknife, which has no seed, and from Holm's rule. Here the same difference is
drawn anew: a sign changes if with any seed the 95 % interval of the bootstrap does not lie on its side of zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ir3de_lab.experiments.cells import BEST, find_column_signs
from ir3de_lab.experiments.matrix import Floats, Matrix
from ir3de_lab.experiments.metrics import Judge, Performance
from ir3de_lab.experiments.resampling import Bootstrap, cover
from ir3de_lab.experiments.results import Results, carried_over, read, shown_name
from ir3de_lab.experiments.standings import (
    DEFAULT,
    ORACLE,
    RANDOM,
    REACHABLE,
    Standing,
    default_of,
    extra_name,
    reach_all,
    standings,
)
from ir3de_lab.experiments.tables import drawn_table, main_table, part_domains, reference_table

SEEDS = range(10)
RESAMPLES = 1_000  # of each seed: with few, a sign that hangs on a seed shows the sooner
RANDOM_DRAWS = 3  # of the random router, which is far below all others


@dataclass(frozen=True)
class CheckedSign:
    """One sign or mark of a table, and with how many seeds the bootstrap shows it too."""

    setting: str
    table: str
    row: str
    column: str
    sign: int  # 1 above the default router, −1 below
    agreeing: int

    @property
    def changes(self) -> bool:
        return self.agreeing < len(SEEDS)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_signs(results: Results, seeds: Sequence[int] = SEEDS) -> Iterator[CheckedSign]:
    """All signs and marks of the tables of a setting that compare routers by their figures."""
    made = [(main_table(results, standings(results)), results.matrix)]
    made += [(reference_table(results), results.reference)] if results.reference is not None else []
    made += [(drawn_table(results), results.drawn)] if results.drawn is not None else []
    for table, matrix in made:
        rows = {row.name: row for row in standings(results, None if matrix is results.matrix else matrix)}
        if default_of(list(rows.values())) is None:
            continue
        places = _find_places(results, matrix)
        wanted: list[tuple[str, str, int]] = []
        for column, title in enumerate(table.columns):
            signs = find_column_signs(table.rows, column, DEFAULT)
            for row, sign in zip(table.rows, signs, strict=True):
                shown = row.cells[column].mark == BEST or row.cells[column].value is None  # a difference alone
                if sign and shown and row.name in rows:
                    wanted.append((row.name, title, sign))
        agreeing = dict.fromkeys(wanted, 0)
        for seed in seeds:
            judge = Judge(matrix, Bootstrap(seed, RESAMPLES))
            found = {name: _judge_again(rows[name], results, judge) for name in {DEFAULT, *(one[0] for one in wanted)}}
            for one in wanted:
                low, high = cover(_draw(found[one[0]], found[DEFAULT], places.get(one[1])))
                agreeing[one] += low > 0 if one[2] > 0 else high < 0
        for (name, title, sign), count in agreeing.items():
            yield CheckedSign(results.setting, table.name, name, title, sign, count)


def check_folder(folder: Path) -> list[CheckedSign]:
    """The same of the raw files in a folder: for a process of its own."""
    return list(check_signs(read(folder)))


def _find_places(results: Results, matrix: Matrix) -> dict[str, list[int]]:
    """The domains that a column is about; those that are not here are about all of them."""
    single = {shown_name(domain): [place] for place, domain in enumerate(matrix.domains)}
    return {**single, **part_domains(results, matrix), "Routing accuracy": []}


def _draw(one: Performance, other: Performance, places: list[int] | None) -> Floats:
    mine, yours = one.resampled.normalised, other.resampled.normalised
    if places == [] and one.resampled.accuracy is not None and other.resampled.accuracy is not None:
        mine, yours, places = one.resampled.accuracy, other.resampled.accuracy, None
    chosen = range(len(mine)) if places is None else places
    return np.asarray(np.mean([mine[place] - yours[place] for place in chosen], axis=0))


def _judge_again(row: Standing, results: Results, judge: Judge) -> Performance:
    if row.choices is not None:
        return judge.of_experts(carried_over(row.choices.columns, results.matrix, judge.matrix))
    if row.expert is not None:
        return judge.of_column(row.expert)
    if row.name == RANDOM:
        return judge.random(RANDOM_DRAWS)[0]
    if row.name == REACHABLE:
        return judge.of_points(reach_all(results))
    if row.name == ORACLE:
        return judge.oracle()
    return judge.of_values(next(name for name in judge.matrix.extras if extra_name(name) == row.name))
