"""Sentences of docs/ that compare routers say what results/ says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import generate_sentences
import raw_figures
from experiment_files import LINEAR, chosen, random_matrix, write_results
from generate_sentences import fill, find_row, list_sentences, say
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.results import read
from ir3de_lab.experiments.standings import standings

ROOT = Path(__file__).parents[2]
SENTENCE = "Naive Bayes is {verdict one | naive Bayes} it, with {less one | naive Bayes} points less."


@pytest.fixture
def shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How much two routers get wrong; what is put in there later is what `say` finds."""
    found = {"ir3de": 0.02, "naive Bayes": 0.6}

    def rows(_: str) -> object:
        matrix = random_matrix("score", items=200, domains=("coding", "math"), setting="one")
        made = [Choices(name, "ours", "clean", chosen(matrix, share), LINEAR) for name, share in found.items()]
        return standings(read(write_results(tmp_path / "one", matrix, made)))

    monkeypatch.setattr(generate_sentences, "_rows", rows)
    return found


def test_figures_and_verdicts_of_a_sentence_follow_the_raw_files(shares: dict[str, float]) -> None:
    page = "It is so.\nNaive Bayes is\n  indistinguishable from it, with 0.00\npoints less. The end."
    wanted = fill(page, SENTENCE)
    assert "Naive Bayes is\n  surely below it, with " in wanted and "0.00" not in wanted and wanted.endswith("The end.")
    assert fill(wanted, SENTENCE) == wanted
    shares["naive Bayes"] = 0.021  # another raw file
    assert "is\n  indistinguishable from it" in fill(wanted, SENTENCE)


def test_a_sentence_that_is_no_longer_right_is_refused(shares: dict[str, float]) -> None:
    shares |= {"ir3de": 0.6, "naive Bayes": 0.02}
    with pytest.raises(SystemExit, match="naive Bayes has less in one, and it has not: write it anew"):
        say("less one | naive Bayes")
    assert say("verdict one | naive Bayes") == "surely above"


def test_a_sentence_or_a_row_that_is_not_there_is_named(shares: dict[str, float]) -> None:
    with pytest.raises(SystemExit, match="is there 0 times, and not once: Naive Bayes is"):
        fill("Nothing of that.", SENTENCE)
    with pytest.raises(SystemExit, match="a row that is not there: kNN"):
        say("average one | kNN")


def test_a_sentence_does_not_end_with_a_place(shares: dict[str, float]) -> None:
    for end in ("", "."):  # where 0.4 ends, and where a sentence does, nothing but the next words can tell
        with pytest.raises(SystemExit, match=r"ends with a place: add the words after it"):
            fill("It has 0.4. So", "It has {less one | naive Bayes}" + end)


def test_of_several_rows_the_best_is_meant(shares: dict[str, float]) -> None:
    rows = generate_sentences._rows("one")
    assert find_row(rows, "Coding & expert").name == "Coding expert"
    assert find_row(rows, "ir3de").performance.average == pytest.approx(float(say("average one | ir3de")), abs=0.05)
    assert np.isfinite(float(say("accuracy one | ir3de")))


def test_two_rows_other_than_the_default_router_are_compared(shares: dict[str, float]) -> None:
    assert float(say("less one | naive Bayes - ir3de")) == pytest.approx(float(say("less one | naive Bayes")))
    with pytest.raises(SystemExit, match="naive Bayes has more in one, and it has not"):
        say("more one | naive Bayes - ir3de")


def test_cells_of_the_page_of_results_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "**ONE: every λ**\n\n| router | Average | Difference |\n|---|---:|---:|\n| *ir3de* |  |  |\n"
        "| λ = 1, as it is by default | **98.7** | −1.26 \\[−1.68, 0.84\\] ▼ |\n"
        "| *other* |  |  |\n| λ = 1 | 5¹² | n/a |\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(generate_sentences, "README", page)
    generate_sentences._tables.cache_clear()
    try:
        assert say("cell ONE: every | Average | ir3de > λ = 1") == "98.7"
        assert say("cell ONE: every | Average | other > λ = 1") == "5"
        assert say("size ONE: every | Difference | ir3de > λ = 1") == "1.26"
        assert say("span ONE: every | Difference | ir3de > λ = 1") == "−1.68 to 0.84"
        with pytest.raises(SystemExit, match="a table or a column that is not there once: TWO"):
            say("cell TWO | Average | λ = 1")
        with pytest.raises(SystemExit, match="a row that is not there once: ONE"):
            say("cell ONE: every | Average | λ = 2")
    finally:
        generate_sentences._tables.cache_clear()


def test_what_a_router_sends_to_the_own_expert_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix("score", items=200, domains=("coding", "math"), setting="one")
    made = [Choices("ir3de", "ours", "clean", matrix.own_expert, LINEAR)]
    results = read(write_results(tmp_path / "one", matrix, made))
    monkeypatch.setattr(generate_sentences, "_read", lambda _: results)
    assert say("sent one | ir3de") == say("sent one/math | ir3de") == "100.0"
    with pytest.raises(SystemExit, match="a router that is not there: kNN"):
        say("sent one | kNN")


def test_a_single_figure_of_a_raw_file_is_found_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {"name": "banking77: lost", "value": 0.25, "reached": False, "raw": {"draws": [{"lost": 1}, {"lost": 4}]}}
    other = {"name": "banking77: lost if it is trusted", "value": 12.0}
    monkeypatch.setattr(
        raw_figures, "raw", lambda _: {"figures": [figure, other], "plan": {"seeds": 1000}, "rows": [other]}
    )
    assert say("raw living > banking77: lost > value | ×100 .0f") == "25"
    assert say("raw living > banking77: lost > raw > draws > * > lost | mean .1f") == "2.5"
    assert (
        say("raw living > plan > seeds | ,d") == "1,000"
        and say("raw living > trusted & banking77 > value | +.1f") == "+12.0"
    )
    assert (
        say(f"raw living > rows > {other['name']} > value | .0f") == say("raw living > rows > 0 > value | .0f") == "12"
    )
    page = "| banking77 | 0.1 reached |"
    template = "| banking77 | {raw living > banking77: lost > value | .1f} {raw living > banking77: lost | reached} |"
    assert fill(page, template) == "| banking77 | 0.2 **missed** |"
    for place, problem in {
        "raw living > banking77 > value | .1f": "a figure that is there 2 times",
        "raw living > banking77: lost > raw > seeds | d": "not in the raw file: seeds",
        "raw living > rows > stackoverflow20 > value | d": "not in the raw file: stackoverflow20",
        "raw living > banking77: lost > raw > draws > * > lost | d": "leads to 2 values: say mean",
    }.items():
        with pytest.raises(SystemExit, match=problem):
            say(place)


def test_each_sentence_stands_once_in_its_page() -> None:
    pages = {page.name for page, _ in list_sentences()}
    assert {"experiments.md", "learning.md", "scaling.md", "transports.md", "why-not.md"} <= pages
    assert len(list(list_sentences())) > 50


@pytest.mark.slow
def test_the_pages_say_what_the_raw_files_say() -> None:
    script = ROOT / "lab" / "scripts" / "generate_sentences.py"
    told = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
