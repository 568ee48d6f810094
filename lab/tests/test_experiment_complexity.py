"""What routers cost as they grow: every router at every point, its tables with ratios, and damaged files refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiment_files import random_matrix, write_results
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import complexity
from ir3de_lab.experiments.complexity import ROUTERS, Size
from ir3de_lab.experiments.complexity_tables import complexity_tables
from ir3de_lab.experiments.figures.complexity import growth
from ir3de_lab.experiments.results import read

TRAIN = {
    "cooking": [f"boil {n} eggs in salted water with butter" for n in range(8)],
    "law": [f"the court held contract {n} void on appeal" for n in range(8)],
}
SMALL = Size(parts=(1, 2), texts=(3, 6), tokens=(2, 6), usual=8, length=8, asked=4, rounds=1)


def row(axis: str, at: int, router: str, seconds: float, size: int) -> dict[str, Any]:
    return {
        "axis": axis, "at": at, "router": router, "training_tokens": 10, "fit_seconds": seconds, "route_us": seconds,
        "parameters": 3, "size_bytes": size,
    }  # fmt: skip


def written(folder: Path, load: float = 0.5) -> Path:
    rows = [
        row("domains", at, name, at * factor, 1000 * at)
        for at in (2, 4)
        for name, factor in (("ir3de", 1.0), ("naive Bayes", 0.5))
    ]
    write_results(folder / "clm", random_matrix("perplexity", setting="clm"), [])
    complexity.write(rows, {"load_per_core": load}, "clm", folder / "clm")
    return folder / "clm"


@pytest.mark.nightly
def test_every_router_is_measured_at_every_point() -> None:
    rows = complexity.measure(TRAIN, ["boil it in butter", "the court was void", "eggs", "an appeal"] * 2, SMALL)
    assert {(r["axis"], r["at"]) for r in rows} == {
        ("domains", 2), ("domains", 4), ("texts", 3), ("texts", 6), ("tokens", 2), ("tokens", 6),
    }  # fmt: skip
    assert len(rows) == 6 * len(ROUTERS)
    assert all(r["fit_seconds"] > 0 and r["route_us"] > 0 and r["size_bytes"] > 0 for r in rows)
    tokens = {r["at"]: r["training_tokens"] for r in rows if r["axis"] == "texts"}
    assert tokens[6] == 2 * tokens[3]
    by_domains = {r["training_tokens"] for r in rows if r["axis"] == "domains"}
    assert len(by_domains) == 1  # the same texts, cut into more domains


def test_the_table_shows_ratios_to_the_default_router_and_how_a_figure_grows(tmp_path: Path) -> None:
    [table] = complexity_tables(read(written(tmp_path)))
    rows = {(r.group, r.name): [cell.text for cell in r.cells] for r in table.rows}
    assert rows["naive Bayes", "4 domains"] == ["2", "0.50", "2", "0.50", "4.0 kB", "1.00"]
    assert rows["naive Bayes", "grows with the power"][0] == "1.00"
    assert "²" not in " ".join(table.caption)


def test_times_of_a_busy_machine_are_marked(tmp_path: Path) -> None:
    [table] = complexity_tables(read(written(tmp_path, load=3.0)))
    assert table.rows[0].cells[0].text.endswith("²") and "²" in " ".join(table.caption)
    assert not table.rows[0].cells[1].text.endswith("²")  # a ratio within the run


@pytest.mark.nightly
def test_the_figure_has_a_panel_for_each_thing_that_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = growth(read(written(tmp_path)))
    assert figure is not None and len(figure.axes) == 2
    assert {line.get_label() for line in figure.axes[0].lines} == {"ir3de", "naive Bayes"}


@pytest.mark.parametrize(
    ("change", "said"),
    [({"rows": []}, "expected rows"), ({"rows": [{"axis": "domains"}]}, "expected rows"), ({"kind": "other"}, "kind")],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    folder = written(tmp_path)
    path = folder / "complexity.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ArtifactError, match=said):
        complexity.read(folder)


def test_an_unknown_axis_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    complexity.write([row("moons", 1, "ir3de", 1.0, 1)], {}, "clm", folder)
    with pytest.raises(ArtifactError, match="moons"):
        complexity.read(folder)
