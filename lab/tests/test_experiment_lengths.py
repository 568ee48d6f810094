"""What a limit on the length of answers did, on answers whose lengths and scores are known."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import generate_gain_docs as generator
from experiment_files import matrix_of, write_results
from ir3de import Embedding
from ir3de.cli import cli
from ir3de.errors import ArtifactError
from ir3de_lab.experiments import lengths, reachable, settings
from ir3de_lab.experiments import matrix as matrix_files
from ir3de_lab.experiments.gain import read_seeds

SHORT, LONG = "It is 12.", "The sum of the first and the second number is what we have to find, so let us begin"
CAPITALS = "WRITE THE PRIME NUMBERS BELOW TWENTY AND NOTHING ELSE"  # 20 tokens, 9 in lower case
POINTS = {"coding": [1, 1], "math": [1, 0], "law": [1, 1], "base": [1, 0], "math-tuned": [0, 0]}  # two draws an item
DRAWS = {"coding": [SHORT, SHORT], "math": [LONG, LONG], "law": [SHORT, CAPITALS], "base": [SHORT, LONG]}
MOST_TOKENS = 12


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, setting = Embedding.default().save(tmp_path / "base"), settings.load("reasoning-1b")
    assert setting.base is not None
    small = replace(
        setting,
        domains=("coding", "math", "law"),
        tasks={"coding": "humaneval", "math": "gsm8k", "law": "m_arc"},  # answers to the last are chosen, not drawn
        base=replace(setting.base, model=str(folder)),
        evaluation=replace(setting.evaluation, most_new_tokens={"gsm8k": MOST_TOKENS, "humaneval": MOST_TOKENS}),
    )
    monkeypatch.setattr(settings, "load", lambda _: small)
    for name, taken in (("by-hand", "base"), ("by-hand-seed-1", "math")):
        write(tmp_path / "results" / name, taken)
    return tmp_path / "results"


def write(home: Path, taken: str) -> None:
    """The answers of one seed, in which the base model took the place of the expert for math, or did not."""
    columns = [name for name in POINTS if taken == "base" or name != "math-tuned"]
    points = {**POINTS, "math": POINTS["base" if taken == "base" else "math-tuned"]}
    values = [float(np.mean(points[name])) for name in columns]
    made = matrix_of("score", [(domain, 1.0, values) for domain in ("coding", "math", "law")], setting=home.name)
    made = replace(made, extras=tuple(columns[3:]))
    write_results(home, made, [])
    matrix_files.write(made, home / "drawn.jsonl.xz")
    reachable.write(np.array([[points[name] for name in columns]] * 3, float), made.columns, made, home)
    (home / "answers").mkdir()
    for model, texts in DRAWS.items():
        rows = [{"item": item, **({} if item.startswith("law") else {"draws": texts})} for item in made.items]
        content = "\n".join(map(json.dumps, [{}, *rows])).encode()
        (home / "answers" / f"{model}.jsonl.xz").write_bytes(lzma.compress(content))


def test_cut_answers_are_counted_and_scored_apart(results: Path) -> None:
    found = {(row.model, row.domain): row for row in lengths.measure(read_seeds(results, "by-hand"))}
    assert set(found) == {(name, of) for name in ("coding", "math-tuned", "law", "base") for of in ("coding", "math")}
    base = found["base", "math"]
    assert (base.answers, base.cut_percent, base.ended_score, base.cut_score) == (4, 50.0, 100.0, 0.0)
    short, long = found["coding", "math"], found["math-tuned", "math"]
    assert (short.cut_percent, short.ended_score, short.cut_score) == (0.0, 100.0, None)
    assert (long.cut_percent, long.ended_score, long.cut_score) == (100.0, None, 0.0)  # the points of its own answers


def test_capitals_are_counted_as_they_stand(results: Path) -> None:
    tokenizer = Embedding.default().tokenizer
    assert len(tokenizer.encode(CAPITALS)) < MOST_TOKENS < len(tokenizer.reference.encode(CAPITALS).ids)
    (law,) = (
        row for row in lengths.measure(read_seeds(results, "by-hand")) if (row.model, row.domain) == ("law", "math")
    )
    assert law.cut_percent == 50.0


def test_the_command_keeps_what_the_page_shows(results: Path, tmp_path: Path) -> None:
    arguments = ["bench", "lengths", "--setting", "by-hand", "--results", str(results)]
    shown = CliRunner().invoke(cli, [*arguments, "--save", str(tmp_path / "lengths.json")], catch_exceptions=False)
    assert shown.exit_code == 0 and "of those cut" in shown.output
    document = json.loads((tmp_path / "lengths.json").read_bytes())
    assert document["seeds"] == ["by-hand", "by-hand-seed-1"] and len(document["rows"]) == 8
    page = generator.gain_lengths(document)
    assert f"| Base | Math | {MOST_TOKENS} | 50.0 | 100.0 | 0.0 |" in page and len(page) == 2 + 6  # rows that were cut


def test_answers_that_are_not_there_are_named(results: Path) -> None:
    (results / "by-hand" / "answers" / "base.jsonl.xz").unlink()
    with pytest.raises(ArtifactError, match="no answers of 'base' at"):
        lengths.measure(read_seeds(results, "by-hand"))


def test_a_half_written_file_of_answers_is_refused(results: Path) -> None:
    path = results / "by-hand" / "answers" / "base.jsonl.xz"
    path.write_bytes(lzma.compress(b"\n".join(lzma.decompress(path.read_bytes()).split(b"\n")[:-2])))
    with pytest.raises(ArtifactError, match=r"has 0 drawn answers to 'math.*, and 2 were judged: copy the file again"):
        lengths.measure(read_seeds(results, "by-hand"))
