"""Other people's routers: what they are asked, how their answers are compared, and the files that use them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from generate_alternatives_docs import is_better
from ir3de.cli import cli
from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab import alternatives
from ir3de_lab.alternatives import measuring
from ir3de_lab.benchmarks.alternatives import (
    ALTERNATIVES,
    FEW,
    SIX,
    Regime,
    auroc,
    bound_difference,
    make_regimes,
    merge,
    read_regimes,
    tabulate,
    weigh,
)
from ir3de_lab.benchmarks.defaults import Material

SCRIPTS = Path(alternatives.__file__).parent
TRAIN = {name: texts[:20] for name, texts in demo.prompts().items()}
MATERIAL = Material("demo", TRAIN, {"test": demo.held_out()}, by_expert=False)
OTHER = Material("other", TRAIN, {"test": {"a": ["Guten Morgen", "qwert"]}}, by_expert=False)


def test_every_alternative_is_asked_the_same_and_test_prompts_stay() -> None:
    regimes = list(make_regimes(MATERIAL, [OTHER]))
    few = [(prompts, draw) for prompts in (FEW, SIX) for draw in range(3)]
    assert [(one.prompts, one.draw) for one in regimes] == [(None, 0), *few]
    assert all(one.test == regimes[0].test and one.strange == ["Guten Morgen", "qwert"] for one in regimes)
    for one in regimes[1:]:
        assert len(one.texts) == (one.prompts or 0) * len(TRAIN) and set(one.labels) == set(TRAIN)
        assert set(one.unlabelled) == set(regimes[0].texts) - set(one.texts)
    assert not regimes[0].unlabelled
    assert regimes[1].texts != regimes[2].texts
    assert not set(regimes[0].texts) & set(regimes[0].test)


def test_a_difference_is_paired_and_bounded() -> None:
    right, beside = np.array([1.0] * 90 + [0.0] * 10), np.array([1.0] * 80 + [0.0] * 20)
    low, difference, high = bound_difference(right, beside)
    assert difference == 10.0 and 0 < low < 10 < high
    assert bound_difference(right, right) == (0.0, 0.0, 0.0)
    assert auroc([0.9, 0.8], [0.1, 0.2]) == 1.0 and auroc([0.5], [0.5]) == 0.5


def test_what_was_not_asked_anew_stays_in_the_file() -> None:
    before = {
        "circumstances": {"date": "then"},
        "alternatives": [
            {"name": "earlier name", "packages": 5, "answered_on": "a"},  # one that is not asked any more
            {"name": "ir3de", "packages": 1, "answered_on": "a"},
            {"name": "SetFit, MiniLM", "packages": 2, "answered_on": "a"},
        ],
        "rows": [{"router": "SetFit, MiniLM", "accuracy": 1.0}, {"router": "ir3de", "accuracy": 2.0}],
    }
    new = {
        "circumstances": {"date": "now"},
        "alternatives": [
            {"name": "LiteLLM auto-router, MiniLM", "packages": 3, "answered_on": "b"},
            {"name": "ir3de", "packages": 4, "answered_on": "b"},
        ],
        "rows": [{"router": "ir3de", "accuracy": 3.0}],
    }
    merged = merge(before, new)
    assert [(one["name"], one["packages"]) for one in merged["alternatives"]] == [
        ("ir3de", 4),
        ("SetFit, MiniLM", 2),
        ("LiteLLM auto-router, MiniLM", 3),
        ("earlier name", 5),
    ]
    assert [(row["router"], row["accuracy"]) for row in merged["rows"]] == [("ir3de", 3.0), ("SetFit, MiniLM", 1.0)]
    assert merged["circumstances"] == {"date": "now"}
    timed = {**new, "alternatives": [{"name": "ir3de", "packages": 4, "answered_on": None}], "rows": []}
    merged = merge(before, timed)  # times alone: accuracies, and where prompts were answered, stay
    assert merged["alternatives"][0] == {"name": "ir3de", "packages": 4, "answered_on": "a"}
    assert sorted(merged["rows"], key=str) == sorted(before["rows"], key=str)


def test_abstentions_are_wrong_and_missing_answers_leave_their_set_out() -> None:
    regime = Regime("demo", None, 0, ["a"], ["x"], ["p", "q"], ["x", "y"], ["z"])
    answer = {"said": ["x", None], "sure": [0.9, 0.1], "strange_sure": [0.5], "fit_s": 1.0}
    (row,) = tabulate(ALTERNATIVES[0], [regime], [answer], [])
    assert (row.accuracy, row.strange) == (50.0, 50.0)
    assert not list(tabulate(ALTERNATIVES[0], [regime], [None], []))


@pytest.mark.slow
@pytest.mark.parametrize("router", ["ir3de", "scikit-learn, TF-IDF + logistic regression"])
def test_a_file_answers_in_a_process_of_its_own(router: str, tmp_path: Path) -> None:
    """These two are installed where the tests run. The others need environments of their own."""
    one = next(found for found in ALTERNATIVES if found.name == router)
    regime = list(make_regimes(MATERIAL, [OTHER]))[1]
    document = {"model": "", "requests": [regime.to_timed_request()]}
    (tmp_path / "requests.json").write_text(json.dumps(document), encoding="utf-8")
    command = [sys.executable, str(SCRIPTS / one.script), "requests.json", "answers.json"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = json.loads((tmp_path / "answers.json").read_bytes())
    (answer,) = found["answers"]
    said, truth = answer["said"], regime.truth[: len(answer["said"])]
    assert sum(a == b for a, b in zip(said, truth, strict=True)) > len(truth) / 3  # chance is a fifth
    assert min(answer["fit_s"], answer["add_s"], answer["route_us"]) > 0 and found["machine"]["cores"] >= 1


def test_files_that_use_a_router_know_nothing_of_the_laboratory() -> None:
    files = sorted(SCRIPTS.glob("use_*.py"))
    assert {path.name for path in files} == {one.script for one in ALTERNATIVES}
    for path in [*files, SCRIPTS / "measuring.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith("ir3de_lab") for name in names), path


def test_an_environment_is_weighed_without_pip() -> None:
    found = weigh(Path(sys.executable))
    assert "numpy" in found.versions and "pip" not in found.versions
    assert found.packages == len(found.versions) and found.megabytes > 10


def test_a_set_or_a_router_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "intents" / "mine").mkdir(parents=True)
    for split in ("train", "test"):
        rows = [json.dumps({"text": text, "label": name}) for name, texts in TRAIN.items() for text in texts]
        (tmp_path / "intents" / "mine" / f"{split}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    with pytest.raises(InputError, match="has no set 'theirs': name others with --only"):
        read_regimes(tmp_path, ["mine", "theirs"])
    folders = ["--environments", str(tmp_path / "envs"), "--answers", str(tmp_path / "answers")]
    result = CliRunner().invoke(
        cli, ["bench", "alternatives", "--data", str(tmp_path), *folders, "--router", "fasttext"]
    )
    assert result.exit_code == 2 and "there is no alternative 'fasttext': there are ir3de" in result.output


def test_a_setting_is_chosen_on_prompts_that_its_fit_did_not_see() -> None:
    labels = ["a"] * 7 + ["b"] * 5 + ["c"]

    def rate(setting: str, split: measuring.Split) -> int:
        inside, outside = split
        assert not set(inside) & set(outside)
        assert {labels[place] for place in inside} == {"a", "b", "c"}  # the only prompt of an expert is never held out
        return len(outside) if setting == "good" else 0

    assert measuring.choose(("bad", "good", "bad"), [""] * 13, labels, rate) == "good"
    assert measuring.choose((1, 2), ["x"], ["a"], lambda *_: 0) == 1


def test_a_rival_is_bold_where_it_is_better_than_all_of_ours_that_cost_no_more() -> None:
    ours = [{"name": "ir3de"}, {"name": "ir3de, second opinion", "runs_encoder": True}]
    plain, encoder = {"name": "words", "runs_encoder": False}, {"name": "MiniLM", "runs_encoder": True}
    document = {"alternatives": [*ours, plain, encoder]}
    row = {"against": {"ir3de": (1.0, 2.0, 3.0), "ir3de, second opinion": (-1.0, 0.0, 1.0)}}
    assert is_better(row, plain, document)
    assert not is_better(row, encoder, document)
    assert is_better({"against": dict.fromkeys(row["against"], (0.1, 1.0, 2.0))}, encoder, document)
    assert not is_better(row, ours[0], document)
