"""The planned setting `reasoning-1b` from training to tables, with a model of a few thousand weights for its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tiny_experts
import train_and_ask
from ir3de.cli import cli
from ir3de_lab.experiments import settings
from ir3de_lab.experiments.matrix import read

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # warnings of torch and transformers

SMALLER = {
    'model = "qwen2.5-coder-1.5b"': "model = '{base}'",
    "steps = 150": "steps = 2",
    "batch = 32": "batch = 2",
    "length = 512": "length = 96",
    "length = 1024": "length = 96",
    "generation_tokens = 1_500_000": "batch_tokens = 512\ngeneration_tokens = 2048",
    "gsm8k = 256, humaneval = 320, ifeval = 512, label = 8": "gsm8k = 6, humaneval = 8, ifeval = 8, label = 4",
    "math = 150, kinds = 150, instruction = 150": "kinds = 3",
}


@pytest.fixture
def setting(tmp_path: Path) -> Path:
    text = (Path(settings.__file__).parent / "reasoning-1b.toml").read_text(encoding="utf-8")
    base = tiny_experts.base_model(tmp_path / "base")
    for old, new in SMALLER.items():
        assert old in text, old
        text = text.replace(old, new.format(base=base))
    path = tmp_path / "small.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    kinds = [{"text": f"Where is {place}?", "label": "LOC"} for place in ("Rome", "Oslo", "Bonn", "Lima")]
    kinds += [{"text": "How many legs has a spider?", "label": "NUM"}]
    told = [{"text": "Name a fruit.", "answer": "An apple."}, {"text": "Tell me of the sea."}]
    rows = {f"reasoning/{domain}": tiny_experts.QUESTIONS[domain] for domain in ("math", "coding")}
    train = {**rows, "reasoning/instruction": told, "intents/trec_qc": kinds}
    test = {**rows, "reasoning/instruction": tiny_experts.QUESTIONS["instruction"], "intents/trec_qc": kinds}
    for split, given in (("train", train), ("test", test)):
        for folder, content in given.items():
            (tmp_path / "suites" / folder).mkdir(parents=True, exist_ok=True)
            lines = "\n".join(map(json.dumps, content))
            (tmp_path / "suites" / folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path / "suites"


@pytest.mark.nightly
def test_from_training_to_tables(setting: Path, data: Path, tmp_path: Path) -> None:
    experts, results = tmp_path / "experts", tmp_path / "results"
    given, shown = ["--setting", str(setting), "--data", str(data)], []
    jobs = list(train_and_ask.list_jobs([str(setting)], data, experts))
    assert len(jobs) == 4 + 5 and all(job.after == () or job.after[0] in {one.name for one in jobs} for job in jobs)
    for command in (
        *(job.arguments[1:] for job in jobs),
        ["outcomes", *given, "--experts", str(experts / "reasoning-1b"), "--results", str(results)],
        ["run", *given, "--results", str(results), "--only", "ours", "--only", "words"],
        ["tables", "--results", str(results)],
        ["gain", "--setting", "reasoning-1b", "--results", str(results), "--save", str(tmp_path / "gain.json")],
    ):
        found = CliRunner().invoke(cli, ["bench", *command], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        shown.append(found.output)
    assert "REASONING-1B: performance in percent" in shown[-2] and "REASONING-1B, without kinds" in shown[-1]
    assert list(train_and_ask.list_jobs([str(setting)], data, experts)) == []  # nothing is left to do
    assert list(json.loads((tmp_path / "gain.json").read_bytes())["parts"]) == ["all", "without kinds"]
    drawn = read(results / "reasoning-1b" / "drawn.jsonl.xz")
    assert sum(item.startswith("kinds/") for item in drawn.items) == 3
    head, *rows = tiny_experts.read_answers(experts / "reasoning-1b" / "answers" / "kinds.jsonl.xz")
    assert head["about"]["evaluation"]["draws"] == 8
    assert all(len(row["draws"]) == 8 for row in rows)
