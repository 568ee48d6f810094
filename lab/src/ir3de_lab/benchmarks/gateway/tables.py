"""The raw files of the gateway's benchmarks as Markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

from ir3de_lab.benchmarks.gateway.upstream import WAYS

GATEWAY_NOTES = (
    "Everything runs on loopback. An upstream stands in for the experts and answers after 10 ms. A bare proxy in",
    "the same framework (Starlette, uvicorn, aiohttp) only forwards and relays. The gateway has the demo's router,",
    "five experts, access log and metrics. The requests are chats of 100 tokens, all different.",
    "",
    "First, as many requests as possible go through each. Then upstream, bare proxy and gateway are measured in",
    "turn, at half the rate that the slower proxy managed. *Added* latency is the percentile minus the upstream's",
    "own. A latency counts from the moment the request was due: at a random moment in equal intervals, or entirely",
    "at random (*random arrivals*). The proxies have one core, and load and upstream the other. The figures are",
    "medians over rounds; the raw file has the spread.",
)

SOAK_NOTES = (
    "A tenth of the requests are streamed, a tenth of the clients leave in the middle, and one request in twenty",
    "fails at the upstream, in six ways. Every request has an id that its answer must repeat, complete to the last",
    "token. What the clients saw is compared with the upstream's own record of every attempt. *Cut*: the upstream",
    "broke off in the middle of a stream, and the client was told.",
)


def proxy_table(document: dict[str, Any]) -> list[str]:
    """What is behind the ratios: the upstream, the bare proxy and the gateway, medians over the rounds."""
    lines = ["| | requests/s sent | upstream alone | bare proxy | gateway |", "|---|---:|---:|---:|---:|"]
    for figure in document["figures"]:
        found = figure["raw"]
        if "asked_rate" not in found:
            continue
        streams = "streamed" in figure["name"]
        where = "first token" if streams else "random arrivals" if "random" in figure["name"] else "chat completion"
        for percentile in ("p50", "p99"):
            key = f"first_{percentile}_ms" if streams else f"{percentile}_ms"
            cells = [f"{median(found[name][key]):.2f}" for name in ("direct", "bare", "gateway")]
            lines.append(f"| {where}, {percentile}, ms | {_number(found['asked_rate'])} | {' | '.join(cells)} |")
    for figure in document["figures"]:
        found = figure["raw"]
        if figure["name"].startswith("throughput"):
            what = "streams" if "streams" in figure["name"] else "chat completions"
            for label, key in ((f"{what} per second, at most", "rate"), (f"{what}, processor time each, µs", "cpu_us")):
                cells = [_number(median(found[name][key])) for name in ("bare", "gateway")]
                lines.append(f"| {label} | | | {' | '.join(cells)} |")
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
        f"| failures of the upstream | {failed} |",
        f"| requests per second, {plan['concurrency']} at once | {_number(report['requests_per_second'])} |",
        f"| memory after {memory[0][0]:,} requests, MB | {memory[0][1]:.1f} |",
        f"| memory after {memory[-1][0]:,} requests, MB | {memory[-1][1]:.1f} |",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}".rstrip("0").rstrip(".")
