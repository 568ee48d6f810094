"""eval: how well a router does on prompts whose experts are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli import accuracy_tables, options
from ir3de.cli.commands.evaluate_frontier import frontier_options, show_frontier
from ir3de.cli.commands.evaluate_outcomes import evaluate_outcomes
from ir3de.cli.commands.evaluate_replay import evaluate_replay
from ir3de.cli.costs import once_weight_option, weighted
from ir3de.cli.domains import check_sources
from ir3de.cli.given import GivenDomains, given_domains
from ir3de.cli.holdout import eval_holdout_option, keep_held_out
from ir3de.cli.outcomes import or_outcomes
from ir3de.cli.output import Output, heading, line, percent
from ir3de.cli.plots import draw_frontier, draw_reliability, parse_plot_path, require_matplotlib
from ir3de.cli.progress import read_prompts
from ir3de.cli.saving import load_router
from ir3de.cli.strong_weak import NAMES, pair_options
from ir3de.cli.surest import SurestDecisions
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.evaluation.accuracy import Report
    from ir3de.routing.decision import Decision


MEASURE_INSTEAD = (
    "Measure on prompts that were kept aside (`ir3de fit … --holdout 0.2`), or read the proof that `ir3de fit` prints"
)
NEAREST = "where none fits, the nearest expert counts"


@click.command("eval")
@options.router_argument
@given_domains
@options.reading_options
@options.skip_bad_option
@options.number_option(
    "--errors",
    "wanted",
    least=0,
    default=0,
    help="List N prompts that went wrong, or moved; the surest first.",
)
@click.option(
    "--robustness", is_flag=True, help="Also route the prompts with typos, cut, mixed…; holds all prompts in memory."
)
@click.option(
    "--unknown",
    "unknown",
    multiple=True,
    metavar="PATH",
    help="Prompts that belong to none of the experts; may be repeated.",
)
@click.option(
    "--plot",
    metavar="FILE",
    callback=parse_plot_path,
    help="Draw the reliability diagram as .png, .svg or .pdf; needs the extra `plots`.",
)
@eval_holdout_option
@frontier_options
@once_weight_option
@options.output_options
@click.option(
    "--replay",
    "logs",
    multiple=True,
    metavar="LOG",
    help="Compare with the decision log of a gateway instead of NAME=PATH; may be repeated.",
)
@pair_options
@or_outcomes(evaluate_outcomes, "weights", *NAMES)
def evaluate(
    router_path: Path,
    domains: GivenDomains,
    field: str | None,
    whole_files: bool,
    skip_bad: int,
    wanted: int,
    robustness: bool,
    unknown: tuple[str, ...],
    plot: Path | None,
    holdout: float | None,
    frontier: bool,
    frontier_plot: Path | None,
    weights: Mapping[str, float],
    logs: tuple[str, ...],
    strong: str | None,
    weak: str | None,
    out: Output,
) -> None:
    """Measure a router on prompts whose experts are known.

    The experts of the prompts are named by --label, by the names in a folder, or by NAME=PATH, as in `ir3de fit`.

    Accuracy is the share of prompts whose most probable expert is their own, as in the proof of `ir3de fit`; a mean
    over the experts stands beside it where it differs. Where prompts went, after costs and abstentions, is counted
    apart. Calibration compares the confidence of the decisions with how often they are right. Coverage shows what a
    threshold would cost and save; with --unknown, also how many prompts of no expert are told. Robustness routes the
    same prompts with typos and other changes; a route is flipped if it differs from that of the original. The frontier
    is the quality at each mean cost per prompt, compared with random mixes, single experts and an oracle. --outcomes
    compares the mean score of the chosen models with the best single model, an oracle and random choice; for two models
    it also shows what each share of calls of the strong one buys (APGR, CPT). --replay shows which prompts of a
    gateway's decision log would go to another expert; the log needs `logs.decisions` and `logs.prompts` in the
    gateway's configuration.

    \b
    Examples:
      ir3de eval router test.csv --label team
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --errors 5
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --unknown cooking.jsonl
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --robustness
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --frontier-plot frontier.png
      ir3de eval router --outcomes answers-test.jsonl
      ir3de eval candidate --replay decisions.jsonl --errors 10
    """
    from ir3de.evaluation.accuracy import route_and_compare
    from ir3de.evaluation.frontier import DecisionRecorder
    from ir3de.evaluation.prompts import PromptMemory

    if strong is not None or weak is not None:
        raise click.UsageError("--strong and --weak belong to --outcomes: leave them out, or name rows with --outcomes")
    if logs:
        evaluate_replay(router_path, logs, wanted, weights, out)
        return
    if plot or frontier_plot:
        require_matplotlib()
    if robustness:
        from ir3de.evaluation import measure_robustness  # of the laboratory, which may not be installed
    domains.check_skipping(skip_bad)
    given_texts = domains.read(field, out, whole_files=whole_files, skip_bad=skip_bad)
    check_sources({**given_texts, **({"unknown": unknown} if unknown else {})})
    router = weighted(load_router(router_path), weights)
    misrouted = SurestDecisions(wanted)
    recorder = DecisionRecorder(router) if frontier or frontier_plot else None
    if recorder:
        recorder.check()

    memory = PromptMemory.of(router)

    def record(name: str, text: str, decision: Decision) -> None:
        if memory:
            memory.look_up(name, text)
        if recorder:
            recorder.record(name, text, decision)
        if decision.expert != name:
            misrouted.add(decision, lambda: {"text": text, "expected": name, **decision.to_dict()})

    begun = perf_counter()
    with ExitStack() as bars:
        prompts: dict[str, Any] = {
            name: read_prompts(name, paths, field, whole_files, out) for name, paths in given_texts.items()
        }
        for stream in prompts.values():
            bars.callback(stream.close)
        if holdout is not None:
            streams = {name: list(keep_held_out(stream, holdout)) for name, stream in prompts.items()}
            prompts = {name: kept for name, kept in streams.items() if kept}  # of a few prompts none may be kept aside
            if not prompts:
                raise InputError(
                    f"--holdout {holdout:g} keeps none of these prompts aside: give more, or a larger share"
                )
        if robustness:  # every prompt is needed more than once
            prompts = {name: list(stream) for name, stream in prompts.items()}
        strangers = read_prompts("unknown", list(unknown), field, whole_files, out) if unknown else iter(())
        report = route_and_compare(
            router, prompts, strangers, on_decision=record if wanted or recorder or memory else None
        )
    if unknown and report.unknown is None:
        raise InputError(f"{', '.join(unknown)}: no prompt to evaluate: give --unknown at least one, or leave it out")
    seconds = perf_counter() - begun
    with out.spinner("perturbing"):
        effects = measure_robustness(router, prompts) if robustness else None
    found, mistakes = recorder.frontier() if recorder else None, misrouted.rows
    if found and frontier_plot:
        draw_frontier(found, frontier_plot)
    also: dict[str, Any] = {key: more.to_dict() for key, more in (("robustness", effects), ("frontier", found)) if more}
    seen = memory.count() if memory else None
    warning = seen.describe(MEASURE_INSTEAD) if seen else None
    also["in_fit"] = None if seen is None else {**seen.to_dict(), "warning": warning}
    out.json({**report.to_dict(), "seconds": round(seconds, 3), "errors": mistakes, **also})
    if warning:
        out.warn(warning, quiet=False)
    show_report(out, report)
    if plot is not None:
        draw_reliability(report, plot)
        out.note(line(("drawn to ", ""), (str(plot), "bold")))
    if effects:
        out.note(heading("Robustness", NEAREST if router.default is None and report.abstained else ""))
        out.result(accuracy_tables.effects_table(effects))
    if found:
        show_frontier(out, found, frontier_plot)
    if mistakes:
        columns = ("expected", "expert"), ("expert", "went to")
        out.note(
            heading("Misrouted", "the most confident first"),
            accuracy_tables.prompts_table(mistakes, *columns, out.console.width),
        )


def show_report(out: Output, report: Report) -> None:
    """Everything a report holds, the accuracy_tables.headline first."""
    if out.as_json:
        return
    out.result(accuracy_tables.headline(report))
    sides, widths = ("expected", "went to"), (out.console.width, out.table_width)
    confusion = accuracy_tables.matrix_table(report.experts, report.confusion, widths[0], sides, room=widths[1])
    out.note("", accuracy_tables.recall_table(report), heading("Confusion"), confusion)
    gap = f"expected calibration error {100 * report.calibration_error:.1f} points; █ accuracy, │ mean confidence"
    out.note(heading("Calibration", gap), accuracy_tables.reliability_table(report))
    out.note(*_coverage(report))
    out.note(*_abstentions(report))


def _coverage(report: Report) -> Iterator[Any]:
    """What a threshold costs and saves, and what becomes of unknown prompts."""
    if report.coverage:
        area = "" if report.area is None else f"a right answer is more confident than a wrong one: {report.area:.3f}"
        yield from (heading("Coverage", area), accuracy_tables.coverage_table(report))
    if (found := report.unknown) is not None:
        shares = f"{percent(found.told)} told as out of domain, {percent(found.sure)} over 90 % sure"
        at_5 = f"{percent(found.told_at_5)} told at 5 % false alarms"
        yield heading("Unknown prompts", f"{found.prompts:,}: {shares}")
        yield line((f"  area under the curve {found.area:.3f}, {at_5}", ""))


def _abstentions(report: Report) -> Iterator[Any]:
    """How many prompts were abstained on, why, and how many are out of domain."""
    if report.abstained:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.abstained_because.items())
        rest = f"; of the others {percent(report.answered_accuracy)} are right"
        yield line(("\nAbstained  ", "bold"), (f"{report.abstained:,} of {report.prompts:,}: {reasons}{rest}", ""))
    if report.out_of_domain:
        share = percent(report.out_of_domain / report.prompts)
        yield line(("\nOut of domain  ", "bold"), (f"{report.out_of_domain:,} prompts, {share}", ""))
