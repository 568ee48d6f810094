"""How much of their prompt caches conversations keep if an expert has several replicas: agents, many at once.

Two gateways of two workers each stand for two machines; a client sends each request to the other one. The replicas are
names at one stand-in. Which replica got which request is read from the access logs.
"""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab.benchmarks.chats import Sources
from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.switches import count_switches
from ir3de_lab.benchmarks.traces import Ask, build_traces

EXPERT = next(iter(demo.DOMAINS))
MACHINES = 2


@dataclass(frozen=True)
class Plan:
    """What is measured; `latency` is in seconds."""

    replicas: tuple[int, ...] = (2, 4, 8)
    traces_per_replica: int = 12
    at_once: int = 4  # traces at once, for each replica
    latency: float = 0.1
    workers: int = 2


QUICK = Plan(replicas=(2,), traces_per_replica=3, at_once=2, latency=0.02, workers=1)


@dataclass(frozen=True)
class Kept:
    """The share of cached tokens that conversations kept, in percent."""

    replicas: int
    affinity: float
    requests: int
    moved: int  # requests that went to another replica than the one before in their conversation
    kept: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_affinity(plan: Plan) -> Iterator[Kept]:
    """With affinity and without."""
    prompts = {name: list(texts) for name, texts in demo.prompts().items()}
    for replicas in plan.replicas:
        traces = build_traces(Sources("demo", "test", prompts), plan.traces_per_replica * replicas)
        for affinity in (0.0, 2.0):
            chosen = hold(traces, plan, replicas, affinity)
            row = count_switches("demo", "", traces, chosen)
            yield Kept(replicas, affinity, row.requests, row.switches, row.kept)


def hold(traces: Sequence[Sequence[Ask]], plan: Plan, replicas: int, affinity: float) -> list[list[str]]:
    """The replicas that got the requests of each trace."""
    with tempfile.TemporaryDirectory(prefix="ir3de-affinity-") as made:
        folders = [Path(made) / str(machine) for machine in range(MACHINES)]
        with (
            serve(folders, plan, replicas, affinity) as ports,
            ThreadPoolExecutor(plan.at_once * replicas) as pool,
        ):
            list(pool.map(lambda number: _play(ports, number, traces[number]), range(len(traces))))
        found = dict(pair for folder in folders for pair in _read_log(folder / "access.jsonl"))  # complete by now
    return [[found[f"{number}-{place}"] for place in range(len(asks))] for number, asks in enumerate(traces)]


@contextmanager
def serve(folders: Sequence[Path], plan: Plan, replicas: int, affinity: float) -> Iterator[list[int]]:
    """The ports of gateways, one for each folder, with an expert of so many replicas."""
    with ExitStack() as stack:
        arguments = processes.module("upstream", latency=plan.latency, tokens=1)
        upstream = stack.enter_context(processes.started(arguments, measured=False))
        addresses = [
            {"name": f"r{number}", "base_url": f"http://127.0.0.1:{upstream.port}/r{number}/v1"}
            for number in range(replicas)
        ]
        expert = {"name": EXPERT, "replicas": addresses, "affinity": affinity, "health": {"active": False}}
        expert["concurrency"] = {"limit": 10_000, "queue": 1_000}
        ports = []
        for folder in folders:
            folder.mkdir()
            edit = lambda config: config.update(experts=[expert])  # noqa: E731
            server = processes.gateway(folder, upstream.port, workers=plan.workers, edit=edit)
            ports.append(stack.enter_context(server).port)
        yield ports


def _play(ports: Sequence[int], number: int, asks: Sequence[Ask]) -> None:
    """Send the requests of a trace, each after the answer of the one before."""
    with ExitStack() as stack:
        made = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in ports]
        connections = [stack.enter_context(closing(one)) for one in made]
        for place, ask in enumerate(asks):
            connection = connections[place % len(connections)]
            body = json.dumps({"model": EXPERT, "messages": ask.messages})
            headers = {"content-type": "application/json", "x-request-id": f"{number}-{place}"}
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise InputError(f"the gateway answered with status {answer.status}: {content[:300]!r}")


def _read_log(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("replica"):
            yield row["request_id"], row["replica"]
