"""The raw files of the gateway's benchmarks as Markdown."""

from __future__ import annotations

from statistics import median
from typing import Any

from aim_tables import number
from ir3de_lab.benchmarks.gateway.upstream import WAYS

TARGETS = {
    "direct": "upstream alone", "bare": "bare proxy", "gateway": "gateway", "aiohttp": "bare proxy, aiohttp",
    "nginx": "nginx",
}  # fmt: skip


def proxy_table(document: dict[str, Any]) -> list[str]:
    """What is behind the ratios: the upstream and the proxies, medians over the rounds."""
    there = [name for name in TARGETS if any(name in figure["raw"] for figure in document["figures"])]
    lines = [f"| | {' | '.join(TARGETS[name] for name in there)} |", "|---|" + "---:|" * len(there)]

    def row(label: str, cells: dict[str, str]) -> str:
        return f"| {label} | {' | '.join(cells.get(name, '') for name in there)} |"

    for figure in document["figures"]:
        found = figure["raw"]
        if "asked_rates" in found:
            streams = "streamed" in figure["name"]
            where = "first token" if streams else "random arrivals" if "random" in figure["name"] else "chat completion"
            sent = {name: number(rate) for name, rate in found["asked_rates"].items()}
            lines.append(row(f"{where}, requests/s sent", sent))
            for percentile in ("p50", "p99"):
                key = f"first_{percentile}_ms" if streams else f"{percentile}_ms"
                lines.append(row(f"{where}, {percentile}, ms", _medians(found, key, "{:.2f}")))
    for figure in document["figures"]:
        found = figure["raw"]
        if figure["name"].startswith("throughput") and "gateway" in found:
            what = "streams" if "streams" in figure["name"] else "chat completions"
            lines.append(row(f"{what} per second, at most", _medians(found, "rate", "{:,.0f}")))
            lines.append(row(f"{what}, processor time each, µs", _medians(found, "cpu_us", "{:,.0f}")))
    return lines


def _medians(found: dict[str, Any], key: str, form: str) -> dict[str, str]:
    return {name: form.format(median(found[name][key])) for name in TARGETS if name in found}


def limits_table(document: dict[str, Any]) -> list[str]:
    """What each of the heavy requests took."""
    lines = ["| request | size, MB | status | growth, MB | stall, ms | processor time, s |", "|---|" + "---:|" * 5]
    for cost in document["figures"][0]["raw"]["requests"]:
        cells = (f"{cost['request_bytes'] / 1e6:.2f}", str(cost["status"] or "none"), number(cost["growth_mb"]))
        shown = " | ".join((*cells, number(cost["stall_ms"]), number(cost["cpu_s"])))
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
        f"| requests per second, {plan['concurrency']} at once | {number(report['requests_per_second'])} |",
        f"| memory after {memory[0][0]:,} requests, MB | {memory[0][1]:.1f} |",
        f"| memory after {memory[-1][0]:,} requests, MB | {memory[-1][1]:.1f} |",
    ]
