"""A setting's texts, from folders of both layouts and from the hub, and the ids of what is tested on."""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ir3de.errors import InputError, MissingExtraError
from ir3de_lab.experiments import material, settings
from ir3de_lab.experiments.material import item_id, load
from ir3de_lab.experiments.settings import Setting
from refused import refusal

LAW = ["Is the contract void?", "May a tenant sue?", "Who may appeal?"]
COOKING = ["How long does an egg boil?", "What is a roux?"]


SMALL = """
version = 1
name = "small"
title = "SMALL"
metric = "score"
domains = ["law", "cooking"]
[base]
model = "some/model"
[tasks]
law = "gsm8k"
cooking = "gsm8k"
[data]
suite = "small"
"""
SCORED = SMALL.replace('"cooking"]', '"cooking", "odd"]\nunseen = ["odd"]') + 'layout = "scored"\n'


def setting_of(folder: Path, text: str = SMALL) -> Setting:
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return settings.load(path)


def written(path: Path, texts: Sequence[str], **fields: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps({"text": text, **fields}) + "\n" for text in texts).encode()
    path.write_bytes(lzma.compress(content) if path.suffix == ".xz" else content)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder of one suite: one domain packed, the other plain."""
    for domain, texts, packed in (("law", LAW, ""), ("cooking", COOKING, ".xz")):
        written(tmp_path / "small" / domain / f"train.jsonl{packed}", [f"{text} Why?" for text in texts])
        written(tmp_path / "small" / domain / f"test.jsonl{packed}", texts, answer="7")
    return tmp_path


def texts_of(items: Sequence[material.Item]) -> list[tuple[str, str]]:
    return [(item.domain, item.text) for item in items]


# folders --------------------------------------------------------------------------------------------------------------


def test_a_suite_has_a_folder_a_domain(suite: Path) -> None:
    found = load(setting_of(suite), suite)
    assert texts_of(found.items) == [("law", text) for text in LAW] + [("cooking", text) for text in COOKING]
    assert found.training_texts() == {
        "law": [f"{text} Why?" for text in LAW],
        "cooking": [f"{text} Why?" for text in COOKING],
    }
    assert found.items[0].row["answer"] == "7"


def test_prompts_of_other_sources_are_not_items(suite: Path) -> None:
    written(suite / "small" / "cooking" / "ood.jsonl", ["Can I freeze soup?"])
    found = load(setting_of(suite), suite)
    assert len(found.items) == len(LAW) + len(COOKING)


def test_what_is_missing_is_named(suite: Path) -> None:
    setting = setting_of(suite)
    assert "name it with --data or in IR3DE_DATA" in refusal(InputError, load, setting, None)
    assert f"no folder {suite / 'none' / 'small'}" in refusal(InputError, load, setting, suite / "none")
    (suite / "small" / "law" / "test.jsonl").unlink()
    law = suite / "small" / "law"
    assert f"no test.jsonl, plain or packed, in {law}" in refusal(InputError, load, setting, suite)
    (law / "test.jsonl").touch()
    assert f"{law / 'test.jsonl'} has no rows" in refusal(InputError, load, setting, suite)


def test_a_split_that_is_there_twice_is_not_read_twice(suite: Path) -> None:
    written(suite / "small" / "law" / "test.jsonl.xz", LAW)
    said = refusal(InputError, load, setting_of(suite), suite)
    assert "test.jsonl and test.jsonl.xz are the same split: leave one of them there" in said


def test_a_row_without_text_is_named_by_its_line(suite: Path) -> None:
    (suite / "small" / "law" / "test.jsonl").write_text('{"text": "Is it void?"}\n{"number": 3}\n')
    assert re.search(r"test\.jsonl.*2", refusal(InputError, load, setting_of(suite), suite))


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    for name, texts in (
        ("law_train", LAW),
        ("law_test", ["a copy of training", *LAW[1:]]),
        ("law_test_clean", LAW[1:]),
        ("cooking_train", COOKING),
        ("cooking_test", COOKING[1:]),
        ("odd_ood_test", ["Why?"]),
        ("odd_test", ["not this one"]),
    ):
        written(tmp_path / "small" / f"{name}.jsonl", texts, acc={"m": 1})
    return tmp_path


def test_scored_rows_prefer_the_cleaned_split_and_take_the_unseen_from_their_own(scored: Path) -> None:
    found = load(setting_of(scored, SCORED), scored)
    assert texts_of(found.items) == [
        *(("law", text) for text in LAW[1:]),
        ("cooking", COOKING[1]),
        ("odd", "Why?"),
    ]
    assert list(found.train) == ["law", "cooking"] and len(found.train["law"]) == len(LAW)


def test_scored_rows_that_are_missing_are_named(scored: Path) -> None:
    setting = setting_of(scored, SCORED)
    (scored / "small" / "odd_ood_test.jsonl").unlink()
    assert "no odd_ood_test.jsonl, plain" in refusal(InputError, load, setting, scored)
    (scored / "small" / "law_test.jsonl").unlink()
    (scored / "small" / "law_test_clean.jsonl").unlink()
    assert "no law_test_clean.jsonl or law_test.jsonl, plain" in refusal(InputError, load, setting, scored)


# ids ------------------------------------------------------------------------------------------------------------------


def test_ids_follow_from_the_domain_the_place_and_the_text(suite: Path) -> None:
    setting = setting_of(suite)
    before = [item.id for item in load(setting, suite).items]
    assert before == [item.id for item in load(setting, suite).items] and len(set(before)) == len(before)
    written(suite / "small" / "law" / "test.jsonl", [LAW[0], LAW[1] + " ", LAW[2]], other="field")
    after = [item.id for item in load(setting, suite).items]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True, True, True]
    assert item_id("law", 0, "x") != item_id("law", 1, "x") and item_id("law", 0, "x") != item_id("art", 0, "x")
    assert item_id("law", 0, "half a pair \ud800") != item_id("law", 0, "half a pair ")


# the hub --------------------------------------------------------------------------------------------------------------


def hub_setting(folder: Path, sources: Mapping[str, str], more: str = "test = 2\ntrain = 3\n") -> Setting:
    tables = "".join(f"[data.hub.{domain}]\npath = {json.dumps(path)}\n{more}" for domain, path in sources.items())
    return setting_of(folder, SMALL + tables)


@pytest.fixture
def hub(tmp_path: Path) -> dict[str, str]:
    """Data sets on this machine, which the library reads like those of the hub; between the texts, rows without."""
    pytest.importorskip("datasets")
    for domain, texts in (("cooking", [*COOKING * 2, "Stir."]), ("law", [*LAW, *LAW, "Void?"])):
        rows = [{"words": text, "n": n} for n, text in enumerate(texts)]
        rows[1:1] = [{"words": " ", "n": 100}, {"words": None, "n": 101}]  # type: ignore[dict-item]
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {domain: str(tmp_path / domain) for domain in ("cooking", "law")}


@pytest.mark.filterwarnings("ignore")  # of the library
def test_the_hub_s_first_texts_are_tested_on_and_the_next_are_trained_on(tmp_path: Path, hub: dict[str, str]) -> None:
    found = load(hub_setting(tmp_path, hub, 'field = "words"\ntest = 2\ntrain = 3\n'), None)
    assert texts_of(found.items) == [("law", LAW[0]), ("law", LAW[1]), ("cooking", COOKING[0]), ("cooking", COOKING[1])]
    assert found.training_texts() == {"law": [LAW[2], LAW[0], LAW[1]], "cooking": [*COOKING, "Stir."]}
    assert found.items[1].row["n"] == 1  # the rest of the row is there


@pytest.mark.filterwarnings("ignore")
def test_what_the_hub_has_not_is_told(tmp_path: Path, hub: dict[str, str]) -> None:
    def said(sources: Mapping[str, str], more: str) -> str:
        return refusal(InputError, load, hub_setting(tmp_path, sources, more), None)

    words = 'field = "words"\n'
    assert "has 5 rows with text, and 5 are to be tested on" in said(hub, f"{words}test = 5\n")
    assert "no text in the field 'text' of its split 'train'" in said(hub, "")
    assert f"cannot read {hub['cooking']}" in said(hub, f'{words}split = "validation"\n')
    nowhere = str(tmp_path / "nowhere" / "at-all")
    assert f"cannot read {nowhere} from the hub" in said(dict.fromkeys(hub, nowhere), words)
    (Path(hub["cooking"]) / "train.jsonl").write_text('{"words": \n')
    assert f"cannot read {hub['cooking']}" in said(hub, words)


def test_every_domain_needs_a_data_set(tmp_path: Path) -> None:
    setting = hub_setting(tmp_path, {"law": "some/set"})
    assert "names no data set of the hub for 'cooking'" in refusal(InputError, load, setting, None)


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    setting = hub_setting(tmp_path, {"law": "some/set", "cooking": "some/set"})
    assert "lab[hub]" in refusal(MissingExtraError, load, setting, None)


# labelled texts as a domain -------------------------------------------------------------------------------------------

LABELLED = """
version = 1
name = "small"
title = "SMALL"
metric = "score"
domains = ["math", "kinds"]
[data]
suite = "deep/reasoning"
most_items = { kinds = 2 }
[data.labelled.kinds]
folder = "intents/kinds"
prompt = "Which kind? {text}"
labels = { LOC = "location", NUM = "number" }
[base]
model = "none"
[tasks]
math = "gsm8k"
kinds = "label"
[evaluation]
most_new_tokens = { gsm8k = 5, label = 2 }
[protocol.clean]
"""


@pytest.fixture
def labelled(tmp_path: Path) -> Setting:
    (tmp_path / "labelled.toml").write_text(LABELLED, encoding="utf-8")
    rows = {
        "deep/reasoning/math": [{"text": "1 + 1", "answer": "2"}],
        "intents/kinds": [{"text": f"Where is {n}?", "label": "LOC"} for n in range(9)],
    }
    for folder, given in rows.items():
        (tmp_path / folder).mkdir(parents=True)
        for split in ("train", "test"):
            (tmp_path / folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, given)), encoding="utf-8")
    return settings.load(tmp_path / "labelled.toml")


def test_labelled_texts_become_prompts_with_answers(labelled: Setting, tmp_path: Path) -> None:
    found = load(labelled, tmp_path)
    assert found.train["kinds"][0] == {
        "text": "Which kind? Where is 0?", "answer": "location", "labels": ["location", "number"]
    }  # fmt: skip
    assert [item.domain for item in found.items] == ["math", "kinds", "kinds"]


def test_fewer_items_are_those_that_were_taken_before(labelled: Setting, tmp_path: Path) -> None:
    few = [item.id for item in load(labelled, tmp_path).items]
    (tmp_path / "more.toml").write_text(LABELLED.replace("kinds = 2", "kinds = 5"), encoding="utf-8")
    more = [item.id for item in load(settings.load(tmp_path / "more.toml"), tmp_path).items]
    assert len(more) == 6 and set(few) < set(more)


def test_a_label_that_the_setting_does_not_know_is_named(labelled: Setting, tmp_path: Path) -> None:
    (tmp_path / "intents/kinds/test.jsonl").write_text('{"text": "a", "label": "HUM"}', encoding="utf-8")
    with pytest.raises(InputError, match="has the label 'HUM'; the setting knows LOC, NUM"):
        load(labelled, tmp_path)
