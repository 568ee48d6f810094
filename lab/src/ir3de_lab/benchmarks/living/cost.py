"""What the journal and a candidate in shadow cost: the processor time of a request, beside a gateway with neither.

Two gateways that keep none show the noise. All take turns, and are started several times: two processes of the same
program differ by some percent as long as they live.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ir3de import Router
from ir3de_lab.benchmarks.gateway.comparing import spread
from ir3de_lab.benchmarks.gateway.measuring import Bench, Plan, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, module, require_extra, started
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.measurement import Figure

KEPT = ("text", "tokens", "statistics")
SHADOW = "shadow"  # a candidate in shadow mode, and the journal that it needs
TRIED = (*KEPT, SHADOW)
NAMES = ("off", *TRIED, "off again")
STARTS, ROUNDS, SECONDS, CONNECTIONS = 5, 3, 1.5, 32
BAR = 1.1


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """The ratio of the processor time of a request, for each kind of journal, whole answers and streams."""
    require_extra()
    starts, rounds, seconds = (1, 1, 0.5) if quick else (STARTS, ROUNDS, SECONDS)
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with started(module("upstream", latency=0.0, tokens=20, interval=0.0), measured=False) as upstream:
        for start in range(starts):
            note(f"start {start + 1} of {starts}")
            with _start_gateways(upstream.port) as servers:
                for is_stream, costs in found.items():
                    bench = Bench(Plan(), servers, bodies(stream=is_stream), CONNECTIONS)
                    bench.rounds(NAMES, 1, seconds / 2)  # warm
                    results = bench.rounds(NAMES, rounds, seconds)
                    costs.append({name: median(one.cpu_us for one in results[name]) for name in NAMES})
    return [_compare(kept, is_stream, costs) for is_stream, costs in found.items() for kept in TRIED]


@contextmanager
def _start_gateways(upstream: int) -> Iterator[dict[str, Server]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        servers = {}
        for name in NAMES:
            place = Path(folder) / name
            place.mkdir()
            edit = partial(_keep, name, place)
            servers[name] = running.enter_context(gateway(place, upstream, edit=edit, stderr=subprocess.DEVNULL))
        yield servers


def _keep(name: str, place: Path, config: dict[str, Any]) -> None:
    if name in TRIED:
        config["feedback"] = {"folder": str(place / "kept"), "keep": "statistics" if name == SHADOW else name}
    if name == SHADOW:
        config.setdefault("routing", {})["candidate"] = {"router": str(_save_candidate(config, place))}


def _save_candidate(config: dict[str, Any], place: Path) -> Path:
    """The same router with another threshold: another candidate, which takes as long to decide."""
    router = Router.load(config["router"]["path"])
    threshold = router.policy.threshold / 2 + 0.01
    return router.with_policy(replace(router.policy, threshold=threshold)).save(place / "candidate", serving=True)


def _compare(kept: str, is_stream: bool, costs: list[dict[str, float]]) -> Figure:
    """The median over the starts of the ratio to a gateway without a journal; the mean of the two such gateways."""
    ratios = [2 * start[kept] / (start["off"] + start["off again"]) for start in costs]
    equal = [start["off again"] / start["off"] for start in costs]
    by_name = {f"{name}_us": [round(start[name], 1) for start in costs] for name in ("off", kept, "off again")}
    raw = {"ratios": spread(ratios), "of_two_equal_ones": spread(equal), **by_name}
    how = "a candidate in shadow" if kept == SHADOW else f"a journal, keep: {kept}"
    what = f"processor time of a request with {how}, {'streams' if is_stream else 'whole answers'}"
    return Figure(what, median(ratios), "×", BAR, higher_is_better=False, raw=raw)
