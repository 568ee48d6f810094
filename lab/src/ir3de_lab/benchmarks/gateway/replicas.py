"""One of three replicas is killed and comes back, another is slowed and recovers, while requests come steadily.

Replicas, gateway and load are processes of their own. The gateway has one expert, so no other can answer instead. Which
replica answered when is read from the gateway's access log. Answers are whole: a stream that has begun at a replica
that is killed cannot be continued by anybody.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ir3de.corpora import examples as demo
from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.load import Job, Result
from ir3de_lab.benchmarks.gateway.measuring import load
from ir3de_lab.benchmarks.gateway.processes import Server
from ir3de_lab.benchmarks.measurement import Figure

NAMES = ("a", "b", "c")
KILLED, SLOWED = "a", "b"
FAIR = 1 / len(NAMES)
RECOVERED = 0.8  # of the fair share
WINDOW_S = 1.0  # over which a share is taken
STEP_S = 0.1
EXPERT = next(iter(demo.DOMAINS))


@dataclass(frozen=True)
class Plan:
    """What happens when; times are seconds."""

    rate: float = 100.0  # requests a second
    calm: float = 5.0  # before anything happens, and between the two
    away: float = 8.0  # how long a replica is dead, and how long one is slow
    after: float = 8.0  # to recover, each time
    latency: float = 0.05
    slow: float = 0.5  # the latency of the slowed replica
    interval: float = 4.0  # between two health checks
    down_interval: float = 1.0
    slow_start: float = 2.0
    workers: int = 2

    @property
    def seconds(self) -> float:
        return 2 * (self.calm + self.away + self.after)


QUICK = Plan(
    rate=60.0, calm=1.5, away=3.0, after=4.0, interval=2.0, down_interval=0.5, slow_start=1.0, latency=0.02, slow=0.2
)
EVENTS = {"kill": "a is killed", "back": "a is back", "slow": "b is slow", "fast": "b is fast again"}


@dataclass
class Report:
    """What was asked, who answered when, and what happened meanwhile."""

    plan: Plan
    events: dict[str, float] = field(default_factory=dict)  # times since 1970
    answers: list[tuple[float, str]] = field(default_factory=list)  # when they were asked for, and by whom given
    retries: int = 0
    failed: int = 0
    total: int = 0

    def measure_share(self, replica: str, end: float) -> float:
        """The part of the answers of the last second that a replica gave."""
        window = Counter(name for moment, name in self.answers if end - WINDOW_S <= moment < end)
        return window[replica] / max(1, window.total())

    def measure_recovery(self, replica: str, back: float) -> float:
        """Seconds from its return until a replica has its share again; those of the whole phase if it never has."""
        end = back + WINDOW_S
        while end < back + self.plan.after:
            if self.measure_share(replica, end) >= RECOVERED * FAIR:
                return end - back
            end += STEP_S
        return self.plan.after

    def list_shares(self) -> list[dict[str, float]]:
        """The shares of all replicas, second by second."""
        begin = self.answers[0][0]
        seconds = range(1, int(self.answers[-1][0] - begin) + 1)
        return [
            {"second": second, **{name: round(self.measure_share(name, begin + second), 3) for name in NAMES}}
            for second in seconds
        ]

    def name_seconds(self) -> dict[int, str]:
        """In which second what happened."""
        begin = self.answers[0][0]
        return {int(moment - begin) + 1: EVENTS[name] for name, moment in self.events.items()}

    def figures(self) -> list[Figure]:
        plan, shares = self.plan, self.list_shares()
        begin = self.answers[0][0]
        events = {name: round(moment - begin, 2) for name, moment in self.events.items()}
        raw: dict[str, Any] = {"requests": self.total, "retries": self.retries, "events_s": events, "shares": shares}
        killed = self.measure_recovery(KILLED, self.events["back"])
        slowed = self.measure_recovery(SLOWED, self.events["fast"])
        least = self.measure_share(SLOWED, self.events["fast"])
        return [
            Figure("answers that failed", self.failed, "", 0, False, raw),
            Figure("killed: until its share is back", round(killed, 2), "s", plan.interval, False),
            Figure("slowed: until its share is back", round(slowed, 2), "s", plan.interval, False),
            Figure("slowed: its share meanwhile", round(least, 3), "", FAIR, False),
        ]


def measure_replicas(plan: Plan) -> Report:
    """Run it all, and say what was seen."""
    report = Report(plan)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        ports = {replica: processes.free_port() for replica in NAMES}
        running = {replica: stack.enter_context(replica_at(ports[replica], plan)) for replica in NAMES}
        edit = lambda config: config.update(experts=[describe_expert(ports, plan)])  # noqa: E731
        server = stack.enter_context(processes.gateway(folder, ports["a"], workers=plan.workers, edit=edit))
        chat = {"model": EXPERT, "messages": [{"role": "user", "content": next(iter(demo.prompts()[EXPERT]))}]}
        job = Job(server.port, "/v1/chat/completions", [json.dumps(chat)], plan.seconds, 64, plan.rate, warm=0.0)
        with ThreadPoolExecutor(1) as pool:
            asking: Future[Result] = pool.submit(load, job)
            disturb(plan, ports, running, report.events, stack)
            result = asking.result()
        report.failed, report.total = result.failed, result.answers
        read_log(folder / "access.jsonl", report)
    return report


def disturb(
    plan: Plan, ports: Mapping[str, int], running: Mapping[str, Server], events: dict[str, float], stack: ExitStack
) -> None:
    """Kill a replica and start it again; slow another one down and let it go."""
    time.sleep(plan.calm)
    victim, slow = running[KILLED].process, running[SLOWED].process
    events["kill"] = time.time()
    victim.kill()
    victim.wait()
    time.sleep(plan.away)
    stack.enter_context(replica_at(ports[KILLED], plan))
    events["back"] = time.time()
    time.sleep(plan.after + plan.calm)
    events["slow"] = time.time()
    os.kill(slow.pid, signal.SIGUSR1)
    time.sleep(plan.away)
    os.kill(slow.pid, signal.SIGUSR2)
    events["fast"] = time.time()


@contextmanager
def replica_at(port: int, plan: Plan) -> Iterator[Server]:
    """A stand-in for an expert, ready to serve."""
    arguments = processes.module("upstream", port=port, latency=plan.latency, slow=plan.slow)
    with processes.started(arguments, measured=False) as server:
        yield server


def describe_expert(ports: Mapping[str, int], plan: Plan) -> dict[str, Any]:
    """The one expert, with its replicas."""
    replicas = [{"name": name, "base_url": f"http://127.0.0.1:{port}/v1"} for name, port in ports.items()]
    health = {"interval": plan.interval, "down_interval": plan.down_interval, "timeout": 1.0}
    limits = {"concurrency": {"limit": 1_000, "queue": 1_000}, "affinity": 0}  # all requests are equal
    return {"name": EXPERT, "replicas": replicas, "health": health, "slow_start": plan.slow_start, **limits}


def read_log(path: Path, report: Report) -> None:
    """Who answered when, and how often another replica had to be asked."""
    lines: Sequence[str] = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = json.loads(line)
        if row.get("replica"):
            report.answers.append((datetime.fromisoformat(row["time"]).timestamp(), row["replica"]))
            report.retries += row["retries"]
    report.answers.sort()
