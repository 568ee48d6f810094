"""tune, calibrate: choose the scorer again, and the confidence below which a router abstains."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import click

from ir3de.cli import hints, lib, options
from ir3de.cli.counting import check_sources
from ir3de.cli.domains import GivenDomains, given_domains, read_prompts
from ir3de.cli.formats import FAINT, bar, line, percent
from ir3de.cli.outcomes import describe_reached, describe_share
from ir3de.cli.output import Block, Output, Result, hint, solving, table
from ir3de.cli.proof import in_few_words, trials_table, view_change, why_chosen
from ir3de.cli.saving import changing, free_folders, load_router, measure_change, view_confidence
from ir3de.cli.teaching import GivenTeacher, teacher_options, view_teaching
from ir3de.errors import UnknownExpertError, name_some

SHARE_ACCEPTS = (
    "router_path", "prompts", *options.SHARE_PARAMETERS, "dry_run", "field", "whole_files", "as_json", "quiet"
)  # fmt: skip
COMPARED_ERROR_RATES = (0.01, 0.02, 0.05, 0.1)


@click.command()
@options.router_argument
@click.argument("sources", nargs=-1, metavar="")  # not accepted: the error names the right command
@click.option("--label", hidden=True)
@click.option("--text", hidden=True)
@click.option("--output", type=click.Path(path_type=Path), help="Save the tuned router here; ROUTER stays as it is.")
@teacher_options
@options.output_options
def tune(
    router_path: Path,
    sources: tuple[str, ...],
    label: str | None,
    text: str | None,
    output: Path | None,
    taught: GivenTeacher,
    out: Output,
) -> None:
    """Choose scorer and selector by cross-validation.

    Tuning tries ridge strengths, priors, blends and voting on the prompts that the router kept. Each prompt is
    subtracted from the counts before it is routed, so tuning reads no texts and needs no other prompts. The default
    blend stays unless another clearly beats it: by two standard errors, and by half a point. A candidate that relies on
    counts of words or pairs must win by a point. The choice is then compared with ROUTER as it is. ROUTER is replaced
    only if the choice is clearly more accurate: the 95 % interval of the difference is above zero. --output saves the
    tuned router elsewhere in any case, with the table of all trials.

    With --teacher, the texts of --unlabelled are labelled first, as in `ir3de fit`; what an earlier teacher taught is
    replaced. ROUTER is then replaced if the labels help on labelled prompts that are held out.

    \b
    Examples:
      ir3de tune router
      ir3de tune router --unlabelled traffic.jsonl --teacher minilm-l6
      ir3de tune router --output tuned
    """
    if sources or label or text:
        _refuse_texts(router_path, sources)
    lesson = taught.prepare(router_path, options.TextOptions(), out)
    begun = perf_counter()
    folder = router_path.expanduser() if output is None else free_folders(output, None, force=False)[0]
    with taught.labelling(router_path), changing(router_path) as router:
        at_hand = copy(router)
        with solving(out):
            router.tune(teacher=lesson)
        change = measure_change(out, at_hand, router)
        is_better = change.difference is not None and change.difference.low > 0
        if (found := router.teaching) is not None and lesson is not None:
            is_better = found.is_used  # the teacher knew the labels of the prompts that are compared
        if is_saved := output is not None or is_better:
            router.save(folder)
    seconds = perf_counter() - begun
    before, after = ({"scorer": one.scorer, "selector": one.selector} for one in (change.before, change.after))
    changed = {"before": before, **after, "changed": before != after, "saved": is_saved, "change": change.to_dict()}
    trials = {"trials": list(router.trials), "seconds": round(seconds, 3)}
    document = {"router": str(folder if is_saved else router_path), **changed, **trials}
    document |= {} if router.teaching is None else {"teaching": router.teaching.to_dict()}
    out.show(document, _view_tuning(document))
    out.note(*view_teaching(router))
    if is_saved:
        out.note(*view_confidence(router), hint(f"ir3de calibrate {folder} NAME=PATH…", "next, with held-out prompts:"))


def _view_tuning(document: Mapping[str, Any]) -> Iterator[Block]:
    """The trials, why one was chosen, and the router before and after."""
    yield from (trials_table(document["trials"]), "")
    if why := why_chosen(document["trials"]):
        yield line((why, ""))
    yield from (line((f"{len(document['trials'])} trials in {document['seconds']:.1f} s", FAINT)), "")
    yield from view_change(document["change"])
    was, now = (f"{in_few_words(s['scorer'])}; {in_few_words(s['selector'])}" for s in (document["before"], document))
    if document["saved"]:
        yield Result(line((now, "bold"), (f"  before: {was}  saved to {document['router']}", FAINT)))
        return
    other = f"what tuning chose ({now}) is not clearly more accurate; --output FOLDER saves it"
    stays = other if document["changed"] else "as before"
    yield Result(line((f"{document['router']} stays as it is: ", "bold"), (stays, "")))


def _refuse_texts(router_path: Path, sources: tuple[str, ...]) -> NoReturn:
    right = hints.write_command([str(router_path)])
    anew = f"\n  ir3de fit {shlex.join(hints.given_arguments())} --tune --force"
    raise click.UsageError(
        f"tuning reads no texts, because it uses the prompts that the router kept:{right}"
        + (f"\nTo fit the router anew from these texts, and tune it:{anew}" if sources else "")
    )


@click.command()
@options.router_argument
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
@options.share_options
@click.option("--dry-run", is_flag=True, help="Print the result, but do not save it.")
@options.reading_options
@options.output_options
def calibrate(
    router_path: Path,
    domains: GivenDomains,
    error: float,
    default: str | None,
    keep_confidence: bool,
    prompts: tuple[str, ...],
    pair: options.StrongOptions,
    dry_run: bool,
    texts: options.TextOptions,
    out: Output,
) -> None:
    """Pick the confidence below which the router abstains, or the threshold for a share of strong calls.

    Give prompts that the router was not fitted on, mixed as the router will meet them; PATH, --label and NAME=PATH are
    as in `ir3de fit`. One half calibrates confidence anew. The other half picks the smallest threshold that keeps the
    expected share of wrong answers among new prompts within --error (split conformal). Prompts below the threshold, and
    out-of-domain prompts, go to the default expert.

    With --strong-share, prompts without labels (--prompts) pick the threshold that sends this share of them to the
    strong model and the others to the weak one.

    \b
    Examples:
      ir3de calibrate router held-out.csv --label team
      ir3de calibrate router maths=maths-held-out.jsonl law=law-held-out.jsonl --error 0.02 --default law
      ir3de calibrate router maths=maths-held-out.jsonl law=law-held-out.jsonl --dry-run
      ir3de calibrate router --prompts held-out.jsonl --strong-share 0.3
    """
    pair.check()
    if pair.share is not None or prompts:
        options.check_clashes("--strong-share", SHARE_ACCEPTS)
        if pair.share is None or not prompts:
            raise click.UsageError("--strong-share and --prompts belong together: give both")
        _calibrate_share(router_path, read_prompts("prompts", prompts, texts, out), pair, dry_run, out)
        return
    if not domains:
        raise click.UsageError(f"{options.MISSING_DOMAINS}, or give --prompts and --strong-share")
    domains.check_skipping(texts)
    before = load_router(router_path)
    lib.threshold.check_has_confidence(before)  # before anything is read
    given_texts = domains.read(texts, out)
    check_sources(given_texts)
    experts = before.experts
    unknown = [name for name in (*given_texts, *([default] if default else [])) if name not in experts]
    if unknown:
        raise UnknownExpertError(f"no expert '{unknown[0]}': this router has {name_some(experts, unknown[0])}")
    held_out = {name: list(read_prompts(name, paths, texts, out)) for name, paths in given_texts.items()}
    how: Any = {"default": default, "recalibrate": not keep_confidence, "others": COMPARED_ERROR_RATES}
    with changing(router_path) as router:
        with out.spinner("calibrating"):
            found = lib.evaluation.calibrate_threshold(router, held_out, error=error, **how)
        if not dry_run:
            serving = bool(lib.router_folder.inspect_router(router_path).header.get("serving"))
            found.router.save(router_path.expanduser(), serving=serving)
    document = {"router": str(router_path), "saved": not dry_run, **found.chosen.to_dict()}
    document |= {"default": found.router.default, "others": [other.to_dict() for other in found.others]}
    out.show(document, _view_threshold(document))


def _calibrate_share(
    router_path: Path, prompts: Iterable[str], pair: options.StrongOptions, dry_run: bool, out: Output
) -> None:
    """Pick the threshold of a strong share and save the policy."""
    assert pair.share is not None
    from ir3de.evaluation.outcomes import find_pair

    find_pair(load_router(router_path), pair.strong, pair.weak)  # rejected before anything is read
    with changing(router_path) as router:
        found = lib.evaluation.calibrate_strong_share(router, prompts, pair.share, **pair.names)
        if not dry_run:
            lib.saving.save_policy(router_path, found.router.policy, found.router.default)
    document = {"router": str(router_path), "saved": not dry_run, **found.to_dict()}
    chosen = line((describe_share(document), ""), ("" if dry_run else f"  saved to {router_path}", FAINT))
    out.show(document, (line((describe_reached(document), FAINT)), Result(chosen)))


def _view_threshold(chosen: Mapping[str, Any]) -> Iterator[Block]:
    """The cost of each error rate, and the chosen threshold."""
    rates = {rate["error"]: rate for rate in (*chosen["others"], chosen)}
    yield from (_rates_table([rates[rate] for rate in sorted(rates)], chosen["error"]), "")
    prompts = chosen["prompts"]
    if missing := [rate for rate in COMPARED_ERROR_RATES if rate not in rates]:
        counts = [(percent(rate), lib.evaluation.count_needed_prompts(rate)) for rate in missing]
        needed = ", ".join(f"{share} wrong (needs {count:,} prompts)" for share, count in counts)
        yield line((f"out of reach with {prompts:,} prompts: {needed}", FAINT))
    free = f"without a threshold, {percent(chosen['free_wrong'])} are wrong"
    yield line((f"measured on the {prompts:,} prompts that picked the threshold; {free}", FAINT))
    where = f"  saved to {chosen['router']}" if chosen["saved"] else ""
    if chosen["threshold"] == 0:
        enough = f"wrong answers stay within {percent(chosen['error'])} as it is"
        yield Result(line(("no threshold is needed: ", "bold"), (enough, ""), (where, FAINT)))
        return
    done = "abstains" if chosen["saved"] else "would abstain"
    what = f" below {percent(chosen['threshold'])} confidence: {percent(1 - chosen['coverage'])} of prompts go to "
    default = chosen["default"] or "no expert, because there is no default (--default NAME names one)"
    yield Result(line((done, "bold"), (what, ""), (default, "bold"), (where, FAINT)))


def _rates_table(rates: Iterable[Mapping[str, Any]], chosen: float) -> Any:
    right = ("wrong at most", "threshold", "answered", "wrong of all", "wrong of answered")
    shown = table("", *right[:3], " ", *right[3:], right=right)
    for rate in rates:
        mark, style = ("→", "bold green") if rate["error"] == chosen else ("", "")
        threshold = percent(rate["threshold"]) if rate["threshold"] else "none"
        answered = percent(rate["coverage"]), bar(rate["coverage"], 20, "green")
        wrong = percent(rate["wrong"]), percent(rate["answered_wrong"])
        shown.add_row(line((mark, "green")), percent(rate["error"]), threshold, *answered, *wrong, style=style)
    return shown
