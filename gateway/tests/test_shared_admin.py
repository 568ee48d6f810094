"""Changes through /admin on one of several machines: they are on all of them within a second, and outlive the store."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_keys import bearer, key
from ir3de_gateway.gateway import Gateway
from raw_sockets import chat, eventually
from redis_process import RedisProcess, needs_redis, running_redis
from saved import second_router
from shared_fleet import Fleet, fleet

pytestmark = [pytest.mark.slow, needs_redis]
ROOT = {"authorization": "Bearer root"}
REPLICAS = [{"base_url": f"http://127.0.0.1:1/{name}/v1", "name": name} for name in ("one", "two")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RedisProcess]:
    with running_redis(tmp_path / "redis") as found:
        yield found


@contextmanager
def administered(folder: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Iterator[Fleet]:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", "root")
    maths = {"base_url": REPLICAS[0]["base_url"], "replicas": REPLICAS, "health": {"active": False}}
    with fleet(folder, store, key("ada"), experts={"maths": maths}, **changes) as found:
        yield found


def digests(found: Fleet) -> set[str]:
    """Of the routers that the machines serve, without asking them: a read would catch up."""
    return {gateway.live.snapshot.digest for gateway in found.gateways}


def test_experts_routers_keys_and_drains_come_to_all_machines(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with administered(tmp_path, store, monkeypatch) as found:
        (before,) = digests(found)
        given = found.ask(1, {"name": "bea"}, "/admin/keys", **ROOT)
        assert given.status == 201, given.body
        drained = found.ask(2, {"drain": True}, "/admin/experts/maths/replicas/two", "PUT", **ROOT)
        assert drained.status == 200, drained.body
        history = {"name": "history", "upstream": {"base_url": f"{found.upstream.url}/history/v1"}}
        assert found.ask(0, history, "/admin/experts", **ROOT).status == 201
        second_router().save(tmp_path / "second")
        changed = found.ask(1, {"path": str(tmp_path / "second")}, "/admin/router", "PUT", **ROOT)
        assert changed.status == 200, changed.body

        def is_applied(gateway: Gateway) -> bool:
            snapshot = gateway.live.snapshot
            states = [one.state for one in snapshot.experts["maths"].replicas]
            return snapshot.digest != before and "history" in snapshot.experts and states == ["up", "drained"]

        assert eventually(lambda: all(map(is_applied, found.gateways)))
        assert len(digests(found)) == 1
        for place in range(3):
            answer = found.ask(place, chat("x", "history"), authorization=f"Bearer {given.json['key']}")
            assert answer.status == 200, answer.body
            lines = found.ask(place, path="/admin/audit", **ROOT).json["data"]
            assert [line["action"] for line in lines] == [
                "replace router", "add expert", "drain replica", "add key"
            ]  # fmt: skip
        assert found.ask(1, path="/admin/keys/bea", method="DELETE", **ROOT).status == 200
        gone = f"Bearer {given.json['key']}"
        for place in range(3):
            assert eventually(lambda place=place: found.ask(place, chat("x", "law"), authorization=gone).status == 401)
            assert found.ask(place, chat("x", "law"), **bearer("ada")).status == 200


def remove(folder: Path) -> bool:
    """Whether it is gone. A thread of a gateway that stops may still write a file into it."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_versions_are_rolled_back_through_any_machine_and_a_new_machine_has_them(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with administered(tmp_path, store, monkeypatch) as found:
        (first,) = digests(found)
        second_router().save(tmp_path / "second")
        assert found.ask(0, {"path": str(tmp_path / "second")}, "/admin/router", "PUT", **ROOT).status == 200
        assert eventually(lambda: len(digests(found)) == 1 and first not in digests(found))
        (second,) = digests(found)
        for place in range(3):
            rows = found.ask(place, path="/admin/router/history", **ROOT).json["data"]
            assert [(row["digest"], row["kept"]) for row in rows] == [(second, True), (first, True)]
        back = found.ask(2, {"why": "worse"}, "/admin/router/rollback", **ROOT)
        assert back.status == 200, back.body
        assert eventually(lambda: digests(found) == {first})
        command = [sys.executable, "-m", "ir3de", "router", "rollback", str(tmp_path / "machine-0")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and "roll back with POST /admin/router/rollback" in done.stderr
    for folder in tmp_path.glob("machine-*"):  # as new machines have
        assert eventually(lambda folder=folder: remove(folder))
    with administered(tmp_path, store, monkeypatch) as found:
        assert digests(found) == {first}
        assert [len(found.ask(place, path="/admin/router/history", **ROOT).json["data"]) for place in range(3)] == [
            3
        ] * 3


def test_machines_start_and_serve_without_the_store_as_they_were(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change needs the store; it is made when the store is back, and a store that lost everything gets it again."""
    law = {"name": "extra", "upstream": {"base_url": "http://127.0.0.1:1/v1"}}
    with administered(tmp_path, store, monkeypatch) as found:
        assert found.ask(0, law, "/admin/experts", **ROOT).status == 201
        assert eventually(lambda: all("extra" in gateway.live.snapshot.experts for gateway in found.gateways))
        store.kill()
    with administered(tmp_path, store, monkeypatch) as found:
        assert all("extra" in gateway.live.snapshot.experts for gateway in found.gateways)
        refused = found.ask(0, {**law, "name": "more"}, "/admin/experts", **ROOT)
        assert (refused.status, refused.error["code"]) == (500, "state_unusable")
        assert "the shared store redis://127.0.0.1" in refused.error["message"]
        assert found.ask(1, chat("x", "law"), **bearer("ada")).status == 200
        store.start()
        assert eventually(lambda: found.ask(0, {**law, "name": "more"}, "/admin/experts", **ROOT).status == 201)
        assert eventually(lambda: all("more" in gateway.live.snapshot.experts for gateway in found.gateways))


def test_a_machine_that_heard_of_a_change_and_could_not_read_it_reads_it_later(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store tells the number of the change, and is too slow for its content, or ends just then."""
    import redis

    extra = {"name": "extra", "upstream": {"base_url": "http://127.0.0.1:1/v1"}}
    failed: list[Any] = []

    def read(client: Any, name: str, *what: Any) -> Any:
        if name.endswith(":state.json") and client not in failed:
            failed.append(client)
            raise redis.exceptions.TimeoutError("Timeout reading from socket")
        return read_hash(client, name, *what)

    read_hash = redis.Redis.hmget
    with administered(tmp_path, store, monkeypatch) as found:
        monkeypatch.setattr(redis.Redis, "hmget", read)
        assert found.ask(0, extra, "/admin/experts", **ROOT).status == 201
        assert eventually(lambda: all("extra" in gateway.live.snapshot.experts for gateway in found.gateways))
        assert len(failed) >= 2  # the machine that made the change need not read it


def test_two_machines_that_change_at_once_lose_nothing(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with administered(tmp_path, store, monkeypatch) as found, ThreadPoolExecutor(6) as pool:
        added = [
            pool.submit(found.ask, number, {"name": f"key-{number}"}, "/admin/keys", None, **ROOT)
            for number in range(6)
        ]
        made = [number for number, one in enumerate(added) if one.result().status == 201]
        assert len(made) >= 3  # the others were told that a change is under way
        wanted = {"ada", *(f"key-{number}" for number in made)}
        for place in range(3):  # a read may miss a change if the store takes a second to answer
            assert eventually(lambda place=place: list_keys(found, place) == wanted)


def list_keys(found: Fleet, place: int) -> set[str]:
    return {row["name"] for row in found.ask(place, path="/admin/keys", **ROOT).json["data"]}


def test_a_change_whose_answer_is_lost_is_reported_as_made(
    tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store writes the state and the answer comes too late, as from a busy disk: the change is made once."""
    import redis

    lost, asked = redis.exceptions.TimeoutError("Timeout reading from socket"), []

    def evaluate(client: Any, *what: Any, **more: Any) -> Any:
        found = eval_script(client, *what, **more)
        asked.append(what[2])
        if asked.count(what[2]) <= number_lost:
            raise lost
        return found

    eval_script, number_lost = redis.Redis.eval, 1
    with administered(tmp_path, store, monkeypatch) as found:
        monkeypatch.setattr(redis.Redis, "eval", evaluate)
        assert found.ask(0, {"name": "bea"}, "/admin/keys", **ROOT).status == 201
        lines = found.ask(1, path="/admin/audit", **ROOT).json["data"]
        assert [(line["action"], line["outcome"]) for line in lines] == [("add key", "done")]
        asked.clear()
        number_lost = 2
        unknown = found.ask(0, {"name": "cleo"}, "/admin/keys", **ROOT)
        assert (unknown.status, unknown.error["code"]) == (500, "state_unknown")
        assert "It is not known whether the change was made" in unknown.error["message"]
        names = [row["name"] for row in found.ask(0, path="/admin/keys", **ROOT).json["data"]]
        assert names == ["ada", "bea", "cleo"]
        asked.clear()
        second_router().save(tmp_path / "second")
        unknown = found.ask(0, {"path": str(tmp_path / "second")}, "/admin/router", "PUT", **ROOT)
        assert (unknown.status, unknown.error["code"]) == (500, "state_unknown")
        number_lost = 0
        assert found.ask(1, {"name": "dora"}, "/admin/keys", **ROOT).status == 201
        assert eventually(lambda: len(digests(found)) == 1)  # its router is there for all
        lines = found.ask(1, path="/admin/audit", **ROOT).json["data"]
        assert {line["outcome"] for line in lines} == {"done"}


def test_a_full_store_changes_nothing(tmp_path: Path, store: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    import redis

    def evaluate(client: Any, *what: Any, **more: Any) -> Any:
        raise redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'")

    with administered(tmp_path, store, monkeypatch) as found:
        with monkeypatch.context() as patched:
            patched.setattr(redis.Redis, "eval", evaluate)
            refused = found.ask(0, {"name": "bea"}, "/admin/keys", **ROOT)
        assert (refused.status, refused.error["code"]) == (500, "state_unusable")
        assert refused.error["message"].startswith("nothing was changed: the shared store redis://127.0.0.1")
        assert [row["name"] for row in found.ask(1, path="/admin/keys", **ROOT).json["data"]] == ["ada"]
