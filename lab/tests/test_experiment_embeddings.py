"""The same routers on other embeddings: fitted on those that are here, and n/a with a reason where they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiment_files import LINEAR, chosen, random_matrix, write_results
from ir3de.embedding import Embedding, Matrix
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.embedding_contenders import NOT_AT_HAND, embeddings, names_on
from ir3de_lab.experiments.results import read
from ir3de_lab.experiments.tables import tables

TRAIN = {
    "cooking": [f"boil {n} eggs in salted water with butter" for n in range(12)],
    "law": [f"the court held contract {n} void on appeal" for n in range(12)],
}


@pytest.mark.nightly
def test_both_routers_are_fitted_on_the_embedding_that_is_named(tmp_path: Path) -> None:
    usual = Embedding.default()
    other = Embedding(usual.tokenizer, Matrix.plain(np.ascontiguousarray(usual.matrix[:, :16])), name="narrow")
    folder = other.save(tmp_path / "narrow", compact=False)
    reasons: dict[str, str] = {}
    made = list(embeddings(TRAIN, reasons.__setitem__, [str(folder)], sources=()))
    assert [one.name for one in made] == list(names_on("narrow"))
    assert {one.about["width"] for one in made} == {16}
    assert {one.about["fingerprint"] for one in made} == {other.fingerprint}
    for one in made:
        assert one.fitted.route(["boil an egg", "the court held it void"]) == ["cooking", "law"]


def test_an_embedding_that_is_not_here_is_left_out_with_its_reason(tmp_path: Path) -> None:
    reasons: dict[str, str] = {}
    assert list(embeddings(TRAIN, reasons.__setitem__, sources=(str(tmp_path / "gone"),))) == []
    assert {name for name, why in reasons.items() if "no embedding at" in why} == set(names_on("gone"))
    assert all(why and name in reasons for title, why in NOT_AT_HAND.items() for name in names_on(title))


def test_a_router_on_another_embedding_is_a_row_of_the_tables_and_not_beside_the_papers(tmp_path: Path) -> None:
    matrix = random_matrix("perplexity", setting="clm")
    paper, ours = names_on("MiniLM-L6")
    about = {"embedding": "MiniLM-L6"}
    made = [
        Choices("ir3de", "ours", "clean", chosen(matrix, 0.1, 1), LINEAR, route_us=3.0, fit_seconds=1.0),
        Choices("IR3DE-avg (authors' code)", "paper", "clean", chosen(matrix, 0.3, 1), LINEAR),
        Choices(paper, "paper", "clean", chosen(matrix, 0.4, 2), LINEAR, about=about),
        Choices(ours, "ours", "clean", chosen(matrix, 0.2, 3), LINEAR, about=about),
    ]
    found = {table.name: table for table in tables(read(write_results(tmp_path / "clm", matrix, made)))}
    assert {paper, ours} <= {row.name for row in found["main"].rows}
    said = {cell.text for row in found["beside"].rows for cell in row.cells}
    assert "IR3DE-avg (authors' code)" in said and paper not in said
