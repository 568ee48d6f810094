"""bench gateway and bench soak: what the gateway adds, and whether it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import FAINT, Output, facts, line, output_options
from ir3de_lab.cli.shared import figures_table, keep, number, save_option

if TYPE_CHECKING:
    from ir3de_lab.benchmarks.gateway.soaking import Report
    from ir3de_lab.benchmarks.measurement import Figure


@click.command()
@click.option("--quick", is_flag=True, help="Half a minute instead of ten, and noisier.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the gateway.")
@save_option
@output_options
def gateway(quick: bool, workers: int, save: Path | None, out: Output) -> None:
    """What the gateway adds to an expert's answer, beside a bare proxy in the same framework.

    All on loopback: a stand-in for the experts that answers after a fixed time, the bare proxy, the gateway with the
    demo's router and five experts. Requests of 100 tokens, as many as go through, then at half of that rate, the three
    taking turns; a latency counts from the moment a request was due. Where there are two cores, the proxies have one.

    \b
    Example:
      ir3de bench gateway --save results/gateway.json
    """
    from dataclasses import asdict, replace

    from ir3de_lab.benchmarks.gateway.measuring import QUICK, Plan, measure

    circumstances = _circumstances()
    plan = replace(QUICK if quick else Plan(), workers=workers)
    figures: list[Figure] = []
    with out.spinner("measuring the gateway"):
        for found in measure(plan):
            figures += found
    document = {**circumstances, "plan": asdict(plan), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    out.result(figures_table(figures))
    out.note(_rates(figures))


@click.command()
@click.option("--requests", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N")
@click.option("--concurrency", type=click.IntRange(min=1), default=48, show_default=True, metavar="N")
@click.option("--seed", default=0, show_default=True, help="Which requests stream, leave and fail.")
@save_option
@output_options
def soak(requests: int, concurrency: int, seed: int, save: Path | None, out: Output) -> None:
    """Very many requests, and nothing lost, doubled or leaked.

    A tenth is streamed, a tenth of the clients leave in the middle, and the upstream fails one request in twenty:
    errors, resets, half answers, garbage, silence. Every request has an id that its answer must repeat; the clients'
    account is held against the upstream's.

    \b
    Example:
      ir3de bench soak --requests 20000
    """
    from ir3de_lab.benchmarks.gateway.soaking import Plan
    from ir3de_lab.benchmarks.gateway.soaking import soak as soaked

    circumstances = _circumstances()
    with out.spinner(f"asking {requests:,} times"):
        report = soaked(Plan(requests=requests, concurrency=concurrency, seed=seed))
    figures = report.figures()
    document = {**circumstances, "figures": [figure.to_dict() for figure in figures], "report": report.to_dict()}
    keep(save, document)
    out.json(document)
    out.result(_story(report), figures_table(figures))
    for what, identities in report.verdict.examples.items():
        out.warn(f"{what}: {', '.join(identities)}")


def _circumstances() -> dict[str, Any]:
    """The command, the commit and the machine, with the versions of what serves, and how busy it was before."""
    import os

    from ir3de_lab.benchmarks.measurement import package_version
    from ir3de_lab.experiments.provenance import this_process

    packages = ("starlette", "uvicorn", "uvloop", "httptools", "aiohttp")
    versions = {name: package_version(name) for name in packages}
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"circumstances": {**this_process(), **versions, "load_before": load}}


def _rates(figures: list[Figure]) -> Any:
    """The figures behind the ratios."""
    from statistics import median

    rows = []
    for figure in figures:
        for name in ("bare", "gateway"):
            if f"{name}_added_ms" in figure.raw:
                rows.append((f"{figure.name.partition(', of')[0]}, {name}", f"{figure.raw[f'{name}_added_ms']:.2f} ms"))
            elif f"{name}_us" in figure.raw:
                rows.append((f"processor time a request, {name}", f"{number(median(figure.raw[f'{name}_us']))} µs"))
            elif figure.name.startswith("throughput"):
                kind = figure.name.partition("proxy's")[2]
                rows.append((f"throughput, {name}{kind}", f"{number(median(figure.raw[name]['rate']))} requests/s"))
    return facts((label, line((value, FAINT))) for label, value in rows)


def _story(report: Report) -> Any:
    """What happened, in numbers."""
    verdict = report.verdict
    rows = [(f"requests {kind}", f"{count:,}") for kind, count in verdict.kinds.most_common()]
    rows += [
        ("requests answered by another expert than the first", f"{verdict.notes['fallback']:,}"),
        ("requests a second", f"{report.plan.requests / report.seconds:,.0f}"),
        ("memory, first and last", f"{report.samples[0][1]:.0f} MB and {report.samples[-1][1]:.0f} MB"),
    ]
    return facts((label, line((value, ""))) for label, value in rows)
