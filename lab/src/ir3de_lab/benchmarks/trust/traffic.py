"""Chats that go on while a fault is injected, and what became of them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from ir3de_lab.benchmarks.gateway.fates import fate
from ir3de_lab.benchmarks.gateway.wire import Answer, Client, request_bytes, run

PATH = "/v1/chat/completions"
PATIENCE_S = 15.0
TOKENS = 20  # of an answer of the upstream
PAUSE_S = 0.01  # between two requests of a client, so that the fault has a processor too


@dataclass
class Fault:
    """One kind of fault: how often it was injected, and how the requests meanwhile ended."""

    name: str
    injected: int = 0
    served: int = 0
    refused: int = 0  # with an error object
    lost: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)
    skipped: str = ""

    def add(self, kinds: Counter[str]) -> None:
        self.served += kinds["answered"]
        self.refused += kinds["refused"]
        self.lost += kinds["lost"] + kinds["cut"]
        self.wrong += kinds["wrong"]

    def expect(self, fact: object, problem: str) -> None:
        if not fact:
            self.problems.append(problem)

    def to_dict(self) -> dict[str, Any]:
        return vars(self)


class Traffic:
    """Clients that ask one chat after the other, on a thread, until the block ends.

    `fresh` says whether each chat opens a connection of its own. `model` is asked for.
    """

    def __init__(self, port: int, *, clients: int = 4, fresh: bool = False, model: str = "auto") -> None:
        self._port, self._clients, self._fresh, self._model = port, clients, fresh, model
        self._stop, self._number = threading.Event(), 0
        self._ready = threading.Barrier(2)
        self._thread = threading.Thread(target=lambda: run(self._run()), daemon=True)
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for(self, answers: int, seconds: float = 30.0) -> bool:
        """Wait until so many more chats have been answered; whether they were in time."""
        target, end = self.kinds["answered"] + answers, time.monotonic() + seconds
        while self.kinds["answered"] < target and time.monotonic() < end:
            time.sleep(0.01)
        return self.kinds["answered"] >= target

    async def _run(self) -> None:
        kept = await asyncio.gather(*(Client.connect(self._port) for _ in range(self._clients)))
        self._ready.wait()
        await asyncio.gather(*(self._client(client) for client in kept))

    async def _client(self, client: Client | None) -> None:
        while not self._stop.is_set():
            self._number += 1
            identity = f"trust-{self._number}"
            try:
                if client is None or not client.open:
                    client = await Client.connect(self._port)
                answer = await ask(client, identity, self._model)
            except OSError:
                client, answer = None, Answer()
            self.kinds[fate(identity, answer, TOKENS, stream=False).kind] += 1
            self.statuses[answer.status] += 1
            if self._fresh and client is not None:
                client.leave()
                client = None
            await asyncio.sleep(PAUSE_S)


async def ask(client: Client, identity: str, model: str = "auto") -> Answer:
    """One chat; an empty answer where none came in time."""
    messages = [{"role": "user", "content": f"Can my landlord keep the deposit? {identity}"}]
    body = json.dumps({"model": model, "user": identity, "messages": messages}).encode()
    over: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def tell(_: Client, answer: Answer) -> None:
        if not over.done():
            over.set_result(answer)

    client.ask(request_bytes(PATH, body), tell)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await over
    except TimeoutError:
        client.leave()
        return Answer()


def chats(port: int, count: int, model: str = "auto") -> Counter[str]:
    """So many chats one after the other, each on a connection of its own; how they ended."""

    async def all_of_them() -> Counter[str]:
        kinds: Counter[str] = Counter()
        for number in range(count):
            identity = f"check-{number}"
            try:
                client = await Client.connect(port)
                answer = await ask(client, identity, model)
                client.leave()
            except OSError:
                answer = Answer()
            kinds[fate(identity, answer, TOKENS, stream=False).kind] += 1
        return kinds

    return run(all_of_them())


def eventually(fact: Callable[[], object], seconds: float = 20.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
