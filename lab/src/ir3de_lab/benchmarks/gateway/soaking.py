"""Very many requests, some streamed, some given up, some failing: nothing may be lost, doubled or leaked."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.fates import Fate, Verdict, fate, judge
from ir3de_lab.benchmarks.gateway.measuring import PATH, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, descriptors, highest_mb, memory, module, started
from ir3de_lab.benchmarks.gateway.rolling import TOKEN, TOKEN_VARIABLE, RouterChanges
from ir3de_lab.benchmarks.gateway.upstream import SLOW
from ir3de_lab.benchmarks.gateway.wire import Answer, Client, request_bytes, run
from ir3de_lab.benchmarks.measurement import Figure

PATIENCE = 30.0  # seconds a client waits before it calls an answer lost
GROWTH_BAR = 5.0  # megabytes over the second half: a hundred bytes a request, of 100,000
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Plan:
    """What is asked, and how the upstream behaves."""

    requests: int = 100_000
    concurrency: int = 48
    streamed: float = 0.1
    cancelled: float = 0.1
    failing: float = 0.05
    latency: float = 0.005
    tokens: int = 10
    interval: float = 0.002
    slow: float = 1.0  # latency of what clients do not wait for: a busy machine may take a while to see them leave
    seed: int = 0
    router_changes: int = 50  # spread evenly over the requests
    memory_mib: int = 512  # that the gateway may have
    settling: float = 60.0  # seconds the server has at the end for closing what it does not need any more


class Soak:
    """The clients: so many at once, until all requests are over."""

    def __init__(self, port: int, plan: Plan, progress: Progress) -> None:
        self._port, self._plan, self._progress = port, plan, progress
        self._chats = [json.loads(body)["messages"] for body in bodies(stream=False, count=100)]
        self._numbers = iter(range(plan.requests))
        self.fates: list[Fate] = []
        self.surplus = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as clients:
            for _ in range(min(self._plan.concurrency, self._plan.requests)):
                clients.create_task(self._client())

    async def _client(self) -> None:
        client: Client | None = None
        for number in self._numbers:
            if client is None or not client.open:
                client = await Client.connect(self._port)
            self.fates.append(await self._one(client, number))
            self.surplus += client.surplus
            client.surplus = 0
            self._progress(len(self.fates))
        if client is not None:
            client.leave()

    async def _one(self, client: Client, number: int) -> Fate:
        dice = random.Random(f"{self._plan.seed} {number}")
        stream, leaves = dice.random() < self._plan.streamed, dice.random() < self._plan.cancelled
        identity = f"soak-{number}{SLOW if leaves else ''}"
        chat = self._chats[number % len(self._chats)]
        body = {"model": "auto", "user": identity, "messages": chat, **({"stream": True} if stream else {})}
        over: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        client.ask(request_bytes(PATH, json.dumps(body).encode()), lambda _, answer: _tell(over, answer))
        if leaves and await _left(client, over, dice, stream=stream):
            return Fate(identity, "cancelled")
        try:
            async with asyncio.timeout(PATIENCE):
                answer = await over
        except TimeoutError:
            client.leave()
            return Fate(identity, "lost")
        return fate(identity, answer, self._plan.tokens, stream=stream)


def _tell(over: asyncio.Future[Answer], answer: Answer) -> None:
    if not over.done():
        over.set_result(answer)


async def _left(client: Client, over: asyncio.Future[Answer], dice: random.Random, *, stream: bool) -> bool:
    """Leave after a while, or after the first tokens; whether the answer was not over before."""
    wait = 0.01 + 0.1 * dice.random()
    end = time.monotonic() + PATIENCE
    if stream:
        while not client.answer.first and not over.done() and time.monotonic() < end:
            await asyncio.sleep(0.01)
    await asyncio.wait([over], timeout=wait)
    if over.done():
        return False
    client.leave()
    return True


@dataclass(frozen=True)
class Report:
    """What was found in the end."""

    plan: Plan
    verdict: Verdict
    surplus: int
    seconds: float
    samples: list[tuple[int, float]]  # requests done, megabytes
    descriptors: tuple[int, int]  # before and after
    in_flight: float | None  # what the gateway says when all is over
    upstream: dict[str, int]
    highest_mb: float = 0.0  # memory, as the kernel has kept it
    routers: tuple[str, ...] = ()  # by each change: what served then, or the error
    ended: int = 0  # processes of the gateway that were there at the start and are not at the end

    def figures(self) -> list[Figure]:
        """Each law as a figure beside its bar."""
        notes = self.verdict.notes
        before, after = self.descriptors
        counts = {
            "lost answers": notes["lost"],
            "doubled answers": notes["doubled"] + (self.surplus > 0),
            "answers that were not what was asked for": notes["wrong"],
            "errors that were not the upstream's last word": notes["unjust error"],
            "answers cut short, though not by the upstream": notes["unjust cut"],
            **({} if self.in_flight is None else {"requests in flight at the end": self.in_flight}),
            "open files and sockets at the end, more than before": max(0, after - before),
            "processes that ended": self.ended,
            f"router changes that failed, of {len(self.routers)}": sum(r.startswith("error") for r in self.routers),
        }
        figures = [Figure(name, value, "", 0, higher_is_better=False) for name, value in counts.items()]
        growth = growth_of(self.samples)
        figures.append(Figure("memory growth, second half", growth, "MB", GROWTH_BAR, higher_is_better=False))
        bar = self.plan.memory_mib * 1.048576
        figures.append(Figure("highest memory", self.highest_mb, "MB", bar, higher_is_better=False))
        if left := notes["propagated"] + notes["ignored"]:
            share = 100 * notes["propagated"] / left
            figures.append(Figure("clients that left, seen by the upstream", share, "%", 99.0))
        return figures

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "verdict": {name: dict(value) for name, value in vars(self.verdict).items()},
            "surplus_bytes": self.surplus,
            "seconds": round(self.seconds, 1),
            "requests_per_second": round(self.plan.requests / self.seconds, 1),
            "memory_mb": [[n, round(value, 2)] for n, value in self.samples],
            "highest_mb": round(self.highest_mb, 1),
            "routers": dict(Counter(self.routers)),
            "processes_ended": self.ended,
            "descriptors": list(self.descriptors),
            "upstream": self.upstream,
        }


def growth_of(samples: Sequence[tuple[int, float]]) -> float:
    """Megabytes gained over the second half, by a line through its samples."""
    half = [(n, value) for n, value in samples if n >= samples[-1][0] / 2] if samples else []
    if len(half) < 2:
        return 0.0
    done, megabytes = np.array(half).T
    return float(np.polyfit(done, megabytes, 1)[0] * (done[-1] - done[0]))


def soak(plan: Plan, progress: Progress = lambda _: None) -> Report:
    """Start the gateway in front of a failing upstream, and ask until all requests are over.

    The gateway may not have more private memory than planned (`RLIMIT_DATA`, which counts what is reserved and so is
    stricter than what is resident), and the kernel's record of its highest resident memory is held against the same.
    """
    processes.require_extra()
    options = {name: getattr(plan, name) for name in ("latency", "tokens", "interval", "slow", "failing", "seed")}
    timeouts = {"first_token": 3.0, "idle": 3.0}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(module("upstream", **options), measured=False) as upstream,
        processes.gateway(
            Path(folder),
            upstream.port,
            timeouts=timeouts,
            env={TOKEN_VARIABLE: TOKEN},
            limits={"DATA": plan.memory_mib << 20},
        ) as gateway,
    ):
        changes = RouterChanges(Path(folder), gateway) if plan.router_changes else None
        report = watched(gateway, upstream, plan, progress, changes)
    if report.in_flight is None:
        raise InputError("the gateway's /metrics has no ir3de_in_flight: whether requests are stuck cannot be told")
    return report


def watched(
    gateway: Server,
    upstream: Server,
    plan: Plan,
    progress: Progress = lambda _: None,
    changes: RouterChanges | None = None,
) -> Report:
    """Ask what stands in front of that upstream, with an eye on its memory."""
    warm = Soak(gateway.port, Plan(**{**asdict(plan), "requests": 4 * plan.concurrency, "seed": -1}), lambda _: None)
    run(warm.run())
    before, samples, began = descriptors(gateway), list[tuple[int, float]](), set(gateway.tree)
    every = max(1, plan.requests // 100)
    change_every = max(1, plan.requests // (plan.router_changes + 1))

    def sampled(done: int) -> None:
        if done % every == 0:
            samples.append((done, sum(memory(pid)["rss_mb"] for pid in gateway.tree)))
            progress(done)
        if changes is not None and done % change_every == 0 and done < plan.requests:
            changes.make()

    known = json.loads(upstream.get("/seen"))
    clients = Soak(gateway.port, plan, sampled)
    begin = time.monotonic()
    run(clients.run())
    seconds = time.monotonic() - begin
    routers = tuple(changes.results()) if changes is not None else ()
    in_flight, after = settled(gateway, before, plan.settling)
    ended = len(began - set(gateway.tree)) + (gateway.process.poll() is not None)
    seen = _since(json.loads(upstream.get("/seen")), known)
    verdict = judge(clients.fates, seen)
    counts = json.loads(upstream.get("/counts"))
    found = (clients.surplus, seconds, samples, (before, after), in_flight, counts)
    return Report(plan, verdict, *found, highest_mb(gateway), routers, ended)


def _since(now: dict[str, list[str]], before: dict[str, list[str]]) -> dict[str, list[str]]:
    """The attempts that came after: the warm-up used the same ids."""
    return {identity: attempts[len(before.get(identity, ())) :] for identity, attempts in now.items()}


def settled(gateway: Server, before: int, seconds: float) -> tuple[float | None, int]:
    """What the gateway has in flight and open, once it is as before or has had its time."""
    end = time.monotonic() + seconds
    while True:
        in_flight, after = gauge(gateway), descriptors(gateway)
        if (not in_flight and after <= before) or time.monotonic() > end:
            return in_flight, after
        time.sleep(0.25)


def gauge(gateway: Server, name: str = "ir3de_in_flight") -> float | None:
    """The sum of a gauge over its labels; None where the server has no such thing."""
    with suppress(OSError):
        found = list(_values(gateway.get("/metrics"), name))
        return sum(found) if found else None
    return None


def _values(text: str, name: str) -> Iterator[float]:
    for line in text.splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            yield float(line.rpartition(" ")[2])
