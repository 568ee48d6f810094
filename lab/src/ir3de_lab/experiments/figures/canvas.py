"""What figures have in common: their looks, panels side by side, and files that do not change without a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de.errors import MissingExtraError
from ir3de_lab import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS_PER_INCH = 150
WIDTH = 9.0  # inches; at a README's width the letters are as large as its own
PANEL_HEIGHT = 2.9
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
CYCLE = (BLUE, VERMILION, ORANGE, PURPLE, SKY, BLACK, YELLOW)  # GREEN is the default router's
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_LOOKS: Any = {
    "font.size": 9,
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so every machine draws the same
    "axes.titlesize": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "svg.hashsalt": "ir3de",  # else ids are drawn by lot
    "svg.fonttype": "path",
}


def require_matplotlib() -> None:
    """Say so now rather than when all is read."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing figures") from error


@contextmanager
def style() -> Iterator[None]:
    """The looks of all figures, and afterwards those that were set before."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()  # what a person has set for their own figures does not change ours
        mpl.rcParams.update(_LOOKS)
        yield


def panels(titles: Sequence[str], height: float = PANEL_HEIGHT, rows: int = 1) -> tuple[Figure, list[list[Axes]]]:
    """A figure with a column of `rows` axes for each title."""
    from matplotlib.figure import Figure

    width = WIDTH if len(titles) > 1 else 0.62 * WIDTH
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes: Any = figure.subplots(rows, len(titles), squeeze=False)
    for column, title in enumerate(titles):
        axes[0][column].set_title(title)
    return figure, [list(row) for row in axes]


def without_tokens(router: str) -> str:
    """A router's name without the number of tokens that its encoder reads.

    >>> without_tokens("kNN (MiniLM-L6, 512 tokens)")
    'kNN (MiniLM-L6)'
    """
    return re.sub(r", \d+ tokens\)", ")", router)


def legend_below(figure: Figure, axes: Sequence[Axes], columns: int = 3) -> None:
    """One legend for all panels, every label once."""
    found: dict[str, Any] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    columns = columns if figure.get_size_inches()[0] >= WIDTH else min(columns, 2)
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=min(columns, len(found)))


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """The figure as PNG and SVG, whole or not at all, and without a date."""
    files.make_folder(folder)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        kind = path.suffix[1:]
        with files.open_atomic(path) as file:
            undated = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(file, format=kind, dpi=DOTS_PER_INCH, metadata=undated)
    return paths
