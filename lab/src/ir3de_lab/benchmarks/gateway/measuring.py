"""What the gateway adds: measured beside a bare proxy and the upstream itself, in turns."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ir3de.corpora import examples as demo
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import (
    PROXIES,
    TARGETS,
    Rounds,
    busy_share,
    first_token,
    latency,
    memory_per_worker,
    processor_time,
    routing_share,
    throughput,
    with_rounds,
)
from ir3de_lab.benchmarks.gateway.load import Job, Result
from ir3de_lab.benchmarks.gateway.nginx import nginx
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, module, pin, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

PATH = "/v1/chat/completions"
PROMPT_TOKENS = 100
USUAL_BAR, KEYED_BAR = 1.5, 1.8  # of a bare proxy with aiohttp: without keys, and with one that has limits
SECRET = "sk-of-the-laboratory"


@dataclass(frozen=True)
class Plan:
    """How long everything takes; seconds."""

    saturation_rounds: int = 5
    saturation_seconds: float = 4.0
    rounds: int = 9
    seconds: float = 5.0
    latency: float = 0.01  # of the upstream where latencies are measured
    tokens: int = 20  # of a stream
    interval: float = 0.005
    connections: int = 64
    stream_connections: int = 192  # a stream takes ten times as long
    workers: int = 1
    busy: float = 0.6  # the share of its core that a proxy is to be busy where latencies are measured
    probes: int = 4  # to find the rate at which it is


QUICK = Plan(saturation_rounds=2, saturation_seconds=0.8, rounds=2, seconds=0.8, probes=2)


def bodies(*, stream: bool, count: int = 250) -> list[str]:
    """Different chats of about 100 tokens, put together from the demo's held-out prompts."""
    tokenizer = Embedding.default().tokenizer
    domains = list(demo.held_out().values())
    made = []
    for n in range(count):
        texts = domains[n % len(domains)]
        words: list[str] = []
        place = n // len(domains)
        while len(tokenizer.encode(" ".join(words))) < PROMPT_TOKENS:
            words += texts[place % len(texts)].split()
            place += 1
        while len(tokenizer.encode(" ".join(words))) > PROMPT_TOKENS:
            words.pop()
        messages = [{"role": "user", "content": " ".join(words)}]
        made.append(json.dumps({"model": "auto", "messages": messages, **({"stream": True} if stream else {})}))
    return made


def load(job: Job) -> Result:
    """The job done in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, *module("load")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    pin(process.pid, measured=False)
    told, _ = process.communicate(json.dumps(asdict(job)))
    if process.returncode:
        raise InputError(f"the load generator ended with exit code {process.returncode}: its messages are above")
    return Result(**json.loads(told))


@dataclass(frozen=True)
class Bench:
    """The servers of a run and what is asked of them."""

    plan: Plan
    servers: Mapping[str, Server]  # by target
    texts: Sequence[str]
    connections: int

    def rounds(
        self, names: Sequence[str], count: int, seconds: float, rates: Mapping[str, float] | None = None, **job: Any
    ) -> Rounds:
        """The targets in turns, so that noise falls on all of them alike; every round has its own order."""
        found: Rounds = {name: [] for name in names}
        for n in range(count):
            shift = n % len(names)
            for name in (*names[shift:], *names[:shift]):
                rate = None if rates is None else rates[name]
                found[name].append(self.one(name, seconds, rate=rate, seed=n, **job))
        return found

    def one(self, name: str, seconds: float, **job: Any) -> Result:
        """One round of one target, with what it cost the processor."""
        server = self.servers[name]
        before = server.cpu_seconds
        result = _sound(name, load(Job(server.port, PATH, self.texts, seconds, self.connections, **job)))
        result.cpu_us = 1e6 * (server.cpu_seconds - before) / result.answers
        return result

    def saturation(self, names: Sequence[str]) -> Rounds:
        return self.rounds(names, self.plan.saturation_rounds, self.plan.saturation_seconds)

    def at(self, rates: Mapping[str, float], *, poisson: bool = False) -> Rounds:
        return self.rounds(tuple(rates), self.plan.rounds, self.plan.seconds, rates, poisson=poisson)

    def rates_at_busy_share(self) -> dict[str, float]:
        """The rate at which each proxy is as busy as planned; the upstream alone gets their mean.

        A request costs less the more of them there are, so the rate is found in a few steps. nginx gets the gateway's
        rate: its own would be more than the load generator can send.
        """
        rates: dict[str, float] = {}
        for name in PROXIES:
            cost_s = 1e-6 * self.one(name, self.plan.saturation_seconds).cpu_us
            for n in range(self.plan.probes):
                rates[name] = self.plan.busy / cost_s
                cost_s = 1e-6 * self.one(name, self.plan.saturation_seconds / 2, rate=rates[name], seed=n).cpu_us
        rates["direct"] = sum(rates.values()) / len(rates)
        if "nginx" in self.servers:
            rates["nginx"] = rates["gateway"]
        return rates


def _sound(name: str, result: Result) -> Result:
    """The result, unless what was measured were errors."""
    if not result.latencies or result.failed > 0.001 * len(result.latencies):
        raise InputError(
            f"{name}: {result.failed} requests failed and {len(result.latencies)} were answered "
            f"(statuses {dict(result.statuses)}): nothing to measure"
        )
    return result


@contextmanager
def servers(plan: Plan, folder: Path) -> Iterator[dict[str, Server]]:
    """The upstream, the bare proxy, the gateway and nginx where it is installed, by target."""
    require_extra()
    options = {"latency": plan.latency, "tokens": plan.tokens, "interval": plan.interval}
    with (
        started(module("upstream", **options), measured=False) as upstream,
        started(module("bare", upstream=upstream.port), measured=True) as bare,
        gateway(folder, upstream.port, workers=plan.workers) as served,
        nginx(folder, upstream.port) as limit,
    ):
        yield {"direct": upstream, "bare": bare, "gateway": served, **limit}


@contextmanager
def _keyed_gateway(folder: Path, upstream: int, workers: int) -> Iterator[Server]:
    """A gateway that counts what its clients use, against limits that nobody reaches."""
    folder.mkdir(exist_ok=True)
    limits = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12, "budget_per_day": 1e9}
    keys = [{"name": "laboratory", "hash": f"sha256:{hashlib.sha256(SECRET.encode()).hexdigest()}", "limits": limits}]
    file = folder / "keys.yaml"
    file.write_text(json.dumps({"keys": keys}), encoding="utf-8")

    def add_keys(config: dict[str, Any]) -> None:
        config["server"]["keys_file"] = str(file)
        for expert in config["experts"]:
            expert["price"] = {"input_per_1m": 1.0, "output_per_1m": 2.0}

    with gateway(folder, upstream, workers=workers, edit=add_keys) as server:
        yield server


def measure(plan: Plan) -> Iterator[list[Figure]]:
    """The figures of each part, in the order they are measured."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure(plan, Path(folder))


def _measure(plan: Plan, folder: Path) -> Iterator[list[Figure]]:
    with (
        servers(replace(plan, latency=0.0), folder) as running,
        started(module("bare", upstream=running["direct"].port, transport="aiohttp"), measured=True) as usual,
        _keyed_gateway(folder / "keyed", running["direct"].port, plan.workers) as keyed,
    ):
        every = {**running, "aiohttp": usual, "keyed": keyed}
        instant = Bench(plan, every, bodies(stream=False), plan.connections)
        saturated = instant.saturation([name for name in running if name != "direct"] + ["aiohttp"])
        where = ", instant upstream"
        yield [throughput(saturated, where, 90.0), processor_time(saturated, where)]
        yield [throughput(saturated, where, base="aiohttp"), processor_time(saturated, where, "aiohttp", USUAL_BAR)]
        named = instant.rounds(("aiohttp", "keyed"), plan.saturation_rounds, plan.saturation_seconds, key=SECRET)
        yield [processor_time(named, f"{where}, with a named key", "aiohttp", KEYED_BAR, "keyed")]
    with servers(plan, folder) as running:
        chats = Bench(plan, running, bodies(stream=False), plan.connections)
        rates = chats.rates_at_busy_share()
        measured = chats.at(rates)
        share = f"{100 * plan.busy:.0f} % busy"
        middle, tail = (latency(measured, *bar, f", {share}") for bar in ((50, 1.1), (99, 1.3)))
        yield [with_rounds(middle, rates, measured), tail, busy_share(measured, rates)]
        yield [processor_time(measured, f", {share}"), routing_share(measured)]
        measured = chats.at({name: rates[name] for name in TARGETS}, poisson=True)
        middle, tail = (latency(measured, p, None, f", {share}, random arrivals") for p in (50, 99))
        yield [with_rounds(middle, rates, measured), tail]
        streams = Bench(plan, running, bodies(stream=True), plan.stream_connections)
        saturated = streams.saturation(PROXIES)
        rates = streams.rates_at_busy_share()
        measured = streams.at({name: rates[name] for name in TARGETS})
        own, bare = first_token(measured)
        yield [with_rounds(own, rates, measured), bare]
        yield [throughput(saturated, f", streams of {plan.tokens} tokens")]
        yield [memory_per_worker(running["gateway"], plan.workers)]
