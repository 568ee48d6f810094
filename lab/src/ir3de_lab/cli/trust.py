"""bench trust: fuzzers on every parser, and faults under a real gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ir3de.cli.plugins import FAINT, Output, line, output_options, table
from ir3de_lab.cli.shared import keep, save_option


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="About how long.")
@click.option("--seed", default=0, show_default=True, help="Which inputs are tried.")
@click.option("--only", multiple=True, metavar="NAME", help="Run only this part; may be repeated.")
@click.option(
    "--findings",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the inputs that are findings in this folder.",
)
@save_option
@output_options
def trust(
    minutes: float, seed: int, only: tuple[str, ...], findings: Path | None, save: Path | None, out: Output
) -> None:
    """Look for what the tests do not know: changed inputs at every parser, faults under a real gateway.

    An input must be accepted, or refused with an error of our own. During a fault requests must be answered, or refused
    with an error object; afterwards all of them must be answered. The same seed tries the same inputs. From ten minutes
    on, processes are killed at every write and not only at some. The exit code is 1 if something was found.

    \b
    Example:
      ir3de bench trust --minutes 2 --findings found/
      ir3de bench trust --only "JSON bodies" --seed 7
    """
    from ir3de_lab.benchmarks.trust.programme import all_names, run_programme
    from ir3de_lab.cli.gateway import describe_circumstances

    if unknown := [name for name in only if name not in all_names()]:
        raise click.UsageError(f"no part {', '.join(unknown)}: there are {', '.join(all_names())}")
    circumstances = describe_circumstances()
    with out.spinner(f"looking for about {minutes:g} minutes, seed {seed}"):
        found = run_programme(minutes, seed, findings, only)
    document = {**circumstances, **found}
    keep(save, document)
    out.json(document)
    out.result(_campaigns(found["campaigns"]), _faults(found["faults"]))
    told = [(one["name"], f"input {f['number']}: {f['what']}") for one in found["campaigns"] for f in one["findings"]]
    told += [(one["name"], problem) for one in found["faults"] for problem in one["problems"]]
    for name, what in told:
        out.warn(f"{name}, seed {seed}: {what}")
    if told:
        raise SystemExit(1)


def _campaigns(campaigns: list[dict[str, Any]]) -> Any:
    shown = table(
        "fuzzer", "inputs", "accepted", "refused", "findings", right=("inputs", "accepted", "refused", "findings")
    )
    for one in campaigns:
        cells = [f"{one[name]:,}" for name in ("inputs", "accepted", "refused")]
        shown.add_row(one["name"], *cells, _count(len(one["findings"])))
    sums = [f"{sum(one[name] for one in campaigns):,}" for name in ("inputs", "accepted", "refused")]
    shown.add_row("all", *sums, _count(sum(len(one["findings"]) for one in campaigns)))
    return shown


def _faults(faults: list[dict[str, Any]]) -> Any:
    numbers = ("injected", "served", "refused", "lost", "wrong")
    shown = table("fault", *numbers, "", right=numbers)
    for one in faults:
        mark = ("skipped", FAINT) if one["skipped"] else ("broken", "red") if one["problems"] else ("held", "green")
        shown.add_row(one["name"], *(f"{one[name]:,}" for name in numbers), line(mark))
    shown.add_row("all", *(f"{sum(one[name] for one in faults):,}" for name in numbers), "")
    return shown


def _count(number: int) -> Any:
    return line((str(number), "red" if number else "green"))
