"""What a request costs now, beside an earlier version of the gateway with the same settings.

Three gateways take turns: the earlier version, today's, and today's a second time. The last two show the noise.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import Rounds, spread
from ir3de_lab.benchmarks.gateway.measuring import Bench, Plan, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, memory, module, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

NAMES = ("before", "now", "again")
TURNS = 5


@dataclass(frozen=True)
class VersionPlan:
    """How often the gateways are started, and how many rounds each gets, of so many seconds."""

    starts: int = 6
    rounds: int = 3
    seconds: float = 1.5
    connections: int = 32


QUICK = VersionPlan(starts=2, rounds=1, seconds=0.5)


def long_chats(*, stream: bool, count: int = 100) -> list[str]:
    """Chats of five turns of the user, each about the same subject."""
    domains = list(demo.held_out().values())
    made = []
    for n in range(count):
        texts = domains[n % len(domains)]
        messages = []
        for turn in range(TURNS):
            messages.append({"role": "user", "content": texts[(n + turn) % len(texts)]})
            messages.append({"role": "assistant", "content": "I see."})
        made.append(json.dumps({"model": "auto", "messages": messages[:-1], **({"stream": True} if stream else {})}))
    return made


KINDS: dict[str, tuple[Callable[..., Sequence[str]], bool]] = {
    "whole answers": (bodies, False),
    "streams of 20 tokens": (bodies, True),
    f"chats of {TURNS} turns": (long_chats, False),
}


def measure_versions(before: Path, plan: VersionPlan) -> Iterator[list[Figure]]:
    """The figures of each kind of request; `before` is the source tree of the earlier version.

    Two processes of the same program differ by some percent as long as they live, so they are started several times.
    """
    require_extra()
    if not (before / "src" / "ir3de").is_dir():
        raise InputError(f"{before} has no src/ir3de: give a checkout of the earlier version")
    found: dict[str, list[Rounds]] = {kind: [] for kind in KINDS}
    sizes: list[dict[str, float]] = []
    with started(module("upstream", latency=0.0, tokens=20, interval=0.0), measured=False) as upstream:
        for _ in range(plan.starts):
            with _start_versions(before, upstream.port) as servers:
                for kind, (build, is_stream) in KINDS.items():
                    bench = Bench(Plan(), servers, build(stream=is_stream), plan.connections)
                    bench.rounds(NAMES, 1, plan.seconds / 2)  # warm
                    found[kind].append(bench.rounds(NAMES, plan.rounds, plan.seconds))
                sizes.append({name: memory(server.process.pid)["rss_mb"] for name, server in servers.items()})
    for kind, rounds in found.items():
        what = f"processor time a request, of before, {kind}"
        costs = [{name: median(one.cpu_us for one in results) for name, results in start.items()} for start in rounds]
        yield [compare_costs(what, costs, "us", has_bar=KINDS[kind][0] is bodies)]
    yield [compare_costs("memory after the load, of before", sizes, "mb")]


@contextmanager
def _start_versions(before: Path, upstream: int) -> Iterator[dict[str, Server]]:
    earlier = {"PYTHONPATH": str(before.resolve() / "src")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        servers = {}
        for name in NAMES:
            place = Path(folder) / name
            place.mkdir()
            served = gateway(place, upstream, env=earlier if name == "before" else None, stderr=subprocess.DEVNULL)
            servers[name] = running.enter_context(served)
        yield servers


def compare_costs(what: str, costs: Sequence[Mapping[str, float]], unit: str, *, has_bar: bool = False) -> Figure:
    """The median over the starts of now to before. The bar is what two equal gateways differ by at most."""
    equal = [start["again"] / start["now"] for start in costs]
    ratios = [(start["now"] + start["again"]) / 2 / start["before"] for start in costs]
    bar = max(max(equal), 1 / min(equal)) if has_bar else None
    by_name = {f"{name}_{unit}": [round(start[name], 2) for start in costs] for name in NAMES}
    raw = {"ratios": spread(ratios), "of_two_equal_ones": spread(equal), **by_name}
    return Figure(what, median(ratios), "×", bar, higher_is_better=False, raw=raw)
