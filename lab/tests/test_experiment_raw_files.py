"""Raw files of the experiments that cannot be used, and the page that lists them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import ROOT, complaint
from experiment_files import LINEAR, chosen, damaged, two_settings, write_results
from ir3de.errors import ArtifactError, VersionError
from ir3de_lab.experiments.choices import Choices
from ir3de_lab.experiments.results import read
from ir3de_lab.experiments.standings import standings
from refused import refusal


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_settings(tmp_path_factory.mktemp("results"))


@pytest.fixture
def copied(root: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(root, tmp_path / "results"))


# raw files that cannot be used -----------------------------------------------------------------------------------


def _line(**change: Any) -> Callable[[list[Any]], None]:
    return lambda lines: lines[2].update(change)


DAMAGES: dict[str, tuple[Callable[[list[Any]], None], str]] = {
    "an expert's column is missing": (_line(values=[1.0, 2.0]), r"has 2 values .*make its outcomes again"),
    "a domain is unknown": (_line(domain="astrology"), r"line 3: .*'astrology' is none of .*make the outcomes again"),
    "an item is there twice": (lambda lines: lines.append(lines[1]), r"is there twice: leave one"),
    "an outcome is no number": (_line(values=[float("nan")] * 7), r"no outcome of the expert 'coding' .*again"),
    "an outcome is a word": (_line(values=["many"] * 7), r"is damaged.*again"),
    "a weight is nothing": (_line(weight=0), r"weight of 0 or less"),
    "a field is missing": (lambda lines: lines[1].pop("weight") and None, r"is damaged.*again"),
    "no column for a domain's expert": (
        lambda lines: lines[0]["own"].pop("math") and None,
        r"expert of the domain 'math'",
    ),
    "it is another kind of file": (
        lambda lines: lines[0].update(kind="ir3de.router"),
        r"is not an ir3de.outcome_matrix file",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_matrix_is_refused_with_what_to_do(damage: str, copied: Path) -> None:
    change, said = DAMAGES[damage]
    damaged(copied / "clm" / "outcomes.jsonl.xz", change)
    message = refusal(ArtifactError, read, copied / "clm")
    assert re.search(said, message) and "outcomes.jsonl.xz" in message
    assert complaint("bench", "tables", "--results", copied).startswith("error: ")


def test_truncated_and_newer_files_are_refused(copied: Path) -> None:
    path = copied / "clm" / "outcomes.jsonl.xz"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not packed"):
        path.write_bytes(content)
        assert re.search(r"truncated or damaged.*Copy it again", refusal(ArtifactError, read, copied / "clm"))
    path.write_bytes(whole)
    damaged(path, lambda lines: lines[0].update(version=99))
    assert "install a newer ir3de-lab" in refusal(VersionError, read, copied / "clm")


def test_choices_for_other_items_are_refused(copied: Path) -> None:
    damaged(copied / "clm" / "outcomes.jsonl.xz", lambda lines: lines[1].update(item="another item"))
    message = refusal(ArtifactError, read, copied / "clm")
    assert re.search(r"belongs to other outcomes .*run `ir3de bench run --setting clm` again", message)


def test_other_damaged_files_are_refused(copied: Path) -> None:
    for name, content in (
        ("choices/ir3de.json", "{}"),
        ("dynamic.json", '[{"action": "add"}]'),
        ("training.json", '{"experts": {"math": [1, 2]}}'),
        ("decentralised.json", '{"identical": tr'),
    ):
        path = copied / "clm" / name
        before = path.read_text()
        path.write_text(content)
        assert path.name in refusal(ArtifactError, read, copied / "clm")
        path.write_text(before)
    shutil.copy(copied / "clm" / "outcomes.jsonl.xz", copied / "reasoning" / "reference.jsonl.xz")
    assert "belongs to other outcomes" in refusal(ArtifactError, read, copied / "reasoning")


def test_choices_that_tables_could_not_place_are_refused(copied: Path) -> None:
    path = copied / "clm" / "choices" / "naive-bayes.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for change, said in (
        ({"family": "friends"}, "has the family 'friends'; known are paper, ours, rivals"),
        ({"router": ""}, "names no router or no protocol"),
        ({"protocol": None}, "names no router or no protocol"),
        ({"axis": "k", "at": 3.0}, "all three say where it is on a curve, or none"),
        ({"series": "s", "axis": "weight", "at": 3.0}, "all three say where it is on a curve"),
        ({"router": "ir3de"}, "are of the same router 'ir3de': delete the older one"),
        ({"choices": document["choices"][:-1]}, "choices for 60 items"),
        ({"choices": "?" * 60}, "is damaged"),
        ({"traits": {}}, "is damaged"),
    ):
        path.write_text(json.dumps({**document, **change}), encoding="utf-8")
        message = refusal(ArtifactError, read, copied / "clm")
        assert said in message and "naive-bayes.json" in message


def test_tables_of_damaged_files_leave_what_was_written_before(copied: Path, tmp_path: Path) -> None:
    target = tmp_path / "tables.md"
    target.write_text("as before")
    (copied / "clm" / "choices" / "ir3de.json").write_text("{")
    assert "ir3de.json" in complaint("bench", "tables", "--results", copied, "--output", target)
    assert target.read_text() == "as before"


# the page of results ---------------------------------------------------------------------------------------------


def _readme(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    script = ROOT / "lab" / "scripts" / "generate_results_readme.py"
    command = [sys.executable, str(script), "--root", str(root), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_page_of_results_knows_when_it_is_stale_and_what_is_not_listed(copied: Path) -> None:
    root = copied.parent
    assert _readme(root, "--check").returncode == 1
    assert _readme(root).returncode == 0
    page = (copied / "README.md").read_text(encoding="utf-8")
    assert "[outcomes.jsonl.xz](clm/outcomes.jsonl.xz)" in page and "**CLM: what each router needs**" in page
    assert _readme(root, "--check").returncode == 0
    (copied / "clm" / "stray.json").write_text("{}")
    (copied / "stray.json").write_text("{}")
    done = _readme(root, "--check")
    assert done.returncode == 1 and "results/clm/stray.json is not listed" in done.stderr
    assert "results/stray.json is not listed" in done.stderr
    for path in (copied / "clm" / "stray.json", copied / "stray.json"):
        path.unlink()
    matrix = read(copied / "clm").matrix
    other = Choices("another", "rivals", "clean", chosen(matrix, 0.5), LINEAR)
    write_results(copied / "clm", matrix, [other])
    assert "is not what results/ says" in _readme(root, "--check").stderr


def test_the_summary_shows_the_default_router_and_no_better_one_of_its_name(copied: Path) -> None:
    matrix = read(copied / "clm").matrix
    default, tuned = (Choices(name, "ours", "clean", chosen(matrix, wrong, 3), LINEAR) for name, wrong in
                      (("ir3de", 0.6), ("ir3de, tuned", 0.0)))  # fmt: skip
    write_results(copied / "clm", matrix, [default, tuned])
    (copied.parent / "README.md").write_text("<!-- experiments --><!-- /experiments -->", encoding="utf-8")
    assert _readme(copied.parent).returncode == 0
    lines = (copied.parent / "README.md").read_text(encoding="utf-8").splitlines()
    shown = next(line for line in lines if line.startswith("| **ir3de** |"))
    figures = {row.name: f"{row.performance.average:.1f}" for row in standings(read(copied / "clm"))}
    assert figures["ir3de"] != figures["ir3de, tuned"]
    assert shown.startswith(f"| **ir3de** | {figures['ir3de']} (")
    bayes = next(line for line in lines if line.startswith("| naive Bayes |"))
    assert bayes.split(" | ")[1].endswith("▲") and any(
        line.startswith("▲ surely above and ▼ surely below") for line in lines
    )
