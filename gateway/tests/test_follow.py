"""A router in a folder or at an address is followed: whole or not at all, and without anybody being told."""

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import tiny
from ir3de import files
from ir3de.errors import ArtifactError, InputError
from ir3de.files.remote import hide_user
from ir3de.files.router_folder import read_header
from ir3de.fitting import loading
from ir3de_gateway.admin.router_source import FolderSource, RouterFollower
from ir3de_gateway.background import repeat
from saved import assert_same_router, edit, first_router, part, second_router


@pytest.fixture
def address() -> Iterator[str]:
    """An empty place in memory, reached as any bucket is."""
    yield "memory://bucket/router"
    fsspec.filesystem("memory").store.clear()


def upload(folder: Path, address: str, *, without: str = "-") -> None:
    """The files of a folder, the header last; those that begin with `without` are left out."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == "router.json"):
        if not path.name.startswith(without):
            fsspec.filesystem("memory").pipe(f"{address}/{path.name}", path.read_bytes())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_folder_is_followed_and_nothing_is_written_to_it(tmp_path: Path) -> None:
    first, second = first_router(), second_router()
    folder = first.save(tmp_path / "router")
    follower = RouterFollower(str(folder), tmp_path / "cache")
    before = tiny.contents(folder)
    loaded = follower.load()
    router, digest = loaded.router, loaded.digest
    assert_same_router(router, first)
    assert digest == read_header(folder)["sha256"]
    assert not follower.changed() and follower.check() is None
    assert tiny.contents(folder) == before

    for path in folder.iterdir():  # copied over itself
        content = path.read_bytes()
        path.write_bytes(b"")
        path.write_bytes(content)
    assert not follower.changed() and follower.check() is None

    second.save(folder)
    assert follower.changed()
    found = follower.check()
    assert found is not None and found.digest != digest
    assert_same_router(found.router, second)
    assert_same_router(router, first)  # who began with it keeps it
    assert follower.check() is None


def test_a_folder_that_is_damaged_or_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = first_router().save(tmp_path / "router")
    second = second_router()
    follower = RouterFollower(str(folder), tmp_path / "cache")
    follower.load()
    second.save(folder)
    table = part(folder, "table")
    content = table.read_bytes()
    table.write_bytes(content[:-1])
    assert follower.check() is None and follower.check() is None
    assert len(warnings(caplog)) == 1 and str(table) in warnings(caplog)[0] and "damaged" in warnings(caplog)[0]
    shutil.rmtree(folder)
    assert follower.check() is None and follower.check() is None
    assert len(warnings(caplog)) == 2
    second.save(folder)
    found = follower.check()
    assert found is not None
    assert_same_router(found.router, second)


def test_a_router_that_is_put_back_is_found_again_until_another_one_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = first_router().save(tmp_path / "router")
    follower = RouterFollower(str(folder), tmp_path / "cache")
    follower.load()
    second_router().save(folder)
    found = follower.check()
    assert found is not None
    for _ in range(2):
        follower.put_back(found, "it cannot serve yet")
        assert follower.check() is found  # it is not loaded again
    assert follower.check() is None and warnings(caplog) == ["it cannot serve yet"]
    follower.put_back(found, "it cannot serve yet")
    first_router().save(folder)
    another = follower.check()
    assert another is not None and another.digest != found.digest
    assert follower.check() is None


def test_an_address_is_followed_and_only_what_is_new_is_fetched(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = first_router(), second_router()
    fetched: list[str] = []
    memory = type(fsspec.filesystem("memory"))
    opening = memory.open

    def counting(self: object, path: str, mode: str = "rb", **options: object) -> object:
        if mode == "rb":
            fetched.append(Path(path).name.split("-")[0])
        return opening(self, path, mode, **options)

    monkeypatch.setattr(memory, "open", counting)
    folder = first.save(tmp_path / "one")
    upload(folder, address)
    follower = RouterFollower(address, tmp_path / "cache")
    loaded = follower.load()
    router, digest = loaded.router, loaded.digest
    assert_same_router(router, first)
    assert digest == read_header(folder)["sha256"]
    assert sorted(set(fetched)) == ["router.json", "table", "tokenizer"]  # and no statistics: serving needs none
    assert not follower.changed()

    fetched.clear()
    upload(second.save(tmp_path / "two"), address)
    found = follower.check()
    assert found is not None
    assert_same_router(found.router, second)
    assert sorted(set(fetched)) == ["router.json", "table"]  # the tokenizer is the same
    assert len(list((tmp_path / "cache").glob("*/router.json"))) == 2
    follower.put_in_force(found)
    assert len(list((tmp_path / "cache").glob("*/router.json"))) == 1  # the old one is dropped
    assert_same_router(router, first)

    fetched.clear()  # another worker of the machine
    assert_same_router(RouterFollower(address, tmp_path / "cache").load().router, second)
    assert set(fetched) == {"router.json"}


@pytest.mark.parametrize("missing", ["table", "tokenizer-"])
def test_a_half_uploaded_router_waits_until_it_is_whole(
    tmp_path: Path, address: str, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    router, follower = first_router(), RouterFollower(address, tmp_path / "cache")
    folder = router.save(tmp_path / "router")
    upload(folder, address, without=missing)
    assert follower.check() is None and follower.check() is None
    assert len(warnings(caplog)) == 1 and "is missing" in warnings(caplog)[0]
    upload(folder, address)
    found = follower.check()
    assert found is not None
    assert_same_router(found.router, router)


def test_what_is_damaged_at_an_address_is_refused(tmp_path: Path, address: str) -> None:
    memory, follower = fsspec.filesystem("memory"), RouterFollower(address, tmp_path / "cache")
    with pytest.raises(ArtifactError, match=r"router\.json is missing"):
        follower.load()
    folder = first_router().save(tmp_path / "router")
    header, table = (folder / "router.json").read_bytes(), part(folder, "table")
    for content, complaint in (
        (header[:200], "is incomplete"),
        (header.replace(b'"maths"', b'"math"', 1), "damaged or was edited"),
        (files.to_json(files.seal({"kind": "ir3de.router", "version": 1})), "damaged"),
        (b'{"kind": "other"}', "is not an ir3de.router"),
    ):
        upload(folder, address)
        memory.pipe(f"{address}/router.json", content)
        with pytest.raises(ArtifactError, match=complaint):
            follower.load()
    upload(folder, address)
    memory.pipe(f"{address}/{table.name}", table.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="half uploaded"):
        follower.load()
    edit(folder, lambda header: header["table"].update(name="../../escape.safetensors"))
    upload(folder, address)
    with pytest.raises(ArtifactError, match="not the name of a router's file"):
        follower.load()
    assert not list(tmp_path.glob("**/escape*"))


def test_while_the_address_is_away_what_was_fetched_before_serves(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = first_router(), second_router()
    upload(first.save(tmp_path / "one"), address)
    digest = RouterFollower(address, tmp_path / "cache").load().digest
    fsspec.filesystem("memory").store.clear()
    follower = RouterFollower(address, tmp_path / "cache")  # as after a restart
    loaded = follower.load()
    router, again = loaded.router, loaded.digest
    assert_same_router(router, first)
    assert again == digest and "fetched before" in warnings(caplog)[0]
    assert follower.check() is None
    upload(second.save(tmp_path / "two"), address)
    found = follower.check()
    assert found is not None
    assert_same_router(found.router, second)


def test_addresses_that_cannot_be_followed_say_why(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot open nowhere://bucket: .*nowhere"):
        RouterFollower("nowhere://me:secret@bucket", tmp_path).load()
    with pytest.raises(ArtifactError, match="needs a folder"):
        RouterFollower("memory://router")
    with pytest.raises(ArtifactError, match="there is no such folder"):
        RouterFollower(str(tmp_path / "none"), tmp_path).load()


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("s3://bucket/router", "s3://bucket/router"),
        ("ftp://u:sesame@host/router", "ftp://host/router"),
        ("ftp://u:ses@me@host/router", "ftp://host/router"),
        ("simplecache::ftp://u:sesame@host/router", "simplecache::ftp://host/router"),
        ("zip://router::ftp://u:sesame@host/x.zip", "zip://router::ftp://host/x.zip"),
        ("s3://bucket/a@b", "s3://bucket/a@b"),
        ("/a/folder@home", "/a/folder@home"),
    ],
)
def test_users_and_passwords_of_addresses_are_not_told(address: str, shown: str) -> None:
    assert hide_user(address) == shown


def test_looking_goes_on_whatever_goes_wrong(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> list[int]:
        looks: list[int] = []
        enough = asyncio.Event()

        async def action() -> None:
            looks.append(len(looks))
            if len(looks) == 4:
                enough.set()
            if len(looks) < 3:
                raise ArtifactError("out of reach")

        task = asyncio.create_task(repeat(action, lambda: 0.0))
        await enough.wait()
        task.cancel()
        return looks

    assert asyncio.run(scenario())[:4] == [0, 1, 2, 3]
    assert warnings(caplog) == ["out of reach"]


def test_a_router_is_served_under_its_own_hash_while_another_one_comes_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A → B → A while it is loaded: B comes before its files are opened, and A comes back after they were read."""
    first, second = first_router(), second_router()
    folder = first.save(tmp_path / "router")
    digest = read_header(folder)["sha256"]
    moments, fetch, load_tokenizer = [second, first], FolderSource.fetch, loading._load_tokenizer

    def fetch_second(self: FolderSource, *given: Any) -> Path:
        if len(moments) == 2:
            moments.pop(0).save(folder)
        return fetch(self, *given)

    def load_then_first(*given: Any) -> Any:
        found = load_tokenizer(*given)
        if len(moments) == 1:
            moments.pop().save(folder)
        return found

    monkeypatch.setattr(FolderSource, "fetch", fetch_second)
    monkeypatch.setattr(loading, "_load_tokenizer", load_then_first)
    follower = RouterFollower(str(folder), tmp_path / "cache")
    loaded = follower.load()
    assert not moments and read_header(folder)["sha256"] == digest  # it is as it was
    assert_same_router(loaded.router, first if loaded.digest == digest else second)
    found = follower.check() or loaded
    assert found.digest == digest
    assert_same_router(found.router, first)
    assert follower.check() is None
