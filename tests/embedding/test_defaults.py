"""The default embedding has versions: a later one orphans neither routers nor statistics."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import Contribution, Embedding, Router, Statistics, collect, files
from ir3de.embedding import readers
from ir3de.embedding.readers import DEFAULTS, DefaultEmbedding
from ir3de.errors import ArtifactError, EmbeddingError, MismatchError
from ir3de.evaluation import prove, verify
from ir3de.fitting.outcomes import collect_outcomes
from ir3de.statistics.files import load_statistics, outcomes_bytes, outcomes_from, save_statistics

LAW, MATHS = ["Is this contract void?", "Can my landlord evict me?"], ["Solve 3x = 12.", "What is 12 times 7?"]
PROMPTS = [*LAW, *MATHS, "Is 7 a contract?"]


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Embedding:
    """A tiny later version of the default embedding, which becomes the current one."""
    embedding = tiny.embedding()
    folder = embedding.save(tmp_path / "v9", compact=False)
    monkeypatch.setitem(DEFAULTS, 9, DefaultEmbedding(embedding.fingerprint, folder))
    monkeypatch.setattr(readers, "CURRENT_VERSION", 9)
    return embedding


@pytest.fixture
def first_router(tmp_path: Path) -> Path:
    """A router of version 1, which was saved before there was another."""
    return Router.fit({"law": LAW, "maths": MATHS}, embedding=Embedding.default(1)).save(tmp_path / "router")


def test_the_table_holds_the_fingerprints_of_its_files() -> None:
    for version, default in DEFAULTS.items():
        assert Embedding.default(version).fingerprint == default.fingerprint
        assert Embedding.default(version).default_version == version
    assert Embedding.default() is Embedding.default(readers.current_version()) is Embedding.load("default")


def test_a_copy_is_recognised_and_another_embedding_is_not(tmp_path: Path) -> None:
    assert Embedding.load(Embedding.default().save(tmp_path / "copy")).default_version == readers.current_version()
    assert tiny.embedding().default_version is None


@pytest.mark.parametrize(("version", "columns"), [pytest.param(2, 704, marks=pytest.mark.nightly), (3, 832)])
def test_later_versions_are_version_1_with_more_columns(tmp_path: Path, version: int, columns: int) -> None:
    first, second = Embedding.default(1), Embedding.default(version)
    assert second.matrix.shape == (49_152, columns)
    assert (second.matrix[:, :576] == first.matrix).all() and second.tokenizer.sha256 == first.tokenizer.sha256
    assert second.matrix[:, 576:].std(axis=0).min() > 0
    copy = Embedding.load(second.save(tmp_path / "copy"))  # a copy is whole
    assert copy.default_version == version and (tmp_path / "copy" / "tokenizer.json").is_file()
    router = Router.fit({"law": LAW, "maths": MATHS}, embedding=second)
    assert router.save(tmp_path / "router") and Router.load(tmp_path / "router").embedding.default_version == version


def test_an_extension_that_is_damaged_is_refused(tmp_path: Path) -> None:
    for version in (1, 2):
        shutil.copytree(DEFAULTS[version].folder, tmp_path / f"v{version}")
    assert Embedding.load(tmp_path / "v2").default_version == 2
    header = json.loads((tmp_path / "v2" / "embedding.json").read_text())
    for change, said in (({"fingerprint": "0" * 64}, "does not match its header"), ({"width": None}, "is damaged")):
        files.write(tmp_path / "v2" / "embedding.json", files.to_json({**header, **change}))
        with pytest.raises(ArtifactError, match=said):
            Embedding.load(tmp_path / "v2")
    files.write(tmp_path / "v2" / "embedding.json", files.to_json(header))
    matrix = tmp_path / "v1" / "matrix.safetensors"
    content = matrix.read_bytes()
    matrix.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=r"v1.matrix.safetensors is damaged"):  # where the damage is
        Embedding.load(tmp_path / "v2")


def test_a_later_version_becomes_the_current_one_and_earlier_ones_can_be_named(second: Embedding) -> None:
    assert Embedding.default().fingerprint == second.fingerprint
    assert Embedding.load("default@1") is Embedding.default(version=1)
    assert collect(LAW).embedding_version == 9
    assert collect(LAW, embedding=Embedding.default(1)).embedding_version == 1


def test_routers_name_the_version(first_router: Path, tmp_path: Path) -> None:
    serving = Router.load(first_router).save(tmp_path / "serving", serving=True)
    for folder in (first_router, serving):
        assert json.loads((folder / "router.json").read_text())["embedding"]["default_version"] == 1
    other = Router.fit({"law": LAW, "maths": MATHS}, embedding=tiny.embedding()).save(tmp_path / "other")
    assert "default_version" not in json.loads((other / "router.json").read_text())["embedding"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "has_version",
    [
        pytest.param(True, id="named", marks=pytest.mark.nightly),
        pytest.param(False, id="by fingerprint, as 0.1 wrote it"),
    ],
)
def test_a_router_of_an_earlier_version_can_still_be_changed(
    first_router: Path, request: pytest.FixtureRequest, has_version: bool
) -> None:
    expected = Router.load(first_router).route_batch(PROMPTS)
    first = Embedding.default(1)
    given = collect(["stir the dough", "boil an egg"], embedding=first, keep_sample=True)
    shared = Contribution.of(collect(["Is it legal?"], embedding=first), owner="Berlin")
    second: Embedding = request.getfixturevalue("second")
    if not has_version:
        edit_header(first_router, lambda header: header["embedding"].pop("default_version"))
    router = Router.load(first_router)
    assert Embedding.default().fingerprint == second.fingerprint
    assert router.route_batch(PROMPTS) == expected
    router.add("cooking", given)
    router.add("travel", ["a cheap flight to Rome"])  # counted with the router's own embedding
    router.merge("law", shared)
    router.save(first_router)
    again = Router.load(first_router)
    for name in ("cooking", "travel"):
        again.remove(name)
    again.remove("law", contribution=shared.id)
    assert again.route_batch(PROMPTS) == expected


@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_router_of_an_earlier_version_stays_what_it_is(tmp_path: Path, version: int) -> None:
    """Load × add × merge × prove × save × verify × serving copy, beside a newer default."""
    texts, earlier = (
        {"law": tiny.sentences("law", 12), "maths": tiny.sentences("maths", 12)},
        Embedding.default(version),
    )
    Router.fit(texts, embedding=earlier).save(tmp_path / "router")
    router = Router.load(tmp_path / "router")
    router.add("cooking", tiny.sentences("cooking", 12))  # counted with the router's own embedding
    router.merge("law", Contribution.of(collect(["Is it legal?"], embedding=earlier), owner="Berlin"))
    router.save(tmp_path / "router")
    again = Router.load(tmp_path / "router")
    assert again.embedding.default_version == version != readers.current_version()
    assert {one.embedding_version for one in again.statistics.values()} == {version}
    assert all(check.holds for check in verify(tmp_path / "router"))
    assert prove(router=again, contenders=False, curve=False).accuracy.value > 0.5
    serving = Router.load(again.save(tmp_path / "serving", serving=True))
    assert serving.route_batch(PROMPTS) == again.route_batch(PROMPTS) == router.route_batch(PROMPTS)
    again.remove("cooking")
    again.remove("law", contribution=again.contributions["law"][-1].id)
    assert again.statistics == Router.fit(texts, embedding=earlier).statistics


def test_a_fit_takes_the_version_of_the_statistics_that_it_gets(tmp_path: Path) -> None:
    old = collect(LAW, embedding=Embedding.default(1), keep_sample=True)
    for given in (old, Contribution.of(old, owner="Berlin"), [Contribution.of(old, owner="Berlin")]):
        router = Router.fit({"law": given, "maths": MATHS})
        assert router.embedding.default_version == router.statistics["maths"].embedding_version == 1
    with pytest.raises(MismatchError, match=r"'law' belong to version 1 .*, the router uses version 3 "):
        Router.fit({"law": old, "maths": MATHS}, embedding=Embedding.default())
    router = Router.fit({"law": LAW, "maths": MATHS})
    with pytest.raises(MismatchError, match=r"'law' belong to version 1 .*, the router uses version 3 "):
        router.merge("law", Contribution.of(old, owner="Berlin"))
    assert router.statistics["law"].prompts == len(LAW)


def test_statistics_of_an_earlier_version_can_still_be_fitted(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    texts, first = {"law": LAW, "maths": MATHS}, Embedding.default(1)
    counted = {name: collect(texts[name], embedding=first, keep_sample=True) for name in texts}
    paths = {name: save_statistics(counted[name], tmp_path / name) for name in texts}
    expected = Router.fit(texts, embedding=first).route_batch(PROMPTS)
    request.getfixturevalue("second")
    statistics = {name: load_statistics(path) for name, path in paths.items()}
    assert {one.embedding_version for one in statistics.values()} == {1}
    assert Router.fit(statistics).route_batch(PROMPTS) == expected
    contributions = {name: [Contribution.load(path)] for name, path in paths.items()}
    assert Router.fit(contributions).route_batch(PROMPTS) == expected


def test_versions_do_not_mix_and_the_error_names_both(first_router: Path, second: Embedding) -> None:
    new, old = collect(LAW), collect(LAW, embedding=Embedding.default(1))
    with pytest.raises(
        MismatchError, match=r"of version 9 of the default embedding.* of version 1 .*the same embedding"
    ):
        new + old
    mixed = r"'law' belong to version 9 of the default embedding, the router uses version 1 of the default embedding"
    with pytest.raises(MismatchError, match=mixed + r".*collect them again.*, or .*Embedding.default\(version=9\)"):
        Router.load(first_router).merge("law", new)
    with pytest.raises(MismatchError, match=mixed):
        Router.fit({"maths": old, "law": new})
    rows = [{"text": "What is 12 times 7?", "scores": {"large": 1, "small": 0}}]
    outcomes = collect_outcomes(rows, embedding=Embedding.default(1))
    with pytest.raises(MismatchError, match=r"of version 9 of the default embedding.* of version 1 "):
        collect_outcomes(rows) + outcomes
    with pytest.raises(MismatchError, match=r"outcomes belong to version 1 .* uses version 9 .*default\(version=1\)"):
        Router.fit_outcomes(outcomes)
    restored = outcomes_from(outcomes_bytes(outcomes), Path("outcomes"))
    assert restored == outcomes and restored.embedding_version == 1


def test_a_version_that_is_not_here_says_so(
    first_router: Path, tmp_path: Path, second: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Router.fit({"law": LAW, "maths": MATHS}).save(tmp_path / "newer")
    path = save_statistics(collect(LAW), tmp_path / "law.stats")
    expected = Router.load(newer).route_batch(PROMPTS)
    monkeypatch.delitem(DEFAULTS, 9)
    absent = r"version 9 of the default embedding is not part of this ir3de, which has 1, 2, 3: install a newer ir3de"
    for ask in (lambda: Embedding.default(9), lambda: Embedding.load("default@9")):
        with pytest.raises(EmbeddingError, match=absent):
            ask()
    router = Router.load(newer)
    assert router.route_batch(PROMPTS) == expected
    with pytest.raises(MismatchError, match="can route, but not change: " + absent):
        router.add("cooking", ["boil an egg"])
    statistics: Statistics = load_statistics(path)
    assert (statistics + statistics).prompts == 4  # sums need no embedding
    with pytest.raises(EmbeddingError, match=absent):
        Router.fit({"law": statistics})
    with pytest.raises(MismatchError, match=r"belong to version 9 of the default embedding, the router uses version 1"):
        Router.load(first_router).merge("law", statistics)


def test_a_router_of_an_unknown_default_says_so(first_router: Path) -> None:
    edit_header(first_router, lambda header: header["embedding"].update(fingerprint="0" * 64))
    edit_header(first_router, lambda header: header["embedding"].pop("default_version"))
    with pytest.raises(MismatchError, match=r"can route, but not change: no default embedding .* fingerprint 000000"):
        Router.load(first_router).add("cooking", ["boil an egg"])


def test_a_source_that_names_no_version_is_refused() -> None:
    with pytest.raises(EmbeddingError, match="'default@one' names no version"):
        Embedding.load("default@one")


def edit_header(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "router.json"
    header = json.loads(path.read_text(encoding="utf-8"))
    header.pop("sha256")
    edit(header)
    path.write_bytes(files.to_json(files.seal(header)))
