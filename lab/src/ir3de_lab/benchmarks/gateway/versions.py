"""What a request costs now, beside an earlier version of the gateway with the same settings.

Three gateways take turns: the earlier version, today's, and today's a second time. The last two show the noise.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import Rounds, spread
from ir3de_lab.benchmarks.gateway.measuring import Bench, Plan, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, memory, module, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

NAMES = ("before", "now", "again")
TURNS = 5
KEY = "sk-bench-versions"
LIMITS = {"requests_per_minute": 10**8, "tokens_per_minute": 10**11, "budget_per_day": 10**6}  # never reached


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


@dataclass(frozen=True)
class Kind:
    """What is sent: how the bodies are built, as streams or not, and with a client key or not."""

    build: Callable[..., Sequence[str]] = bodies
    is_stream: bool = False
    key: str = ""


KINDS = {
    "whole answers": Kind(),
    "streams of 20 tokens": Kind(is_stream=True),
    f"chats of {TURNS} turns": Kind(long_chats),
    "whole answers, named key": Kind(key=KEY),
    "streams of 20 tokens, named key": Kind(is_stream=True, key=KEY),
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
            for key in ("", KEY):
                with _start_versions(before, upstream.port, key) as servers:
                    for name, kind in KINDS.items():
                        if kind.key == key:
                            bench = Bench(Plan(), servers, kind.build(stream=kind.is_stream), plan.connections)
                            bench.rounds(NAMES, 1, plan.seconds / 2, key=key)  # warm
                            found[name].append(bench.rounds(NAMES, plan.rounds, plan.seconds, key=key))
                    if not key:
                        sizes.append({name: memory(server.process.pid)["rss_mb"] for name, server in servers.items()})
    for name, rounds in found.items():
        what = f"processor time a request, of before, {name}"
        costs = [{who: median(one.cpu_us for one in results) for who, results in start.items()} for start in rounds]
        yield [compare_costs(what, costs, "us", has_bar=KINDS[name].build is bodies)]
    yield [compare_costs("memory after the load, of before", sizes, "mb")]


@contextmanager
def _start_versions(before: Path, upstream: int, key: str) -> Iterator[dict[str, Server]]:
    sources = [before.resolve() / "src", before.resolve() / "gateway" / "src"]
    earlier = {"PYTHONPATH": os.pathsep.join(map(str, sources))}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        servers = {}
        for name in NAMES:
            place = Path(folder) / name
            place.mkdir()
            edit = partial(_add_key, place / "keys.yaml", key)
            env = earlier if name == "before" else None
            served = gateway(place, upstream, env=env, edit=edit, stderr=subprocess.DEVNULL)
            servers[name] = running.enter_context(served)
        yield servers


def _add_key(path: Path, key: str, config: dict[str, Any]) -> None:
    """Give the gateway a file with one named key, which has every kind of limit, if there is a key."""
    if key:
        entry = {"name": "bench", "hash": f"sha256:{hashlib.sha256(key.encode()).hexdigest()}", "limits": LIMITS}
        path.write_text(json.dumps({"keys": [entry]}), encoding="utf-8")
        config["server"]["keys_file"] = str(path)
        for expert in config["experts"]:
            expert["price"] = {"input_per_1m": 1.0, "output_per_1m": 1.0}


def compare_costs(what: str, costs: Sequence[Mapping[str, float]], unit: str, *, has_bar: bool = False) -> Figure:
    """The median over the starts of now to before. The bar is what two equal gateways differ by at most."""
    equal = [start["again"] / start["now"] for start in costs]
    ratios = [(start["now"] + start["again"]) / 2 / start["before"] for start in costs]
    bar = max(max(equal), 1 / min(equal)) if has_bar else None
    by_name = {f"{name}_{unit}": [round(start[name], 2) for start in costs] for name in NAMES}
    raw = {"ratios": spread(ratios), "of_two_equal_ones": spread(equal), **by_name}
    return Figure(what, median(ratios), "×", bar, higher_is_better=False, raw=raw)
