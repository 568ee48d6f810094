"""eval: how well a router does on prompts whose experts are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.accuracy_tables import (
    effects_table,
    headline,
    matrix_table,
    prompts_table,
    recall_table,
    reliability_table,
)
from ir3de.cli.commands.evaluate_frontier import frontier_options, show_frontier
from ir3de.cli.commands.evaluate_outcomes import evaluate_outcomes
from ir3de.cli.commands.evaluate_replay import evaluate_replay
from ir3de.cli.costs import weight_option, weighted
from ir3de.cli.domains import check_sources
from ir3de.cli.options import domains_option, output_options, reading_options, router_argument
from ir3de.cli.outcomes import or_outcomes
from ir3de.cli.output import FAINT, Output, heading, percent, styled
from ir3de.cli.plots import draw_frontier, draw_reliability, parse_plot_path, require_matplotlib
from ir3de.cli.progress import read_prompts

if TYPE_CHECKING:
    from ir3de.evaluation.accuracy import Report
    from ir3de.evaluation.robustness import RobustnessReport
    from ir3de.router import Router
    from ir3de.routing.decision import Decision


@click.command("eval")
@router_argument
@domains_option
@reading_options
@click.option(
    "--errors",
    "wanted",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="List N misrouted (or moved) prompts.",
)
@click.option(
    "--robustness", is_flag=True, help="Also route them mistyped, cut, mixed…: holds all the prompts in memory."
)
@click.option(
    "--plot",
    metavar="FILE",
    callback=parse_plot_path,
    help="Draw the reliability diagram as .png, .svg or .pdf; needs the extra `plots`.",
)
@frontier_options
@weight_option("What a unit of a cost is worth this time: price=0.1; instead of the router's own.")
@output_options
@click.option(
    "--replay",
    "logs",
    multiple=True,
    metavar="LOG",
    help="Compare with the decision log of a gateway instead of NAME=PATH; may be repeated.",
)
@or_outcomes(evaluate_outcomes, "weights")
def evaluate(
    router_path: Path,
    domains: Mapping[str, list[str]],
    field: str | None,
    whole_files: bool,
    wanted: int,
    robustness: bool,
    plot: Path | None,
    frontier: bool,
    frontier_plot: Path | None,
    weights: Mapping[str, float],
    logs: tuple[str, ...],
    out: Output,
) -> None:
    """Measure a router on prompts whose experts are known.

    Accuracy is the mean over the domains of the share that was routed right. Calibration compares the confidence
    of the decisions with how often they were right. Robustness compares with the same prompts perturbed: a flipped
    route is one that differs from the untouched prompt's. The frontier is the quality to be had for each mean cost of
    a prompt, beside random mixes, single experts and an oracle. With --outcomes: the mean score of the chosen models
    beside the best single model's, an oracle's and random choice. With --replay: which prompts that a gateway has
    served would go elsewhere, by the log that `logs.decisions` and `logs.prompts` of its configuration ask for.

    \b
    Examples:
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --errors 5
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --robustness
      ir3de eval router maths=maths-test.jsonl law=law-test.jsonl --frontier-plot frontier.png
      ir3de eval router --outcomes answers-test.jsonl
      ir3de eval candidate --replay decisions.jsonl --errors 10
    """
    from ir3de.evaluation.accuracy import evaluate as measure
    from ir3de.evaluation.frontier import DecisionRecorder
    from ir3de.router import Router

    if logs:
        evaluate_replay(router_path, logs, wanted, weights, out)
        return
    if plot or frontier_plot:
        require_matplotlib()
    check_sources(domains)
    router = weighted(Router.load(router_path), weights)
    mistakes: list[dict[str, Any]] = []
    recorder = DecisionRecorder(router) if frontier or frontier_plot else None
    if recorder:
        recorder.check()

    def record(name: str, text: str, decision: Decision) -> None:
        if recorder:
            recorder.record(name, text, decision)
        if decision.expert != name and len(mistakes) < wanted:
            mistakes.append({"text": text, "expected": name, **decision.to_dict()})

    begun = perf_counter()
    with ExitStack() as bars:
        prompts: dict[str, Any] = {
            name: read_prompts(name, paths, field, whole_files, out) for name, paths in domains.items()
        }
        for stream in prompts.values():
            bars.callback(stream.close)
        if robustness:  # every prompt is needed more than once
            prompts = {name: list(stream) for name, stream in prompts.items()}
        report = measure(router, prompts, on_decision=record if wanted or recorder else None)
    seconds = perf_counter() - begun
    held_up = _robustness(router, prompts, out) if robustness else None
    found = recorder.frontier() if recorder else None
    if found and frontier_plot:
        draw_frontier(found, frontier_plot)
    also = {
        **({"robustness": held_up.to_dict()} if held_up else {}),
        **({"frontier": found.to_dict()} if found else {}),
    }
    out.json({**report.to_dict(), "seconds": round(seconds, 3), "errors": mistakes, **also})
    show_report(out, report)
    if plot is not None:
        draw_reliability(report, plot)
        out.note(styled(("drawn to ", ""), (str(plot), "bold")))
    if held_up:
        out.note(heading("Robustness"))
        out.result(effects_table(held_up))
    if found:
        show_frontier(out, found, frontier_plot)
    if mistakes:
        out.note(
            heading("Misrouted"),
            prompts_table(mistakes, ("expected", "expert"), ("expert", "went to"), out.console.width),
        )


def _robustness(router: Router, prompts: Mapping[str, list[str]], out: Output) -> RobustnessReport:
    from ir3de.evaluation.robustness import measure_robustness

    with out.spinner("perturbing"):
        return measure_robustness(router, prompts)


def show_report(out: Output, report: Report) -> None:
    """Everything a report holds, the headline first."""
    if out.as_json:
        return
    out.result(headline(report))
    confusion = matrix_table(report.experts, report.confusion, out.console.width, ("is", "went to"))
    out.note("", recall_table(report), heading("Confusion"), confusion)
    gap = (
        f"expected calibration error {100 * report.calibration_error:.1f} points; █ how often right, │ what was claimed"
    )
    out.note(styled(("\nCalibration  ", "bold"), (gap, FAINT)), reliability_table(report))
    out.note(*_abstentions(report))


def _abstentions(report: Report) -> Iterator[Any]:
    """How many prompts were abstained on, why, and how many are out of domain."""
    if report.abstained:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in report.abstained_because.items())
        rest = f"; of the others {percent(report.answered_accuracy)} are right"
        yield styled(("\nAbstained  ", "bold"), (f"{report.abstained:,} of {report.prompts:,}: {reasons}{rest}", ""))
    if report.out_of_domain:
        share = percent(report.out_of_domain / report.prompts)
        yield styled(("\nOut of domain  ", "bold"), (f"{report.out_of_domain:,} prompts, {share}", ""))
