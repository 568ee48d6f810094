"""Whether limits of keys are exact: very many requests of many keys at once, over real workers.

A stand-in for the experts counts whose requests reach it. It runs in this process, and holds its answers where that is
asked, so that nothing depends on who is faster. Every request costs exactly what the gateway expects of it, where
requests come all at once; where a key sends one after the other, the gateway expects far too much.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import httptools

from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.upstream import whole
from ir3de_lab.benchmarks.gateway.wire import Answer, Client, request_bytes
from ir3de_lab.benchmarks.measurement import Figure

KINDS = ("requests", "tokens", "concurrent", "budget")
FIELDS = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "concurrent": "concurrent",
    "budget": "budget_per_day",
}
EXPERT = next(iter(demo.DOMAINS))
ANSWER_TOKENS = 20
ANSWER_COST = 0.25  # sums of it are exact
LOOSE_TOKENS = 1_000  # the longest answer that requests one after the other allow
WINDOW_S = 60.0
PATIENCE_S = 120.0
CONNECTING = 200  # at once
ADMIN_TOKEN = "root"
USER_CHARS = 24  # as many for each key: the bytes of a request are what the gateway reserves for its prompt
_USER = re.compile(rb'"user":\s*"([^" ]*)')


@dataclass(frozen=True)
class Plan:
    """How much is sent; each kind of limit gets all of it."""

    requests: int = 10_000
    keys: int = 20
    workers: int = 2
    seed: int = 0
    machines: int = 1  # gateways, which share the store
    store: str = ""  # its address; empty for the embedded one

    @property
    def each(self) -> int:
        """Requests of a key."""
        return self.requests // self.keys

    def allow(self, kind: str, number: int) -> int:
        """How many requests the limit of a key allows: few of the first, more than it sends of the last."""
        most = min(self.each, 100) if kind == "concurrent" else self.each
        return max(1, round(1.1 * most * (number + 1) / self.keys))


def name_key(kind: str, number: int) -> str:
    return f"{kind}-{number}"


@dataclass
class Experts:
    """The stand-in: who has come, how often, and how many at once. It answers while `gate` is set."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    came: Counter[str] = field(default_factory=Counter)
    here: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0

    def begin(self, key: str) -> None:
        self.came[key] += 1
        self.here[key] += 1
        self.most[key] = max(self.most[key], self.here[key])


class ExpertConnection(asyncio.Protocol):
    """A connection of the gateway."""

    def __init__(self, experts: Experts) -> None:
        self._experts, self._body = experts, bytearray()
        self._parser = httptools.HttpRequestParser(self)
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body.clear()

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        found = _USER.search(self._body)
        self._answering = asyncio.ensure_future(self._answer(found[1].decode() if found else ""))

    async def _answer(self, key: str) -> None:
        experts = self._experts
        experts.begin(key)
        await experts.gate.wait()
        choice = {"index": 0, "message": {"role": "assistant", "content": "tok0"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": experts.prompt_tokens, "completion_tokens": ANSWER_TOKENS}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "x", "choices": [choice], "usage": usage}
        experts.here[key] -= 1
        self._transport.write(whole(200, json.dumps(body).encode()))


@dataclass
class Kind:
    """What became of the requests against one kind of limit."""

    kind: str
    seconds: float = 0.0
    answers: dict[str, Counter[int]] = field(default_factory=dict)  # of each key, by status
    over: dict[str, int] = field(default_factory=dict)  # requests of each key beyond its limit
    below: dict[str, int] = field(default_factory=dict)  # requests that were refused though the limit allowed them

    def judge(self, key: str, admitted: int, allowed: int, sent: int) -> None:
        self.over[key] = max(0, admitted - allowed)
        self.below[key] = max(0, min(allowed, sent) - admitted)

    def figures(self) -> Iterator[Figure]:
        statuses = sum(self.answers.values(), Counter[int]())
        raw = {"seconds": round(self.seconds, 2), "statuses": {str(one): count for one, count in statuses.items()}}
        largest, below = max(self.over.values(), default=0), sum(self.below.values())
        others = sum(count for status, count in statuses.items() if status not in (200, 429))
        raw |= {"over": self.over, "below": self.below}
        yield Figure(f"{self.kind}: most requests of a key beyond its limit", largest, "", 1, False, raw)
        yield Figure(f"{self.kind}: requests refused below the limit", below, "", 0, False)
        yield Figure(f"{self.kind}: requests neither answered nor refused", others, "", 0, False)


class Measurement:
    """The clients, and what they find."""

    def __init__(self, plan: Plan, experts: Experts, ports: list[int]) -> None:
        self.plan, self.experts, self.port = plan, experts, ports[0]
        self._ports = cycle(ports)  # clients come to each machine in turn
        self._dice = random.Random(plan.seed)

    async def run(self) -> list[Kind]:
        found = [await self._at_once(kind) for kind in KINDS]
        found.append(await self._in_turn_at_once())
        return [*found, await self._in_turn("tokens"), await self._in_turn("budget")]

    async def calibrate(self) -> int:
        """Let the experts tell what the gateway expects: one request is held while the gateway is asked."""
        self.experts.gate.clear()
        client = await Client.connect(self.port)
        done = asyncio.get_running_loop().create_future()
        client.ask(self._build("calibrate"), lambda _, answer: done.set_result(answer))
        while not self.experts.came["calibrate"]:
            await asyncio.sleep(0.01)
        self.experts.prompt_tokens = await asyncio.to_thread(self._read_expected) - ANSWER_TOKENS
        self.experts.gate.set()
        await done
        client.leave()
        return self.experts.prompt_tokens + ANSWER_TOKENS

    def _read_expected(self) -> int:
        address = f"http://127.0.0.1:{self.port}/admin/keys"
        asked = urllib.request.Request(address, headers={"authorization": f"Bearer {ADMIN_TOKEN}"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            rows = json.load(answer)["data"]
        return int(next(row for row in rows if row["name"] == "calibrate")["used"]["tokens"])

    async def _at_once(self, kind: str) -> Kind:
        """All requests of all keys at once. Those against a limit of requests at once are held until all have come."""
        found, plan = Kind(f"{kind}, all at once"), self.plan
        names = [name_key(kind, number) for number in range(plan.keys)]
        order = names * plan.each
        self._dice.shuffle(order)
        clients = await self._connect(len(order))
        (self.experts.gate.clear if kind == "concurrent" else self.experts.gate.set)()
        self.experts.came.clear()
        answers: list[asyncio.Future[Answer]] = []
        began = perf_counter()
        for client, name in zip(clients, order, strict=True):
            answers.append(self._ask(client, name))
        await self._wait(answers)
        self.experts.gate.set()
        done = await asyncio.gather(*answers)
        found.seconds = perf_counter() - began
        if kind in ("requests", "tokens") and found.seconds >= WINDOW_S:
            raise InputError(
                f"{len(order):,} requests took {found.seconds:.0f} s, which is more than a minute: send fewer"
            )
        for name, answer in zip(order, done, strict=True):
            found.answers.setdefault(name, Counter())[answer.status] += 1
        for number, name in enumerate(names):
            found.judge(name, self.experts.came[name], plan.allow(kind, number), plan.each)
        for client in clients:
            client.leave()
        return found

    async def _wait(self, answers: list[asyncio.Future[Answer]]) -> None:
        """Until every request was answered, or is with the experts."""
        end = perf_counter() + PATIENCE_S
        while perf_counter() < end:
            if sum(answer.done() for answer in answers) + sum(self.experts.here.values()) >= len(answers):
                return
            await asyncio.sleep(0.05)

    async def _in_turn_at_once(self) -> Kind:
        """Each key sends as many at once as it may, and the next request as soon as one is answered."""
        found, plan = Kind("concurrent, the next at once"), self.plan
        self.experts.most.clear()
        began = perf_counter()
        jobs = []
        for number in range(plan.keys):
            name, allowed = name_key("concurrent", number), plan.allow("concurrent", number)
            rounds = max(1, plan.each // allowed)
            jobs += [self._repeat(name, rounds, found) for _ in range(allowed)]
        await asyncio.gather(*jobs)
        found.seconds = perf_counter() - began
        for number in range(plan.keys):
            name = name_key("concurrent", number)
            found.over[name] = max(0, self.experts.most[name] - plan.allow("concurrent", number))
            found.below[name] = found.answers[name][429]
        return found

    async def _repeat(self, name: str, rounds: int, found: Kind) -> None:
        client = await Client.connect(next(self._ports))
        for _ in range(rounds):
            answer = await self._ask(client, name)
            found.answers.setdefault(name, Counter())[answer.status] += 1
        client.leave()

    async def _in_turn(self, kind: str) -> Kind:
        """Each key sends one request after the other until it is refused; the gateway expects much longer answers."""
        found, plan = Kind(f"{kind}, one after the other"), self.plan
        self.experts.came.clear()
        began = perf_counter()

        async def send(number: int) -> None:
            name = name_key(f"{kind}-turns", number)
            client, counted = await Client.connect(next(self._ports)), found.answers.setdefault(name, Counter())
            while not counted[429] and counted[200] < plan.each + 100:
                answer = await self._ask(client, name, LOOSE_TOKENS)
                counted[answer.status] += 1
            client.leave()
            found.judge(name, counted[200], plan.allow("concurrent", number), plan.each)

        await asyncio.gather(*map(send, range(plan.keys)))
        found.seconds = perf_counter() - began
        return found

    async def _connect(self, many: int) -> list[Client]:
        """So many connections, some at a time: the queue of a listening socket is short."""
        clients: list[Client] = []
        while len(clients) < many:
            more = min(CONNECTING, many - len(clients))
            clients += await asyncio.gather(*(Client.connect(next(self._ports)) for _ in range(more)))
        return clients

    def _ask(self, client: Client, name: str, answer_tokens: int = ANSWER_TOKENS) -> asyncio.Future[Answer]:
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        client.ask(self._build(name, answer_tokens), lambda _, answer: done.set_result(answer))
        return done

    def _build(self, name: str, answer_tokens: int = ANSWER_TOKENS) -> bytes:
        chat = [{"role": "user", "content": "How long does it take?"}]
        limits = {"max_tokens": answer_tokens, "max_completion_tokens": answer_tokens}  # a server may read only one
        body = {"model": EXPERT, "user": name.ljust(USER_CHARS), **limits, "messages": chat}
        request = request_bytes("/v1/chat/completions", json.dumps(body).encode())
        return request.replace(b"\r\n", f"\r\nauthorization: Bearer {find_secret(name)}\r\n".encode(), 1)


def find_secret(name: str) -> str:
    return f"sk-bench-{name}"


def build_keys(plan: Plan, tokens: int) -> list[dict[str, Any]]:
    """Keys for every kind of limit; a request takes `tokens`."""
    keys: list[tuple[str, Mapping[str, float]]] = [("calibrate", {"tokens_per_minute": 10**9})]
    units = {"requests": 1, "concurrent": 1, "tokens": tokens, "budget": ANSWER_COST}
    for kind in KINDS:
        limits = [plan.allow(kind, number) * units[kind] for number in range(plan.keys)]
        keys += [(name_key(kind, number), {FIELDS[kind]: limit}) for number, limit in enumerate(limits)]
    for kind in ("tokens", "budget"):
        limits = [plan.allow("concurrent", number) * units[kind] for number in range(plan.keys)]
        keys += [(name_key(f"{kind}-turns", number), {FIELDS[kind]: limit}) for number, limit in enumerate(limits)]
    return [
        {"name": name, "hash": f"sha256:{hashlib.sha256(find_secret(name).encode()).hexdigest()}", "limits": limits}
        for name, limits in keys
    ]


async def _measure(plan: Plan, folder: Path) -> list[Kind]:
    experts = Experts()
    loop = asyncio.get_running_loop()
    upstream = await loop.create_server(lambda: ExpertConnection(experts), "127.0.0.1", 0, backlog=4_096)
    port: int = upstream.sockets[0].getsockname()[1]
    file = folder / "keys.yaml"
    file.write_text(json.dumps({"keys": build_keys(plan, ANSWER_TOKENS)}), encoding="utf-8")

    def edit(config: dict[str, Any], machine: Path) -> None:
        if plan.store:
            prefix = f"ir3de-bench-{os.getpid()}"
            config["state"] = {"store": plan.store, "prefix": prefix, "folder": str(machine / "state"), "timeout": 30}
        config["server"] |= {"keys_file": str(file), "limits": {"header_seconds": 600.0}}
        price = {"output_per_1m": 1e6 * ANSWER_COST / ANSWER_TOKENS}
        for expert in config["experts"]:
            expert |= {"price": price, "concurrency": {"limit": 50_000, "queue": 50_000, "wait": 600.0}}

    timeouts = {"connect": PATIENCE_S, "first_token": PATIENCE_S * 2, "total": PATIENCE_S * 4}
    options: dict[str, Any] = {"env": {"IR3DE_ADMIN_TOKEN": ADMIN_TOKEN}, "workers": plan.workers, "timeouts": timeouts}
    opened = ExitStack()
    try:
        gateways = []
        for machine in (folder / f"machine-{number}" for number in range(plan.machines)):
            machine.mkdir()
            started = processes.gateway(machine, port, edit=partial(edit, machine=machine), **options)
            gateways.append(await asyncio.to_thread(opened.enter_context, started))
        for pid in (pid for gateway in gateways for pid in gateway.tree):  # the workers are to run at the same time
            with suppress(OSError, AttributeError):
                os.sched_setaffinity(pid, range(os.cpu_count() or 1))
        measurement = Measurement(plan, experts, [gateway.port for gateway in gateways])
        tokens = await measurement.calibrate()
        file.with_suffix(".new").write_text(json.dumps({"keys": build_keys(plan, tokens)}), encoding="utf-8")
        file.with_suffix(".new").replace(file)
        await asyncio.sleep(3)  # until both workers have read it
        return await measurement.run()
    finally:
        await asyncio.to_thread(opened.close)
        upstream.close()


def measure_key_limits(plan: Plan) -> list[Kind]:
    """Everything, on loopback; it ends by itself."""
    if plan.machines > 1 and not plan.store:
        raise InputError("gateways of several machines share no limits without a store: name one with --store")
    processes.require_extra()
    most = processes.raise_file_limit()
    if plan.requests * 3 // 2 > most:
        raise InputError(f"{plan.requests:,} requests at once need more open files than {most:,}: ulimit -n")
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(plan, Path(folder)))
