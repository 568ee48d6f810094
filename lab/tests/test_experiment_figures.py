"""Figures of the experiments: which are drawn, and the same bytes every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commands import run_json
from experiment_files import random_matrix, routers_for, write_rest, write_results
from ir3de_lab.experiments.results import Results, read

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    matrix = random_matrix("perplexity", setting="clm")
    folder = write_results(tmp_path_factory.mktemp("results") / "clm", matrix, routers_for(matrix))
    write_rest(folder, matrix.experts)
    return read(folder)


@pytest.fixture(scope="module")
def drawn(results: Results, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("figures")
    told = run_json("bench", "figures", "--results", results.folder.parent, "--output", folder)
    assert sorted(told["figures"]) == sorted(str(path) for path in folder.iterdir())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.nightly
def test_every_figure_is_drawn_both_ways(drawn: dict[str, bytes]) -> None:
    names = ("k", "modem", "prompts", "tokens", "strength", "training", "dynamic", "confusion-clm", "cost-clm")
    assert sorted(drawn) == sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
    assert all(content.startswith(b"\x89PNG") for name, content in drawn.items() if name.endswith("png"))
    assert b"<dc:date>" not in b"".join(drawn.values())


@pytest.mark.nightly
def test_the_same_files_give_the_same_bytes(results: Results, drawn: dict[str, bytes], tmp_path: Path) -> None:
    import matplotlib as mpl

    from ir3de_lab.experiments.figures import draw_all

    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red"}):  # of a person who likes it so
        draw_all([results], tmp_path)
        assert mpl.rcParams["font.size"] == 20
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == drawn


def test_without_choices_and_extras_there_is_nothing_to_draw(results: Results, tmp_path: Path) -> None:
    from ir3de_lab.experiments.figures import draw_all

    assert draw_all([Results(results.folder, results.matrix)], tmp_path) == []


def test_a_confusion_counts_every_item_once(results: Results) -> None:
    from ir3de_lab.experiments.figures.confusion import shares

    for choices in results.choices[:3]:
        found = shares(results, choices)
        assert found.sum(axis=1) == pytest.approx(np.full(5, 100.0))
        assert found.diagonal().mean() == pytest.approx(results.accuracy(choices.columns))


def test_labels_do_not_cover_one_another(results: Results) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Annotation, Text

    from ir3de_lab.experiments.figures.canvas import style
    from ir3de_lab.experiments.figures.costs import scatter

    with style():
        figure = scatter(results)
        assert figure is not None
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        labels = [child for child in figure.axes[0].get_children() if isinstance(child, Annotation)]
        boxes = [Text.get_window_extent(label, canvas.get_renderer()) for label in labels]  # without their lines
    assert len(labels) > 5
    for place, box in enumerate(boxes):
        assert not [labels[place].get_text() for other in boxes[:place] if box.overlaps(other)]


def test_settings_with_the_same_curves_share_a_panel(results: Results) -> None:
    from ir3de_lab.experiments.figures.curves import over_rate

    figure = over_rate([results, results])
    assert figure is not None and len(figure.axes) == 1


@pytest.mark.parametrize(
    "name", ["routellm", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("routerbench", "routerdc7"))]
)
def test_the_legend_of_money_stays_on_the_page_and_names_every_router_once(name: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from ir3de_lab.experiments.figures.canvas import style
    from ir3de_lab.experiments.figures.spending import over_budgets
    from ir3de_lab.experiments.spending import APART

    found = read(Path(__file__).parents[2] / "results" / name)
    with style():
        figure = over_budgets(found)
        assert figure is not None
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        [legend] = figure.legends
        box = legend.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1
    labels = [text.get_text() for text in legend.get_texts()]
    wholes = [one.router for one in found.expectations if not one.router.endswith(APART)]
    assert len(set(labels)) == len(labels) and {name.replace(", 512 tokens", "") for name in wholes} <= set(labels)
