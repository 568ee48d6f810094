"""Other people's routers: what they are asked, how their answers are compared, and the files that use them."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import answer_parts
from answer_parts import list_parts
from generate_alternatives_docs import WORDS, accuracy_cells, better, find_better, read_document
from ir3de.cli import cli
from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab import alternatives
from ir3de_lab.alternatives import measuring
from ir3de_lab.benchmarks.alternative_rows import auroc, estimate_mean, tabulate
from ir3de_lab.benchmarks.alternatives import (
    ALTERNATIVES,
    FEW,
    SIX,
    Alternative,
    Environment,
    Regime,
    ask,
    ask_parts,
    find_answers,
    make_regimes,
    merge,
    part_regimes,
    read_regimes,
    weigh,
    write_requests,
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


def test_a_difference_is_paired_and_its_interval_knows_the_draws() -> None:
    right, beside = np.array([1.0] * 90 + [0.0] * 10), np.array([1.0] * 80 + [0.0] * 20)
    once = estimate_mean(100 * (right - beside)[None])
    assert once.value == pytest.approx(10) and 0 < once.interval[0] < 10 < once.interval[1] and once.p_value < 0.01
    same = estimate_mean(np.zeros((3, 5)))
    assert (same.value, same.interval, same.p_value) == (0.0, (0.0, 0.0), 1.0)
    alike = estimate_mean(np.stack([100 * (right - beside)] * 3))
    moved = estimate_mean(np.stack([100 * (right - beside) + shift for shift in (-9.0, 0.0, 9.0)]))
    assert alike.value == moved.value and alike.p_value < 0.01 < moved.p_value  # prompts agree, draws do not
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
        "measures": "what was measured then",
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
    assert merged["measures"] == "what was measured then"  # a part of today makes the others no younger
    timed = {**new, "alternatives": [{"name": "ir3de", "packages": 4, "answered_on": None}], "rows": []}
    merged = merge(before, timed)  # times alone: accuracies, and where prompts were answered, stay
    assert merged["alternatives"][0] == {"name": "ir3de", "packages": 4, "answered_on": "a"}
    assert sorted(merged["rows"], key=str) == sorted(before["rows"], key=str)
    assert merged["measures"] == "what was measured then"
    assert merge({**before, "measures": None}, timed)["measures"] is None
    everything = {**new, "alternatives": before["alternatives"], "rows": before["rows"]}
    assert "measures" not in merge(before, everything)  # nothing of then stays: the command says what it measured


def test_abstentions_are_wrong_and_missing_answers_leave_their_set_out() -> None:
    regime = Regime("demo", None, 0, ["a"], ["x"], ["p", "q"], ["x", "y"], ["z"])
    answer = {"said": ["x", None], "sure": [0.9, 0.1], "strange_sure": [0.5]}
    (row,) = tabulate(ALTERNATIVES[0], [regime], [answer], [])
    assert (row.accuracy, row.strange) == (50.0, 50.0)
    assert not list(tabulate(ALTERNATIVES[0], [regime], [None], []))


@pytest.mark.nightly
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


@pytest.mark.nightly
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


def _difference(points: float, p_value: float) -> dict[str, Any]:
    p_values = {"p_value": p_value, "p_value_of_these_draws": p_value}
    return {"points": points, "interval": (points - 1, points + 1), **p_values}


def _row(router: str, points: float, p_value: float) -> dict[str, Any]:
    against = {"ir3de": _difference(points, p_value)}
    return {
        "data": "banking77",
        "prompts": 8,
        "router": router,
        "accuracy": 50.0,
        "interval": (49.0, 51.0),
        "against": against,
    }


def test_a_rival_is_bold_where_it_is_better_than_all_of_ours_that_cost_no_more() -> None:
    names = {"ir3de": False, "ir3de, second opinion": True, "fastText": False, "MiniLM": True}
    facts = [{"name": name, "runs_encoder": runs} for name, runs in names.items()]
    words, encoder = _row("fastText", 2.0, 0.001), _row("MiniLM", 2.0, 0.001)
    for row in (words, encoder):
        row["against"]["ir3de, second opinion"] = _difference(-1.0, 0.05)
    document = {"alternatives": facts, "rows": [words, encoder]}
    assert find_better(document, 8) == {("fastText", "banking77"): "surely"} and not find_better(document, None)
    assert accuracy_cells(document, "fastText", 8)[0] == "**50.0** ± 1.0"
    assert accuracy_cells(document, "MiniLM", 8) == ["50.0 ± 1.0", "not run", "not run", "not run"]
    told = "- **fastText**: surely with 8 prompts an expert on banking77 by 2.0 points. A likely reason: "
    assert better(document) == [f"{told}{WORDS}."]
    encoder["against"]["ir3de, second opinion"] = _difference(1.0, 0.001)
    assert find_better(document, 8) == {("fastText", "banking77"): "surely", ("MiniLM", "banking77"): "surely"}


def test_one_of_many_cells_is_not_bold_for_being_one_of_many() -> None:
    facts = [{"name": name, "runs_encoder": False} for name in ("ir3de", "a", "b", "c")]
    rows = [_row("a", 2.0, 0.03), _row("b", 0.1, 0.9), _row("c", -3.0, 0.0001)]
    found = find_better({"alternatives": facts, "rows": rows}, 8)
    assert found == {("a", "banking77"): "perhaps"}  # 0.03, and one of three cells
    assert find_better({"alternatives": facts, "rows": rows[:1]}, 8) == {("a", "banking77"): "surely"}
    assert better({"alternatives": facts, "rows": rows}) == ["No figure is marked."]  # of a router without a reason
    alone = {**rows[0], "against": {}}
    assert not find_better({"alternatives": facts, "rows": [alone]}, 8)  # nothing of ours to compare with


def test_answers_of_other_requests_or_of_other_code_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("measuring.py", "use_counting.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    script = tmp_path / "use_counting.py"
    code = "import sys, pathlib\npathlib.Path(sys.argv[2]).write_text('{\"answers\": [%d]}')\n"
    monkeypatch.setattr("ir3de_lab.benchmarks.alternatives._SCRIPTS", tmp_path)
    one = Alternative("counting", "use_counting.py", ("somebody",))
    here, asked, kept = Environment(Path(sys.executable), 0, 0.0, {}), tmp_path / "asked.json", tmp_path / "kept.json"

    def answer(request: str, number: int) -> int:
        script.write_text(code % number, encoding="utf-8")
        write_requests(asked, [{"texts": [request]}], "")
        found: int = ask(one, here, asked, kept)["answers"][0]
        return found

    assert answer("a", 1) == 1 and answer("a", 2) == 2  # other code
    script.write_text("raise SystemExit(1)  # not run\n", encoding="utf-8")
    with pytest.raises(InputError, match="ended with 1"):
        ask(one, here, asked, kept)
    script.write_text("# with a comment\n" + code % 2, encoding="utf-8")
    assert find_answers(one, asked, kept) == ask(one, here, asked, kept)
    write_requests(asked, [{"texts": ["b"]}], "")
    assert find_answers(one, asked, kept) is None


def test_parts_are_answered_apart_and_long_sets_are_not_shown_to_encoders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = part_regimes(list(make_regimes(MATERIAL, [OTHER])))
    assert {name: len(some) for name, some in parts.items()} == {"demo-all": 1, "demo-few": 6}
    for name, some in parts.items():
        write_requests(tmp_path / f"{name}.json", [one.to_request() for one in some], "")
    code = """import sys, json, pathlib
asked = json.loads(pathlib.Path(sys.argv[1]).read_text())["requests"]
answer = {"machine": "here", "answers": [len(one["texts"]) for one in asked]}
pathlib.Path(sys.argv[2]).write_text(json.dumps(answer))"""
    monkeypatch.setattr("ir3de_lab.benchmarks.alternatives._SCRIPTS", tmp_path)
    monkeypatch.setattr("ir3de_lab.benchmarks.alternatives.MOST_ENCODED", 50)
    (tmp_path / "measuring.py").write_text("", encoding="utf-8")
    (tmp_path / "use_counting.py").write_text(code, encoding="utf-8")
    plain = Alternative("counting", "use_counting.py", ("somebody",))
    encoder = Alternative("encoder", "use_counting.py", ("somebody",), ("--encoder",), encoder=True)
    here = Environment(Path(sys.executable), 0, 0.0, {})
    few = [*[FEW * len(TRAIN)] * 3, *[SIX * len(TRAIN)] * 3]

    def told(one: Alternative, environment: Environment | None) -> Any:
        return ask_parts(one, environment, parts, tmp_path)

    assert told(plain, None) == ([None] * 7, None)  # nothing is kept yet
    assert told(plain, here) == ([20 * len(TRAIN), *few], "here")
    assert told(encoder, here) == ([None, *few], "here")
    (tmp_path / "use_counting-demo-all.json").unlink()
    assert told(plain, None) == ([None, *few], "here")
    asked = {
        tmp_path / f"demo-{regime}.json": tmp_path / f"use_counting-demo-{regime}.json" for regime in ("all", "few")
    }
    assert list_parts(plain, tmp_path) == asked  # what another machine would answer
    assert [part.stem for part in list_parts(encoder, tmp_path)] == ["demo-few"]


@pytest.mark.slow
def test_parts_that_another_machine_answered_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    router = next(one for one in ALTERNATIVES if one.script == "use_tfidf.py")
    monkeypatch.setattr(sys, "argv", ["answer_parts.py", router.name, str(tmp_path)])
    with pytest.raises(SystemExit):
        answer_parts.main()
    assert f"{tmp_path} has no parts for {router.name}: ir3de bench alternatives --kept" in capsys.readouterr().err
    parts = part_regimes(list(make_regimes(MATERIAL, [OTHER]))[1:2])
    for name, some in parts.items():
        write_requests(tmp_path / f"{name}.json", [one.to_request() for one in some], "")
    assert answer_parts.main() == 0 and "demo-few: answered after" in capsys.readouterr().out
    (answers,), machine = ask_parts(router, None, parts, tmp_path)
    assert answers is not None and len(answers["said"]) == sum(map(len, MATERIAL.splits["test"].values())) and machine


def test_setfit_comes_last_and_is_compared_with_ours() -> None:
    document = read_document()
    names = [one["name"] for one in document["alternatives"]]
    assert sorted(names) == sorted(one.name for one in ALTERNATIVES) and names[-1] == "SetFit, MiniLM"
    rows = [row for row in document["rows"] if row["router"] == names[-1]]
    assert {row["prompts"] for row in rows} == {None, FEW, SIX}
    assert all(set(row["against"]) == {one.name for one in ALTERNATIVES if one.is_own} for row in rows)


def test_a_vector_is_computed_once_and_found_by_the_next_router(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def encode(texts: list[str]) -> list[list[float]]:
        asked.append(texts)
        return [[float(len(text)), 1.0] for text in texts]

    place = tmp_path / "vectors.npz"
    memory = measuring.Memory(encode, place)
    assert memory(["ab", "", "ab"]).tolist() == [[2.0, 1.0], [0.0, 1.0], [2.0, 1.0]]
    memory.save()
    assert measuring.Memory(encode, place)(["ab", "ü\0"]).tolist() == [[2.0, 1.0], [2.0, 1.0]]
    assert asked == [["ab", ""], ["ü\0"]]


def test_the_nearest_come_first() -> None:
    vectors, labels = np.eye(3), ["x", "y", "z"]
    found: Any = measuring.find_nearest(np.array([0.1, 0.9, 0.3]), vectors, labels, 2)
    assert found == [("y", pytest.approx(0.9)), ("z", pytest.approx(0.3))]
    assert len(measuring.find_nearest(vectors[0], vectors, labels, 20)) == 3
