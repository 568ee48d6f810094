"""Names of experts: a name that hangs holds up nobody else, and what was found is kept."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from ir3de_gateway.transport import UnreachableError, connecting
from ir3de_gateway.transport.connecting import AddressInfo, NameResolver
from ir3de_gateway.transport.pool import HttpTransport
from transport_servers import ANSWER, call_to, exchange, listening, replies, run, usual_environment  # noqa: F401


class Names:
    """A resolver that knows what a test tells it; the name hangs.example hangs."""

    def __init__(self) -> None:
        self.known = {"good.example": ["127.0.0.1"]}
        self.asked: Counter[str] = Counter()
        self.go_on = threading.Event()

    def look_up(self, host: str) -> list[AddressInfo]:
        self.asked[host] += 1
        if host == "hangs.example":
            self.go_on.wait(60)
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in self.known[host]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(connecting, "look_up", names.look_up)
    yield names
    names.go_on.set()


def test_a_name_that_hangs_holds_up_nobody_else(names: Names) -> None:
    async def work(transport: HttpTransport) -> None:
        async with listening(replies(ANSWER)) as port:
            hanging = [
                asyncio.create_task(transport.send(call_to("http://hangs.example/v1", connect_seconds=0.2)))
                for _ in range(50)
            ]
            await asyncio.sleep(0)
            assert await exchange(transport, f"http://good.example:{port}/v1") == (200, b"ok")
            failures = await asyncio.gather(*hanging, return_exceptions=True)
            assert all(isinstance(failure, UnreachableError) for failure in failures)
            assert [failure.stage for failure in failures if isinstance(failure, UnreachableError)] == ["time"] * 50
            assert names.asked == {"hangs.example": 1, "good.example": 1}  # one look-up, however many wait
            names.known["hangs.example"] = ["127.0.0.1"]
            names.go_on.set()
            assert await exchange(transport, f"http://hangs.example:{port}/v1") == (200, b"ok")
            assert names.asked["hangs.example"] == 1  # the look-up that hung was awaited

    run(work)


def test_answers_are_kept_and_the_last_good_one_while_the_resolver_fails(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_up_four_times() -> list[str]:
        resolver, found = NameResolver(), []
        found.append((await resolver.resolve("good.example", 80))[0][4])
        names.known["good.example"] = ["127.0.0.2"]
        found.append((await resolver.resolve("good.example", 81))[0][4])
        monkeypatch.setattr(connecting, "ANSWER_TTL_S", -1.0)
        resolver = NameResolver()
        found.append((await resolver.resolve("good.example", 82))[0][4])
        names.known.clear()
        found.append((await resolver.resolve("good.example", 83))[0][4])
        return found

    found = asyncio.run(look_up_four_times())
    assert found == [("127.0.0.1", 80), ("127.0.0.1", 81), ("127.0.0.2", 82), ("127.0.0.2", 83)]
    assert names.asked["good.example"] == 3


def test_a_known_name_is_used_while_its_new_look_up_hangs(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "ANSWER_TTL_S", -1.0)
    monkeypatch.setattr(connecting, "REFRESH_PATIENCE_S", 0.01)
    names.known["hangs.example"] = ["127.0.0.1"]

    async def look_up_twice() -> None:
        resolver = NameResolver()
        names.go_on.set()
        await resolver.resolve("hangs.example", 80)
        names.go_on.clear()
        for _ in range(3):  # the first one waits, though not for long; the others do not wait
            assert (await resolver.resolve("hangs.example", 80))[0][4] == ("127.0.0.1", 80)
        assert names.asked["hangs.example"] == 2

    asyncio.run(look_up_twice())
    assert names.asked["hangs.example"] == 2


def test_a_name_that_nobody_knows(names: Names) -> None:
    async def work(transport: HttpTransport) -> None:
        for _ in range(2):
            with pytest.raises(UnreachableError, match=r"the name nobody\.example cannot be resolved") as found:
                await exchange(transport, "http://nobody.example/v1")
            assert found.value.stage == "name"
        assert names.asked["nobody.example"] == 2  # a failure is not kept

    run(work)


def test_the_next_address_is_tried_while_one_is_silent(names: Names) -> None:
    async def work(transport: HttpTransport) -> None:
        async with listening(replies(ANSWER)) as port:
            with socket.socket() as silent, ExitStack() as callers:
                silent.bind(("127.0.0.2", port))
                silent.listen(0)
                for _ in range(4):  # more than may wait to be let in
                    caller = callers.enter_context(socket.socket())
                    caller.setblocking(False)
                    with suppress(BlockingIOError):
                        caller.connect(silent.getsockname())
                names.known["many.example"] = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]  # silent, refuses, answers
                assert await exchange(transport, f"http://many.example:{port}/v1") == (200, b"ok")

    run(work)
