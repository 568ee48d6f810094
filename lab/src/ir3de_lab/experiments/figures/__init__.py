"""The experiments' figures, from the raw files alone: each as PNG and SVG, the same bytes from the same files.

Needs matplotlib, the extra `plots`; nothing of it is imported before something is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ir3de_lab.experiments.figures.canvas import require_matplotlib, style, write
from ir3de_lab.experiments.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_all", "require_matplotlib"]


def draw_all(results: Sequence[Results], folder: Path) -> list[Path]:
    """Draw every figure that the raw files allow, and say which files were written."""
    require_matplotlib()
    written: list[Path] = []
    with style():
        for name, draw in _figures(results):
            figure = draw()
            written += write(figure, folder, name) if figure is not None else []
    return written


def _figures(results: Sequence[Results]) -> Iterator[tuple[str, Callable[[], Figure | None]]]:
    """Names, and what draws them or finds that there is nothing to draw."""
    from ir3de_lab.experiments.figures import complexity, confusion, costs, curves, spending, steps

    yield "k", lambda: curves.over_k(results)
    yield "modem", lambda: curves.over_rate(results)
    yield "prompts", lambda: curves.over_prompts(results)
    yield "strength", lambda: curves.over_strength(results)
    yield "tokens", lambda: curves.over_tokens(results)
    yield "training", lambda: steps.training(results)
    yield "dynamic", lambda: steps.dynamic(results)
    for one in results:
        yield f"confusion-{one.setting}", lambda one=one: confusion.matrices(one)  # type: ignore[misc]
        yield f"complexity-{one.setting}", lambda one=one: complexity.growth(one)  # type: ignore[misc]
        yield f"cost-{one.setting}", lambda one=one: costs.scatter(one)  # type: ignore[misc]
        yield f"spending-{one.setting}", lambda one=one: spending.over_budgets(one)  # type: ignore[misc]
