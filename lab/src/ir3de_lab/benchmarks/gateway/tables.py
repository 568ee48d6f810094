"""The raw files of the gateway's benchmarks as Markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

from ir3de_lab.benchmarks.gateway.upstream import WAYS

TARGETS = ("direct", "bare", "gateway", "aiohttp", "nginx")

GATEWAY_NOTES = (
    "Everything runs on loopback. An upstream stands in for the experts. A bare proxy with the same server and the",
    "same transport as the gateway only forwards and relays; another one has aiohttp, the usual library. The gateway",
    "has the demo's router, five experts, access log and metrics. nginx, where it is installed, shows what a proxy",
    "costs that is written in C. The requests are chats of 100 tokens, all different.",
    "",
    "*Instant upstream*: the upstream answers at once, and 64 connections ask again as soon as they have an answer.",
    "For latencies the upstream answers after 10 ms. A request costs less processor time the more of them there are,",
    "so bare proxy and gateway are compared where both are equally busy: each gets requests at the rate at which its",
    "process takes 60 % of a core. nginx gets the gateway's rate. *Added* latency is the percentile minus the",
    "upstream's own. A latency counts from the moment the request was due: at a random moment in equal intervals, or",
    "entirely at random (*random arrivals*). The proxies have one core, and load and upstream the other. The figures",
    "are medians over rounds in which the targets take turns; the raw file has the spread.",
)

LIMITS_NOTES = (
    "Each request is within the documented limits and is sent to a gateway of its own that has answered usual chats",
    "before. *Growth* is the highest resident memory that the kernel has seen minus the memory before. *Stall* is what",
    "others notice: another process asks `/livez` every 2 ms on a connection of its own, and the longest wait counts,",
    "minus the usual one; of three runs the one with the shortest. The multiple of the size is told for requests from",
    "1 MB on. The idle streams have had their first token and say nothing more; their clients are another process.",
    "Of a request of 2 MB, about 4 MB are the same whatever its size: buffers, and the thread that reads large JSON.",
)

SOAK_NOTES = (
    "A tenth of the requests are streamed, a tenth of the clients leave in the middle, and one request in twenty",
    "fails at the upstream, in six ways. Every request has an id that its answer must repeat, complete to the last",
    "token. What the clients saw is compared with the upstream's own record of every attempt. *Cut*: the upstream",
    "broke off in the middle of a stream, and the client was told. Fifty times the router's folder is replaced and",
    "`PUT /admin/router` says so. The gateway may have 512 MiB of private memory (`RLIMIT_DATA`), and the kernel's",
    "record of its highest resident memory must stay below that too.",
)


def proxy_table(document: dict[str, Any]) -> list[str]:
    """What is behind the ratios: the upstream and the proxies, medians over the rounds."""
    lines = ["| | upstream alone | bare proxy | gateway | bare proxy, aiohttp | nginx |", "|---|" + "---:|" * 5]
    for figure in document["figures"]:
        found = figure["raw"]
        if "asked_rates" in found:
            streams = "streamed" in figure["name"]
            where = "first token" if streams else "random arrivals" if "random" in figure["name"] else "chat completion"
            sent = {name: _number(rate) for name, rate in found["asked_rates"].items()}
            lines.append(_row(f"{where}, requests/s sent", sent))
            for percentile in ("p50", "p99"):
                key = f"first_{percentile}_ms" if streams else f"{percentile}_ms"
                lines.append(_row(f"{where}, {percentile}, ms", _medians(found, key, "{:.2f}")))
    for figure in document["figures"]:
        found = figure["raw"]
        if figure["name"].startswith("throughput") and "gateway" in found:
            what = "streams" if "streams" in figure["name"] else "chat completions"
            lines.append(_row(f"{what} per second, at most", _medians(found, "rate", "{:,.0f}")))
            lines.append(_row(f"{what}, processor time each, µs", _medians(found, "cpu_us", "{:,.0f}")))
    return lines


def _medians(found: dict[str, Any], key: str, form: str) -> dict[str, str]:
    return {name: form.format(median(found[name][key])) for name in TARGETS if name in found}


def _row(label: str, cells: dict[str, str]) -> str:
    return f"| {label} | {' | '.join(cells.get(name, '') for name in TARGETS)} |"


def limits_table(document: dict[str, Any]) -> list[str]:
    """What each of the heavy requests took."""
    lines = ["| request | size, MB | status | growth, MB | stall, ms | processor time, s |", "|---|" + "---:|" * 5]
    for cost in document["figures"][0]["raw"]["requests"]:
        cells = (f"{cost['request_bytes'] / 1e6:.2f}", str(cost["status"] or "none"), _number(cost["growth_mb"]))
        shown = " | ".join((*cells, _number(cost["stall_ms"]), _number(cost["cpu_s"])))
        lines.append(f"| {cost['name']} | {shown} |")
    return lines


def soak_table(document: dict[str, Any]) -> list[str]:
    """What became of the requests."""
    report = document["report"]
    kinds, upstream, plan = report["verdict"]["kinds"], report["upstream"], report["plan"]
    failed = ", ".join(f"{upstream.get(way, 0):,} × {way}" for way in WAYS)
    memory = report["memory_mb"]
    return [
        "| | |",
        "|---|---:|",
        *(f"| requests {kind} | {count:,} |" for kind, count in kinds.items()),
        f"| answered by another expert than the first | {report['verdict']['notes'].get('fallback', 0):,} |",
        f"| refused because the experts had asked for a rest | {report['verdict']['notes'].get('resting', 0):,} |",
        f"| failures of the upstream | {failed} |",
        f"| requests per second, {plan['concurrency']} at once | {_number(report['requests_per_second'])} |",
        f"| memory after {memory[0][0]:,} requests, MB | {memory[0][1]:.1f} |",
        f"| memory after {memory[-1][0]:,} requests, MB | {memory[-1][1]:.1f} |",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
