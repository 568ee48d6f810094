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
from statistics import median
from typing import Any

import numpy as np

from ir3de import demo
from ir3de.bench.gateway.load import Job, Result
from ir3de.bench.gateway.processes import Server, gateway, memory, module, pin, require_extra, started
from ir3de.bench.measurement import Figure
from ir3de.embeddings import Embedding
from ir3de.errors import InputError

PATH = "/v1/chat/completions"
PROMPT_TOKENS = 100
MEGABYTES_BAR = 150.0
Rounds = dict[str, list[Result]]  # by target


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
    ports: Mapping[str, int]  # by target
    texts: Sequence[str]

    def rounds(self, names: Sequence[str], count: int, seconds: float, **job: Any) -> Rounds:
        """The targets in turns, so that noise falls on all of them alike; every round has its own order."""
        found: Rounds = {name: [] for name in names}
        for n in range(count):
            shift = n % len(names)
            for name in (*names[shift:], *names[:shift]):
                asked = Job(self.ports[name], PATH, self.texts, seconds, self.plan.connections, seed=n, **job)
                found[name].append(_sound(name, load(asked)))
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


def rate_of(rounds: Sequence[Result]) -> float:
    """Requests a second, the median over the rounds."""
    return median(result.rate for result in rounds)


def percentiles(rounds: Rounds, percentile: float, *, firsts: bool = False) -> dict[str, list[float]]:
    """Milliseconds by target and round."""
    return {
        name: [1e3 * float(np.percentile(r.firsts if firsts else r.latencies, percentile)) for r in results]
        for name, results in rounds.items()
    }


def added(rounds: Rounds, name: str, percentile: float, *, firsts: bool = False) -> list[float]:
    """What a target adds to the upstream's own percentile, in milliseconds, by round."""
    found = percentiles(rounds, percentile, firsts=firsts)
    return [a - b for a, b in zip(found[name], found["direct"], strict=True)]


def summary(rounds: Rounds) -> dict[str, Any]:
    """What is kept of a set of rounds: rates and percentiles, one number a round."""
    kept: dict[str, Any] = {}
    for name, results in rounds.items():
        kept[name] = {
            "requests": [len(result.latencies) for result in results],
            "rate": [round(result.rate, 1) for result in results],
            "failed": sum(result.failed for result in results),
            "late_us": [round(result.late_us, 1) for result in results],
        }
        for percentile in (50, 90, 99, 99.9):
            kept[name][f"p{percentile}_ms"] = _rounded(percentiles({name: results}, percentile)[name])
            if results[0].firsts:
                shown = percentiles({name: results}, percentile, firsts=True)[name]
                kept[name][f"first_p{percentile}_ms"] = _rounded(shown)
        if results[0].route_us is not None:
            kept[name]["route_us"] = _rounded([result.route_us or 0.0 for result in results])
    return kept


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def spread(values: Sequence[float]) -> list[float]:
    """The quartiles and the ends."""
    return _rounded([float(np.percentile(values, p)) for p in (0, 25, 50, 75, 100)])


PROXIES = ("bare", "gateway")
TARGETS = ("direct", *PROXIES)


def throughput(saturated: Rounds, what: str = "") -> Figure:
    """How many requests a second the gateway does, as a share of the bare proxy's."""
    pairs = zip(saturated["gateway"], saturated["bare"], strict=True)
    ratios = [gateway.rate / bare.rate for gateway, bare in pairs]
    raw = {"ratios": spread(ratios), **summary(saturated)}
    return Figure(f"throughput, of the bare proxy's{what}", 100 * median(ratios), "%", None if what else 80.0, raw=raw)


def latency(measured: Rounds, percentile: float, bar: float | None, what: str = "") -> Figure:
    """What the gateway adds at that percentile, over what the bare proxy adds."""
    by_round = {name: added(measured, name, percentile) for name in PROXIES}
    middle = {name: median(values) for name, values in by_round.items()}
    raw = {
        **{f"{name}_added_ms": round(value, 4) for name, value in middle.items()},
        **{f"{name}_spread_ms": spread(values) for name, values in by_round.items()},
    }
    name = f"added latency, p{percentile:g}, of the bare proxy's{what}"
    return Figure(name, middle["gateway"] / middle["bare"], "×", bar, higher_is_better=False, raw=raw)


def first_token(measured: Rounds) -> list[Figure]:
    """What the proxies add to the time to the first streamed token."""
    figures = []
    for name, bar in (("gateway", 2.0), ("bare", None)):
        values = added(measured, name, 50, firsts=True)
        tail = added(measured, name, 99, firsts=True)
        raw = {"spread_ms": spread(values), "p99_ms": round(median(tail), 4), "p99_spread_ms": spread(tail)}
        title = f"added time to the first streamed token, p50{'' if name == 'gateway' else ', bare proxy'}"
        figures.append(Figure(title, median(values), "ms", bar, higher_is_better=False, raw=raw))
    return figures


def routing_share(measured: Rounds) -> Figure:
    """How much of what the gateway adds is spent on choosing the expert."""
    routes = [result.route_us for result in measured["gateway"] if result.route_us is not None]
    if not routes:
        raise InputError("the gateway's answers have no header x-ir3de-route-us: is provenance switched off?")
    whole = 1e3 * median(added(measured, "gateway", 50))
    raw = {"route_us": spread(routes), "added_us": round(whole, 1)}
    return Figure(
        "routing, of the added latency", 100 * median(routes) / whole, "%", 10.0, higher_is_better=False, raw=raw
    )


def memory_per_worker(server: Server, workers: int) -> Figure:
    """After the load: with several workers, all processes' shares together, by worker."""
    found = [memory(pid) for pid in server.tree]
    value = found[0]["rss_mb"] if len(found) == 1 else sum(one["pss_mb"] for one in found) / workers
    raw = {"workers": workers, "processes": [{name: round(v, 1) for name, v in one.items()} for one in found]}
    return Figure("memory per worker, 5 experts", value, "MB", MEGABYTES_BAR, higher_is_better=False, raw=raw)


@contextmanager
def servers(plan: Plan) -> Iterator[tuple[dict[str, int], Server]]:
    """The upstream, the bare proxy and the gateway; the ports by target, and the gateway."""
    require_extra()
    options = {"latency": plan.latency, "tokens": plan.tokens, "interval": plan.interval}
    with (
        tempfile.TemporaryDirectory() as folder,
        started(module("upstream", **options), measured=False) as upstream,
        started(module("bare", upstream=upstream.port), measured=True) as bare,
        gateway(Path(folder), upstream.port, workers=plan.workers) as served,
    ):
        yield {"direct": upstream.port, "bare": bare.port, "gateway": served.port}, served


def measure(plan: Plan) -> Iterator[tuple[str, list[Figure]]]:
    """Each part's name and its figures, in the order they are measured."""
    with servers(plan) as (ports, served):
        bench = Bench(plan, ports, bodies(stream=False))
        saturated = bench.saturation(PROXIES)
        yield "throughput", [throughput(saturated)]
        half = min(rate_of(saturated[name]) for name in PROXIES) / 2
        measured = bench.at(half, TARGETS)
        raw = {"rate": round(half, 1), **summary(measured)}
        figures = [latency(measured, 50, 1.3), latency(measured, 99, 2.0), routing_share(measured)]
        yield "latency", [_with(figure, raw if n == 0 else {}) for n, figure in enumerate(figures)]
        random = bench.at(half, TARGETS, poisson=True)
        yield "random arrivals", [latency(random, p, None, ", random arrivals") for p in (50, 99)]
        streams = Bench(plan, ports, bodies(stream=True))
        saturated = streams.saturation(PROXIES)
        half = min(rate_of(saturated[name]) for name in PROXIES) / 2
        measured = streams.at(half, TARGETS)
        figures = first_token(measured)
        figures[0] = _with(figures[0], {"rate": round(half, 1), **summary(measured)})
        yield "streams", [*figures, throughput(saturated, f", streams of {plan.tokens} tokens")]
        yield "memory", [memory_per_worker(served, plan.workers)]


def _with(figure: Figure, raw: Mapping[str, Any]) -> Figure:
    return Figure(
        figure.name, figure.value, figure.unit, figure.bar, figure.higher_is_better, {**figure.raw, **raw}
    )
