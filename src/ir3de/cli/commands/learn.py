"""`learn`, `forget`: make a candidate from the feedback in a journal, and take sources of feedback out of a router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click

import ir3de
from ir3de import files
from ir3de.cli import lib, options
from ir3de.cli.formats import FAINT, line, one_line, percent, printable
from ir3de.cli.output import Block, Output, count_left_out, facts, heading, hint, saved_line, split_rows, table
from ir3de.cli.saving import changing, load_router
from ir3de.cli.scores import list_left_out, view_scores
from ir3de.cli.teaching import GivenTeacher, traffic_teacher_options, view_report

REPORT_FILE = "learning.json"  # in the candidate's folder, beside the router
SHOWN_CONTRADICTIONS = 5
PROMPT_CHARS = 60

scorer_option = click.option(
    "--scorer",
    "scorer_choice",
    type=click.Choice(["keep", "choose"]),
    help="Keep the scorer, or choose it again.  [default: choose it again if `fit` or `tune` chose it]",
)
journal_option = click.option(
    "--from",
    "journal_path",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Feedback folder of a gateway, or the state folder that holds it.",
)


@click.command()
@options.router_argument
@journal_option
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), required=True, metavar="CANDIDATE",
              help="Folder of the candidate. The router itself is not changed.")  # fmt: skip
@click.option("--trust", multiple=True, metavar="AUTHOR",
              help="Learn the labels of this author even if they are implausible; may be repeated.")  # fmt: skip
@traffic_teacher_options
@scorer_option
@options.force_option
@options.output_options
def learn(
    router_path: Path,
    journal_path: Path | None,
    target: Path,
    trust: tuple[str, ...],
    taught: GivenTeacher,
    scorer_choice: lib.domains.ScorerChoice | None,
    force: bool,
    out: Output,
) -> None:
    """Learn from the feedback that people gave to routed requests, and prove what it brings.

    The labels of one author, on one day, for the requests of one key are a source. Each source is one contribution to
    each expert, up to 50 labels, and can be taken out again with `ir3de forget`. Labels that the router finds
    implausible are left out, and a source that has many of them is left out as a whole and named. The result is a
    candidate: the router stays as it is. A fifth of the new labels is held out of a first fit, on which router and
    candidate are compared; then the candidate is fitted on all.

    With --teacher, an encoder or a language model labels the requests without a label, and the candidate learns
    from these labels, too, if they help on held-out prompts of people.

    A router that was fitted from outcomes learns from scores instead: each counts in the mean of the expert that
    answered, up to 50 of a source for an expert.

    \b
    Example:
      ir3de learn router --from feedback -o candidate
      ir3de learn router --from feedback -o candidate --teacher minilm-l6
      ir3de learn router --from feedback -o candidate --trust admin
    """
    if journal_path is None:
        raise click.UsageError("--from names the feedback folder, or the state folder of the gateway")
    folder = lib.router_folder.check_destination(target)
    if folder.resolve() == router_path.expanduser().resolve():
        raise click.UsageError("-o must name another folder than ROUTER: the candidate is proven before it goes live")
    options.refuse_existing(folder, force=force)
    lesson = taught.prepare_traffic(folder, out)
    router, begun = load_router(router_path), perf_counter()
    by_scores = router.kind == "outcomes"
    if by_scores and (trust or scorer_choice or lesson):
        raise click.UsageError(
            "--trust, --scorer and --teacher are for labels: a router from outcomes learns from scores"
        )
    found: lib.learning.Learning | lib.score_learning.ScoreLearning
    with lib.journal.Journal.open(journal_path) as journal, taught.labelling(folder), out.spinner("learning"):
        if by_scores:
            found = lib.score_learning.learn_scores(router, journal)
        else:
            found = lib.learning.learn(router, journal, trust=trust, scorer=scorer_choice, teacher=lesson)
        found.candidate.save(folder)
    document = {"router": str(router_path), "candidate": str(folder), **found.to_dict()}
    document["sha256"] = lib.router_folder.read_header(folder)["sha256"]
    files.write(folder / REPORT_FILE, files.to_json(document))
    seconds = perf_counter() - begun
    if isinstance(found, lib.learning.Learning):
        out.show(document, [*_view_learning(document, seconds), *view_report(found.teaching)])
    else:
        out.show(document, view_scores(document, seconds))
    out.note(saved_line(folder, sum(path.stat().st_size for path in folder.iterdir()), "candidate saved to"))
    out.note(hint(f"ir3de ledger {folder}", "what it learnt:"))


def _view_learning(found: Mapping[str, Any], seconds: float) -> Iterator[Block]:
    rows, left_out = split_rows([row for row in found["sources"] if row not in found["suspicious"]])
    if rows:
        columns = ("author", "requests of", "day", "labels", "disagree", "implausible")
        cells = [_list_cells(row) for row in rows]
        yield count_left_out(table(*columns, right=columns[3:], rows=cells), left_out)
    for row in found["suspicious"]:
        name = f"{printable(row['author'])}, {row['day']}"
        why = f"{row['implausible']:,} of {row['labels']:,} labels are implausible"
        yield line(("left out: ", "red"), (name, "bold"), (f"  {why} (--trust {printable(row['author'])})", FAINT))
    yield from (heading("learnt"), facts(_list_facts(found, seconds)))
    if found["contradictions"]:
        yield heading("people contradict one another", f"{len(found['contradictions']):,} prompts")
        for one in found["contradictions"][:SHOWN_CONTRADICTIONS]:
            labels = "; ".join(f"{expert}: {', '.join(authors)}" for expert, authors in one["labels"].items())
            yield line((one_line(one["prompt"], PROMPT_CHARS), ""), (f"  {printable(labels)}", FAINT))
    yield from (heading("proof"), _view_proof(found["proof"]))


def _list_cells(row: Mapping[str, Any]) -> Sequence[Block]:
    names = [printable(row["author"]), printable(row["key"]) or "–", row["day"]]
    return [*names, *(f"{row[name]:,}" for name in ("labels", "disagree", "implausible"))]


def _list_facts(found: Mapping[str, Any], seconds: float) -> Iterator[tuple[str, Block]]:
    changes = [f"{found[name]:,} {name}" for name in ("added", "replaced", "removed", "unchanged") if found[name]]
    yield "labels", f"{found['labels']:,} in {seconds:.1f} s"
    yield "contributions", ", ".join(changes) or "none"
    if found["kept"]:
        yield "", f"{found['kept']:,} stay as they were learnt: the journal no longer has their requests"
    if found["implausible"]:
        yield "implausible", f"{found['implausible']:,} labels are left out: most of them are mistakes (--trust AUTHOR)"
    if over := sum(row["labels"] for row in found["over_cap"]):
        yield "over the cap", f"{over:,} labels: a source counts up to {found['cap']} an expert"
    if found["counts_only"]:
        yield "counts only", f"{found['counts_only']:,} labels have no prompt: the closed form alone learns from them"
    for name, row in found["scores"].items():
        yield "score", f"{row['mean']:.2f} over {row['scores']:,} answers of {printable(name)}"
    yield from list_left_out(found["left_out"])


def _view_proof(proof: Mapping[str, Any]) -> Block:
    if proof["difference"] is None:
        least = lib.learning.MIN_PROOF_PROMPTS
        few = f"{proof['prompts']:,} of the new labels would be held out, and a proof needs {least}"
        return line(("too few labels for a proof: ", "yellow"), (few, ""))
    change = proof["difference"]
    points = f"{100 * change['value']:+.1f} points (95 %: {100 * change['low']:+.1f} to {100 * change['high']:+.1f})"
    style = "green" if change["low"] > 0 else "red" if change["high"] < 0 else "yellow"
    before, after = percent(proof["live"]["value"]), percent(proof["candidate"]["value"])
    return line(
        (f"{before} → {after}  ", "bold"), (points, style), (f"  on {proof['prompts']:,} held-out labels", FAINT)
    )


@click.command()
@options.router_argument
@click.option("--source", "source", required=True, metavar="SOURCE",
              help="key:alice (its requests, and its labels), author:admin, or day:2026-11-17.")  # fmt: skip
@click.option("--since", metavar="DAY", help="Only labels of this day (UTC) or later.")
@click.option("--until", metavar="DAY", help="Only labels of this day (UTC) or earlier.")
@journal_option
@click.option("--receipts", type=click.Path(path_type=Path), metavar="DIR",
              help="Write a receipt for each contribution to this folder.")  # fmt: skip
@scorer_option
@options.output_options
def forget(
    router_path: Path,
    source: str,
    since: str | None,
    until: str | None,
    journal_path: Path | None,
    receipts: Path | None,
    scorer_choice: lib.domains.ScorerChoice | None,
    out: Output,
) -> None:
    """Take feedback out of a router: what is left is, bit for bit, the router that never saw it.

    That holds after later learning, too. With --from, the feedback is deleted in the journal as well; of a key, its
    requests are deleted with their prompts. `ir3de verify` checks the receipts.

    \b
    Example:
      ir3de forget candidate --source key:alice --since 2026-11-01 --from feedback
      ir3de forget candidate --source day:2026-11-17 --receipts receipts
    """
    from ir3de.traffic import SourcePattern

    pattern = SourcePattern.parse(source, since=since, until=until)
    journal = None if journal_path is None else lib.journal.Journal.open(journal_path)  # a wrong path is found first
    with changing(router_path) as router:
        with out.spinner("solving"):
            found = lib.learning.forget(router, pattern, scorer=scorer_choice)
        before = len(router.history)
        if found.removed:
            found.candidate.save(router_path.expanduser())
            (router_path.expanduser() / REPORT_FILE).unlink(missing_ok=True)  # its proof is of another router
    what = "scores" if router.kind == "outcomes" else "labels"
    document: dict[str, Any] = {"router": str(router_path), "source": source, "what": what, **found.to_dict()}
    if journal is not None:
        with journal:
            requests, labels = lib.learning.forget_in_journal(journal, pattern)
        document["journal"] = {"requests": requests, "feedback": labels}
    if receipts is not None:
        document["receipts"] = _write_receipts(receipts.expanduser(), found.candidate, before)
    out.show(document, _view_forgetting(document, pattern.kind))


def _write_receipts(folder: Path, router: ir3de.Router, before: int) -> list[str]:
    """A file for each entry since; `verify` accepts the last one of an expert whole, the others as earlier ones."""
    files.make_folder(folder)
    written = []
    for entry in router.history[before:]:
        given = entry.change.given
        path = folder / f"{entry.entry}-{'' if given is None else given.id}.json"
        files.write(path, files.to_json(lib.ledger.receipt(entry)))
        written.append(str(path))
    return written


def _view_forgetting(found: Mapping[str, Any], kind: str) -> Iterator[Block]:
    if not found["contributions"]:
        yield line(("nothing to take out: ", "yellow"), (f"the router has no feedback of {found['source']}", ""))
    else:
        rows, left_out = split_rows(found["sources"])
        cells = [(printable(row["author"]), printable(row["key"]) or "–", row["day"]) for row in rows]
        yield count_left_out(table("author", "requests of", "day", rows=cells), left_out)
        done = f"{found['labels']:,} {found['what']} in {len(found['contributions']):,} contributions are gone"
        yield line((done, "bold"), ("  the router is the one that never saw them", FAINT))
    if found["taught"]:
        heard = f"{found['taught']:,} labels of a teacher are gone, too: it had heard all sources. Learn again with it"
        yield line((heard, "yellow"))
    if "journal" in found:
        gone = found["journal"]
        what = f"{gone['requests']:,} requests and " if kind == "key" else ""
        yield line((f"journal: {what}{gone['feedback']:,} feedbacks deleted", ""))
    if "receipts" in found:
        yield line((f"{len(found['receipts']):,} receipts written", ""))
    elif found["contributions"]:
        last = found["contributions"][-1]["id"]
        yield hint(f"ir3de receipt {found['router']} --contribution {last}", "a receipt:")
