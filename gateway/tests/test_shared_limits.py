"""Limits, breakers and cooling hold for all workers of a gateway together."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import tiny
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.experts.concurrency import ConcurrencyLimit, LimitReached
from ir3de_gateway.experts.expert import create_expert
from ir3de_gateway.store import numbers as tables
from ir3de_gateway.store.numbers import WorkerTable
from ir3de_gateway.store.workers import VARIABLE
from raw_sockets import ask, chat, eventually, receive
from running_gateway import QUESTIONS, Upstream, failing
from worker_crowd import Crowd, count_connections, list_workers, send_to_both, two_workers

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers share no table on Windows")


def limits(folder: Path, workers: int, limit: int = 1, queue: int = 9, wait: float = 60) -> list[ConcurrencyLimit]:
    """One limit, as several workers have it; here all of them are in one process."""
    rows = [WorkerTable(folder, workers).find_row("law") for _ in range(workers)]
    return [ConcurrencyLimit(limit, queue, wait, row) for row in rows]


def test_rows_have_the_same_numbers_in_every_worker_however_many_there_are(tmp_path: Path) -> None:
    one, other = WorkerTable(tmp_path, 2), WorkerTable(tmp_path, 2)
    early = one.find_row("key 0")
    for number in range(300):  # the file grows meanwhile
        (one, other)[number % 2].find_row(f"key {number}").common[3] = float(number)
    for number in range(300):
        for table in (one, other):
            assert table.find_row(f"key {number}").common[3] == number
    early.common[3] = 7.0
    early.own[2], other.find_row("key 0").own[2] = 1.0, 2.0
    assert other.find_row("key 0").common[3] == 7.0
    assert list(early.every[2][:3]) == list(other.find_row("key 0").every[2][:3]) == [1.0, 2.0, 0.0]


def test_places_are_those_of_all_workers_and_first_come_is_first_served(tmp_path: Path) -> None:
    async def play() -> None:
        one, other = limits(tmp_path, 2)
        served: list[str] = []

        async def visit(limit: ConcurrencyLimit, name: str) -> None:
            await limit.acquire()
            served.append(name)
            assert (one.in_use, other.in_use) == (1, 1)
            limit.release()

        await one.acquire()
        visits = []
        for name in ("a", "b", "c", "d", "e"):
            visits.append(asyncio.ensure_future(visit(one if name in "ac" else other, name)))
            await asyncio.sleep(0)
        assert (one.in_use, one.waiting, other.waiting) == (1, 5, 5)
        assert (one.waiting_here, other.waiting_here) == (2, 3)
        one.release()
        await asyncio.gather(*visits)
        assert served == ["a", "b", "c", "d", "e"]
        assert (one.in_use, one.waiting, other.in_use, other.waiting) == (0, 0, 0, 0)

    asyncio.run(play())


visits = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), min_size=1, max_size=20)


@given(st.integers(1, 3), visits)
@settings(max_examples=20, deadline=None)
def test_places_of_three_workers_are_never_overdrawn_nor_lost(
    tmp_path_factory: pytest.TempPathFactory, limit: int, told: list[tuple[int, int, bool]]
) -> None:
    """Each visit: in which worker, how many turns of the loop it stays, and whether it is cancelled at some time."""

    async def play() -> None:
        workers = limits(tmp_path_factory.mktemp("table"), 3, limit, queue=100)
        inside = served = 0

        async def visit(worker: ConcurrencyLimit, turns: int) -> None:
            nonlocal inside, served
            await worker.acquire()
            inside += 1
            assert inside <= limit
            try:
                for _ in range(turns):
                    await asyncio.sleep(0)
                served += 1
            finally:
                inside -= 1
                worker.release()

        tasks = [asyncio.ensure_future(visit(workers[number], turns)) for number, turns, _ in told]
        for task, (_, turns, is_cancelled) in zip(tasks, told, strict=True):
            for _ in range(turns):
                await asyncio.sleep(0)
            if is_cancelled:
                task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(found is None or isinstance(found, asyncio.CancelledError) for found in done)
        assert served == done.count(None)
        assert [(worker.in_use, worker.waiting) for worker in workers] == [(0, 0)] * 3
        for table in [worker._row.table for worker in workers]:  # there are many examples
            table._place.close()
            os.close(table._file)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_the_queue_is_that_of_all_workers(tmp_path: Path) -> None:
    async def play() -> None:
        one, other = limits(tmp_path, 2, queue=1)
        await one.acquire()
        waiting = asyncio.ensure_future(one.acquire())
        await asyncio.sleep(0)
        with pytest.raises(LimitReached):
            await other.acquire()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert other.waiting == 0

    asyncio.run(play())


def test_nobody_waits_for_a_worker_that_hangs(tmp_path: Path) -> None:
    """Its first waiter is overdue, so it would have given up if it could."""

    async def play() -> None:
        one, other = limits(tmp_path, 2, wait=0.05)
        one._row.own[2] = 1.0  # its oldest waiter came when the machine was started
        await asyncio.wait_for(other.acquire(), 10)

    asyncio.run(play())


def test_a_breaker_is_that_of_all_workers(tmp_path: Path) -> None:
    now = [1.0]
    rows = [WorkerTable(tmp_path, 2).find_row("law") for _ in range(2)]
    one, other = (CircuitBreaker(2, 10, clock=lambda: now[0], cells=r.common, lock=r.table.lock) for r in rows)
    one.record_failure()
    other.record_failure()
    assert (one.state, other.state) == ("open", "open")
    now[0] = 11.0
    assert (one.allow_request(), other.allow_request()) == (True, False)  # one probe for all
    one.record_beginning()
    assert other.allow_request()
    other.record_success()
    one.cool_down(5.0)
    assert (other.state, other.retry_after, other.allow_request()) == ("cooling", 5.0, False)


def test_a_gateway_of_one_worker_and_a_machine_without_locks_count_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ExpertConfig(
        name="law", base_url="http://127.0.0.1:1/v1", concurrency={"limit": 5, "queue": 3}, system_prompt="\ud800"
    )  # type: ignore[arg-type]
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert not create_expert(config, 1).concurrency.is_shared
    assert list(tmp_path.iterdir()) == []
    shared = create_expert(config, 2).concurrency
    assert shared.is_shared and shared.limit == 5
    monkeypatch.setattr(tables, "fcntl", None)
    assert create_expert(config, 2).concurrency.limit == 3


def test_a_worker_that_hangs_with_the_lock_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "MAX_LOCK_WAIT_S", 0.05)
    table = WorkerTable(tmp_path, 2)
    with (tmp_path / "table" / "numbers").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # and it never gives it back
        row = table.find_row("law")
        for _ in range(100):
            with table.lock:
                row.own[0] += 1.0
    assert table.find_row("law").own[0] == 100.0
    assert caplog.text.count("a worker hangs") == 1


FULL_DISK = """
import os, resource, signal, sys
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.expert import create_expert
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
config = ExpertConfig(name="law", base_url="http://127.0.0.1:1/v1", concurrency={"limit": 5})
print(create_expert(config, 2).concurrency.is_shared)
"""


@pytest.mark.parametrize("room", [100, 2_000, 1_000_000])  # for half the header, for no row, for all
def test_on_a_full_disk_each_worker_counts_by_itself(tmp_path: Path, room: int) -> None:
    command, environment = tiny.python_command(FULL_DISK, room)
    done = subprocess.run(
        command, env={**environment, VARIABLE: str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    shares = room == 1_000_000
    assert done.stdout.split() == [str(shares)], done.stderr
    assert ("workers cannot share numbers" in done.stderr) != shares


WORKER = """
import sys
from pathlib import Path
from ir3de_gateway.store.numbers import WorkerTable
row = WorkerTable(Path(sys.argv[1]), 4).find_row("law")
for _ in range(3000):
    with row.table.lock:
        row.common[0] += 1.0
        is_free = sum(row.every[0]) < 3
        if is_free:
            row.own[0] += 1.0
            row.common[1] += 1.0
            row.common[2] = max(row.common[1], row.common[2])
    if is_free:
        with row.table.lock:
            row.common[1] -= 1.0
        row.own[0] -= 1.0
if sys.argv[2:]:
    row.own[0] = 2.0
print("done", flush=True)
sys.stdin.read()
"""


def test_counting_in_four_processes_is_exact_and_the_dead_leave_nothing(tmp_path: Path) -> None:
    command, environment = tiny.python_command(WORKER, tmp_path)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stdin": subprocess.PIPE, "env": environment}
    workers = [subprocess.Popen(command + ["stay"] * (number == 0), **pipes) for number in range(4)]
    try:
        assert all(worker.stdout.readline() == b"done\n" for worker in workers)  # type: ignore[union-attr]
        table = WorkerTable(tmp_path, 4)
        row = table.find_row("law")
        counted, now, most = row.common[:3]
        assert (counted, now) == (4 * 3000, 0)
        assert most <= 3  # at once; fewer if the machine is busy
        assert sum(row.every[0]) == 2.0
        workers[0].kill()
        workers[0].wait()
        assert eventually(table.clear_dead_workers)
        assert sum(row.every[0]) == 0.0
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


# two real workers -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.nightly
def test_two_workers_have_one_limit_and_a_killed_one_s_places_come_back(tmp_path: Path) -> None:
    upstream, crowd = Upstream(), Crowd()
    upstream.behaviour["law"] = crowd.answer
    concurrency = {"limit": 3, "queue": 100, "wait": 60}
    with two_workers(tmp_path, upstream, concurrency=concurrency) as (url, parent):
        body = json.dumps(chat(QUESTIONS["law"], "law", stream=True)).encode()
        lines = send_to_both(parent, url, body, 10)  # each could fill all places, and few enough for the queue
        assert eventually(lambda: crowd.here == 3)
        held = {pid: count_connections(pid, upstream.url, to=True) for pid in lines}
        assert sum(held.values()) == crowd.came == crowd.most == 3
        killed = max(held, key=lambda pid: held[pid])
        other = next(pid for pid in lines if pid != killed)
        os.kill(killed, signal.SIGKILL)
        # to those that wait in the other; they may come before the expert sees that the dead have left
        assert eventually(lambda: crowd.came >= 3 + held[killed] and crowd.here <= 3)
        assert (crowd.came, crowd.here) == (3 + held[killed], 3)
        crowd.most = 3
        crowd.open.set()
        for line in lines[other]:
            content = b""
            while b"[DONE]" not in content:
                content += receive(line)
        assert eventually(lambda: crowd.here == 0)
        assert [ask(url, body).status for _ in range(4)] == [200] * 4
        assert crowd.came == 3 + held[killed] + (10 - held[other] - held[killed]) + 4
        for line in itertools.chain(*lines.values()):
            line.close()
    assert crowd.most == 3


@pytest.mark.slow
@pytest.mark.nightly
def test_a_breaker_opened_by_one_worker_is_open_in_the_other(tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.behaviour["law"] = failing(500)
    with two_workers(tmp_path, upstream, breaker={"failures": 4, "rest": 600}) as (url, parent):
        assert eventually(lambda: len(list_workers(parent)) == 2)
        statuses = [ask(url, chat(f"{QUESTIONS['law']} {number}", "law")).status for number in range(20)]
        assert statuses == [500] * 4 + [503] * 16  # each request over a connection of its own, to either worker
        health = [ask(url, path="/health").json["experts"]["law"] for _ in range(16)]
        assert health == ["open"] * 16

        async def recovers(request: Request, asked: dict[str, Any]) -> Response:
            return JSONResponse({}, 429, {"retry-after": "30"})

        upstream.behaviour["maths"] = recovers
        statuses = [ask(url, chat(QUESTIONS["maths"], "maths")).status for _ in range(16)]
        assert statuses == [429] * 16 and upstream.asked.count("maths") == 1


def test_a_lock_that_cannot_be_had_is_not_held(tmp_path: Path) -> None:
    """A worker that stops has closed its file, and others may still want the lock: they get an error, and no hang."""
    file = os.open(tmp_path / "table", os.O_RDWR | os.O_CREAT)
    lock = tables.FileLock(file)
    os.close(file)
    for _ in range(2):
        assert not lock._threads.locked()
        with pytest.raises(OSError), lock:
            pass
