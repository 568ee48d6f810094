"""What the gateway adds: measured beside a bare proxy and the upstream itself, in turns."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ir3de.corpora import examples as demo
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import (
    PROXIES,
    TARGETS,
    Rounds,
    first_token,
    latency,
    memory_per_worker,
    processor_time,
    rate_of,
    routing_share,
    throughput,
    with_rounds,
)
from ir3de_lab.benchmarks.gateway.load import Job, Result
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, module, pin, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

PATH = "/v1/chat/completions"
PROMPT_TOKENS = 100


@dataclass(frozen=True)
class Plan:
    """How long everything takes; seconds."""

    saturation_rounds: int = 5
    saturation_seconds: float = 4.0
    rounds: int = 9
    seconds: float = 5.0
    latency: float = 0.01  # of the upstream
    tokens: int = 20  # of a stream
    interval: float = 0.005
    connections: int = 64
    stream_connections: int = 192  # a stream takes ten times as long
    workers: int = 1


QUICK = Plan(saturation_rounds=2, saturation_seconds=1.5, rounds=3, seconds=1.5)


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

    def rounds(self, names: Sequence[str], count: int, seconds: float, **job: Any) -> Rounds:
        """The targets in turns, so that noise falls on all of them alike; every round has its own order."""
        found: Rounds = {name: [] for name in names}
        for n in range(count):
            shift = n % len(names)
            for name in (*names[shift:], *names[:shift]):
                server = self.servers[name]
                asked = Job(server.port, PATH, self.texts, seconds, self.connections, seed=n, **job)
                before = server.cpu_seconds
                result = _sound(name, load(asked))
                result.cpu_us = 1e6 * (server.cpu_seconds - before) / result.answers
                found[name].append(result)
        return found

    def saturation(self, names: Sequence[str]) -> Rounds:
        return self.rounds(names, self.plan.saturation_rounds, self.plan.saturation_seconds)

    def at(self, rate: float, names: Sequence[str], *, poisson: bool = False) -> Rounds:
        return self.rounds(names, self.plan.rounds, self.plan.seconds, rate=rate, poisson=poisson)


def _sound(name: str, result: Result) -> Result:
    """The result, unless what was measured were errors."""
    if not result.latencies or result.failed > 0.001 * len(result.latencies):
        raise InputError(
            f"{name}: {result.failed} requests failed and {len(result.latencies)} were answered "
            f"(statuses {dict(result.statuses)}): nothing to measure"
        )
    return result


@contextmanager
def servers(plan: Plan) -> Iterator[dict[str, Server]]:
    """The upstream, the bare proxy and the gateway, by target."""
    require_extra()
    options = {"latency": plan.latency, "tokens": plan.tokens, "interval": plan.interval}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(module("upstream", **options), measured=False) as upstream,
        started(module("bare", upstream=upstream.port), measured=True) as bare,
        gateway(Path(folder), upstream.port, workers=plan.workers) as served,
    ):
        yield {"direct": upstream, "bare": bare, "gateway": served}


def measure(plan: Plan) -> Iterator[list[Figure]]:
    """The figures of each part, in the order they are measured."""
    with servers(plan) as running:
        chats = Bench(plan, running, bodies(stream=False), plan.connections)
        saturated = chats.saturation(PROXIES)
        yield [throughput(saturated), processor_time(saturated)]
        half = min(rate_of(saturated[name]) for name in PROXIES) / 2
        measured = chats.at(half, TARGETS)
        yield [
            with_rounds(latency(measured, 50, 1.3), half, measured),
            latency(measured, 99, 2.0),
            routing_share(measured),
        ]
        measured = chats.at(half, TARGETS, poisson=True)
        usual, tail = (latency(measured, percentile, None, ", random arrivals") for percentile in (50, 99))
        yield [with_rounds(usual, half, measured), tail]
        streams = Bench(plan, running, bodies(stream=True), plan.stream_connections)
        saturated = streams.saturation(PROXIES)
        half = min(rate_of(saturated[name]) for name in PROXIES) / 2
        measured = streams.at(half, TARGETS)
        own, bare = first_token(measured)
        yield [with_rounds(own, half, measured), bare, throughput(saturated, f", streams of {plan.tokens} tokens")]
        yield [memory_per_worker(running["gateway"], plan.workers)]
