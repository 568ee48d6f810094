"""bench languages: fitted on one language, counted on each, with the raw figures kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tiny
from commands import complaint, run
from ir3de import Embedding
from ir3de_lab.benchmarks.languages import fit, measure_transfer, read_languages

pytestmark = pytest.mark.usefixtures("plain_terminal")


def write_prompts(folder: Path, name: str, seed: int, *, swapped: bool = False) -> None:
    labels = {"law": "maths", "maths": "law"} if swapped else {"law": "law", "maths": "maths"}
    rows = [
        {"text": text, "label": labels[domain]} for domain in labels for text in tiny.sentences(domain, 30, seed=seed)
    ]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    write_prompts(folder, "eng_Latn-train", 0)
    write_prompts(folder, "eng_Latn-test", 1)
    write_prompts(folder, "xxx_Latn-test", 1, swapped=True)  # the same texts, each with the other label
    return folder


@pytest.mark.nightly
def test_accuracy_is_counted_by_language(prompts: Path) -> None:
    train, tests = read_languages(prompts)
    found = measure_transfer("default", fit(train, Embedding.default()), tests)
    assert found.fitted > 90
    assert found.by_language["xxx_Latn"] == found.others == pytest.approx(100 - found.fitted)


def test_a_folder_without_the_fitted_language_is_refused(tmp_path: Path) -> None:
    write_prompts(tmp_path, "deu_Latn-test", 1)
    assert "holds no eng_Latn-train.jsonl" in complaint("bench", "languages", "--data", tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_keeps_the_raw_figures(prompts: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    run("bench", "languages", "--data", prompts, "--embedding", "default@2", "--save", kept)
    document = json.loads(kept.read_text("utf-8"))
    assert [row["embedding"] for row in document["rows"]] == ["default", "default@2"]
    assert len(document["figures"]) == 4
