"""Where prompts came from: sources travel with the texts into the sample, and change no count."""

import copy
import json
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from commands import run, run_json
from ir3de import Contribution, Router, Statistics
from ir3de.corpora import read_rows, read_texts, text_of
from ir3de.errors import InputError
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics import counting
from ir3de.statistics import sample as samples
from ir3de.statistics.files import load_statistics, save_statistics
from ir3de.statistics.sample import hash_text
from ir3de.statistics.texts import SourcedText
from laws import counted, seeds, wordy
from saved import refusal

names = st.sampled_from([None, "", "forum", "exam", 7])
rows = st.lists(st.fixed_dictionaries({"text": wordy, "source": names}) | wordy, max_size=25)
LAW = [{"text": text, "source": ("forum", "exam")[i % 2]} for i, text in enumerate(tiny.sentences("law", 12))]
MATHS = tiny.sentences("maths", 12)


def texts_of(some: Sequence[dict | str]) -> list[str]:
    return [row if isinstance(row, str) else row["text"] for row in some]


def pairs_in(statistics: Statistics) -> Counter:
    """The hash of each sampled prompt with that of its source."""
    assert statistics.sample is not None
    return Counter(zip(statistics.sample.hashes.tolist(), statistics.sample.sources.tolist(), strict=True))


def pairs_given(some: Sequence[dict | str]) -> Counter:
    sources = [None if isinstance(row, str) else row["source"] for row in some]
    hashes = [0 if source is None else hash_text(str(source)) for source in sources]
    return Counter(zip(map(hash_text, texts_of(some)), hashes, strict=True))


# laws -----------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(rows, st.integers(1, 3), st.integers(1, 60), seeds)
def test_any_order_and_any_split_of_rows_gives_the_same_sample(
    some: list, parts: int, characters: int, seed: int
) -> None:
    whole = counted(some, keep_sample=True)
    shuffled = [some[i] for i in np.random.default_rng(seed).permutation(len(some))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "CHUNK_CHARACTERS", characters)
        shards = [counted(shuffled[part::parts], keep_sample=True) for part in range(parts)]
    assert sum(shards[1:], shards[0]).sample == whole.sample
    assert pairs_in(whole) <= pairs_given(some)


@tiny.LAW
@given(rows, st.integers(1, 4))
def test_counts_and_sampled_prompts_are_the_same_with_and_without_sources(some: list, subsample: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "MAX_PROMPTS", 9)
        patch.setattr(samples, "MAX_COPIES", 2)
        options = {"keep_sample": True, "subsample": subsample}
        whole, plain = counted(some, **options), counted(texts_of(some), **options)
    assert whole == plain and whole.digest == plain.digest
    assert whole.sample.digest_without_sources == plain.sample.digest
    assert not plain.sample.sources.any()


def test_every_sampled_prompt_has_its_source() -> None:
    assert pairs_in(counted([*LAW, *MATHS], keep_sample=True)) == pairs_given([*LAW, *MATHS])
    assert counted(LAW, keep_sample=True).sample.count_sources() == 2
    assert counted(MATHS, keep_sample=True).sample.count_sources() == 0


# rows in Python ---------------------------------------------------------------------------------------------------


def test_a_router_is_fitted_and_changed_with_rows() -> None:
    router = Router.fit({"law": LAW, "maths": MATHS}, embedding=tiny.embedding())
    plain = Router.fit({"law": texts_of(LAW), "maths": MATHS}, embedding=tiny.embedding())
    assert router.statistics == plain.statistics
    assert router.route_batch(MATHS) == plain.route_batch(MATHS)
    assert pairs_in(router.statistics["law"]) == pairs_given(LAW)
    more = [{"prompt": "stir the dough", "source": "blog"}]
    router.add("cooking", more)
    assert router.statistics["cooking"].sample.sources.tolist() == [hash_text("blog")]
    router.merge("maths", ({"text": text, "source": "exam"} for text in MATHS[:1]))
    assert router.statistics["maths"].sample.count_sources() == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ["a", {"id": 1, "source": "x"}],
            "index 1: 'text' (or 'prompt') must be a str, found the fields 'id', 'source'",
        ),
        ([{}], "index 0: 'text' (or 'prompt') must be a str, found NoneType: give each row its text"),
        ([{"text": 3}], "index 0: 'text' (or 'prompt') must be a str, found int"),
        ([7], "the text at index 0 must be a str, or a row such as {'text': …, 'source': …}, found int: 7"),
        ({"text": "a"}, "found one dict: put texts in a list"),
    ],
)
def test_rows_without_a_text_are_refused(texts: object, message: str) -> None:
    assert message in refusal(counted, texts, kind=InputError)
    router = Router.fit({"law": LAW, "maths": MATHS}, embedding=tiny.embedding())
    refusal(router.add, "cooking", texts, kind=InputError)
    assert router.experts == ("law", "maths")


def test_a_text_with_a_source_is_a_str_like_any_other(tmp_path: Path) -> None:
    text = text_of({"text": "prove it", "source": "exam"})
    assert isinstance(text, SourcedText) and text == "prove it" and repr(text) == "'prove it'"
    for same in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert (same, same.source) == ("prove it", "exam")
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    place = f"{tmp_path / 'a.jsonl'}:1"
    assert refusal(counted, read_rows([tmp_path]), kind=InputError).startswith(f"{place}: 'text'")


# rows in files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "field", "source"),
    [
        ({"question": "q", "source": "exam"}, None, "exam"),
        ({"meta": {"body": "q"}, "source": 12}, "meta.body", "12"),
        ({"messages": [{"role": "user", "content": "q"}], "source": "chat"}, None, "chat"),
        ({"text": "q"}, None, None),
        ({"text": "q", "source": None}, None, None),
        ({"text": "q", "source": ""}, None, None),
        ({"text": "q", "source": {"url": "…"}}, None, None),
        ({"text": "q", "source": [1]}, None, None),
        ({"text": "q", "source": True}, None, None),
        ({"source": "q", "target": "t"}, "source", None),  # a translation
        ({"source": {"text": "q"}, "target": "t"}, "source.text", None),
        ("q", None, None),
    ],
)
def test_the_source_of_a_row_is_a_name_in_the_field_source(row: object, field: str | None, source: str | None) -> None:
    text = text_of(row, field)  # type: ignore[arg-type]
    assert text == "q"
    assert getattr(text, "source", None) == source


def test_a_table_with_the_one_column_source_holds_texts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source\nprove it\n")
    assert [type(text) for text in read_texts([tmp_path])] == [str]


def test_statistics_files_hold_sources_where_there_are_any(tmp_path: Path) -> None:
    with_sources, plain = counted(LAW, keep_sample=True), counted(texts_of(LAW), keep_sample=True)
    path = save_statistics(with_sources, tmp_path / "law.stats")
    assert load_statistics(path).sample == with_sources.sample
    assert Contribution.load(path).sample() == with_sources.sample
    tensors, header = from_safetensors(path.read_bytes(), path)
    # an earlier version reads these, and does not look at the rest
    assert header["sample"] == plain.sample.digest
    expected, old = from_safetensors(save_statistics(plain, tmp_path / "plain.stats").read_bytes(), path)
    assert set(tensors) - set(expected) == {"sample.sources"}
    assert set(header) - set(old) == {"sample_with_sources"}
    assert not load_statistics(tmp_path / "plain.stats").sample.sources.any()


def test_sources_that_were_lost_or_edited_are_found(tmp_path: Path) -> None:
    contribution = Contribution.load(save_statistics(counted(LAW, keep_sample=True), tmp_path / "law.stats"))
    path = tmp_path / "law.stats"
    tensors, header = from_safetensors(path.read_bytes(), path)
    others = tensors["sample.sources"][::-1]
    fewer = {name: tensor for name, tensor in tensors.items() if name != "sample.sources"}
    for changed, message in [
        (fewer, "damaged or was edited"),
        (tensors | {"sample.sources": others}, "damaged or was edited"),
        (tensors | {"sample.sources": others[1:]}, "does not fit"),
    ]:
        path.write_bytes(to_safetensors(changed, header))
        assert message in refusal(load_statistics, path)
        assert message in refusal(contribution.sample)


def test_a_saved_router_keeps_sources_of_texts_and_contributions(tmp_path: Path) -> None:
    router = Router.fit({"law": LAW[:6], "maths": MATHS}, embedding=tiny.embedding())
    path = save_statistics(counted(LAW[6:], keep_sample=True), tmp_path / "law.stats")
    router.merge("law", Contribution.load(path))
    router.save(tmp_path / "router")
    loaded = Router.load(tmp_path / "router")
    assert pairs_in(loaded.statistics["law"]) == pairs_given(LAW)
    (contribution,) = loaded.contributions["law"]
    loaded.remove("law", contribution=contribution.id)
    assert pairs_in(loaded.statistics["law"]) == pairs_given(LAW[:6])


def test_the_command_line_takes_the_sources_of_rows(tmp_path: Path) -> None:
    (tmp_path / "law.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LAW))
    (tmp_path / "maths.txt").write_text("\n".join(MATHS))
    run("fit", tmp_path / "router", f"law={tmp_path / 'law.jsonl'}", f"maths={tmp_path / 'maths.txt'}")
    law, maths = run_json("inspect", tmp_path / "router")["experts"]
    assert (law["sources"], law["kept"]) == (2, 12) and "sources" not in maths
    assert "sources" in run("inspect", tmp_path / "router").output
    assert pairs_in(Router.load(tmp_path / "router").statistics["law"]) == pairs_given(LAW)
    target = tmp_path / "law.stats"
    assert run_json("collect", target, tmp_path / "law.jsonl", "--keep-sample")["sources"] == 2
    assert "12, as token ids, from 2 sources" in run("inspect", target).output
    assert run_json("collect", target, tmp_path / "law.jsonl", "--force")["sources"] == 0
