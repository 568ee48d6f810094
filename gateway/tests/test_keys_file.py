"""The keys file: read again while the gateway serves, explained where it is wrong, and off by default."""

from __future__ import annotations

import logging
import os
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key, write_keys
from ir3de.errors import InputError
from ir3de_gateway.config.document import Server
from ir3de_gateway.keys.key_changes import NO_CHANGES, KeyChanges
from ir3de_gateway.keys.keys_file import KeyEntry, KeysFile, read_keys_file
from ir3de_gateway.keys.registry import KeyRegistry, read_keys_in_force
from ir3de_gateway.store.workers import create_worker_folder
from ir3de_gateway.validation import check_usage
from raw_sockets import ask, chat, eventually
from running_gateway import QUESTIONS, config_for, running

LAW = chat(QUESTIONS["law"])


def test_the_file_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    file = write_keys(tmp_path / "keys.yaml", key("ada", requests_per_minute=5))
    with running(tmp_path, server={"keys_file": str(file)}) as found:

        def get_status(name: str) -> int:
            return ask(found.url, path="/v1/models", **bearer(name)).status

        def get_problem() -> Any:
            return ask(found.url, path="/admin/keys", authorization="Bearer root").json["problem"]

        assert ask(found.url, LAW, **bearer("ada")).headers["x-ratelimit-remaining-requests"] == "4"
        assert (get_status("ada"), get_status("bea")) == (200, 401)
        file.write_text("keys: [{name: ada, hash: plain}]")
        assert eventually(get_problem)
        assert "line 1, keys.0.hash" in get_problem() and get_status("ada") == 200
        write_keys(file, key("ada", requests_per_minute=2), key("bea"))
        assert eventually(lambda: get_status("bea") == 200)
        assert get_problem() is None
        assert ask(found.url, LAW, **bearer("ada")).headers["x-ratelimit-remaining-requests"] == "0"
        file.unlink()
        assert eventually(get_problem)
        assert "no keys file" in get_problem() and get_status("bea") == 200
        write_keys(file)
        assert eventually(lambda: get_status("ada") == 401)
    assert caplog.text.count("The keys stay as they were") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected `keys:`"),
        ("[]", "expected `keys:`"),
        ("keys: 3", "keys: should be"),
        ("keys: [{name: a, key: sk-123}]", "no keys in the file"),
        ("keys: [{name: a}]", "needs either hash or key_env"),
        ("keys: [{name: a, key_env: NOT_SET_HERE}]", "NOT_SET_HERE is not set: set it, or write the key's hash"),
        ("keys:\n- {name: a, key_env: HOME}\n- {name: a, key_env: PATH}", "line 3, keys.1.name: keys.0 has the same"),
        ("keys: [{name: a, key_env: HOME, expires: soon}]", "must look like 2027-01-31"),
        ("keys: [{name: a, key_env: HOME, scopes: [everything]}]", "'models', 'metrics' or 'admin'"),
        ("keys: [{name: a, key_env: HOME, limits: {concurent: 3}}]", "did you mean concurrent?"),
        ("keys: [{name: a, key_env: HOME, limits: {concurrent: -3}}]", "greater than or equal to 0"),
        ("keys: [\n", "this is not YAML"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        read_keys_file(tmp_path / "keys.yaml")


def test_without_keys_nobody_is_named_and_nothing_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IR3DE_API_KEY", raising=False)
    with running(tmp_path, logs={"access": str(tmp_path / "access.log")}) as found:
        assert found.gateway.keys.is_open
        got = ask(found.url, chat(QUESTIONS["law"], "law", stream=True))
        assert got.status == 200 and not any("ratelimit" in name for name in got.headers)
        assert b"stream_options" not in found.upstream.bodies[-1]
        assert ask(found.url, path="/v1/usage").status == 404
        metrics = ask(found.url, path="/metrics").body
        assert b"ir3de_key_requests_total{" not in metrics
        assert eventually(lambda: (tmp_path / "access.log").read_text().count("\n") >= 2)
    assert '"key"' not in (tmp_path / "access.log").read_text()
    assert not list(tmp_path.rglob("*.numbers"))


@pytest.mark.parametrize("is_named", [True, False])
def test_metrics_can_require_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool) -> None:
    """By default they answer anybody."""
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    server: dict[str, Any] = {"metrics_need_key": True}
    if is_named:
        keys = key("prometheus", scopes=["metrics"]), key("chief", scopes=["admin"]), key("client")
        server["keys_file"] = str(write_keys(tmp_path / "keys.yaml", *keys))
    with running(tmp_path, server=server) as gateway:
        nobody = ask(gateway.url, path="/metrics")
        assert (nobody.status, nobody.error["code"]) == (401, "invalid_api_key")
        assert "/metrics needs a key with the scope 'metrics', or the admin token" in nobody.error["message"]
        assert ask(gateway.url, path="/metrics", **bearer("stranger")).status == 401
        assert b"ir3de_build_info" in ask(gateway.url, path="/metrics", authorization="Bearer root").body
        assert ask(gateway.url, path="/livez").status == 200
        if is_named:
            found = {name: ask(gateway.url, path="/metrics", **bearer(name)).status for name in ("prometheus", "chief")}
            assert found == {"prometheus": 200, "chief": 200}
            refused = ask(gateway.url, path="/metrics", **bearer("client"))
            assert (refused.status, refused.error["code"]) == (403, "missing_scope")


def test_a_file_that_is_broken_at_the_start_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").write_text("keys: [{name: a}]")
    with (
        pytest.raises(InputError, match="needs either hash or key_env"),
        running(tmp_path, server={"keys_file": str(tmp_path / "keys.yaml")}),
    ):
        pass


@pytest.mark.parametrize("number", ["nan", "inf", "-1"])
def test_numbers_that_are_damaged_while_it_serves_are_an_error_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: str
) -> None:
    """For the key alone: its requests, its row of /admin/keys and its budget. A gateway does not start with them."""
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    file = write_keys(tmp_path / "keys.yaml", key("ada", budget_per_day=5), key("bea", budget_per_day=5))
    options = {"server": {"keys_file": str(file)}, "state": str(tmp_path / "state")}
    numbers = tmp_path / "state" / "keys.numbers"
    with running(tmp_path, **options) as gateway:
        for name in ("ada", "bea"):
            assert ask(gateway.url, LAW, **bearer(name)).status == 200
        with numbers.open("r+b") as damaged:
            damaged.seek(72)  # requests of the day of the first key
            damaged.write(struct.pack("d", float(number)))
        refused = ask(gateway.url, LAW, **bearer("ada"))
        assert (refused.status, refused.error["code"]) == (503, "usage_unreadable")
        assert "API key 'ada' cannot be read: contact the gateway's operator" in refused.error["message"]
        assert str(numbers) in caplog.text and "move it away to count from zero" in caplog.text
        assert ask(gateway.url, LAW, **bearer("bea")).status == 200
        listed = ask(gateway.url, path="/admin/keys", authorization="Bearer root")
        ada, bea = listed.json["data"][:2]
        assert "cannot be read" in ada["problem"] and "used" not in ada and "used" in bea
        assert "cannot be read" in ask(gateway.url, path="/v1/usage", **bearer("ada")).json["problem"]
        metrics = ask(gateway.url, path="/metrics")
        used = [line for line in metrics.body.decode().splitlines() if line.startswith("ir3de_key_budget_used{")]
        assert metrics.status == 200 and len(used) == 1 and 'key="bea"' in used[0]
    with pytest.raises(InputError, match=r"keys\.numbers is damaged"), running(tmp_path, **options):
        pass
    [finding] = check_usage(config_for("http://127.0.0.1:1", tmp_path / "router", **options), None)
    assert (finding.level, finding.where) == ("error", "state") and str(numbers) in finding.message


def test_a_key_in_a_variable_works_like_one_with_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADAS_KEY", "sk-ada")
    (tmp_path / "keys.yaml").write_text("keys: [{name: ada, key_env: ADAS_KEY}]")
    store = KeyRegistry(Server(keys_file=str(tmp_path / "keys.yaml")))
    found = store.find("sk-ada")
    assert found is not None and found.name == "ada" and store.find("sk-eve") is None


@pytest.mark.parametrize("comes_second", ["the change", "the file"])
def test_a_file_and_a_change_that_come_at_once_are_both_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_second: str
) -> None:
    """A thread reads the file while the event loop gets a change: neither index replaces what the other has found."""
    file = write_keys(tmp_path / "keys.yaml", key("ada"), key("bea"))
    keys = KeyRegistry(Server(keys_file=str(file)))
    changes = NO_CHANGES.without("bea", keys.file)
    first: Callable[[], None] = keys.check
    second: Callable[[], None] = partial(keys.set_changes, changes)
    if comes_second == "the file":
        first, second = second, first
    index, waiting = KeyRegistry._index, [second]

    def interrupt(*arguments: Any) -> Any:
        found = index(*arguments)
        if waiting:
            waiting.pop()()
        return found

    write_keys(file, key("ada"), key("bea"), key("cleo"))
    monkeypatch.setattr(KeyRegistry, "_index", interrupt)
    first()
    for _ in range(2):
        assert [key.name for key in keys.list_all()] == ["ada", "cleo"]
        keys.check()


def test_a_change_that_comes_while_a_broken_file_is_read_is_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("ada"), key("bea"))
    keys = KeyRegistry(Server(keys_file=str(file)))

    def interrupt(path: Path) -> KeysFile:
        keys.set_changes(NO_CHANGES.without("bea", keys.file))
        return read_keys_file(path)

    file.write_text("keys: [{name: ada, hash: plain}]")
    monkeypatch.setattr("ir3de_gateway.keys.registry.read_keys_file", interrupt)
    keys.check()
    assert keys.problem is not None and [key.name for key in keys.list_all()] == ["ada"]


def test_a_refused_file_is_read_again_when_the_changes_of_admin_are_others_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    keys = KeyRegistry(Server(keys_file=str(file)))
    taken = KeyEntry(name="eve", hash=key("bea")["hash"])
    keys.set_changes(NO_CHANGES.with_key(taken))
    os.utime(write_keys(file, key("bea")), (0, 0))  # it has settled
    reads: list[Path] = []

    def count(path: Path) -> KeysFile:
        reads.append(path)
        return read_keys_file(path)

    monkeypatch.setattr("ir3de_gateway.keys.registry.read_keys_file", count)
    other = KeyEntry(name="cleo", hash=key("cleo")["hash"])
    steps = [
        (NO_CHANGES.with_key(taken), ["ada", "eve"]),
        (NO_CHANGES.with_key(taken).with_key(other), ["ada", "eve", "cleo"]),
        (NO_CHANGES.with_key(other), ["bea", "cleo"]),
        (NO_CHANGES, ["bea"]),
    ]
    for count_then, (changes, expected) in zip((1, 2, 3, 3), steps, strict=True):
        keys.set_changes(changes)
        for _ in range(3):
            keys.check()
        assert [key.name for key in keys.list_all()] == expected and len(reads) == count_then
    assert keys.problem is None


def test_a_problem_that_comes_back_is_told_again_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also of a file that is moved away and back, and so is the same again."""
    file, away = write_keys(tmp_path / "keys.yaml", key("ada")), tmp_path / "away"
    with create_worker_folder(), caplog.at_level(logging.INFO):
        workers = [KeyRegistry(Server(keys_file=str(file))) for _ in range(2)]
        for path, other in ((file, away), (away, file)) * 2:
            path.rename(other)
            for worker in workers:
                worker.check()
    assert [message.partition(" ")[0] for message in caplog.messages] == ["no", "loaded"] * 2


@pytest.mark.skipif(os.name != "posix", reason="Windows has no permission to read in a file's mode")
def test_a_file_that_becomes_readable_by_its_permissions_alone_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read_bytes = Path.read_bytes

    def refuse(path: Path) -> bytes:  # as the system does, but for root, too
        if not path.stat().st_mode & 0o400:
            raise PermissionError(13, "Permission denied", str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    keys = KeyRegistry(Server(keys_file=str(file)))
    os.utime(write_keys(file, key("bea")), (0, 0))  # it has settled
    file.chmod(0)
    for _ in range(3):
        keys.check()
    assert keys.problem is not None and "Permission denied" in keys.problem
    assert [key.name for key in keys.list_all()] == ["ada"]
    assert caplog.text.count("The keys stay as they were") == 1
    file.chmod(0o600)
    keys.check()
    assert keys.problem is None and [key.name for key in keys.list_all()] == ["bea"]


def test_a_worker_that_starts_later_finds_the_keys_in_force_and_none_that_were_refused(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    server, changes = Server(keys_file=str(file)), NO_CHANGES.with_key(KeyEntry(name="eve", hash=key("bea")["hash"]))

    def start_another(changes: KeyChanges) -> tuple[list[str], str]:
        read_keys_in_force(file)  # as a gateway does first, before it knows the changes
        keys = KeyRegistry(server, changes=changes)
        return [key.name for key in keys.list_all()], keys.problem or ""

    with create_worker_folder():
        keys = KeyRegistry(server, changes=changes)
        write_keys(file, key("bea"))
        keys.check()
        assert keys.problem is not None
        assert start_another(changes) == (["ada", "eve"], keys.problem)
        file.write_text("keys: [{name: bea}]")
        names, problem = start_another(changes)
        assert names == ["ada", "eve"] and "needs either hash or key_env" in problem
        write_keys(file, key("bea"))
        keys.set_changes(NO_CHANGES)
        keys.check()
        assert keys.problem is None
        file.write_text("keys: [{name: bea}]")
        assert start_another(NO_CHANGES)[0] == ["bea"]
