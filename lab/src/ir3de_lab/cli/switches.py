"""bench agents and bench affinity: how often conversations change expert and replica, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import Output, output_options, table
from ir3de_lab.cli.shared import keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.switches import Row


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder of suites, and of intents in `intents/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this suite or set; may be repeated.")
@click.option(
    "--traces", "count", default=20, show_default=True, type=click.IntRange(min=1), help="Traces of each set."
)
@click.option("--choose", is_flag=True, help="Also try margins and values on conversations of training prompts.")
@save_option
@output_options
def agents(data: Path, only: Sequence[str], count: int, choose: bool, save: Path | None, out: Output) -> None:
    """Switches of the expert, cached tokens kept and accuracy in traces of agents, through a real gateway.

    A trace is one session: a main loop with tool calls, sub-agents, and requests for a title and a summary, each with a
    system prompt of its own. The expert that should answer is known from the prompts.

    \b
    Example:
      ir3de bench agents --data suites/ --choose --save results/agents.json
    """
    from ir3de_lab.benchmarks import conversations as bench
    from ir3de_lab.benchmarks.defaults import read_material
    from ir3de_lab.benchmarks.gateway.chatting import list_asks
    from ir3de_lab.benchmarks.gateway.switching import WAYS, hold_traces
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.switch_choice import choose_defaults, route_traces
    from ir3de_lab.benchmarks.switches import add_up, count_switches
    from ir3de_lab.benchmarks.traces import build_traces

    rows, chats, traces = list[Any](), list[Any](), list[Any]()
    with out.spinner("agents at work"):
        for one in bench.prepare(list(read_material(data)), count, only):
            found = build_traces(one.sources["test"], count)
            rows += [count_switches(one.name, way.name, found, hold_traces(one.router, found, way)) for way in WAYS]
            if choose:
                chats.append(route_traces(one.name, one.router, [list_asks(chat) for chat in one.train]))
                traces.append(route_traces(one.name, one.router, build_traces(one.sources["train"], count)))
    rows = add_up(rows) + rows
    document: dict[str, Any] = {
        "circumstances": circumstances(),
        "traces": count,
        "rows": [row.to_dict() for row in rows],
    }
    if choose:
        with out.spinner("trying margins and values on training prompts"):
            document["choice"] = choose_defaults(chats, traces)
        out.note(f"chosen on training prompts: {document['choice']['chosen']}")
    keep(save, document)
    out.json(document)
    out.result(tabulate_switches(rows))


@click.command()
@click.option("--quick", is_flag=True, help="Two replicas and few requests.")
@save_option
@output_options
def affinity(quick: bool, save: Path | None, out: Output) -> None:
    """Cached prefix tokens that conversations keep with several replicas, with affinity and without.

    Traces of agents, many at once, through two gateways that share no state and take turns: the replica must follow
    from the conversation alone.

    \b
    Example:
      ir3de bench affinity --save results/affinity.json
    """
    from dataclasses import asdict

    from ir3de_lab.benchmarks.gateway.near import QUICK, Plan, measure_affinity
    from ir3de_lab.benchmarks.measurement import circumstances

    plan = QUICK if quick else Plan()
    with out.spinner("agents at work"):
        rows = list(measure_affinity(plan))
    document = {"circumstances": circumstances(), "plan": asdict(plan), "rows": [row.to_dict() for row in rows]}
    keep(save, document)
    out.json(document)
    right = ("replicas", "affinity", "requests", "moved", "kept, %")
    shown = table(*right, right=right)
    for row in rows:
        cells = (row.replicas, row.affinity, row.requests, row.moved)
        shown.add_row(*(f"{cell:g}" for cell in cells), f"{row.kept:.1f}")
    out.result(shown)


def tabulate_switches(rows: Sequence[Row]) -> Table:
    """A row for each way of routing."""
    right = ("requests", "switches", "needed", "unneeded", "kept, %", "right, %")
    shown = table("data", "routing", *right, right=right)
    for row in rows:
        counts = (row.requests, row.switches, row.needed, row.unneeded)
        shown.add_row(row.data, row.routing, *map(str, counts), f"{row.kept:.1f}", f"{row.accuracy:.1f}")
    return shown
