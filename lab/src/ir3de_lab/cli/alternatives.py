"""bench alternatives: IR3DE beside other people's routers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.plugins import Output, heading, output_options, table
from ir3de_lab.cli.shared import keep, number, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.alternative_rows import AlternativeRow

SETS = ("banking77", "stackoverflow20", "trec_qc", "reasoning")

encoder_option = click.option(
    "--encoder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder of a sentence encoder such as all-MiniLM-L6-v2. Without it, its alternatives are left out.",
)
torch_option = click.option(
    "--torch", default="torch", show_default=True, metavar="REQUIREMENT", help="Which torch to install."
)


@click.command()
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of suites, and of intents in `intents/`.",
)
@click.option("--only", multiple=True, metavar="SET", default=SETS, show_default=True, help="Sets; may be repeated.")
@click.option("--router", "chosen", multiple=True, metavar="NAME", help="Alternatives; all, unless some are named.")
@encoder_option
@click.option(
    "--environments",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where virtual environments are made, one for each alternative; those there are used again.",
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where each alternative's answers are kept. Those there are not asked for again.",
)
@click.option(
    "--no-times",
    "untimed",
    multiple=True,
    metavar="KEY",
    help="Take no times of this alternative, such as use_setfit, which trains for minutes; may be repeated.",
)
@click.option(
    "--only-times", is_flag=True, help="Take times alone; the accuracies in the file of --save stay as they are."
)
@click.option("--kept", is_flag=True, help="Ask for no accuracies: show the answers that are kept, and leave gaps.")
@torch_option
@click.option(
    "--source",
    type=click.Path(exists=True, path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="IR3DE's checkout, or its wheel.  [default: this folder]",
)
@save_option
@output_options
def alternatives(
    data: Path,
    only: Sequence[str],
    chosen: Sequence[str],
    encoder: Path | None,
    environments: Path,
    answers: Path,
    untimed: Sequence[str],
    only_times: bool,
    kept: bool,
    torch: str,
    source: Path,
    save: Path | None,
    out: Output,
) -> None:
    """Other people's routers on the same prompts: accuracy, time, what they install, what they can do.

    Each is installed into an environment of its own by pip. Each set is fitted with all prompts (at most 1,000 an
    expert), and with 8 and 6 an expert, drawn three times; a router that learns from prompts without labels gets 2,000
    of those that were not drawn. The main setting of each is chosen on folds of the training prompts.

    Each set is answered in two parts, such as `banking77-few.json` in the folder of answers. A part can be carried to
    another machine and answered there, by `lab/scripts/answer_parts.py`. Routers that run an encoder are not asked for
    all prompts where these are more than 10,000.

    Times are taken here, on the first set with 8 prompts an expert: the fit, an expert added, prompts routed one at a
    time. Where some are named with --router, what the file of --save has of the others stays in it, and with it what
    the file says of the code that was measured. --only-times leaves out the accuracies.

    \b
    Example:
      ir3de bench alternatives --data suites/ --encoder models/all-MiniLM-L6-v2 --environments envs --answers answers
    """
    from ir3de_lab.benchmarks import alternative_rows
    from ir3de_lab.benchmarks import alternatives as bench
    from ir3de_lab.benchmarks.measurement import circumstances

    wanted = [one for one in bench.ALTERNATIVES if (encoder or not one.encoder) and (not chosen or one.name in chosen)]
    if unknown := set(chosen) - {one.name for one in bench.ALTERNATIVES}:
        known = ", ".join(one.name for one in bench.ALTERNATIVES)
        raise click.UsageError(f"there is no alternative {min(unknown)!r}: there are {known}")
    answers.mkdir(parents=True, exist_ok=True)
    with out.spinner("reading prompts"):
        regimes = bench.read_regimes(data, only)
        parts, timing = bench.part_regimes(regimes), answers / "times.json"
        for name, part in parts.items():
            bench.write_requests(answers / f"{name}.json", [regime.to_request() for regime in part], str(encoder or ""))
        timed = next(regime for regime in regimes if regime.prompts == bench.FEW)
        bench.write_requests(timing, [timed.to_timed_request()], str(encoder or ""))
    rows: list[AlternativeRow] = []
    own: list[AlternativeRow] = []
    for one in bench.ALTERNATIVES:  # ours stand beside the others even where they are not asked for
        if one.is_own and one not in wanted:
            own += alternative_rows.tabulate(one, regimes, bench.ask_parts(one, None, parts, answers)[0], own)
    facts: list[dict[str, Any]] = []
    for one in wanted:
        with out.spinner(f"installing {one.name}"):
            environment = bench.prepare_environment(environments, one, {"torch": torch}, source)
        with out.spinner(f"asking {one.name}"):
            asked = None if kept else environment
            found, machine = ([], None) if only_times else bench.ask_parts(one, asked, parts, answers)
            times = (
                bench.ask(one, environment, timing, answers / f"{one.key}-times.json")
                if one.key not in untimed
                else None
            )
        facts.append(bench.describe(one, environment, machine, times))
        made = list(alternative_rows.tabulate(one, [] if only_times else regimes, found, own))
        rows += made
        own += made if one.is_own else []
    document = {
        "circumstances": circumstances(),
        "alternatives": facts,
        "rows": [row.to_dict() for row in rows],
    }
    if (chosen or only_times) and save and save.is_file():
        document = bench.merge(json.loads(save.read_text(encoding="utf-8")), document)
    keep(save, document)
    out.json(document)
    out.result(heading("what they are"), _facts_table(facts))
    for prompts in () if only_times else (None, bench.FEW, bench.SIX):
        some = [row for row in rows if row.prompts == prompts]
        out.result(heading("all prompts" if prompts is None else f"{prompts} prompts an expert"), _table(some))


def _facts_table(facts: Sequence[dict[str, Any]]) -> Table:
    right = ("packages", "MB", "fit, s", "add, s", "µs a prompt")
    shown = table("router", *right, "torch", "explains", "abstains", right=right)
    for one in facts:
        times = one["times"] or {}
        cells = [number(times[name]) if times else "–" for name in ("fit_s", "add_s", "route_us")]
        weights = (str(one["packages"]), f"{one['megabytes'] + one['model_mb']:,.0f}")
        shown.add_row(one["name"], *weights, *cells, "yes" if one["torch"] else "no", one["explains"], one["abstains"])
    return shown


def _table(rows: Sequence[AlternativeRow]) -> Table:
    right = ("accuracy, %", "against ir3de", "strangers, %")
    shown = table("set", "router", *right, right=right)
    for row in rows:
        gap = ""
        if beside := row.against.get("ir3de"):
            gap = "{points:+.1f} [{interval[0]:+.1f}, {interval[1]:+.1f}]".format(**beside)
        shown.add_row(row.data, row.router, f"{row.accuracy:.1f}", gap, f"{row.strange:.1f}")
    return shown
