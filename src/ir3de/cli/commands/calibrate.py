"""calibrate: pick the confidence below which a router abstains, from held-out prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.domains import check_sources
from ir3de.cli.given import GivenDomains, given_domains
from ir3de.cli.options import output_options, reading_options, router_argument, skip_bad_option
from ir3de.cli.outcomes import check_clashes
from ir3de.cli.output import FAINT, Output, bar, line, percent, table
from ir3de.cli.progress import read_prompts
from ir3de.cli.saving import changing, load_router
from ir3de.cli.strong_weak import SHARE, check_given, describe_calibration, describe_share, share_options
from ir3de.errors import UnknownExpertError, name_some

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.evaluation.threshold import Threshold, ThresholdCalibration

SHARE_TAKES = ("router_path", "prompts", *SHARE, "dry_run", "field", "whole_files", "as_json", "quiet")
COMPARED_ERROR_RATES = (0.01, 0.02, 0.05, 0.1)


@click.command()
@router_argument
@given_domains
@click.option(
    "--error",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Share of all prompts that may go to the wrong expert.",
)
@click.option("--default", metavar="NAME", help="New default expert, for prompts the router abstains on.")
@click.option("--keep-confidence", is_flag=True, help="Do not calibrate confidence: all prompts pick the threshold.")
@click.option(
    "--prompts",
    multiple=True,
    metavar="PATH",
    help="Prompts for --strong-share, instead of NAME=PATH; may be repeated.",
)
@share_options
@click.option("--dry-run", is_flag=True, help="Print the result, but do not save it.")
@reading_options
@skip_bad_option
@output_options
def calibrate(
    router_path: Path,
    domains: GivenDomains,
    error: float,
    default: str | None,
    keep_confidence: bool,
    prompts: tuple[str, ...],
    strong_share: float | None,
    strong: str | None,
    weak: str | None,
    dry_run: bool,
    field: str | None,
    whole_files: bool,
    skip_bad: int,
    out: Output,
) -> None:
    """Pick the confidence below which the router abstains, or the threshold for a share of strong calls.

    Give prompts that the router was not fitted on, mixed as the router will meet them; PATH, --label and NAME=PATH are
    as in `ir3de fit`. One half calibrates confidence
    anew. The other half picks the smallest threshold that keeps the expected share of wrong answers among new prompts
    within --error (split conformal). Prompts below the threshold, and out-of-domain prompts, go to the default expert.

    With --strong-share, prompts without labels (--prompts) pick the threshold that sends this share of them to the
    strong model and the others to the weak one.

    \b
    Examples:
      ir3de calibrate router held-out.csv --label team
      ir3de calibrate router maths=maths-held-out.jsonl law=law-held-out.jsonl --error 0.02 --default law
      ir3de calibrate router maths=maths-held-out.jsonl law=law-held-out.jsonl --dry-run
      ir3de calibrate router --prompts held-out.jsonl --strong-share 0.3
    """
    from ir3de.evaluation.threshold import calibrate_threshold, check_has_confidence
    from ir3de.files.router_folder import inspect_router

    check_given(strong_share, strong, weak)
    if strong_share is not None or prompts:
        check_clashes("--strong-share", SHARE_TAKES)
        if strong_share is None or not prompts:
            raise click.UsageError("--strong-share and --prompts belong together: give both")
        texts = read_prompts("prompts", list(prompts), field, whole_files, out)
        _calibrate_share(router_path, texts, strong_share, {"strong": strong, "weak": weak}, dry_run, out)
        return
    if not domains:
        raise click.UsageError(
            "Missing argument 'PATH|NAME=PATH': name a file with --label, a folder of experts or at least one "
            "NAME=PATH, or give --prompts and --strong-share"
        )
    domains.check_skipping(skip_bad)
    before = load_router(router_path)
    check_has_confidence(before)  # before anything is read
    given_texts = domains.read(field, out, whole_files=whole_files, skip_bad=skip_bad)
    check_sources(given_texts)
    experts = before.experts
    unknown = [name for name in (*given_texts, *([default] if default else [])) if name not in experts]
    if unknown:
        raise UnknownExpertError(f"no expert '{unknown[0]}': this router has {name_some(experts, unknown[0])}")
    held_out = {name: list(read_prompts(name, paths, field, whole_files, out)) for name, paths in given_texts.items()}
    with changing(router_path) as router:
        with out.spinner("calibrating"):
            found = calibrate_threshold(
                router,
                held_out,
                error=error,
                others=COMPARED_ERROR_RATES,
                default=default,
                recalibrate=not keep_confidence,
            )
        if not dry_run:
            serving = bool(inspect_router(router_path).header.get("serving"))
            found.router.save(router_path.expanduser(), serving=serving)
    _report(out, router_path, found, dry_run=dry_run)


def _calibrate_share(
    router_path: Path, texts: Iterable[str], share: float, names: Mapping[str, str | None], dry_run: bool, out: Output
) -> None:
    """Pick the threshold of a strong share and save the policy."""
    from ir3de.evaluation.outcomes import calibrate_strong_share, find_pair
    from ir3de.fitting.saving import save_policy

    find_pair(load_router(router_path), names["strong"], names["weak"])  # or it is refused before anything is read
    with changing(router_path) as router:
        found = calibrate_strong_share(router, texts, share, strong=names["strong"], weak=names["weak"])
        if not dry_run:
            save_policy(router_path, found.router.policy, found.router.default)
    out.json({"router": str(router_path), "saved": not dry_run, **found.to_dict()})
    out.note(line((describe_calibration(found), FAINT)))
    where = "" if dry_run else f"  saved to {router_path}"
    out.result(line((describe_share(found.chosen), ""), (where, FAINT)))


def _report(out: Output, router_path: Path, found: ThresholdCalibration, *, dry_run: bool) -> None:
    from ir3de.evaluation.threshold import count_needed_prompts

    chosen = found.chosen
    out.json(
        {
            "router": str(router_path),
            "saved": not dry_run,
            **chosen.to_dict(),
            "default": found.router.default,
            "others": [other.to_dict() for other in found.others],
        }
    )
    rates = {rate.error: rate for rate in (*found.others, chosen)}
    out.note(
        _cost_table([rates[rate] for rate in sorted({*rates, *COMPARED_ERROR_RATES}) if rate in rates], chosen), ""
    )
    missing = [rate for rate in COMPARED_ERROR_RATES if rate not in rates]
    if missing:
        needed = ", ".join(f"{percent(rate)} wrong (needs {count_needed_prompts(rate):,} prompts)" for rate in missing)
        out.note(line((f"out of reach with {chosen.prompts:,} prompts: {needed}", FAINT)))
    free = f"without a threshold, {percent(chosen.free_wrong)} are wrong"
    out.note(line((f"measured on the {chosen.prompts:,} prompts that picked the threshold; {free}", FAINT)))
    where = "" if dry_run else f"  saved to {router_path}"
    if chosen.threshold == 0:
        enough = f"wrong answers stay within {percent(chosen.error)} as it is"
        out.result(line(("no threshold is needed: ", "bold"), (enough, ""), (where, FAINT)))
        return
    done = "would abstain" if dry_run else "abstains"
    what = f" below {percent(chosen.threshold)} confidence: {percent(1 - chosen.coverage)} of prompts go to "
    default = found.router.default or "nobody, as no default expert was named (--default NAME names one)"
    out.result(line((done, "bold"), (what, ""), (default, "bold"), (where, FAINT)))


def _cost_table(rates: Iterable[Threshold], chosen: Threshold) -> Table:
    right = ("wrong at most", "threshold", "answered", "wrong of all", "wrong of answered")
    shown = table("", *right[:3], " ", *right[3:], right=right)
    for rate in rates:
        mark, style = ("→", "bold green") if rate.error == chosen.error else ("", "")
        threshold = percent(rate.threshold) if rate.threshold else "none"
        answered = percent(rate.coverage), bar(rate.coverage, 20, "green")
        wrong = percent(rate.wrong), percent(rate.answered_wrong)
        shown.add_row(line((mark, "green")), percent(rate.error), threshold, *answered, *wrong, style=style)
    return shown
