"""What rounds of requests say: percentiles beside each other, and the figures that come of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.load import Result
from ir3de_lab.benchmarks.gateway.processes import Server, memory
from ir3de_lab.benchmarks.measurement import Figure

PROXIES = ("bare", "gateway")
TARGETS = ("direct", *PROXIES)
MEGABYTES_BAR = 100.0
PROCESSOR_BAR = 1.1  # of the bare proxy's
Rounds = dict[str, list[Result]]  # by target


def percentiles(rounds: Rounds, percentile: float, *, firsts: bool = False) -> dict[str, list[float]]:
    """Milliseconds by target and round."""
    return {
        name: [1e3 * float(np.percentile(r.firsts if firsts else r.latencies, percentile)) for r in results]
        for name, results in rounds.items()
    }


def added(rounds: Rounds, name: str, percentile: float, *, firsts: bool = False) -> list[float]:
    """What a target adds to the upstream's own percentile, in milliseconds, by round."""
    found = percentiles(rounds, percentile, firsts=firsts)
    return [a - b for a, b in zip(found[name], found["direct"], strict=True)]


def summary(rounds: Rounds) -> dict[str, Any]:
    """What is kept of a set of rounds: rates and percentiles, one number a round."""
    kept: dict[str, Any] = {}
    for name, results in rounds.items():
        kept[name] = {
            "requests": [len(result.latencies) for result in results],
            "rate": [round(result.rate, 1) for result in results],
            "cpu_us": [round(result.cpu_us, 1) for result in results],
            "failed": sum(result.failed for result in results),
            "late_us": [round(result.late_us, 1) for result in results],
        }
        for percentile in (50, 90, 99, 99.9):
            kept[name][f"p{percentile}_ms"] = _rounded(percentiles({name: results}, percentile)[name])
            if results[0].firsts:
                shown = percentiles({name: results}, percentile, firsts=True)[name]
                kept[name][f"first_p{percentile}_ms"] = _rounded(shown)
        if results[0].route_us is not None:
            kept[name]["route_us"] = _rounded([result.route_us or 0.0 for result in results])
    return kept


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in values]


def spread(values: Sequence[float]) -> list[float]:
    """The quartiles and the ends."""
    return _rounded([float(np.percentile(values, p)) for p in (0, 25, 50, 75, 100)])


def throughput(saturated: Rounds, what: str = "", bar: float | None = None, base: str = "bare") -> Figure:
    """How many requests a second the gateway does, as a share of the bare proxy's."""
    pairs = zip(saturated["gateway"], saturated[base], strict=True)
    ratios = [gateway.rate / bare.rate for gateway, bare in pairs]
    raw = {"ratios": spread(ratios), **(summary(saturated) if base == "bare" else {})}
    return Figure(f"throughput, of {_name(base)}{what}", 100 * median(ratios), "%", bar, raw=raw)


def processor_time(
    measured: Rounds, what: str = "", base: str = "bare", bar: float = PROCESSOR_BAR, of: str = "gateway"
) -> Figure:
    """What a request costs the processor, over what it costs with the bare proxy: other programs do not count."""
    pairs = zip(measured[of], measured[base], strict=True)
    ratios = [gateway.cpu_us / bare.cpu_us for gateway, bare in pairs]
    raw: dict[str, Any] = {"ratios": spread(ratios)}
    if base == "bare":
        raw |= {f"{name}_us": _rounded([r.cpu_us for r in found]) for name, found in measured.items()}
    name = f"processor time a request, of {_name(base)}{what}"
    return Figure(name, median(ratios), "×", bar, higher_is_better=False, raw=raw)


def _name(base: str) -> str:
    return "the bare proxy's" if base == "bare" else f"a bare proxy's with {base}"


def busy_share(measured: Rounds, rates: Mapping[str, float]) -> Figure:
    """How busy the gateway was of a core in the rounds at its rate; the others' shares are in the raw numbers."""
    shares = {
        name: [100e-6 * result.cpu_us * rates[name] for result in found]
        for name, found in measured.items()
        if name != "direct"
    }
    raw = {name: spread(values) for name, values in shares.items()}
    return Figure("the gateway's busy share of a core", median(shares["gateway"]), "%", None, raw=raw)


def latency(measured: Rounds, percentile: float, bar: float | None, what: str = "") -> Figure:
    """What the gateway adds at that percentile, over what the bare proxy adds."""
    by_round = {name: added(measured, name, percentile) for name in measured if name != "direct"}
    middle = {name: median(values) for name, values in by_round.items()}
    raw = {
        **{f"{name}_added_ms": round(value, 4) for name, value in middle.items()},
        **{f"{name}_spread_ms": spread(values) for name, values in by_round.items()},
    }
    name = f"added latency, p{percentile:g}, of the bare proxy's{what}"
    return Figure(name, middle["gateway"] / middle["bare"], "×", bar, higher_is_better=False, raw=raw)


def first_token(measured: Rounds) -> list[Figure]:
    """What the proxies add to the time to the first streamed token."""
    figures = []
    for name, bar in (("gateway", 2.0), ("bare", None)):
        values = added(measured, name, 50, firsts=True)
        tail = added(measured, name, 99, firsts=True)
        raw = {"spread_ms": spread(values), "p99_ms": round(median(tail), 4), "p99_spread_ms": spread(tail)}
        title = f"added time to the first streamed token, p50{'' if name == 'gateway' else ', bare proxy'}"
        figures.append(Figure(title, median(values), "ms", bar, higher_is_better=False, raw=raw))
    return figures


def routing_share(measured: Rounds) -> Figure:
    """How much of what the gateway adds is spent on choosing the expert."""
    routes = [result.route_us for result in measured["gateway"] if result.route_us is not None]
    if not routes:
        raise InputError("the gateway's answers have no header x-ir3de-route-us: is provenance switched off?")
    whole = 1e3 * median(added(measured, "gateway", 50))
    raw = {"route_us": spread(routes), "added_us": round(whole, 1)}
    return Figure(
        "routing, of the added latency", 100 * median(routes) / whole, "%", 10.0, higher_is_better=False, raw=raw
    )


def memory_per_worker(server: Server, workers: int) -> Figure:
    """After the load: with several workers, all processes' shares together, by worker."""
    found = [memory(pid) for pid in server.tree]
    value = found[0]["rss_mb"] if len(found) == 1 else sum(one["pss_mb"] for one in found) / workers
    raw = {"workers": workers, "processes": [{name: round(v, 1) for name, v in one.items()} for one in found]}
    return Figure("memory per worker, 5 experts", value, "MB", MEGABYTES_BAR, higher_is_better=False, raw=raw)


def with_rounds(figure: Figure, rates: Mapping[str, float], measured: Rounds) -> Figure:
    """The figure with the rounds it comes from, and the rate of each target."""
    asked = {name: round(rates[name], 1) for name in measured}
    return replace(figure, raw={**figure.raw, "asked_rates": asked, **summary(measured)})
