"""Several workers on one machine: requests a second and processor time of a request, with one worker and with more.

Nothing is kept to a core. The load generator and the upstream run on the same cores, so requests a second cannot grow
with the workers alone; what must not grow is the processor time of a request.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from ir3de_lab.benchmarks.gateway.comparing import spread, summary
from ir3de_lab.benchmarks.gateway.measuring import Bench, Plan, bodies
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, module, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

MOST_GROWTH = 1.1  # of the processor time of a request


def measure_workers(plan: Plan) -> list[Figure]:
    """One worker, and `plan.workers`, in turns."""
    require_extra()
    names = ("one worker", f"{plan.workers} workers")
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        arguments = module("upstream", latency=0.0, tokens=20, interval=0.0)
        upstream = running.enter_context(started(arguments, measured=False))
        servers: dict[str, Server] = {}
        for name, workers in zip(names, (1, plan.workers), strict=True):
            folder = Path(place) / str(workers)
            folder.mkdir()
            servers[name] = running.enter_context(gateway(folder, upstream.port, workers=workers))
        for server in (upstream, *servers.values()):
            for pid in server.tree:
                os.sched_setaffinity(pid, os.sched_getaffinity(0))
        bench = Bench(plan, servers, bodies(stream=False), plan.connections)
        bench.rounds(names, 1, 1.0)
        measured = bench.saturation(names)
    one, more = (measured[name] for name in names)
    rates = [b.rate / a.rate for a, b in zip(one, more, strict=True)]
    costs = [b.cpu_us / a.cpu_us for a, b in zip(one, more, strict=True)]
    return [
        Figure(f"processor time of a request, {names[1]} over one", median(costs), "×", MOST_GROWTH, False,
               {"ratios": spread(costs), **summary(measured)}),
        Figure(f"requests a second, {names[1]} over one", median(rates), "×", None, raw={"ratios": spread(rates)}),
    ]  # fmt: skip
