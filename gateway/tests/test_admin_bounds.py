"""What a change through /admin may take: time, memory, bytes; and how it ends when nobody waits for it."""

import asyncio
import base64
import lzma
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

import tiny
from admin_client import ENDPOINT, HISTORY, admin, config, error, folder, names, token  # noqa: F401
from ir3de.errors import InputError
from ir3de_gateway.admin import administration, fit_process
from ir3de_gateway.admin.administration import Caller
from ir3de_gateway.admin.changes import remove_expert
from ir3de_gateway.admin.fit_process import FitOrder, fit
from ir3de_gateway.admin.router_source import AddressSource, FetchBudget, FetchError
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import Stopped, call_within, run_in_thread
from raw_sockets import eventually
from running_gateway import served
from test_state import add, largest_file, upstream_only, worker

REMOVE_LAW = partial(remove_expert, "law", False, "keep")


def order(folder: Path, **limits: Any) -> FitOrder:
    return FitOrder(str(folder / "router"), str(folder / "new"), "more", "history", HISTORY, **limits)


# fits -----------------------------------------------------------------------------------------------------------


def test_a_small_file_that_expands_to_a_large_one_is_refused(folder: Path) -> None:
    content = base64.b64encode(lzma.compress(b"x" * 3_000_000)).decode()
    new = {"name": "history", "upstream": ENDPOINT, "file": {"name": "history.txt.xz", "content": content}}
    with admin(config(folder, server={"limits": {"fit_text_bytes": 1_000_000}})) as client:
        status, message = error(client.post("/admin/experts", json=new))
        assert status == 422
        assert "history.txt.xz: expands to more than 1 MB, which is the limit here" in message
        assert names(client) == [*tiny.DOMAINS]
    assert not list((folder / "state").glob("*router-*"))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="RLIMIT_DATA counts what is mapped on Linux alone")
def test_a_fit_that_needs_more_memory_than_it_may_is_refused(folder: Path) -> None:
    path = folder / "one-line.txt"
    path.write_bytes(b"x" * 50_000_000)
    given = FitOrder(
        str(folder / "router"),
        str(folder / "new"),
        "more",
        "history",
        None,
        str(path),
        "h.txt",
        memory_bytes=110_000_000,
    )
    with pytest.raises(InputError, match=r"needs more than 110 MB of memory.*server\.limits\.fit_memory_bytes"):
        fit(given)
    assert not (folder / "new").exists()


@pytest.mark.skipif(os.name != "posix", reason="limits of the system")
def test_a_fit_on_a_full_disk_says_so_and_leaves_nothing(folder: Path) -> None:
    each = worker(config(folder), folder / "state")
    before = each.live.snapshot
    with largest_file(5_000), pytest.raises(ApiError, match=r"nothing was changed: .*File too large") as caught:
        asyncio.run(each.change(REMOVE_LAW, Caller(), action="remove expert", expert="law"))
    assert caught.value.status == 500 and each.live.snapshot is before
    assert not list((folder / "state").glob("*router-*"))


def test_a_fit_that_takes_longer_than_it_may_is_ended(folder: Path) -> None:
    with pytest.raises(InputError, match=r"took longer than 0\.001 seconds.*server\.limits\.fit_seconds"):
        fit(order(folder, seconds=0.001))
    assert not (folder / "new").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a fit that hangs: it reads a pipe that nobody writes to")
def test_a_fit_that_is_stopped_ends_and_leaves_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe.txt")
    started: list[Any] = []
    real = fit_process.subprocess.Popen
    monkeypatch.setattr(fit_process.subprocess, "Popen", lambda *a, **o: started.append(real(*a, **o)) or started[-1])
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Stopped):
        fit(FitOrder(str(folder / "router"), str(folder / "new"), "more", "h", None, str(folder / "pipe.txt")), stop)
    assert started[0].returncode == -9


def test_a_change_is_told_that_another_one_is_under_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration, "CHANGE_WAIT_S", 0.01)
    one, two = (worker(config(folder), folder / "state") for _ in range(2))

    async def scenario() -> None:
        async with one._lock:  # in this worker
            with pytest.raises(ApiError, match="another change is under way") as busy:
                await add(one, upstream_only("history"), Caller())
        assert busy.value.status == 503 and busy.value.headers["retry-after"]
        with one.folder.lock(0), pytest.raises(ApiError, match="another change is under way") as busy:
            await add(two, upstream_only("history"), Caller())  # in another one
        assert busy.value.status == 503
        await add(two, upstream_only("history"), Caller())

    asyncio.run(scenario())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a fit that hangs: it reads a pipe that nobody writes to")
def test_a_change_ends_with_its_caller_and_with_the_gateway(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe.txt")
    hanging = FitOrder(str(folder / "router"), str(folder / "new"), "more", "h", None, str(folder / "pipe.txt"))
    begun = threading.Event()

    def fit_forever(given: FitOrder, stop: threading.Event) -> None:
        begun.set()
        fit(hanging, stop)

    monkeypatch.setattr("ir3de_gateway.admin.changes.fit", fit_forever)
    each = worker(config(folder), folder / "state")

    async def scenario() -> None:
        for stops in (lambda task, following: task.cancel(), lambda task, following: following.cancel()):
            begun.clear()
            following = asyncio.create_task(each.follow())
            task = asyncio.create_task(each.change(REMOVE_LAW, Caller(), action="remove expert", expert="law"))
            await run_in_thread(begun.wait)
            stops(task, following)
            with pytest.raises((asyncio.CancelledError, ApiError)):
                await task
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert not each._under_way

    asyncio.run(scenario())
    assert [line["code"] for line in each.folder.history(5)] == ["stopped", "stopped"]
    assert "law" in each.live.snapshot.router.experts


# fetches --------------------------------------------------------------------------------------------------------


def test_work_that_hangs_is_left_alone_and_told_that_nobody_waits() -> None:
    told: list[bool] = []
    ended = threading.Event()

    def hang(abandoned: threading.Event) -> None:
        told.append(abandoned.wait(30))
        ended.set()

    with pytest.raises(TimeoutError):
        call_within(0.01, threading.Event(), hang)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        call_within(30, stop, hang)
    assert ended.wait(30)
    assert call_within(30, threading.Event(), lambda abandoned: 7) == 7
    with pytest.raises(KeyError):
        call_within(30, threading.Event(), lambda abandoned: {}["x"])


class Endless:
    """A web server that never ends its answer, never begins it, or points elsewhere."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.asked.append(scope["path"].split("/")[1])
        if scope["path"].startswith("/hanging"):
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        if scope["path"].startswith("/elsewhere"):
            await RedirectResponse("/redirected/router.json")(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            await Response()(scope, receive, send)
            return
        response = Response(b"[]") if scope["path"].startswith("/other") else Response(status_code=404)
        if scope["path"].startswith("/endless"):
            response = StreamingResponse(self._pieces())
        await response(scope, receive, send)

    async def _pieces(self) -> Any:
        while True:
            yield b" " * 100_000
            await asyncio.sleep(0)


@contextmanager
def endless() -> Iterator[tuple[Endless, str]]:
    server = Endless()
    with served(server, lifespan="off", timeout_graceful_shutdown=0) as address:
        yield server, address


def test_a_router_that_never_ends_or_never_begins_is_given_up(tmp_path: Path) -> None:
    with endless() as (_, address):
        source = AddressSource(f"{address}/endless", tmp_path / "cache")
        with pytest.raises(FetchError, match=r"more than 10,000,000 bytes.*server\.limits\.router_bytes"):
            source.read_header(FetchBudget(router_bytes=10_000_000))
        source = AddressSource(f"{address}/hanging", tmp_path / "cache")
        with pytest.raises(FetchError, match=r"took longer than 0\.2 seconds \(server\.limits\.fetch_seconds\)"):
            source.read_header(FetchBudget(0.2))
        stop = threading.Event()
        threading.Timer(0.2, stop.set).start()
        with pytest.raises(Stopped):
            source.read_header(FetchBudget(stop=stop))
    assert not list(tmp_path.glob("**/*.*"))


def test_a_file_is_never_whole_in_memory(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ir3de_gateway.admin.router_source.PIECE_BYTES", 1_000)
    memory, sizes = fsspec.filesystem("memory"), []
    for path in (folder / "router").iterdir():
        memory.pipe(f"memory://pieces/{path.name}", path.read_bytes())
    monkeypatch.setattr(FetchBudget, "spend", lambda self, count, place: sizes.append(count))
    try:
        source, budget = AddressSource("memory://pieces", tmp_path / "cache"), FetchBudget()
        fetched = source.fetch(source.read_header(budget), budget)
    finally:
        memory.store.clear()
    assert max(sizes) == 1_000 and sum(sizes) == sum(path.stat().st_size for path in fetched.iterdir())


def test_nothing_tells_why_a_router_could_not_be_fetched_and_no_redirect_is_followed(folder: Path) -> None:
    limits = {"limits": {"fetch_seconds": 0.5}}
    with endless() as (server, address), admin(config(folder, server=limits)) as client:
        places = ["http://127.0.0.1:9", "ftp://127.0.0.1:9", address.replace("http", "ftp")]
        places += [f"{address}/{path}" for path in ("hanging", "elsewhere", "other", "nothing", "endless")]
        answers = set()

        def is_asked(place: str) -> bool:
            status, message = error(client.put("/admin/router", json={"path": f"{place}/router"}))
            answers.add((status, message.replace(f"{place}/router", "PLACE")))
            return not place.startswith(f"{address}/") or place.rpartition("/")[2] in server.asked

        for place in places:  # on a busy machine the time may end before the server is asked
            assert eventually(lambda place=place: is_asked(place))
    assert answers == {(422, "no router could be fetched from PLACE: the gateway's log has the reason")}
    assert set(server.asked) == {"hanging", "elsewhere", "other", "nothing", "endless"}  # and nothing "redirected"


def test_no_kind_of_address_is_an_error_of_the_gateway(folder: Path) -> None:
    with admin(config(folder, server={"limits": {"fetch_seconds": 0.5}})) as client:
        kinds = [*fsspec.available_protocols(), "nowhere", "simplecache::reference", "REFERENCE"]
        places = [f"{kind}://127.0.0.1:9/router" for kind in kinds]
        places += [
            "http://[",
            "http://127.0.0.1:99999/",
            "file://",
            "file:///dev/null",
            "/" + "x" * 300,
            "/dev/null",
            "/\0",
        ]
        for place in places:
            status, message = error(client.put("/admin/router", json={"path": place}))
            assert status == 422, (place, message)
        chained = error(client.put("/admin/router", json={"path": "memory://x::http://127.0.0.1:9/router"}))[1]
        assert chained.startswith("cannot open memory://x::http://127.0.0.1:9/router: use a folder")
        message = error(client.put("/admin/router", json={"path": "reference://x"}))[1]
        assert message.startswith("cannot open reference://x: use a folder, or an address that begins with s3, ")
        assert names(client) == [*tiny.DOMAINS]


def test_refusals_of_a_fit_are_raised_as_they_are_there(folder: Path) -> None:
    with pytest.raises(Exception, match="no expert 'nobody'") as caught:
        fit_process.fit(fit_process.FitOrder(str(folder / "router"), str(folder / "new"), "remove", "nobody"))
    assert type(caught.value).__name__ == "UnknownExpertError" and not isinstance(caught.value, ApiError)
    assert not (folder / "new").exists()


def test_a_fit_that_dies_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_process.sys, "executable", "/bin/false")
    with admin(config(folder)) as client:
        body = {"name": "history", "upstream": ENDPOINT, "texts": HISTORY}
        status, message = error(client.post("/admin/experts", json=body))
        assert status == 500 and "nothing was changed" in message
        assert names(client) == [*tiny.DOMAINS] and not list((folder / "state").glob("*router-*"))
