"""What gateways ask of the store that they share: counted by the store itself, and simulated.

Three real gateways of two workers each do nothing for a while, then answer chats of named keys, then chats of which
half have a session. The store counts its commands, its bytes and its processor time. It also counts the commands within
scripts, so what pins need is the difference between the last two. The simulation draws the same kinds of requests and
adds up what each asks for, and what workers ask for without any request. If the two agree, it may be asked about other
sizes.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de.errors import MissingExtraError
from ir3de_lab.benchmarks.gateway.load import Job
from ir3de_lab.benchmarks.gateway.measuring import PATH, bodies, load
from ir3de_lab.benchmarks.gateway.processes import Server, gateway, module, require_extra, started
from ir3de_lab.benchmarks.measurement import Figure

MACHINES, WORKERS, KEYS, CONNECTIONS = 3, 2, 20, 8
MOST_DIFFERENCE = 10.0  # percent, of simulated and counted commands
# what a request asks of the store, by its kind
OF_KEY = Counter(evalsha=3)  # admit, reserve and settle
OF_SESSION = Counter(get=1, set=1)  # its pin is read, and written anew
WORKER_CHECK_S, MACHINE_CHECK_S = 0.3, 1.0  # between two checks whether /admin has changed something
RATES = (10**3, 10**5, 10**6)  # requests a second that the simulation is asked about


@dataclass(frozen=True)
class StorePlan:
    """What is sent, and for how long."""

    store: str
    seconds: float = 15.0
    with_session: float = 0.5  # of the requests
    seed: int = 0


@dataclass(frozen=True)
class Counted:
    """What the store counted within a while."""

    commands: Mapping[str, int]
    bytes: int
    cpu_seconds: float
    requests: int
    seconds: float

    @property
    def of_pins(self) -> int:
        """Commands of pins, and those of their kinds within scripts."""
        return self.commands.get("get", 0) + self.commands.get("set", 0)


def measure_store_load(plan: StorePlan) -> list[Figure]:
    """Commands of requests and workers, as the store counts them and as the simulation has them."""
    require_extra()
    idle, plain, chats = _count_real(plan)
    requests = chats.requests
    within_scripts = plain.of_pins / plain.requests
    counted = {
        "scripts a request": plain.commands["evalsha"] / plain.requests,
        "commands of pins a request": chats.of_pins / requests - within_scripts,
        "commands a second without requests": sum(idle.commands.values()) / idle.seconds,
    }
    drawn, waiting = simulate(plan, requests, 0.0), simulate(plan, 0, 60.0)
    simulated = {
        "scripts a request": drawn["evalsha"] / requests,
        "commands of pins a request": (drawn["get"] + drawn["set"]) / requests,
        "commands a second without requests": sum(waiting.values()) / 60.0,
    }
    return [
        *(
            Figure(f"{name}: the simulation is off by", 100 * abs(simulated[name] / counted[name] - 1), "%",
                   MOST_DIFFERENCE, higher_is_better=False,
                   raw={"counted": round(counted[name], 3), "simulated": round(simulated[name], 3)})
            for name in counted
        ),
        Figure("bytes to and from the store a request", chats.bytes / requests, "bytes", None,
               raw={"commands": dict(chats.commands), "requests": requests, "seconds": round(chats.seconds, 2)}),
        Figure("processor time of the store a request", 1e6 * chats.cpu_seconds / requests, "µs", None),
        *(_extrapolate(plan, rate, chats) for rate in RATES),
    ]  # fmt: skip


def simulate(plan: StorePlan, requests: int, seconds: float) -> Counter[str]:
    """The commands of so many requests, drawn one by one, and of the workers and machines meanwhile."""
    dice, found = random.Random(plan.seed), Counter[str]()
    for _ in range(requests):
        found += OF_KEY
        if dice.random() < plan.with_session:
            found += OF_SESSION
    found["hget"] = round(seconds * (MACHINES * WORKERS / WORKER_CHECK_S + MACHINES / MACHINE_CHECK_S))
    return found


def _extrapolate(plan: StorePlan, rate: int, counted: Counted) -> Figure:
    """The cores of the store at a rate, if a request costs what it cost here."""
    trips = sum(simulate(plan, 1_000, 0.0).values()) / 1_000
    of_request = counted.cpu_seconds / counted.requests
    raw = {"round_trips_per_second": round(rate * trips), "megabytes_per_second": round(
        1e-6 * rate * counted.bytes / counted.requests, 1)}  # fmt: skip
    name = f"cores of the store at {rate:,} requests a second"
    return Figure(name, rate * of_request, "", None, higher_is_better=False, raw=raw)


# three real gateways --------------------------------------------------------------------------------------------------


def _count_real(plan: StorePlan) -> tuple[Counted, Counted, Counted]:
    """What the store counts without requests, with chats, and with chats of which some have a session."""
    try:
        from redis import Redis
    except ImportError as error:
        raise MissingExtraError("redis", "redis", "counting the load of a store", "ir3de-gateway") from error
    with Redis.from_url(plan.store) as client, _start(plan) as servers, ThreadPoolExecutor(MACHINES) as pool:

        def send(texts: list[str]) -> int:
            jobs = [
                Job(server.port, PATH, texts, plan.seconds, CONNECTIONS, warm=0.0, key=_name_secret(number))
                for number, server in enumerate(servers)
            ]
            return sum(result.answers for result in pool.map(load, jobs))

        def rest(seconds: float) -> int:
            time.sleep(seconds)
            return 0

        rest(2.0)  # what happens once at the start is over
        idle = _count(client, lambda: rest(plan.seconds))
        plain = bodies(stream=False)
        return idle, _count(client, lambda: send(plain)), _count(client, lambda: send(_draw_bodies(plan)))


def _count(client: Any, act: Callable[[], int]) -> Counted:
    """What the store counts while something is done, which returns its number of requests."""
    before, began = _read_counts(client), time.monotonic()
    requests = act()
    after, seconds = _read_counts(client), time.monotonic() - began
    commands = {name: many - before[0].get(name, 0) for name, many in after[0].items()}
    used = {name: many for name, many in commands.items() if many > 0 and name != "info"}
    return Counted(used, after[1] - before[1], after[2] - before[2], requests, seconds)


def _draw_bodies(plan: StorePlan) -> list[str]:
    """Chats, of which the planned share names a session of its own."""
    dice, found = random.Random(plan.seed), bodies(stream=False)
    for place, body in enumerate(found):
        if dice.random() < plan.with_session:
            found[place] = json.dumps({**json.loads(body), "ir3de": {"session": f"session-{place}"}})
    return found


def _read_counts(client: Any) -> tuple[dict[str, int], int, float]:
    stats, traffic, cpu = client.info("commandstats"), client.info("stats"), client.info("cpu")
    commands = {name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in stats.items()}
    moved = int(traffic["total_net_input_bytes"]) + int(traffic["total_net_output_bytes"])
    return commands, moved, float(cpu["used_cpu_sys"]) + float(cpu["used_cpu_user"])


def _name_secret(number: int) -> str:
    return f"sk-store-load-{number}"


@contextmanager
def _start(plan: StorePlan) -> Iterator[list[Server]]:
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        folder, enter = Path(place), running.enter_context
        upstream = enter(started(module("upstream", latency=0.0, tokens=20, interval=0.0), measured=False))
        file, prefix = folder / "keys.yaml", f"load-{time.time_ns()}"
        limits = {"requests_per_minute": 10**9, "tokens_per_minute": 10**12}
        keys = [
            {"name": f"key-{number}", "limits": limits,
             "hash": f"sha256:{hashlib.sha256(_name_secret(number).encode()).hexdigest()}"}
            for number in range(KEYS)
        ]  # fmt: skip
        file.write_text(json.dumps({"keys": keys}), encoding="utf-8")

        def edit(config: dict[str, Any]) -> None:
            config["server"]["keys_file"] = str(file)
            config["state"] = {"store": plan.store, "prefix": prefix, "folder": config["state"], "timeout": 10}
            config["routing"] = {"pinning": {"ttl": 600}}

        servers = []
        for number in range(MACHINES):
            machine = folder / f"machine-{number}"
            machine.mkdir()
            servers.append(enter(gateway(machine, upstream.port, edit=edit, workers=WORKERS)))
        yield servers
