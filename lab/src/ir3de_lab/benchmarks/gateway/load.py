"""The load generator: as fast as it goes over so many connections, or at a fixed rate whatever the server does.

    python -m ir3de_lab.benchmarks.gateway.load < job.json > result.json

At a fixed rate a latency is counted from the moment the request was due, not from when it could be sent: a server
that stalls pays for everybody it keeps waiting.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import fmean
from typing import Any

from ir3de_lab.benchmarks.gateway.wire import Answer, Client, request_bytes, run

PATIENCE = 10.0  # seconds for what is still under way at the end


@dataclass(frozen=True)
class Job:
    """What to ask of whom, and how often."""

    port: int
    path: str
    bodies: Sequence[str]
    seconds: float
    connections: int
    rate: float | None = None  # requests a second; None asks again as soon as there is an answer
    poisson: bool = False  # at a rate: random gaps, not one request in each interval
    warm: float = 0.3  # seconds at the start that do not count
    seed: int = 0
    key: str = ""  # of the client


@dataclass
class Result:
    """What came back. Times are seconds, one number a request that counts."""

    latencies: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)  # until the first token
    statuses: Counter[str] = field(default_factory=Counter)  # "0": none
    route_us: float | None = None  # mean of what the gateway says
    seconds: float = 0.0  # that counted
    answers: int = 0  # all of them, also those that do not count
    cpu_us: float = 0.0  # of the server, an answer; filled in by who knows the server
    unanswered: int = 0
    late_us: float = 0.0  # how late requests were sent, the median: the generator's own fault

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def failed(self) -> int:
        return self.unanswered + sum(count for status, count in self.statuses.items() if status != "200")


def moments(job: Job) -> list[float]:
    """When the requests are due: at random within equal intervals, or altogether at random."""
    assert job.rate is not None
    dice = random.Random(job.seed)
    count = max(1, round((job.seconds + job.warm) * job.rate))
    if job.poisson:
        return sorted(dice.random() * count / job.rate for _ in range(count))
    return [(n + dice.random()) / job.rate for n in range(count)]


class Load:
    """One job under way."""

    def __init__(self, job: Job) -> None:
        self._job, self._loop = job, asyncio.get_running_loop()
        self._requests = cycle([request_bytes(job.path, body.encode(), key=job.key) for body in job.bodies])
        self._result, self._routes, self._late = Result(seconds=job.seconds), list[float](), list[float]()
        self._idle: deque[Client] = deque()
        self._due: deque[float] = deque()  # waiting for a connection
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Result:
        clients = await asyncio.gather(*(Client.connect(self._job.port) for _ in range(self._job.connections)))
        self._idle.extend(clients)
        begin = self._loop.time() + 0.01
        self._counts, self._stop = begin + self._job.warm, begin + self._job.warm + self._job.seconds
        if self._job.rate is None:
            for _ in clients:
                self._ask(self._loop.time())
            await asyncio.sleep(self._stop - self._loop.time())
        else:
            await self._at_rate([begin + moment for moment in moments(self._job)])
        await self._drain()
        for client in self._idle:
            client.leave()
        result = self._result
        result.route_us = fmean(self._routes) if self._routes else None
        result.late_us = 1e6 * sorted(self._late)[len(self._late) // 2] if self._late else 0.0
        return result

    async def _at_rate(self, due: Sequence[float]) -> None:
        for moment in due:
            if (wait := moment - self._loop.time()) > 0:
                await asyncio.sleep(wait)
            self._late.append(self._loop.time() - moment)
            self._ask(moment)

    async def _drain(self) -> None:
        end = self._loop.time() + PATIENCE
        while (self._under_way or self._due) and self._loop.time() < end:
            await asyncio.sleep(0.005)
        self._result.unanswered = self._under_way + len(self._due)
        for task in self._tasks:
            task.cancel()

    def _ask(self, due: float) -> None:
        while self._idle:
            client = self._idle.popleft()
            if client.open:
                self._under_way += 1
                client.ask(next(self._requests), lambda client, answer: self._done(client, answer, due))
                return
            self._renew()
        self._due.append(due)

    def _renew(self) -> None:
        task = self._loop.create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        self._ready(await Client.connect(self._job.port))

    def _ready(self, client: Client) -> None:
        self._idle.append(client)
        if self._due:
            self._ask(self._due.popleft())

    def _done(self, client: Client, answer: Answer, due: float) -> None:
        self._under_way -= 1
        self._result.answers += 1
        in_time = due >= self._counts if self._job.rate else self._counts <= answer.end < self._stop
        if in_time:
            self._count(answer, due)
        if self._job.rate is None and answer.end < self._stop:
            self._due.append(self._loop.time())
        if client.open:
            self._ready(client)
        else:
            self._renew()

    def _count(self, answer: Answer, due: float) -> None:
        self._result.statuses[str(answer.status if answer.complete else 0)] += 1
        if answer.complete and answer.status == 200:
            self._result.latencies.append(answer.end - due)
            if answer.first:
                self._result.firsts.append(answer.first - due)
            if answer.route_us is not None:
                self._routes.append(answer.route_us)


async def perform(job: Job) -> Result:
    """Do the job in the loop that is running."""
    return await Load(job).run()


def main() -> None:
    given: dict[str, Any] = json.load(sys.stdin)
    json.dump(vars(run(perform(Job(**given)))), sys.stdout)


if __name__ == "__main__":
    main()
