"""From experts to the outcome matrix: four tasks, a tiny model, and the commands that are run for real ones."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_experts
from commands import ROOT, complaint, run, run_json
from ir3de.errors import ArtifactError, InputError
from ir3de_lab.experiments import material, matrix, settings
from ir3de_lab.experiments.answers import answers_file, ask_all, columns, read_answers
from ir3de_lab.experiments.outcomes import assemble
from refused import refusal

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # warnings of torch and transformers

DOMAINS = tuple(tiny_experts.TASKS)
NO_TORCH = (
    "import sys; sys.modules |= dict.fromkeys(['torch', 'transformers']); from ir3de.cli import main; sys.exit(main())"
)


@dataclass(frozen=True)
class Made:
    """Experts that were trained and asked by the commands, and what those said."""

    base: Path
    data: Path
    setting: Path
    experts: Path
    trained: dict[str, Any]
    asked: dict[str, Any]

    def options(self, experts: Path | None = None) -> list[str]:
        return ["--setting", str(self.setting), "--data", str(self.data), "--experts", str(experts or self.experts)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("reasoned")
    base = tiny_experts.base_model(folder / "model")
    data, setting = tiny_experts.questions(folder / "data"), tiny_experts.reasoning_file(folder, base)
    options = ["--setting", str(setting), "--data", str(data), "--experts", str(folder / "experts")]
    trained = run_json("bench", "train", *options)
    asked = run_json("bench", "outcomes", *options, "--results", folder / "results", "--no-judge")
    assert not (folder / "results").exists()  # nothing is judged yet
    return Made(base, data, setting, folder / "experts", trained, asked)


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """The answers alone, as on a machine that has no models."""
    shutil.copytree(made.experts / "answers", tmp_path / "elsewhere" / "answers")
    return tmp_path / "elsewhere"


def changed(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    change(lines)
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))


def loaded(setting: Path, data: Path) -> tuple[settings.Setting, material.Material]:
    found = settings.load(setting)
    return found, material.load(found, data)


def without_torch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in a process where torch cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", NO_TORCH, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'lab' / 'src'}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


# the commands ---------------------------------------------------------------------------------------------------------


def test_training_tells_what_was_trained(made: Made) -> None:
    assert made.trained["trained"] == list(DOMAINS) == list(made.trained["experts"])
    for record in made.trained["experts"].values():
        assert len(record["losses"]) == 3 and record["recipe"]["steps"] == 3
    shown = run("bench", "train", *made.options()).stdout
    assert run_json("bench", "train", *made.options())["trained"] == []
    assert "first loss" in shown and f"next: ir3de bench outcomes --setting {made.setting}" in " ".join(shown.split())


@pytest.mark.nightly
def test_answers_are_judged_where_there_are_neither_models_nor_torch(made: Made, copied: Path, tmp_path: Path) -> None:
    done = without_torch("bench", "outcomes", *made.options(copied), "--results", tmp_path / "results", "--json")
    assert done.returncode == 0, done.stderr
    assert made.asked == {"answers": str(made.experts / "answers")}
    found = matrix.read(tmp_path / "results" / "reasoned" / "outcomes.jsonl.xz")
    assert json.loads(done.stdout)["items"] == len(found.items) == sum(map(len, tiny_experts.QUESTIONS.values()))
    assert not (tmp_path / "results" / "reasoned" / "training.json").exists()  # it would know nothing
    run("bench", "outcomes", *made.options(), "--results", tmp_path / "again")
    again = matrix.read(tmp_path / "again" / "reasoned" / "outcomes.jsonl.xz")
    assert (again.values == found.values).all() and again.digest == found.digest
    record = json.loads((tmp_path / "again" / "reasoned" / "training.json").read_text())
    assert record["experts"] == made.trained["experts"]


def test_asking_without_torch_names_the_extra(made: Made, copied: Path) -> None:
    answers_file(copied, "math").unlink()
    shutil.copytree(made.experts / "math", copied / "math")
    done = without_torch("bench", "outcomes", *made.options(copied), "--no-judge")
    assert done.returncode == 1
    assert "needs the package 'torch', which is not installed: pip install -e" in done.stderr
    assert "lab[experts]" in done.stderr


def test_what_was_asked_is_not_asked_again(made: Made, tmp_path: Path) -> None:
    paths = [answers_file(made.experts, name) for name in (*DOMAINS, "average", "base")]
    before = [path.stat().st_mtime_ns for path in paths]
    shown = run("bench", "outcomes", *made.options(), "--results", tmp_path).stdout
    assert [path.stat().st_mtime_ns for path in paths] == before
    assert "asking" not in shown and "judging what math answered to gsm8k" in shown


def test_experts_that_are_not_trained_yet_are_asked_for(made: Made, tmp_path: Path) -> None:
    said = complaint("bench", "outcomes", *made.options(tmp_path / "none"), "--quiet")
    assert "no expert for 'math'" in said and "train it with `ir3de bench train --setting reasoned" in said


# the matrices ---------------------------------------------------------------------------------------------------------


def test_the_matrix_has_a_row_an_item_and_a_column_a_model(made: Made, tmp_path: Path) -> None:
    setting = settings.load(made.setting)
    texts = material.load(setting, made.data)
    found = assemble(setting, texts, made.experts).matrices
    assert set(found) == {"outcomes", "reference"}
    for name, one in found.items():
        matrix.write(one, tmp_path / name)
        back = matrix.read(tmp_path / name)
        assert np.allclose(back.values, one.values, atol=1e-3) and back.group == one.group
        assert one.experts == DOMAINS and one.extras == ("average", "base")
    outcomes, reference = found["outcomes"], found["reference"]
    assert outcomes.metric == "score" and outcomes.items == tuple(item.id for item in texts.items)
    assert ((outcomes.values >= 0) & (outcomes.values <= outcomes.weight[:, None])).all()
    weight = dict(zip(outcomes.items, outcomes.weight, strict=True))
    assert all(weight[i.id] == len(i.row.get("instruction_id_list", ["one"])) for i in texts.items)
    groups = [group for group, place in zip(outcomes.group, outcomes.domain, strict=True) if place == 1]
    assert groups == ["de", "de", "es"] and set(outcomes.group) == {"", "de", "es"}
    # instructions have no answer to compare with; the others' are likelier or less so, in nats
    assert reference.metric == "perplexity" and reference.domains == ("math", "multilingual", "coding")
    assert (reference.values > 0).all() and (reference.weight >= 2).all()


def test_the_option_that_is_likeliest_is_the_answer(made: Made) -> None:
    setting = settings.load(made.setting)
    texts = material.load(setting, made.data)
    found = assemble(setting, texts, made.experts).matrices["outcomes"]
    for column, name in enumerate(found.columns):
        answers, _ = read_answers(setting, texts, made.experts, name)
        for item in texts.items:
            if item.domain == "multilingual":
                options = answers[item.id]["options"]
                right = options[item.row["answer"]] == min(options.values())
                assert found.values[found.place[item.id], column] == right


def test_what_was_learnt_by_heart_is_answered_and_judged_right(made: Made, tmp_path: Path) -> None:
    setting = settings.load(tiny_experts.reasoning_file(tmp_path, made.base, steps=60))
    rows = [{"text": "def one():\n", "answer": "    return 1"}]  # a completion: it begins with spaces
    from ir3de_lab.experiments.experts import models
    from ir3de_lab.experiments.experts.generating import Request, generate
    from ir3de_lab.experiments.experts.training import train

    train(setting, {"coding": rows}, tmp_path / "experts", domains=("coding",), device="cpu")
    model = models.load(tmp_path / "experts" / "coding", device="cpu").to_ask()
    (answer,) = generate(model, [Request("def one():\n", 16)], longest=64, batch_tokens=64)
    assert answer == "    return 1"
    from ir3de_lab.experiments.judging import judge

    assert judge("humaneval", tiny_experts.QUESTIONS["coding"][0], answer).points == 1


# models that are there already ----------------------------------------------------------------------------------------


def test_experts_that_exist_are_asked_and_nothing_is_trained(made: Made, tmp_path: Path) -> None:
    silent = tiny_experts.silenced(made.base, tmp_path / "silent")
    setting = tiny_experts.reasoning_file(tmp_path, experts=dict.fromkeys(DOMAINS, silent))
    options = ["--setting", setting, "--data", made.data, "--experts", tmp_path / "experts"]
    assert "names experts that exist: there is nothing to train" in complaint("bench", "train", *options)
    told = run_json("bench", "outcomes", *options, "--results", tmp_path / "results")
    assert [path.name for path in (tmp_path / "experts").iterdir()] == ["answers"]
    assert list(told["columns"]) == [*DOMAINS, "average"]  # there is no model they began as
    for by_domain in told["columns"].values():  # an answer without a word has no points, and is no error
        assert [by_domain[name] for name in ("math", "coding", "instruction")] == [0, 0, 0]
    kept, _ = read_answers(*loaded(setting, made.data), tmp_path / "experts", "math")
    assert {row["text"] for row in kept.values() if "text" in row} == {""}


def test_only_experts_that_do_not_exist_are_trained(made: Made, tmp_path: Path) -> None:
    from ir3de_lab.experiments.experts.training import train

    path = tiny_experts.reasoning_file(tmp_path, made.base, experts={"math": made.base, "coding": made.base})
    setting, texts = loaded(path, made.data)
    assert train(setting, texts.train, tmp_path / "experts", device="cpu") == ["multilingual", "instruction"]
    ask_all(setting, texts, tmp_path / "experts", say=lambda _: None, device="cpu")
    read = {name: read_answers(setting, texts, tmp_path / "experts", name)[0] for name in columns(setting)}
    assert read["math"] == read["coding"] != read["multilingual"]


# damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[0].update(kind="ir3de.outcomes"), "ir3de.answers"),
        (lambda lines: lines[0].update(version=2), "version 2"),
        (lambda lines: lines[0].update(setting="other"), "is of the setting 'other', not 'reasoned'"),
        (lambda lines: lines[0].update(column="math"), "is of the column 'math', not 'coding'"),
        (lambda lines: lines[0]["about"]["evaluation"].update(length=7), "was made with evaluation.length = 7"),
        (lambda lines: lines[0]["about"]["recipe"].update(rate=0.5), "was made with training.rate = 0.5"),
        (lambda lines: lines.pop(), "has no answer to the item 'instruction/00001-"),
        (lambda lines: lines[1].update(item="law/00000-12345678"), "answers the item 'law/00000-12345678', which is"),
        (lambda lines: lines[1].pop("item"), "answers the item 'None', which is unknown"),
        (lambda lines: lines[1].pop("text"), "has no 'text' in its answer to the item 'math/00000-"),
        (lambda lines: lines[3].pop("options"), "has no 'options' in its answer to the item 'multilingual/00000-"),
        (lambda lines: lines.clear(), "is damaged: expected one JSON object a line"),
    ],
)
def test_answers_that_do_not_fit_are_refused(
    made: Made, copied: Path, change: Callable[[list[dict[str, Any]]], object], said: str
) -> None:
    changed(answers_file(copied, "coding"), change)
    setting, texts = loaded(made.setting, made.data)
    for action in (lambda: assemble(setting, texts, copied), lambda: ask_all(setting, texts, copied, say=print)):
        message = refusal(ArtifactError, action)
        assert said in message and str(answers_file(copied, "coding")) in message


def test_answers_that_are_cut_off_or_missing_are_refused(made: Made, copied: Path) -> None:
    setting, texts = loaded(made.setting, made.data)
    path = answers_file(copied, "average")
    path.write_bytes(path.read_bytes()[:-40])
    assert f"{path} is truncated or damaged" in refusal(ArtifactError, assemble, setting, texts, copied)
    path.unlink()
    said = refusal(InputError, assemble, setting, texts, copied)
    assert f"no answers of 'average' at {path}: run `ir3de bench outcomes` where its model is" in said
