"""bench conversations and bench chats: chats routed turn by turn, by the library and through a real gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.conversations import Cost, Row

COLUMNS = ("all", "first", "same subject", "without content", "pronouns", "switches", "pastes", "tool loops")


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder of suites, and of intents in `intents/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this suite or set; may be repeated.")
@click.option("--chats", default=100, show_default=True, type=click.IntRange(min=1), help="Chats of each kind and set.")
@click.option("--choose", is_flag=True, help="Also try a grid of weights on chats of training prompts.")
@save_option
@output_options
def conversations(data: Path, only: Sequence[str], chats: int, choose: bool, save: Path | None, out: Output) -> None:
    """Share of turns at the right expert in chats built from test prompts, and the cost of a turn.

    \b
    Example:
      ir3de bench conversations --data suites/ --choose --save results/conversations.json
    """
    from ir3de.policies import TurnWeights
    from ir3de_lab.benchmarks import conversations as bench
    from ir3de_lab.benchmarks.defaults import read_material
    from ir3de_lab.benchmarks.measurement import circumstances

    materials = [one for one in read_material(data) if not only or one.name in only]
    everything, rows, costs = [], list[Any](), list[Any]()
    with out.spinner("fitting and routing"):
        for prepared in bench.prepare(materials, chats):
            everything.append(prepared)
            rows += bench.measure(prepared, prepared.test)
            costs += bench.measure_costs(prepared)
    rows = bench.average(rows) + rows
    document: dict[str, Any] = {
        "circumstances": circumstances(),
        "weights": asdict(TurnWeights()),
        "rows": [row.to_dict() for row in rows],
        "costs": [cost.to_dict() for cost in costs],
    }
    if choose:
        with out.spinner("trying weights on chats of training prompts"):
            chosen, tried = bench.choose_weights(everything)
        document["choice"] = {"chosen": asdict(chosen), "tried": tried}
        out.note(f"chosen on training prompts: {chosen}")
    keep(save, document)
    out.json(document)
    out.result(_table(rows), heading("Cost of a turn"), _cost_table(costs))


@click.command()
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder of suites, and of intents in `intents/`.")  # fmt: skip
@click.option("--only", multiple=True, metavar="NAME", help="Measure only this suite or set; may be repeated.")
@click.option("--chats", "count", default=20, show_default=True, type=click.IntRange(min=1),
              help="Chats of each kind and set: the first ones of `bench conversations`.")  # fmt: skip
@save_option
@output_options
def chats(data: Path, only: Sequence[str], count: int, save: Path | None, out: Output) -> None:
    """Share of turns at the right expert through a real gateway, with the official client and no header.

    The chats of `bench conversations` are held turn by turn: real HTTP to `ir3de serve`, a stand-in behind it. Beside
    it stand the library's decisions, which must be the same, and routing by the last message. Then the same chats with
    prices of cached tokens, so that a switch of the expert must be worth what it costs. It needs `pip install openai`.

    \b
    Example:
      ir3de bench chats --data suites/ --save results/chats.json
    """
    from ir3de_lab.benchmarks import conversations as bench
    from ir3de_lab.benchmarks.defaults import read_material
    from ir3de_lab.benchmarks.gateway.chatting import compare
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.switches import add_up
    from ir3de_lab.cli.switches import tabulate_switches

    materials = list(read_material(data))
    with out.spinner("holding chats with a gateway"):
        found = [compare(one) for one in bench.prepare(materials, count, only)]
    rows = bench.average([row for one in found for row in one.rows]) + [row for one in found for row in one.rows]
    different, by_set = sum(one.different for one in found), [row for one in found for row in one.switches]
    counted = add_up(by_set) + by_set
    document = {
        "circumstances": circumstances(),
        "chats": count,
        "turns": sum(one.turns for one in found),
        "different": different,
        "rows": [row.to_dict() for row in rows],
        "switches": [row.to_dict() for row in counted],
    }
    keep(save, document)
    out.json(document)
    out.result(_table(rows), heading("Switches"), tabulate_switches(counted))
    out.note(f"{different} of {document['turns']:,} turns went elsewhere than the library sends them")


def _table(rows: Sequence[Row]) -> Table:
    shown = table("data", "routing", *COLUMNS, right=COLUMNS)
    for row in rows:
        figures = [row.accuracy.get(group) for group in COLUMNS]
        shown.add_row(row.data, row.routing, *("" if figure is None else f"{figure:.1f}" for figure in figures))
    return shown


def _cost_table(costs: Sequence[Cost]) -> Table:
    right = ("turn, µs", "route, µs", "ratio")
    shown = table("data", "turns", *right, right=right)
    for cost in costs:
        ratio = cost.turn_us / cost.route_us
        shown.add_row(cost.data, cost.turns, f"{cost.turn_us:.1f}", f"{cost.route_us:.1f}", f"{ratio:.2f}")
    return shown
