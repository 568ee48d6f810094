"""What a table is made of: rows in groups, cells with what they show and the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ir3de_lab.experiments.metrics import Performance, normalised_difference
from ir3de_lab.experiments.resampling import Difference, find_leanings, find_signs

BEST = "best"
SIGNS = {1: " ▲", -1: " ▼", 0: ""}  # of what is surely above or below the default router
LEANINGS = {1: " △", -1: " ▽", 0: ""}  # of what is not sure among so many rows, though its own interval excludes zero
ABSENT = "n/a"  # where there is no figure; a caption says why


@dataclass(frozen=True)
class Cell:
    """What is shown, and what it was made of."""

    text: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    raw: float | None = None  # perplexity, or score in percent
    mark: str = ""  # BEST or nothing
    difference: Difference | None = None  # to this package's default router, on the same items


@dataclass(frozen=True)
class Row:
    """A line of a table; `ranked` says of each cell whether it may be the best of its column."""

    name: str
    cells: tuple[Cell, ...]
    group: str = ""
    ranked: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Table:
    """One table; `sources` are the raw files it was made of, relative to the setting's folder."""

    name: str
    title: str
    head: str  # of the column of names
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: tuple[str, ...] = ()  # sentences
    sources: tuple[str, ...] = ()
    setting: str = ""
    words: tuple[str, ...] = ()  # columns that are no numbers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def marked(rows: Sequence[Row], default: str) -> tuple[Row, ...]:
    """The rows with the best figure of each column marked, where it is no accident.

    The best figure of another row is marked if it is surely above the default router's; that of the default router, if
    every row of another group is surely below it. Surely is by Holm's rule over the rows of the column. Figures that
    print alike are alike. Without a default router nothing is marked.
    """
    home = next((row for row in rows if row.name == default), None)
    cells = [list(row.cells) for row in rows]
    for column in range(max((len(row.cells) for row in rows), default=0)):
        competing = [place for place, row in enumerate(rows) if row.ranked and row.ranked[column]]
        competing = [place for place in competing if cells[place][column].value is not None]
        best = max((float(cells[place][column].text) for place in competing), default=0.0)
        signs = find_column_signs(rows, column, default)
        for place in competing:
            if float(cells[place][column].text) < best or home is None:
                continue
            others = [signs[i] for i in competing if rows[i].group != home.group]
            is_sure = all(sign < 0 for sign in others) if rows[place] is home else signs[place] > 0
            cells[place][column] = replace(cells[place][column], mark=BEST if is_sure else "")
    return tuple(replace(row, cells=tuple(found)) for row, found in zip(rows, cells, strict=True))


def find_column_signs(rows: Sequence[Row], column: int, default: str) -> list[int]:
    """Which way each row of a column surely differs from the default router: the rows are one family."""
    return find_signs(_list_differences(rows, column, default))


def _list_differences(rows: Sequence[Row], column: int, default: str) -> list[Difference | None]:
    cells = [None if row.name == default or column >= len(row.cells) else row.cells[column] for row in rows]
    return [None if cell is None else cell.difference for cell in cells]


def show_sign(sign: int, leaning: int) -> str:
    """▲ or ▼ for a sure difference, △ or ▽ for one that only its own interval shows."""
    return SIGNS[sign] or LEANINGS[leaning]


def signed(rows: Sequence[Row], default: str) -> tuple[Row, ...]:
    """The rows with a sign after each difference that is sure, or would be if it were the only one."""
    cells = [list(row.cells) for row in rows]
    for column in range(max((len(row.cells) for row in rows), default=0)):
        differences = _list_differences(rows, column, default)
        for place, shown in enumerate(map(show_sign, find_signs(differences), find_leanings(differences))):
            cell = rows[place].cells[column]
            if cell.value is None and shown:  # differences alone have none
                cells[place][column] = replace(cell, text=cell.text + shown)
    return tuple(replace(row, cells=tuple(found)) for row, found in zip(rows, cells, strict=True))


def number(value: float | None, form: str = "{:.1f}") -> Cell:
    """A number, or n/a where there is none."""
    return Cell(ABSENT) if value is None else Cell(form.format(value), value)


def span(interval: tuple[float, float]) -> Cell:
    """An interval."""
    return Cell(f"{interval[0]:.1f}–{interval[1]:.1f}", interval=interval)


def gap(difference: Difference | None) -> Cell:
    """A difference with its interval.

    >>> gap(Difference(-0.204, (-0.27, -0.139))).text
    '−0.20 [−0.27, −0.14]'
    """
    if difference is None:
        return Cell(ABSENT)
    low, high = (_signed(end, "") for end in difference.interval)
    return Cell(f"{_signed(difference.value)} [{low}, {high}]", interval=difference.interval, difference=difference)


def normalised_cells(found: Performance, home: Performance | None, means: Iterable[list[int]]) -> Iterator[Cell]:
    """The figure of each domain and the means over some places of domains, each with its difference to `home`."""

    def compare(places: list[int]) -> Difference | None:
        return None if home is None else normalised_difference(found, home, places)

    for place, (value, interval, raw) in enumerate(zip(found.normalised, found.intervals, found.raw, strict=True)):
        yield Cell(f"{value:.1f}", value, interval, raw, difference=compare([place]))
    for places in means:
        mean = np.mean([found.normalised[place] for place in places])
        yield replace(number(float(mean)), difference=compare(places))


def _signed(value: float, plus: str = "+") -> str:
    shown = f"{abs(value):.2f}"
    return shown if float(shown) == 0 else f"{'−' if value < 0 else plus}{shown}"


def three_digits(value: float) -> str:
    """About three digits.

    >>> three_digits(0.01234), three_digits(17.36), three_digits(1234.5)
    ('0.0123', '17.4', '1,234')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counted(count: float | None, unit: str = "") -> Cell:
    """A large count for people: 960, 28.2k, 33.4M; with a unit, 2.7 MB.

    >>> counted(28224).text, counted(2_700_000, "B").text
    ('28.2k', '2.7 MB')
    """
    if count is None:
        return Cell(ABSENT)
    power = min(3, max(0, (len(str(int(count))) - 1) // 3))
    digits, prefix = f"{count / 1000**power:.{1 if power else 0}f}", ("", "k", "M", "G")[power]
    return Cell(f"{digits} {prefix}{unit}" if unit else digits + prefix, count)
