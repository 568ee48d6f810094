"""Draws, options by their bytes, seeds, and an expert that held-out prompts choose: no test prompt decides anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_experts
from experiment_files import matrix_of
from ir3de.errors import InputError
from ir3de_lab.experiments import held_out, material, settings
from ir3de_lab.experiments.answers import HELD_OUT, answers_file, ask_all, columns, read_answers
from ir3de_lab.experiments.judging import judge
from ir3de_lab.experiments.material import Item, Material
from ir3de_lab.experiments.outcomes import assemble
from ir3de_lab.experiments.results import Results
from ir3de_lab.experiments.side_tables import response_tables
from ir3de_lab.experiments.standings import standings
from refused import refusal

FREE = [{"text": f"Tell me about the weather in town {place}."} for place in range(20)]
GOOD_ANSWERS = {  # one that does what each demand asks
    "punctuation:no_comma": "It rains a lot.",
    "change_case:english_lowercase": "it rains a lot in this town.",
    "change_case:english_capital": "IT RAINS A LOT IN THIS TOWN.",
    "startend:quotation": '"It rains."',
    "startend:end_checker": "It rains. That is all I know.",
    "detectable_format:number_bullet_lists": "* rain\n* snow\n* hail\n* fog",
    "detectable_format:number_highlighted_sections": "*Rain* and *snow*.",
    "detectable_format:title": "<<Rain>>\nIt rains.",
    "detectable_format:json_format": '{"weather": "rain"}',
    "detectable_content:postscript": "It rains.\nP.S. Take a coat.",
    "keywords:frequency": "It rains, therefore it is wet, and therefore cold.",
    "keywords:forbidden_words": "It rains.",
}


def large(**changes: Any) -> settings.Setting:
    return replace(settings.load("reasoning-large"), **changes)


def of(**rows: list[dict[str, Any]]) -> Material:
    return Material(rows, ())


# held-out prompts -----------------------------------------------------------------------------------------------------


def test_held_out_prompts_are_those_that_nobody_learns_from() -> None:
    learnt = [{"text": "Say yes.", "answer": "yes"}, {"text": "Say no.", "kwargs": [{}]}]
    found = held_out.items(large(), of(instruction=[*learnt, *FREE, FREE[0]]))
    assert len(found) == len(FREE) and len({item.text for item in found}) == len(FREE)
    assert all(item.domain == "instruction" and item.text.startswith("Tell me about") for item in found)
    assert found == held_out.items(large(), of(instruction=[*FREE[::-1], *learnt]))  # whatever order they come in
    kinds = {item.row["instruction_id_list"][0] for item in found}
    assert kinds == {kind for _, kind, _ in held_out.DEMANDS}
    many = [{"text": f"Question {place}?"} for place in range(held_out.MOST_PROMPTS + 5)]
    assert len(held_out.items(large(), of(instruction=many))) == held_out.MOST_PROMPTS


def test_without_such_prompts_nothing_is_chosen() -> None:
    said = refusal(InputError, held_out.items, large(), of(instruction=[{"text": "Hi", "answer": "Hi"}]))
    assert "no training prompt of 'instruction' is without an answer" in said and "[experts]" in said
    assert held_out.items(large(choose=()), of()) == () == held_out.candidates(large(choose=()))


@pytest.mark.parametrize(("demand", "kind", "given"), held_out.DEMANDS)
def test_every_demand_can_be_met_and_missed(demand: str, kind: str, given: dict[str, Any]) -> None:
    row = {"instruction_id_list": [kind], "kwargs": [given]}
    words = given.get("num_words")
    good = GOOD_ANSWERS.get(kind) or " ".join(["rain"] * (words if given["relation"] == "at least" else words - 1))
    bad = (
        "Very Well, [so"
        if not words
        else " ".join(["rain"] * (words - 1 if given["relation"] == "at least" else words))
    )
    assert judge("ifeval", row, good).points == 1 and judge("ifeval", row, bad).points == 0


def test_the_model_with_more_points_is_taken() -> None:
    demand, kind, given = held_out.DEMANDS[0]
    row = {"instruction_id_list": [kind], "kwargs": [dict(given)]}
    given_items = tuple(Item(f"instruction/{i}", "instruction", demand, row) for i in range(4))

    def answers(*texts: str) -> dict[str, dict[str, str]]:
        return {item.id: {"text": text} for item, text in zip(given_items, texts, strict=True)}

    good, bad = "It rains", "It rains, a lot"
    for tuned, base, taken in (
        ((good, bad, bad, bad), (good, good, bad, bad), "base"),
        ((good, good, good, bad), (good, good, bad, bad), "instruction"),
        ((good, bad, bad, bad), (bad, good, bad, bad), "instruction"),  # level
    ):
        found = held_out.choose("instruction", given_items, {"instruction": answers(*tuned), "base": answers(*base)})
        assert found.taken == taken and found.prompts == 4
        assert found.to_dict()["scores"] == {"instruction": 25.0 * tuned.count(good), "base": 25.0 * base.count(good)}


# asked and judged for real --------------------------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # warnings of torch and transformers
@pytest.mark.nightly
def test_draws_options_and_the_choice_go_into_the_matrices(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from ir3de_lab.experiments.experts.training import train

    base = tiny_experts.base_model(tmp_path / "model")
    data = tiny_experts.questions(tmp_path / "data")
    with (data / "reasoned" / "instruction" / "train.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in FREE[:6])
    path = tiny_experts.reasoning_file(tmp_path, base)
    text = path.read_text(encoding="utf-8").replace("[data]", 'choose = ["instruction"]\n[data]')
    path.write_text(
        text.replace("[evaluation]", '[evaluation]\ndraws = 2\noption = "per_byte"\noption_end = false'),
        encoding="utf-8",
    )
    setting = settings.load(path)
    texts, experts = material.load(setting, data), tmp_path / "experts"
    train(setting, texts.train, experts, device="cpu")
    said: list[str] = []
    ask_all(setting, texts, experts, say=said.append, device="cpu", only=["math"])
    assert said == ["asking math about 9 items"]
    ask_all(setting, texts, experts, say=said.append, device="cpu")
    assert [line for line in said if "held-out" in line] == [
        f"asking {name} about 6 held-out prompts" for name in ("instruction", "base")
    ]
    assert "no model 'law' in the setting" in refusal(
        InputError, ask_all, setting, texts, experts, say=print, only=["law"]
    )
    found, about = read_answers(setting, texts, experts, "math")
    assert all(len(row["draws"]) == 2 for row in found.values() if "text" in row)
    assert about["evaluation"]["draw_temperature"] == 0.7
    made = assemble(setting, texts, experts)
    outcomes, drawn = made.matrices["outcomes"], made.matrices["drawn"]
    assert outcomes.about["chosen"]["instruction"]["prompts"] == 6
    assert outcomes.about["evaluation"]["option"] == "per_byte"
    assert drawn.items == outcomes.items and (drawn.weight == outcomes.weight).all()
    assert ((2 * drawn.values) % 1 == 0).all()  # the mean of two
    assert made.draws is not None and (made.draws.mean(axis=2) == drawn.values).all()
    for item in texts.items:
        if item.domain == "multilingual":  # nothing is drawn there
            row, place = found[item.id]["options"], outcomes.place[item.id]
            per_byte = {letter: row[letter] / len(text.encode()) for letter, text in item.row["options"].items()}
            right = per_byte[item.row["answer"]] == min(per_byte.values())
            assert outcomes.values[place, 0] == drawn.values[place, 0] == right
    _take_the_base(setting, texts, experts)
    again = assemble(setting, texts, experts).matrices["outcomes"]
    assert again.about["chosen"]["instruction"]["taken"] == "base"
    assert again.columns == (*columns(setting), "instruction-tuned")
    values = dict(zip(again.columns, again.values.T, strict=True))
    assert (values["instruction"] == values["base"]).all()
    assert (values["instruction-tuned"] == outcomes.values[:, 3]).all()


def _take_the_base(setting: settings.Setting, texts: Material, experts: Path) -> None:
    """Answers of the base model that meet every demand."""
    import lzma

    path = answers_file(experts, "base", HELD_OUT)
    head, *rows = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
    kinds = {item.id: item.row["instruction_id_list"][0] for item in held_out.items(setting, texts)}
    for row in rows:
        row["text"] = GOOD_ANSWERS.get(kinds[row["item"]], "rain " * 150)
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, [head, *rows])).encode()))


# by instruction and by response ---------------------------------------------------------------------------------------


def test_a_response_counts_where_all_of_its_instructions_are_followed() -> None:
    matrix = matrix_of("score", [("math", 1, [1, 0]), ("law", 2, [2, 1]), ("law", 2, [0, 2])], setting="small")
    results = Results(Path("results/small"), matrix)
    (table,) = response_tables(results, standings(results))
    assert table.title.startswith("small, Law: by instruction and by response")
    rows = {row.name: [cell.value for cell in row.cells] for row in table.rows}
    assert rows == {"Math expert": [50.0, 50.0], "Law expert": [75.0, 50.0]}
    single = replace(matrix, weight=np.ones(3), values=np.minimum(matrix.values, 1))
    results = Results(Path("results/small"), single)
    assert response_tables(results, standings(results)) == []


# seeds ----------------------------------------------------------------------------------------------------------------


def test_a_shipped_setting_may_have_another_seed() -> None:
    first, other = settings.load("reasoning-large"), settings.load("reasoning-large-seed-3")
    assert other.name == "reasoning-large-seed-3" and other.title == "REASONING-large, seed 3"
    assert other.training == replace(first.training, seed=3)
    assert other.evaluation == replace(first.evaluation, seed=3, draws=0)  # draws tell of another noise
    assert (
        replace(other, name=first.name, title=first.title, training=first.training, evaluation=first.evaluation)
        == first
    )
    assert "no setting 'small-seed-3': expected clm" in refusal(InputError, settings.load, "small-seed-3")
