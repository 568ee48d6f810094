"""Tables of the experiments: what they hold and how they are rendered."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import complaint, run, run_json
from experiment_files import (
    LINEAR,
    chosen,
    damaged,
    matrix_of,
    random_matrix,
    two_settings,
    write_results,
)
from ir3de_lab.experiments.cells import Cell, Row, Table, marked
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.published import HERE, PUBLISHED
from ir3de_lab.experiments.rendering import latex, markdown
from ir3de_lab.experiments.resampling import Difference
from ir3de_lab.experiments.results import find, read
from ir3de_lab.experiments.settings import SHIPPED, load
from ir3de_lab.experiments.tables import tables

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_settings(tmp_path_factory.mktemp("results"))


@pytest.fixture
def copied(root: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(root, tmp_path / "results"))


def made(root: Path, setting: str = "clm") -> dict[str, Table]:
    return {table.name: table for table in tables(read(root / setting))}


def cells(table: Table, row: str) -> dict[str, Cell]:
    found = next(one for one in table.rows if one.name == row)
    return dict(zip(table.columns, found.cells, strict=True))


def test_values_by_hand(tmp_path: Path) -> None:
    rows = [("coding", 10, (20, 30, 25)), ("coding", 10, (20, 40, 25)), ("math", 10, (20, 10, 25))]
    matrix = matrix_of("perplexity", rows)
    router = Choices("ir3de", "ours", "clean", np.array([0, 1, 1]), LINEAR)
    main = made(write_results(tmp_path / "one", matrix, [router]).parent, "one")["main"]
    half = 100 * np.exp((40 - 60) / 20)  # 60 nats over 20 tokens where its own expert has 40
    found = cells(main, "ir3de")
    assert found["Coding"].value == pytest.approx(half) and found["Coding"].text == f"{half:.1f}"
    assert found["Coding"].raw == pytest.approx(np.exp(60 / 20))
    assert found["Math"].text == "100.0"
    assert found["Average"].value == pytest.approx((half + 100) / 2)
    assert found["Routing accuracy"].text == "75.0"
    low, high = found["Average"].interval or (0.0, 0.0)
    assert low <= found["Average"].value <= high and found["95 % interval"].text == f"{low:.1f}–{high:.1f}"
    assert cells(main, "Experts average")["Routing accuracy"].text == "n/a"
    assert {row.name for row in main.rows} == {
        "Coding expert", "Math expert", "Experts average", "Random router", "ir3de", "Oracle",
    }  # fmt: skip


SURELY, PERHAPS = Difference(1.0, (0.2, 1.8), 0.001), Difference(1.0, (-0.1, 2.1), 0.08)
BELOW, SLIGHTLY = Difference(-1.0, (-1.8, -0.2), 0.001), Difference(-0.1, (-1.0, 0.8), 0.8)


def _column(*rows: tuple[str, str, float | None, Difference | None]) -> list[str]:
    """The marks of one column, of rows of (name, group, value, difference to the default router)."""
    made = [
        Row(name, (Cell("–" if value is None else f"{value:.1f}", value, difference=found),), group, (True,))
        for name, group, value, found in rows
    ]
    return [row.cells[0].mark for row in marked(made, "ir3de")]


def test_the_best_is_marked_where_its_difference_to_the_default_router_is_sure() -> None:
    home = ("ir3de", "ours", 98.0, Difference(0.0, (0.0, 0.0)))
    assert _column(("a", "", 99.94, SURELY), ("b", "", 99.91, SURELY), ("c", "", 98.5, SURELY), home) == [
        "best", "best", "", "",
    ]  # fmt: skip
    assert _column(("a", "", 99.0, PERHAPS), home) == ["", ""]  # the best, by accident as far as is known
    assert _column(("a", "", 97.0, BELOW), home) == ["", "best"]
    assert _column(("a", "", 97.0, BELOW), ("b", "", 97.9, SLIGHTLY), home) == ["", "", ""]
    assert _column(("kin", "ours", 97.9, SLIGHTLY), ("a", "", 97.0, BELOW), home) == [
        "", "", "best",
    ]  # fmt: skip
    rare = Difference(1.0, (0.1, 1.9), 0.03)  # sure by itself, and not as one of two
    assert _column(("a", "", 99.0, rare), home) == ["best", ""]
    assert _column(("a", "", 99.0, rare), ("b", "", 98.9, PERHAPS), home) == ["", "", ""]
    assert _column(("a", "", 99.0, None), ("e", "", None, None)) == ["", ""]  # nothing to compare with


def test_marks_leave_out_own_experts_the_oracle_and_other_protocols(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="clm", items=200)
    routers = [
        Choices("ir3de", "ours", "clean", chosen(matrix, 0.5, 1), LINEAR),
        Choices("MLP-router", "rivals", "clean", chosen(matrix, 0.1, 2), LINEAR),
        Choices("IR3DE-avg (authors' protocol)", "paper", "authors", chosen(matrix, 0.0), LINEAR),
    ]
    main = made(write_results(tmp_path / "clm", matrix, routers).parent)["main"]
    for domain in ("Coding", "Math", "Physics", "History", "Philosophy"):
        assert cells(main, f"{domain} expert")[domain].text == "100.0"
        assert cells(main, f"{domain} expert")[domain].mark == ""
        assert cells(main, "MLP-router")[domain].mark == "best"
    assert cells(main, "MLP-router")["Average"].mark == cells(main, "MLP-router")["Routing accuracy"].mark == "best"
    for row in main.rows:
        if row.name != "MLP-router":
            assert {cell.mark for cell in row.cells} == {""}, row.name


@pytest.mark.nightly
def test_differences_are_paired_and_the_same_every_time(root: Path) -> None:
    for name in ("main", "reference", "raw", "beside", "responses-math"):
        table = made(root, "reasoning")[name]
        column = next(place for place, title in enumerate(table.columns) if "ifference to ir3de" in title)
        own = next(row for row in table.rows if row.name == "ir3de")
        assert own.cells[column].text == "0.00 [0.00, 0.00]", name
        assert made(root, "reasoning")[name] == table
    found = cells(made(root)["main"], "naive Bayes")
    difference = found["Difference to ir3de"].difference
    assert difference is not None and difference.interval[0] <= difference.value <= difference.interval[1]
    assert difference.value == pytest.approx(
        (found["Average"].value or 0) - (cells(made(root)["main"], "ir3de")["Average"].value or 0)
    )
    own, other = (cells(made(root)["main"], name)["Average"].interval for name in ("ir3de", "naive Bayes"))
    assert own is not None and other is not None  # pairing leaves out what both have in common
    assert difference.interval[1] - difference.interval[0] < (own[1] - own[0]) + (other[1] - other[0])


def test_a_single_expert_is_no_rival_in_its_own_domain(tmp_path: Path) -> None:
    matrix = matrix_of("score", [*[("coding", 1, (0, 1)), ("coding", 1, (1, 1))] * 15, *[("math", 1, (0, 1))] * 9])
    router = Choices("ir3de", "ours", "clean", np.zeros(39, int), LINEAR)
    main = made(write_results(tmp_path / "one", matrix, [router]).parent, "one")["main"]
    assert cells(main, "Math expert")["Coding"].mark == "best"
    assert cells(main, "Math expert")["Math"].mark == ""


def test_of_a_series_the_best_is_shown_with_its_place(root: Path) -> None:
    names = [row.name for row in made(root)["main"].rows]
    assert "IR3DE, best k=10 (authors' code)" in names
    assert "IR3DE, best k=10 (authors' code), authors' protocol" in names
    assert "kNN, CLS, best k=10 (MiniLM-L6)" in names and "MoDEM-small, frozen, best rate=0.1 (MiniLM-L6)" in names
    assert not [name for name in names if re.search(r"(?<!best )(k|neighbours|rate|prompts|tokens)=", name)]
    said = " ".join(made(root)["main"].caption)
    assert "chosen on the test items" in said


def test_rows_stand_in_groups_that_stay_together(root: Path) -> None:
    groups = [row.group for row in made(root)["main"].rows]
    assert list(dict.fromkeys(groups)) == [
        "Single models", "Other routers", "The paper's router", "This package", "Bound",
    ]  # fmt: skip
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)


def test_what_it_takes_says_where_it_was_measured(root: Path) -> None:
    needs = made(root)["needs"]
    bert, ours = cells(needs, "BERT-router (MiniLM-L6)"), cells(needs, "ir3de")
    assert (bert["µs per prompt"].text, ours["µs per prompt"].text) == ("900¹", "17")
    assert (bert["central data"].text, bert["language model"].text, bert["adds an expert"].text) == ("yes", "yes", "no")
    assert (ours["parameters"].text, ours["size"].text, ours["adds an expert"].text) == ("28.2k", "2.7 MB", "yes")
    assert "¹ Measured on NVIDIA H200" in " ".join(needs.caption)


def test_times_of_a_busy_machine_are_marked(tmp_path: Path) -> None:
    matrix = random_matrix("score", setting="small")
    routers = [
        Choices(name, "ours", "clean", chosen(matrix, 0.1), LINEAR, 3.0, 17.0, about={"load_per_core": load})
        for name, load in (("quiet", 0.6), ("busy", 5.0))
    ]
    needs = made(write_results(tmp_path / "small", matrix, routers).parent, "small")["needs"]
    assert (cells(needs, "quiet")["fit, s"].text, cells(needs, "busy")["fit, s"].text) == ("3", "3²")
    assert "² Measured while other programs kept the machine busy" in " ".join(needs.caption)
    assert r"3\textsuperscript{2}" in latex(needs)


def test_times_of_a_shared_accelerator_are_marked_as_such(tmp_path: Path) -> None:
    matrix = random_matrix("score", setting="small")
    routers = [
        Choices(
            name, "rivals", "clean", chosen(matrix, 0.1), LINEAR, 3.0, 17.0,
            about={"accelerator": "a GPU", "shared_accelerator": shared},
        )
        for name, shared in (("alone", False), ("shared", True))
    ]  # fmt: skip
    needs = made(write_results(tmp_path / "small", matrix, routers).parent, "small")["needs"]
    assert (cells(needs, "alone")["fit, s"].text, cells(needs, "shared")["fit, s"].text) == ("3¹", "3¹²")


def test_beside_the_paper_s_figures(root: Path) -> None:
    beside = made(root)["beside"]
    coding = cells(beside, "Coding expert")
    assert (coding["paper, as printed"].text, coding["paper, mean of its row"].text) == ("86.3", "89.2")
    assert cells(beside, "kNN router")["row here"].text == "kNN, CLS, best k=10 (MiniLM-L6)"
    assert cells(beside, "MoDEM-large")["row here"].text == "not measured"
    shown = [row.cells[-1].text for row in beside.rows]
    assert "IR3DE, best k=10 (authors' code), authors' protocol" in shown and shown[-1] == "ir3de"


def test_an_encoder_that_stands_in_for_two_sizes_is_beside_both(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="clm")
    modem = Choices("MoDEM-small/large, frozen (MiniLM-L6)", "rivals", "clean", chosen(matrix, 0.1), LINEAR)
    write_results(tmp_path / "clm", matrix, [modem])
    beside = {table.name: table for table in tables(read(tmp_path / "clm"))}["beside"]
    assert [cells(beside, f"MoDEM-{size}")["row here"].text for size in ("small", "large")] == [modem.router] * 2


def test_published_tables_are_about_the_settings_of_the_same_name() -> None:
    for name, paper in PUBLISHED.items():
        assert paper.domains == load(name).domains
        assert {len(row) for row in paper.rows.values()} == {len(paper.domains) + 1}
        for place, domain in enumerate(paper.domains):  # on the diagonal every expert is what it is measured against
            assert [row[place] for row in list(paper.rows.values())[: len(paper.domains)]].index(100.0) == place, domain
    assert set(HERE) <= {row for paper in PUBLISHED.values() for row in paper.rows}


def test_the_paper_s_average_of_clm_large_leaves_math_out() -> None:
    paper = PUBLISHED["clm-large"]
    for name, row in paper.rows.items():
        assert paper.average(name) == pytest.approx(sum(row[1:-1]) / 3, abs=0.07), name  # of cells that are rounded
    assert load("clm-large").protocol["authors"].average_without == ("math",)
    assert any("leaves Math out" in note for note in paper.notes)


def test_what_is_to_be_known_of_the_paper_s_figures_stands_under_them(root: Path) -> None:
    said = " ".join(made(root, "reasoning")["beside"].caption)
    assert "MoDEM was trained on other corpora" in said and "its code counts instructions" in said


def test_instructions_are_counted_by_response_too(tmp_path: Path) -> None:
    rows = [("coding", 1, (1, 0)), ("math", 3, (0, 3)), ("math", 1, (1, 1)), ("math", 2, (0, 1))]
    matrix = matrix_of("score", rows)
    router = Choices("ir3de", "ours", "clean", np.array([0, 1, 0, 1]), LINEAR)
    found = made(write_results(tmp_path / "one", matrix, [router]).parent, "one")["responses-math"]
    math = cells(found, "Math expert")  # 5 of 6 instructions, 2 of 3 responses, as the router
    assert (math["per instruction"].text, math["per response"].text) == ("83.3", "66.7")
    assert math["difference to ir3de, per response"].text == "0.00 [0.00, 0.00]"
    assert cells(found, "Coding expert")["difference to ir3de, per response"].text.startswith("−33.33 [−176.76, ")
    assert "responses-coding" not in made(tmp_path, "one")


def test_reference_answers_groups_and_the_rest(root: Path) -> None:
    found = made(root, "reasoning")
    assert cells(found["reference"], "ir3de")["Math"].value != cells(found["main"], "ir3de")["Math"].value
    assert cells(found["reference"], "ir3de")["Routing accuracy"] == cells(found["main"], "ir3de")["Routing accuracy"]
    groups = found["groups-multilingual"]
    assert [row.name for row in groups.rows] == ["de", "fr"]
    matrix = read(root / "reasoning").matrix
    part = [place for place, group in enumerate(matrix.group) if group == "de"]
    expected = 100 * matrix.values[part, 0].sum() / matrix.weight[part].sum()
    assert cells(groups, "de")["Math expert"].value == pytest.approx(expected)
    others = made(root)
    assert [row.name for row in others["dynamic"].rows] == ["+ Philosophy", "− Philosophy"]
    assert cells(others["decentralised"], "bytes sent")["found"].text == "1,234,567"


def test_reference_answers_of_some_items_only(copied: Path) -> None:
    path = copied / "reasoning" / "reference.jsonl.xz"
    damaged(path, lambda lines: lines.__delitem__(slice(1, 5)))
    always_right = cells(made(copied, "reasoning")["reference"], "IR3DE, best k=10 (authors' code), authors' protocol")
    assert always_right["Routing accuracy"].text == "100.0" and always_right["Average"].text == "100.0"


def test_reference_answers_of_some_domains_only(copied: Path) -> None:
    def without_instructions(lines: list[Any]) -> None:
        lines[0]["domains"].remove("instruction")
        del lines[0]["own"]["instruction"]
        lines[1:] = [line for line in lines[1:] if line["domain"] != "instruction"]

    damaged(copied / "reasoning" / "reference.jsonl.xz", without_instructions)
    found = made(copied, "reasoning")
    assert found["reference"].columns[:3] == ("Math", "Multilingual", "Coding")
    assert [row.name for row in found["reference"].rows] == [row.name for row in found["main"].rows]


def test_losses_are_read_from_training_records_and_from_pairs(copied: Path) -> None:
    steps = [(step, 3.0 - step / 10) for step in range(1, 9)]
    assert read(copied / "clm").losses["math"] == steps
    (copied / "clm" / "training.json").write_text(json.dumps({"experts": {"math": steps}}))
    assert read(copied / "clm").losses["math"] == steps


def test_unseen_domains_have_an_average_of_their_own(tmp_path: Path) -> None:
    setting = load("routerdc7")
    matrix = random_matrix("score", setting="routerdc7", domains=setting.domains)
    main = made(write_results(tmp_path / "routerdc7", matrix, []).parent, "routerdc7")["main"]
    found = cells(main, "Random router")
    unseen = [found[name].value for name in ("Pre-algebra", "MBPP", "JavaScript", "C-Eval")]
    assert found["Unseen"].value == pytest.approx(np.mean(unseen))  # type: ignore[arg-type]


# rendering ------------------------------------------------------------------------------------------------------


def test_markdown_has_a_cell_for_every_column(root: Path) -> None:
    for table in made(root).values():
        lines = [line for line in markdown(table).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {len(table.columns) + 2}
    main = markdown(made(root)["main"])
    assert "| *This package* |" in main
    bold = Table("t", "t", "", ("x",), (Row("a", (Cell("1.0", 1.0, mark="best"),)),))
    assert "| a | **1.0** |" in markdown(bold) and r"a & \textbf{1.0} \\" in latex(bold)


def test_latex_escapes_what_latex_reads_and_is_balanced(root: Path) -> None:
    odd = Table("odd", "50 % & more", "a_b", ("x^2", "µs"), (Row("~{#$}\\", (Cell("1_0"), Cell("–"))),))
    shown = latex(odd)
    assert r"50 \% \& more" in shown and r"\textbf{a\_b}" in shown and r"x\textasciicircum{}2" in shown
    assert r"\textasciitilde{}\{\#\$\}\textbackslash{} & 1\_0 & -- \\" in shown
    for table in (odd, *made(root).values(), *made(root, "reasoning").values()):
        text = latex(table)
        assert text.isascii(), sorted(set(re.findall(r"[^\x00-\x7f]", text)))
        bare = re.sub(r"\\[\\{}&%$#_]", "", text)
        assert bare.count("{") == bare.count("}")
        body = text[text.index(r"\toprule") : text.index(r"\bottomrule")].splitlines()
        rows = [line for line in body if line.endswith(r"\\") and not line.startswith(r"\multicolumn")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {len(table.columns)}
        begun, ended = re.findall(r"\\begin{(\w+)}", text), re.findall(r"\\end{(\w+)}", text)
        assert begun == ended[::-1]


# the command line ------------------------------------------------------------------------------------------------


def test_tables_as_json_parse_and_hold_the_numbers(root: Path) -> None:
    told = run_json("bench", "tables", "--results", root)
    assert [setting["setting"] for setting in told["settings"]] == ["clm", "reasoning"]
    main = told["settings"][0]["tables"][0]
    row = next(row for row in main["rows"] if row["name"] == "ir3de")
    assert main["name"] == "main" and 0 < row["cells"][0]["value"] <= 100 and row["cells"][0]["raw"] > 1
    assert any("clm-large" in note for note in told["notes"])
    assert any("training.json" in note for note in told["settings"][1]["notes"])


@pytest.mark.nightly
def test_tables_on_the_terminal_and_in_files(root: Path, tmp_path: Path) -> None:
    shown = run("bench", "tables", "--results", root, "--setting", "clm", "--only", "main")
    assert "naive Bayes" in shown.stdout and "µs per prompt" not in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert "no setting" not in shown.stderr
    for name, start in (("t.md", "**CLM"), ("t.tex", r"\begin{table}"), ("t.json", "{")):
        run("bench", "tables", "--results", root, "--output", tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    printed = run("bench", "tables", "--results", root, "--format", "latex").stdout
    assert printed == (tmp_path / "t.tex").read_text(encoding="utf-8")
    assert (
        "leave one of them out"
        in run("bench", "tables", "--results", root, "--format", "latex", "--json", code=2).stderr
    )


@pytest.mark.nightly
def test_missing_files_are_noted_and_missing_settings_too(copied: Path, tmp_path: Path) -> None:
    shutil.rmtree(copied / "clm" / "choices")
    (copied / "clm" / "dynamic.json").unlink()
    shown = run(
        "bench", "tables", "--results", copied, "--setting", "clm", "--setting", "reasoning", "--setting", "clm-large"
    )
    for said in ("clm: no choices in", "clm: no", "dynamic.json", "clm-large: no"):
        assert said in shown.stderr
    assert "Random router" in shown.stdout
    empty = tmp_path / "empty"
    empty.mkdir()
    for command in ("tables", "figures"):
        told = complaint("bench", command, "--results", empty / "results")
        assert "in results/ of a checkout" in told and "name that folder with --results" in told
    assert "ir3de bench outcomes --setting clm" in complaint("bench", "tables", "--results", empty)


def test_settings_that_are_found_come_in_their_order(root: Path) -> None:
    found, notes = find(root)
    assert [results.setting for results in found] == ["clm", "reasoning"] and len(notes) == len(SHIPPED) - 2
