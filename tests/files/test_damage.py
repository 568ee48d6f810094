"""Files that are missing, cut, altered or foreign: one clear error, and no loss."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Router, Statistics, TokenRidge, collect
from ir3de.embedding import Embedding
from ir3de.errors import ArtifactError, MismatchError, VersionError
from ir3de.files.router_folder import inspect_router, read_expert_names
from ir3de.statistics.domain import PromptSums
from ir3de.statistics.files import load_statistics, save_statistics
from saved import assert_same_router, edit, first_router, part, refusal, second_router

# where no router is ---------------------------------------------------------------------------------------------


def test_no_such_folder(tmp_path: Path) -> None:
    message = refusal(Router.load, tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in message
    assert "no such folder" in message


def test_a_file_is_not_a_router(tmp_path: Path) -> None:
    path = tmp_path / "router"
    path.write_text("mine")
    assert "it is a file" in refusal(Router.load, path)
    assert "it is a file" in refusal(first_router().save, path)
    assert path.read_text() == "mine"


def test_a_folder_with_other_files_is_not_overwritten(tmp_path: Path) -> None:
    for name in ("thesis.tex", "table-of-contents.txt", "statistics-2024.csv"):
        (tmp_path / name).write_text("mine")
        assert "choose a new or empty one" in refusal(first_router().save, tmp_path)
        assert tiny.contents(tmp_path) == {name: b"mine"}
        (tmp_path / name).unlink()
    assert "no router.json" in refusal(Router.load, tmp_path)


def test_a_save_removes_nothing_that_is_not_its_own(folder: Path) -> None:
    mine = ("notes.txt", "table-of-contents.txt", "statistics-2024.csv", "tokenizer-notes.md", ".hidden.part")
    for name in mine:
        (folder / name).write_text("mine")
    second_router().save(folder)
    assert [(folder / name).read_text() for name in mine] == ["mine"] * len(mine)


def test_a_missing_parent_is_made_and_a_file_for_a_parent_is_named(tmp_path: Path) -> None:
    first_router().save(tmp_path / "a" / "b" / "router")
    assert_same_router(Router.load(tmp_path / "a" / "b" / "router"), first_router())
    (tmp_path / "file").write_text("mine")
    assert "cannot make the folder" in refusal(first_router().save, tmp_path / "file" / "router")


def test_a_router_without_its_header_is_none(folder: Path) -> None:
    (folder / "router.json").unlink()
    assert "it holds no router.json" in refusal(Router.load, folder)


@pytest.mark.parametrize("content", [b"", b"{", b"nonsense", b"\xff\xfe", b"[1", b"\x00" * 50])
def test_a_header_that_is_not_json(folder: Path, content: bytes) -> None:
    (folder / "router.json").write_bytes(content)
    message = refusal(Router.load, folder)
    assert "router.json is damaged: it is not JSON" in message
    assert "Copy it again" in message


@pytest.mark.parametrize(
    "content", ["[]", "7", "null", '"ir3de.router"', "{}", '{"kind": "ir3de.statistics", "version": 1}']
)
def test_a_header_of_another_kind(folder: Path, content: str) -> None:
    (folder / "router.json").write_text(content)
    assert "is not an ir3de.router file: its kind is " in refusal(Router.load, folder)


@pytest.mark.parametrize("version", [2, 99, "1", None])
def test_a_header_of_a_newer_version(folder: Path, version: object) -> None:
    edit(folder, lambda header: header.update(version=version))
    message = refusal(Router.load, folder, kind=VersionError)
    assert f"version {version!r}" in message
    assert "install a newer ir3de" in message


def test_a_header_without_something_it_needs(folder: Path) -> None:
    whole = (folder / "router.json").read_bytes()
    newer = {"tuned", "chosen_by", "reason", "membership", "background"}  # 0.1 wrote none of these
    for key in json.loads(whole).keys() - {"sha256"} - newer:  # the hash is tested with edited headers
        edit(folder, lambda header, key=key: header.pop(key))
        kind = VersionError if key == "version" else ArtifactError
        assert "router.json" in refusal(lambda: Router.load(folder).statistics, kind=kind)
        (folder / "router.json").write_bytes(whole)
    for key in ("scorer", "selector", "table", "tokenizer", "experts", "embedding"):
        for wrong in (None, 7, "text", [], {}, [7], {"nom": "x"}):
            edit(folder, lambda header, key=key, wrong=wrong: header.update({key: wrong}))
            refusal(lambda: Router.load(folder).statistics)
            (folder / "router.json").write_bytes(whole)


@pytest.mark.parametrize("wrong", [7, [7], [{"nom": "x"}], None])
def test_the_names_in_a_header_of_other_shape_are_refused(folder: Path, wrong: object) -> None:
    edit(folder, lambda header: header.update(experts=wrong))
    assert "router.json is damaged" in refusal(read_expert_names, folder)
    if wrong != [{"nom": "x"}]:  # which can be shown, without its name
        assert "router.json is damaged" in refusal(inspect_router, folder)


def test_a_header_with_another_number_of_experts(folder: Path) -> None:
    whole = (folder / "router.json").read_bytes()
    for change in (lambda experts: experts.pop(), lambda experts: experts.append({**experts[0], "name": "ghost"})):
        edit(folder, lambda header, change=change: change(header["experts"]))
        assert "experts, but a table of 3" in refusal(Router.load, folder)
        (folder / "router.json").write_bytes(whole)


def test_a_strategy_this_version_does_not_know(folder: Path) -> None:
    header = json.loads((folder / "router.json").read_bytes())
    for key in ("scorer", "selector"):
        edit(folder, lambda header, key=key: header[key].update(name="os.system"))
        message = refusal(Router.load, folder)
        assert f"unknown {key} 'os.system'" in message
        edit(folder, lambda edited, key=key: edited[key].update(name=header[key]["name"]))
    edit(folder, lambda header: header["scorer"].update(strength=-1))
    assert "router.json is damaged" in refusal(Router.load, folder)


def test_a_scorer_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    class Mine(TokenRidge):
        pass

    assert "cannot save" in refusal(tiny.router(scorer=Mine()).save, tmp_path / "router")
    assert not (tmp_path / "router").exists()


# damage ---------------------------------------------------------------------------------------------------------


def damages(content: bytes) -> Iterator[bytes]:
    """Cut at several places, and a bit flipped at many."""
    for cut in (0, 1, 7, len(content) // 2, len(content) - 1):
        yield content[:cut]
    for place in random.Random(0).sample(range(len(content)), 12):
        yield content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]


@pytest.mark.parametrize("name", ["table", "tokenizer-*.json", "statistics", "embedding"])
def test_damage_to_a_file_is_found_by_its_hash(folder: Path, name: str) -> None:
    path = part(folder, name)
    whole = path.read_bytes()
    for damaged in damages(whole):
        path.write_bytes(damaged)
        message = refusal(lambda: (Router.load(folder).statistics, Router.load(folder).embedding))
        assert f"{path} is damaged: its SHA-256" in message
        assert "Copy it again" in message
    path.unlink()
    if name != "table":
        assert f"{path} is missing" in refusal(lambda: (Router.load(folder).statistics, Router.load(folder).embedding))
    path.write_bytes(whole)
    assert_same_router(Router.load(folder), first_router())


def test_what_only_changes_need_does_not_keep_a_router_from_routing(folder: Path) -> None:
    for path in (*folder.glob("statistics-*"), *folder.glob("embedding-*")):
        path.write_bytes(b"damaged")
    router = Router.load(folder)
    assert_same_router(router, first_router())
    assert "is damaged" in refusal(router.add, "new", ["text"])
    assert "is damaged" in refusal(router.save, folder)
    assert_same_router(router, first_router())
    assert_same_router(Router.load(folder), first_router())


@pytest.mark.slow
@pytest.mark.nightly
def test_the_compiled_tokenizer_is_only_a_shortcut(folder: Path) -> None:
    path = part(folder, "tokenizer-*.tkz")
    for damaged in (*damages(path.read_bytes()), None):
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        loaded = Router.load(folder)
        assert_same_router(loaded, first_router())
        assert loaded.tokenizer.engine == first_router().tokenizer.engine
    loaded.save(folder)
    assert path.is_file()


def test_no_bit_of_the_header_can_end_in_another_error(folder: Path) -> None:
    """What a flip leaves readable may load; it must not crash. Files are named by their hashes, so they stay whole."""
    path = folder / "router.json"
    whole = path.read_bytes()
    (folder / part(folder, "tokenizer-*.tkz").name).unlink()  # loading is then the same, and writes no temporary file
    draw, refused = random.Random(0), 0
    for place in draw.sample(range(len(whole)), 250):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        try:
            loaded = Router.load(folder)
            loaded.statistics  # noqa: B018 - read when first asked for
        except ArtifactError:
            refused += 1
    assert refused > 125
    for cut in range(0, len(whole) - 2, 50):
        path.write_bytes(whole[:cut])
        assert "Copy it again" in refusal(Router.load, folder)


def test_a_lost_table_is_rebuilt_as_it_was(folder: Path) -> None:
    path = part(folder, "table")
    whole = path.read_bytes()
    path.unlink()
    router = Router.load(folder)
    assert_same_router(router, first_router())
    router.save(folder)
    assert path.read_bytes() == whole


def test_a_serving_copy_cannot_rebuild_its_table(serving: Path) -> None:
    path = part(serving, "table")
    path.unlink()
    message = refusal(Router.load, serving)
    assert str(path) in message
    assert "serving copy cannot rebuild" in message


def test_a_serving_copy_routes_but_does_not_change(serving: Path) -> None:
    router = Router.load(serving)
    assert sorted(path.name.split("-")[0] for path in serving.iterdir()) == [
        "router.json",
        "table",
        "tokenizer",
        "tokenizer",
    ]
    for action in (
        lambda: router.add("new", ["text"]),
        lambda: router.remove("law"),
        lambda: router.merge("law", ["text"]),
        lambda: router.save(serving.parent / "copy"),
        lambda: router.statistics,
    ):
        assert "serving copy: it can route, but not change" in refusal(action)
    assert_same_router(router, first_router())
    router.save(serving.parent / "again", serving=True)
    assert_same_router(Router.load(serving.parent / "again"), first_router())


@pytest.mark.parametrize("key", ["table", "tokenizer", "statistics", "embedding"])
@pytest.mark.parametrize("place", ["../outside", "/absolute", "sub/inside"])
def test_a_header_names_only_files_beside_it(folder: Path, key: str, place: str) -> None:
    """Even where the file is there and its hash is right."""
    path = part(folder, "tokenizer-*.json" if key == "tokenizer" else key)
    name = str(folder.parent / "absolute") if place == "/absolute" else place
    (folder / "sub").mkdir()
    shutil.copy(path, folder / name)

    def change(header: dict) -> None:
        entry = {
            "table": lambda: header["table"],
            "tokenizer": lambda: header["tokenizer"]["file"],
            "embedding": lambda: header["embedding"]["file"],
            "statistics": lambda: header["experts"][0]["statistics"],
        }[key]()
        entry.update(name=name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    edit(folder, change)
    message = refusal(lambda: (Router.load(folder).statistics, Router.load(folder).embedding))
    assert f"'{name}' is not a file name" in message


def test_statistics_of_another_embedding_in_a_router(folder: Path, tmp_path: Path) -> None:
    other = tiny.router(of=tiny.other_embedding()).save(tmp_path / "other")
    shutil.copy(part(other, "embedding"), folder)
    theirs = json.loads((other / "router.json").read_bytes())
    edit(folder, lambda header: header["embedding"].update(file=theirs["embedding"]["file"]))
    router = Router.load(folder)
    assert_same_router(router, first_router())
    message = refusal(router.add, "new", ["text"], kind=MismatchError)
    assert tiny.embedding().fingerprint[:12] in message
    assert tiny.other_embedding().fingerprint[:12] in message


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(folder: Path) -> None:
    path = part(folder, "table")
    path.chmod(0)
    assert f"cannot read {path}: Permission denied" in refusal(Router.load, folder)


# sizes ----------------------------------------------------------------------------------------------------------


def default_statistics(seed: int) -> Statistics:
    """Of a corpus of billions of tokens: every token counted, sums of a million copies of real windows."""
    embedding = Embedding.default()
    real = collect(["What is 12 times 7?", "Is this contract void?", "How do I sort a list?"], embedding=embedding)
    draw = np.random.default_rng(seed)
    histogram = (draw.pareto(0.5, embedding.vocabulary_size) * 100 + 1).clip(0, 1e12).astype(np.int64)
    sums, times = real.sums, 1_000_000 + seed
    many = PromptSums(
        sums.window, sums.unit, sums.windows * times, sums.vector * times, sums.gram * times, sums.pairs * times
    )
    return Statistics(real.fingerprint, 3 * times, histogram, many)


def test_a_large_domain_is_a_small_file(tmp_path: Path) -> None:
    statistics = default_statistics(0)
    path = save_statistics(statistics, tmp_path / "large.safetensors")
    assert path.stat().st_size < 4_000_000
    assert load_statistics(path) == statistics


def test_a_serving_copy_of_five_experts_is_small(tmp_path: Path) -> None:
    router = Router.fit({name: default_statistics(seed) for seed, name in enumerate("abcde")}, scorer=TokenRidge())
    folder = router.save(tmp_path / "serving", serving=True)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4_000_000
    assert tiny.same_table(Router.load(folder), router)
