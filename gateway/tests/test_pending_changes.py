"""Reads after changes over several workers: the next answer of any of them shows the change, or what is pending."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from admin_client import ENDPOINT, admin, config, folder, names, token  # noqa: F401
from ir3de_gateway.admin import administration
from ir3de_gateway.admin.changes import AdminState
from ir3de_gateway.config.document import Config
from ir3de_gateway.store.workers import create_worker_folder
from raw_sockets import eventually
from saved import first_router
from test_admin_workers import process
from test_server import find_workers

REPLICAS = ["http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"]


def replicated(folder: Path) -> Config:  # noqa: F811
    given = config(folder).model_dump(mode="json", exclude_unset=True)["experts"]
    experts = [{"name": "law", "replicas": REPLICAS, "health": {"active": False}}, *given]
    router = {"path": str(folder / "router"), "versions": 0, "follow": 3_600}
    return config(folder, router=router, experts=[one for one in experts if "replicas" in one or one["name"] != "law"])


@pytest.fixture
def workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TestClient]]:  # noqa: F811
    """Two workers of one gateway that learn of changes only by what a test does."""
    monkeypatch.setattr(administration, "STATE_CHECK_S", 3_600.0)
    with ExitStack() as stack, create_worker_folder():
        yield [stack.enter_context(admin(replicated(folder))) for _ in range(2)]
        stack.close()


def drained(client: TestClient) -> list[str]:
    rows = client.get("/admin/experts").json()["data"]
    return [one["name"] for row in rows for one in row["replicas"] or () if one["drained"]]


def test_a_drain_is_seen_at_once_in_another_worker(workers: list[TestClient]) -> None:
    one, other = workers
    made = one.put("/admin/experts/law/replicas/127.0.0.1:9/v1", json={"drain": True}).json()
    assert made["drained"] and made["pending"] == 1
    assert one.get("/admin/experts").json()["pending"] == 1
    assert drained(other) == ["127.0.0.1:9/v1"]
    assert [replica.is_drained for replica in other.gateway.live.snapshot.experts["law"].replicas] == [True, False]
    for client in workers:
        assert "pending" not in client.get("/admin/experts").json()
    assert other.put("/admin/experts/law/replicas/127.0.0.1:9/v1", json={"drain": False}).json()["pending"] == 1
    assert drained(one) == []


def test_another_router_is_seen_at_once_in_another_worker(workers: list[TestClient], tmp_path: Path) -> None:
    one, other = workers
    first_router().with_policy(first_router().policy, default="law").save(tmp_path / "second")
    made = one.put("/admin/router", json={"path": str(tmp_path / "second")}).json()
    assert made["pending"] == 1 and made["origin"] == "replaced"
    assert other.get("/version").json()["router"] == made["digest"]
    found = other.get("/admin/router")
    assert found.json()["digest"] == made["digest"] and "pending" not in found.json()
    assert [line["action"] for line in other.get("/admin/audit").json()["data"]] == ["replace router"]
    assert one.get("/admin/router").headers["etag"] == found.headers["etag"]


def test_models_show_an_expert_that_another_worker_added(workers: list[TestClient]) -> None:
    one, other = workers
    assert one.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT}).json()["pending"] == 1
    assert other.get("/v1/models/history").status_code == 200 and "history" in names(one)
    assert "pending" not in one.get("/admin/experts").json()


def test_reads_wait_for_a_worker_that_is_loading_a_change(
    workers: list[TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = workers
    load = administration.Administration._read_changes

    def load_slowly(self: administration.Administration, stop: threading.Event | None = None) -> AdminState:
        time.sleep(0.3)
        return load(self, stop)

    assert one.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT}).status_code == 201
    monkeypatch.setattr(administration.Administration, "_read_changes", load_slowly)
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda _: names(other), range(4)))
    assert all("history" in found for found in read)


def test_a_state_that_cannot_be_read_leaves_what_serves(workers: list[TestClient], folder: Path) -> None:  # noqa: F811
    one, other = workers
    one.post("/admin/experts", json={"name": "history", "upstream": ENDPOINT})
    (folder / "state" / "state.json").write_text("{")
    found = other.get("/admin/experts")
    assert found.status_code == 200 and "history" not in [row["name"] for row in found.json()["data"]]


def test_a_worker_alone_has_nothing_pending(folder: Path) -> None:  # noqa: F811
    with admin(replicated(folder)) as client:
        made = client.put("/admin/experts/law/replicas/127.0.0.1:9/v1", json={"drain": True}).json()
        assert made["drained"] and "pending" not in made


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_change_is_pending_until_the_other_process_has_it(folder: Path) -> None:  # noqa: F811
    with process(folder, 2) as gateway:
        assert eventually(lambda: len(find_workers(gateway.running.pid)) == 2)

        def is_counted(name: str) -> bool:
            """Whether a halted worker is counted. One that is still starting is not."""
            halted = min(find_workers(gateway.running.pid))
            os.kill(halted, signal.SIGSTOP)
            try:
                made = gateway.ask("POST", "/admin/experts", {"name": name, "upstream": ENDPOINT})
            finally:
                os.kill(halted, signal.SIGCONT)
            return bool(made.get("pending") == 1)

        tries = (f"history-{number}" for number in itertools.count())
        assert eventually(lambda: is_counted(next(tries)))
        for _ in range(8):  # by either worker
            assert "history-0" in [row["name"] for row in gateway.ask("GET", "/admin/experts")["data"]]
        assert eventually(lambda: "pending" not in gateway.ask("GET", "/admin/experts"))
