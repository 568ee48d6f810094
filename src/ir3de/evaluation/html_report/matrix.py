"""The confusion matrix as a picture: whole for a few experts, its most confused block for many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ir3de.routing.colours import colour_of
from ir3de.routing.drawing.markup import Markup, make

MAX_WHOLE = 20  # experts that the whole matrix is drawn for
MAX_BLOCK = 16  # experts of the most confused block
SMALL_CELL, LARGE_CELL = 34.0, 48.0
MAX_LARGE = 8  # experts whose cells are large
TITLE_LETTERS = 24  # of a name beside the matrix
LETTER = 7.3  # width, at most, of a letter of 12 px
SLANT = 0.72  # of the length of a name that is turned by 46°
MIN_TINT = 0.1  # how strongly a cell with a single prompt is coloured; one with all prompts of its row has 1

Counts = npt.NDArray[np.int64]


def choose_block(confusion: Counts) -> list[int]:
    """The places of the experts to draw: all of them where they are few, else those that are taken for each other.

    They stand beside those that they are confused with.
    """
    if len(confusion) <= MAX_WHOLE:
        return list(range(len(confusion)))
    both = confusion + confusion.T
    np.fill_diagonal(both, 0)
    chosen: list[int] = []
    for flat in np.argsort(-both, axis=None, kind="stable"):
        pair = [int(place) for place in np.unravel_index(flat, both.shape)]
        new = [place for place in pair if place not in chosen]
        if both[pair[0], pair[1]] == 0 or len(chosen) + len(new) > MAX_BLOCK:
            break
        chosen += new
    return _order_by_confusion(both, chosen)


def _order_by_confusion(both: Counts, chosen: Sequence[int]) -> list[int]:
    """Begin with the most confused expert; next comes, each time, the one most confused with the last ones."""
    left, ordered = list(chosen), list[int]()
    while left:
        near = ordered[-2:] or left
        best = max(left, key=lambda place: (int(both[place, near].sum()), -place))
        ordered.append(best)
        left.remove(best)
    return ordered


def draw_matrix(experts: Sequence[str], confusion: Counts, places: Sequence[int]) -> Markup:
    """Rows are where prompts belong, columns where they went."""
    sizes = confusion.sum(axis=1).tolist()
    cell = LARGE_CELL if len(places) <= MAX_LARGE else SMALL_CELL
    letters = max(min(len(experts[place]), TITLE_LETTERS) for place in places)
    slanted = LETTER * letters * SLANT  # as far as a name above the matrix reaches, upwards and to the right
    left, top = 26 + LETTER * letters, 20 + slanted
    width, height = left + cell * len(places) + max(8.0, slanted - cell / 2), top + cell * len(places) + 8
    parts: list[Markup] = []
    for row, truth in enumerate(places):
        y = top + row * cell
        parts.append(_draw_name(experts[truth], truth, left - 8, y + cell / 2 + 4, "end"))
        turned = f"translate({left + row * cell + cell / 2 + 3:.1f} {top - 8:.1f}) rotate(-46)"
        parts.append(make("text", _shorten(experts[truth]), transform=turned, class_="name"))
        for column, said in enumerate(places):
            count = int(confusion[truth, said])
            if not count and truth != said:
                continue
            parts.append(_draw_cell(experts, truth, said, count, sizes[truth], left + column * cell, y, cell))
    frame = make("rect", x=left, y=top, width=cell * len(places), height=cell * len(places), class_="frame")
    right = int(sum(confusion[place, place] for place in places))
    title = (
        f"Confusion of {len(places)} experts. A row is where prompts belong, a column where they went. "
        f"{right:,} prompts of these experts went right; the list below names the most confused pairs."
    )
    return make(
        "svg",
        make("title", title),
        frame,
        parts,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        class_="matrix small" if cell == LARGE_CELL else "matrix",
        style=f"width:{width:.0f}px",
    )


def _draw_cell(
    experts: Sequence[str], truth: int, said: int, count: int, size: int, x: float, y: float, side: float
) -> Markup:
    share = count / size if size else 0.0
    tint = MIN_TINT + (1 - MIN_TINT) * share if count else 0.0
    went = "went right" if truth == said else f"went to {experts[said]}"
    told = f"{count:,} of {size:,} prompts of {experts[truth]} {went} ({100 * share:.1f} %)"
    kind = "right" if truth == said else "wrong"
    cell = make("rect", x=x + 1, y=y + 1, width=side - 2, height=side - 2, rx=4, style=f"--tint:{tint:.2f}")
    number = make("text", _write_count(count), x=x + side / 2, y=y + side / 2 + 4, text_anchor="middle")
    return make("g", make("title", told), cell, number, class_=f"cell {kind}")


def _draw_name(name: str, place: int, x: float, y: float, anchor: str) -> Markup:
    swatch = make("circle", cx=x - 4, cy=y - 4, r=4, style=f"fill:{colour_of(place)}")
    text = make("text", _shorten(name), x=x - 13, y=y, text_anchor=anchor, class_="name")
    return make("g", make("title", name), swatch, text)


def _shorten(name: str) -> str:
    return name if len(name) <= TITLE_LETTERS else name[: TITLE_LETTERS - 1] + "…"


def _write_count(count: int) -> str:
    return f"{count}" if count < 10_000 else f"{count / 1000:.0f}k"
