"""bench cold-start: what routers reach with few prompts an expert."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

import click

from ir3de.cli.plugins import FAINT, Output, heading, line, output_options, table
from ir3de_lab.cli.alternatives import encoder_option, torch_option
from ir3de_lab.cli.shared import accuracy_cells, keep, save_option

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de_lab.benchmarks.cold_start import FewRow, Findings, Fit, LimitRow
    from ir3de_lab.benchmarks.contenders import Elsewhere
    from ir3de_lab.benchmarks.defaults import Row

PARTS = ("few", "all", "limits", "unknowns")
SPLITS = {"test": "", "ood": ", other sources"}


@click.command("cold-start")
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True, metavar="FOLDER",
              help="Folder of suites, and of intents in `intents/`.")  # fmt: skip
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Measure only this part; may be repeated.")
@click.option(
    "--embedding",
    "sources",
    multiple=True,
    metavar="SOURCE",
    default=("default",),
    show_default=True,
    help="Embedding of IR3DE's rows, such as default@3, a folder or a .gguf file; may be repeated.",
)
@encoder_option
@click.option(
    "--environments",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Virtual environments of other people's routers, as of `ir3de bench alternatives`; missing ones are made.",
)
@click.option(
    "--answers",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where answers of other people's routers are kept and used again.  [default: a temporary folder]",
)
@torch_option
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many fits are made at once; the figures do not depend on it. More than one needs a system with fork.",
)
@click.option("--quick", is_flag=True, help="Little of everything, to see that it runs.")
@save_option
@output_options
def cold_start(
    data: Path,
    only: Sequence[str],
    sources: Sequence[str],
    encoder: Path | None,
    environments: Path | None,
    answers: Path | None,
    torch: str,
    processes: int,
    quick: bool,
    save: Path | None,
    out: Output,
) -> None:
    """What routers reach with few prompts an expert, and whether they know their limits.

    `few`: accuracy with 8 prompts an expert on sets of intents, and with 30 prompts a domain on suites that have
    prompts from other sources. Figures are means over five draws, with the standard error over them. MiniLM +
    logistic regression and semantic-router are measured, too, if --environments and --encoder are given. *Sure and
    wrong* are test prompts that go to the wrong expert with a confidence above 0.9.

    `all`: accuracy of the default fit on all prompts, and the calibration error of its confidence.

    `limits`: the share of prompts of known domains on which the router abstains. The prompts are from other sources,
    or reworded by rules: synonyms, a formal register, long-winded phrases around them.

    `unknowns`: each expert in turn is left out, and its prompts are asked all the same, as in `ir3de bench unknowns`.

    Shares of suites are means over their domains. A prompt on which IR3DE abstains counts for the expert that it is
    nearest to; one on which another router abstains counts as wrong.

    \b
    Example:
      ir3de bench cold-start --data suites/ --quick
      ir3de bench cold-start --data suites/ --only few --embedding default@1 --embedding default@3
      ir3de bench cold-start --data suites/ --encoder models/all-MiniLM-L6-v2 --environments envs --save cold-start.json
    """
    from ir3de_lab.benchmarks import cold_start as bench
    from ir3de_lab.benchmarks import contenders
    from ir3de_lab.benchmarks.measurement import circumstances
    from ir3de_lab.benchmarks.unknowns import summarise

    parts, size = only or PARTS, bench.QUICK if quick else bench.Size()
    known = contenders.open_encoder()
    own = contenders.list_contenders(sources, known)
    with out.spinner("reading prompts"):
        materials = bench.read_sets(data, size)
    if not isinstance(known, str):
        with out.spinner("encoding prompts"):
            bench.encode_ahead(known, materials)
    with ExitStack() as opened:
        folder = answers or Path(opened.enter_context(TemporaryDirectory(prefix="ir3de-")))
        folder.mkdir(parents=True, exist_ok=True)
        others = _prepare_others(out, encoder, environments if "few" in parts else None, folder, torch)
        findings = _make_all(out, bench.plan(materials, own, others, parts, size), processes)
    few = bench.tabulate_few(materials, [*own, *others], findings) if "few" in parts else []
    document = {
        "circumstances": circumstances(),
        "quick": quick,
        "draws": size.draws,
        "few": [row.to_dict() for row in few],
        "all": [row.to_dict() for row in findings.all],
        "limits": [row.to_dict() for row in findings.limits],
        "unknowns": {
            name: {"rows": [row.to_dict() for row in rows], "means": summarise(rows)}
            for name, rows in findings.unknowns.items()
        },
    }
    keep(save, document)
    out.json(document)
    _show(out, few, findings, size.draws)


def _prepare_others(
    out: Output, encoder: Path | None, environments: Path | None, answers: Path, torch: str
) -> list[Elsewhere]:
    """Other people's routers; without both folders they have no environment, and are not measured."""
    from ir3de_lab.benchmarks import contenders
    from ir3de_lab.benchmarks.alternatives import prepare_environment

    found = []
    for one in contenders.find_others():
        environment = None
        if encoder is not None and environments is not None:
            with out.spinner(f"installing {one.name}"):
                environment = prepare_environment(environments, one, {"torch": torch}, Path())
        found.append(contenders.Elsewhere(one, environment, encoder, answers))
    return found


def _make_all(out: Output, fits: Sequence[Fit], processes: int) -> Findings:
    """Make the fits, and report how many are made and how fast."""
    from ir3de_lab.benchmarks.cold_start import Findings

    findings, begun, rate = Findings(), perf_counter(), ""
    with ExitStack() as opened:
        found = iter(_make_each(fits, processes, opened))
        for place, fit in enumerate(fits, 1):
            with out.spinner(f"fit {place} of {len(fits)}{rate}: {fit.label}"):
                findings.add(next(found))
            passed = perf_counter() - begun
            rate = f", {60 * place / passed:.1f} a minute, {passed / place * (len(fits) - place):.0f} s left"
            if place == len(fits) or fits[place].material is not fit.material or fits[place].part != fit.part:
                out.remark(f"{fit.material.name}, {fit.part}: {place} of {len(fits)} fits made{rate}")
    return findings


def _make_each(fits: Sequence[Fit], processes: int, opened: ExitStack) -> Iterable[Findings]:
    """What each fit finds, in order. The processes are forks, so that they share the prompts and their vectors."""
    from ir3de_lab.benchmarks.cold_start import make

    if processes == 1:
        return map(make, fits)
    _FITS[:] = fits
    pool = opened.enter_context(multiprocessing.get_context("fork").Pool(processes))
    return pool.imap(_make_one, range(len(fits)))


_FITS: list[Fit] = []  # what the forked processes make


def _make_one(place: int) -> Findings:
    from ir3de_lab.benchmarks.cold_start import make

    return make(_FITS[place])


def _show(out: Output, few: Sequence[FewRow], findings: Findings, draws: int) -> None:
    from ir3de_lab.benchmarks.defaults import FEW
    from ir3de_lab.benchmarks.unknowns import summarise

    for prompts, whose in ((FEW["intents"], "an expert"), (FEW["suite"], "a domain")):
        if not (some := [row for row in few if row.prompts == prompts]):
            continue
        out.result(heading(f"{prompts} prompts {whose}", f"percent; means over {draws} draws ± standard error"))
        out.result(_few_table(some))
    for name, reason in dict.fromkeys((row.router, row.missing) for row in few if row.missing):
        out.result(line((f"n/a: {name} {reason}", FAINT)))
    if findings.all:
        out.result(heading("All prompts", "accuracy, percent"), _all_table(findings.all))
    if findings.limits:
        out.result(
            heading(
                "Limits", "abstentions on prompts of known domains, percent; of rewordings over test prompts, points"
            ),
            _limits_table(findings.limits),
        )
    if findings.unknowns:
        means = {name: summarise(rows) for name, rows in findings.unknowns.items()}
        out.result(heading("Unknowns", "experts left out in turn; percent, but for the area"), _unknowns_table(means))


def _few_table(rows: Sequence[FewRow]) -> Table:
    right = ("accuracy", "±", "sure and wrong", "abstained")
    shown = table("data", "router", *right, right=right)
    before = ""
    for data, split in dict.fromkeys((row.data, row.split) for row in rows):
        some = [row for row in rows if (row.data, row.split) == (data, split)]
        name = f"{data}{SPLITS[split]}"
        for row, (cell,) in zip(some, accuracy_cells([[row.accuracy] for row in some]), strict=True):
            accuracy = line(("n/a", FAINT)) if row.missing else cell
            others = [_cell(value, 1) for value in (row.sure_and_wrong, row.abstained)]
            shown.add_row(name if name != before else "", row.router, accuracy, _cell(row.standard_error, 2), *others)
            before = name
    return shown


def _all_table(rows: Sequence[Row]) -> Table:
    right = ("test", "first 32 tokens", "other sources", "calibration error")
    shown = table("data", "router", *right, right=right)
    for data in dict.fromkeys(row.data for row in rows):
        some = [row for row in rows if row.data == data]
        cells = accuracy_cells([[row.accuracy.get(split) for split in ("test", "first 32", "ood")] for row in some])
        for place, (row, values) in enumerate(zip(some, cells, strict=True)):
            shown.add_row("" if place else data, row.router, *values, _cell(row.calibration_error, 1))
    return shown


def _unknowns_table(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    names = {"told": "found", "false_alarms": "false alarms", "sure": "over 90 % sure", "told_at_5": "found at 5 %"}
    right = ("area", *names.values())
    shown = table("router", "data", *right, right=right)
    for router, means in found.items():
        for place, (data, row) in enumerate(means.items()):
            cells = [f"{row[name]:.1f}" for name in names]
            shown.add_row("" if place else router, data, f"{row['area']:.3f}", *cells)
    return shown


def _limits_table(rows: Sequence[LimitRow]) -> Table:
    right = ("abstained", "over test", "worst")
    shown = table("data", "router", "prompts", *right, "domain", right=right)
    before = ("", "")
    for row in rows:
        new = (row.data, row.router) != before
        before = (row.data, row.router)
        reworded = row.over_originals is not None
        over, worst = (f"{row.over_originals:+.1f}", f"{row.worst:+.1f}") if reworded else ("", f"{row.worst:.1f}")
        names = before if new else ("", "")
        shown.add_row(*names, row.kind, f"{row.abstained:.1f}", over, worst, row.worst_domain)
    return shown


def _cell(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
