"""report: whether a router is worth deploying, as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

import ir3de
from ir3de import files
from ir3de.cli import lib, options
from ir3de.cli.commands.doctor import version_of
from ir3de.cli.domains import GivenDomains, given_domains, list_repeats, read_prompts
from ir3de.cli.formats import line
from ir3de.cli.output import Output, Result, hint, saved_line
from ir3de.cli.proof import write_serve_command
from ir3de.cli.saving import load_router

MAX_NAMED_FILES = 6
SAME_PROMPTS = 0.98  # from this share on, the router was fitted on the prompts of the report


def _parse_page_path(context: click.Context, parameter: click.Parameter, value: str) -> Path:
    advice = "a report is a web page. To have it as PDF, print it from a browser"
    return options.check_suffix(value, (".html", ".htm"), advice)


@click.command()
@options.router_argument
@given_domains
@options.reading_options
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    default="report.html",
    show_default=True,
    callback=_parse_page_path,
    help="The page to write.",
)
@click.option("--no-examples", is_flag=True, help="Show no text of the prompts, for data that may not leave.")
@options.force_option
@options.output_options
def report(
    router_path: Path,
    domains: GivenDomains,
    texts: options.TextOptions,
    target: Path,
    no_examples: bool,
    force: bool,
    out: Output,
) -> None:
    """Write a report about a router: should it be deployed on this data?

    The router's settings are cross-validated on the labelled prompts: each prompt is routed by a fit that did not see
    it. The page shows the accuracy with its interval next to those of TF-IDF + logistic regression and the majority
    expert, the experts that are confused, how far confidence can be trusted, the value of more prompts and, if experts
    have costs, the cost of quality. It is one file that loads nothing from any network.

    Without labelled prompts, the sample of prompts in the router is used.

    The page shows some of the prompts. --no-examples leaves them out, and the words of each expert too.

    \b
    Examples:
      ir3de report router train.csv --label team -o report.html
      ir3de report router maths=maths.jsonl law=law.jsonl --no-examples
    """
    domains.check_skipping(texts)
    options.refuse_existing(target, force=force)
    router, prompts = load_router(router_path), None
    if domains:
        given = domains.read(texts, out)
        prompts = {name: list(read_prompts(name, own, texts, out)) for name, own in given.items()}
    with out.spinner("measuring"):
        proof = lib.evaluation.prove(prompts, router=router)
        proof = _hide_examples(proof) if no_examples else proof
        is_ready = lib.proof.is_ready(proof)
        repeats = None if prompts is None else lib.repeats.find_repeats(prompts)
        repeats = repeats.without_examples() if repeats and no_examples else repeats
        notices = () if prompts is None else (*_compare_prompts(router, prompts), *list_repeats(repeats))
        history = router.history
        subject = lib.report.Subject(
            proof,
            name=router_path.resolve().name,
            digest=history[-1].router_after if history else None,
            made=datetime.now(UTC),
            version=version_of("ir3de") or "(not installed)",
            scorer=f"{type(router.scorer).__name__}, {type(router.selector).__name__}",
            embedding=router.embedding.name or router.embedding.fingerprint[:12],
            source=_name_sources(domains.sources) or "the sample that the router keeps",
            command=_write_command(router_path, domains, texts, target, no_examples),
            next_commands=[("Serve it", write_serve_command(router_path, router.experts))] if is_ready else (),
            notices=notices,
            default=router.default,
            words={} if no_examples or prompts is None else lib.report.find_words(router, prompts),
            examples=not no_examples,
        )
        page = lib.report.write_page(subject).encode()
    files.make_folder(target.parent)
    files.write(target, page)
    for notice in subject.notices:
        out.warn(notice)
    document = {"report": str(target), "bytes": len(page), "router": str(router_path), "digest": subject.digest}
    document |= {"version": subject.version, "notices": list(subject.notices)}
    document |= {"repeats": repeats and repeats.to_dict(), "proof": proof.to_dict()}
    verdict = [Result(line((sentence, ""))) for sentence in proof.verdict]
    following = [hint(command) for _, command in subject.next_commands]
    out.show(document, (*verdict, saved_line(target, len(page)), *following))


def _write_command(
    path: Path, domains: GivenDomains, texts: options.TextOptions, target: Path, no_examples: bool
) -> str:
    """The command that makes the same report again."""
    named = {"--label": domains.label, "--text": texts.field, "--skip-bad": texts.skip_bad or None}
    given = [str(part) for option, value in named.items() if value is not None for part in (option, value)]
    rest = ["--no-examples"] if no_examples else []
    return shlex.join(["ir3de", "report", str(path), *domains.sources, *given, "-o", str(target), *rest])


def _hide_examples(proof: lib.evaluation.Proof) -> lib.evaluation.Proof:
    """The same figures without any text of a prompt."""
    pairs = tuple(replace(pair, examples=()) for pair in proof.confused)
    return replace(proof, confused=pairs, abstained=replace(proof.abstained, examples=()))


def _name_sources(sources: Sequence[str]) -> str:
    """The files of the prompts, in a few words."""
    paths = [source.partition("=")[2] or source for source in sources]
    names = ["standard input" if path == "-" else Path(path).name or path for path in paths]
    return ", ".join(names) if len(names) <= MAX_NAMED_FILES else f"{names[0]} and {len(names) - 1} others"


def _compare_prompts(router: ir3de.Router, texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What the figures mean if the router was fitted on other prompts."""
    given, fitted = sum(map(len, texts.values())), sum(one.prompts for one in router.statistics.values())
    kept = [(name, one.sample.hashes) for name, one in router.statistics.items() if one.sample is not None]
    total = sum(len(hashes) for _, hashes in kept)
    here = {name: {lib.sample.hash_text(text) for text in own} for name, own in texts.items()}
    found = sum(int(value) in here.get(name, ()) for name, hashes in kept for value in hashes)
    meaning = "The figures are those of the router’s settings when they are fitted on these prompts"
    measure = "`ir3de eval` measures the router as it is"
    if total and found < SAME_PROMPTS * total:
        share = (
            f"{100 * found / total:.0f} % of the prompts that it keeps are"
            if found
            else "None of the prompts that it keeps is"
        )
        yield f"The router was fitted on other prompts: {share} among these. {meaning}; {measure}."
    elif abs(given - fitted) > (1 - SAME_PROMPTS) * fitted:
        yield f"The router was fitted on {fitted:,} prompts, and these are {given:,}. {meaning}; {measure}."
    if not total:
        yield f"The router keeps no sample, so it is not known whether it was fitted on these prompts. {meaning}."
