"""label: which prompts of the traffic to label, one key for each; and new domains among them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ir3de import files
from ir3de.cli import lib, options
from ir3de.cli.commands.learn import journal_option
from ir3de.cli.formats import FAINT, json_text, line, one_line, percent, printable
from ir3de.cli.output import Block, Output, heading, hint
from ir3de.cli.saving import load_router
from ir3de.cli.teaching import GivenTeacher, proposing_options

TYPE_CHECKING = False  # see `files.package`
if TYPE_CHECKING:
    from ir3de.fitting.proposals import Proposal

KEYS = "123456789"
EXAMPLES = 3


@click.command()
@options.router_argument
@journal_option
@options.number_option("-n", "count", default=50, help="How many prompts at most.  [default: 50]")
@click.option("--author", metavar="NAME", help="Whose labels they are: label:NAME.  [default: the user's name]")
@click.option("--new-domains", "domains", is_flag=True, help="Show groups of prompts that fit no expert instead.")
@click.option("--take", type=int, metavar="N", help="Write the prompts of the new domain N to a file; with -o.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), metavar="FILE", help="The .jsonl of --take.")
@proposing_options
@options.output_options
def label(
    router_path: Path, journal_path: Path | None, count: int, author: str | None, domains: bool, take: int | None,
    target: Path | None, taught: GivenTeacher, out: Output,
) -> None:  # fmt: skip
    """Label the prompts of the traffic whose labels would help most.

    They are uncertain, frequent, and no near copies of one another. A number names the expert, s skips, u undoes, q
    quits. Each label is in the journal at once, as feedback of label:NAME; `ir3de learn` learns from it. --json lists
    the prompts alone. --new-domains groups the prompts that fit no expert.

    With --teacher, an encoder or a language model proposes an expert for each prompt. Return confirms the proposal, a
    number overrules it. What is written is the person's label: a proposal alone writes nothing. The end shows how
    often the teacher was right.

    \b
    Example:
      ir3de label router --from feedback -n 50
      ir3de label router --from feedback --teacher minilm-l6
      ir3de label router --from feedback --new-domains
      ir3de label router --from feedback --take 1 -o invoices.jsonl
    """
    if journal_path is None:
        raise click.UsageError("--from names the feedback folder, or the state folder of the gateway")
    if (take is None) != (target is None):
        raise click.UsageError("--take N and -o FILE belong together: the prompts of a new domain, and where they go")
    if taught and (domains or take is not None):
        raise click.UsageError("--teacher proposes labels of prompts: leave out --new-domains and --take")
    lesson = taught.prepare_traffic(None, out)
    router = load_router(router_path)
    with lib.journal.Journal.open(journal_path) as journal:
        if domains or take is not None:
            found = lib.new_domains.find_new_domains(router, journal.read())
            _show_domains(found, router_path, journal_path, take, target, out)
            return
        with out.spinner("choosing prompts"):
            chosen = lib.labelling.choose_prompts(router, journal.read(), count)
        proposals: Sequence[Proposal | None] = [None] * len(chosen)
        if lesson is not None:
            with taught.labelling(None), out.spinner("asking the teacher"):
                proposals = lib.labelling.propose_labels(router, journal, chosen, lesson)
        if out.as_json:
            out.json(_list_prompts(chosen, proposals, None if lesson is None else lesson.teacher.name))
            return
        author = f"{lib.traffic.LABEL_PREFIX}{author or getpass.getuser()}"
        given = _ask(journal, chosen, proposals, router.experts, author, out)
    out.note(line((f"{len(given):,} labels are in the journal", "")))
    if lesson is not None:
        out.result(_judge_teacher(printable(lesson.teacher.name), given, proposals))
    out.note(hint(f"ir3de learn {router_path} --from {journal_path} -o candidate", "learn from them:"))


def _list_prompts(chosen: Sequence[Any], proposals: Sequence[Proposal | None], teacher: str | None) -> dict[str, Any]:
    prompts = [one.to_dict() for one in chosen]
    if teacher is None:
        return {"prompts": prompts}
    answers = [None if one is None else one.to_dict() for one in proposals]
    rows = [{**row, "proposal": answer} for row, answer in zip(prompts, answers, strict=True)]
    return {"teacher": teacher, "prompts": rows}


def _ask(
    journal: Any, chosen: Sequence[Any], proposals: Sequence[Proposal | None], experts: Sequence[str], author: str,
    out: Output,
) -> dict[int, str]:  # fmt: skip
    """Ask for one label after another: the expert by the prompt's place. What was answered stays, whatever ends it."""
    given: dict[int, str] = {}
    place = 0
    while place < len(chosen):
        one, proposal = chosen[place], proposals[place]
        out.result(heading(f"{place + 1} of {len(chosen)}", f"asked {one.requests:,} times"), printable(one.text))
        names = _show_experts(one, proposal, out)
        keys = "expert (number or name), s skip, u undo, q quit"
        try:
            keys = keys if proposal is None else f"return confirms, {keys}"
            answer = click.prompt(keys, default="", show_default=False)
        except click.Abort:
            break
        answer = answer.strip()
        if answer == "q":
            break
        if answer == "u":
            if given:
                place, _ = given.popitem()
                journal.delete_feedback(chosen[place].request, author)
            continue
        expert = names.get(answer, answer)
        if not answer and proposal is not None:
            expert = proposal.expert
        if expert in experts:
            journal.put_feedback(one.request, lib.traffic.Feedback(author, time.time(), expert=expert))
            given[place] = expert
        elif answer not in ("", "s"):
            out.warn(
                f"no expert {answer[:80]!r}: type a number above, or one of {', '.join(experts[:10])}", quiet=False
            )
            continue
        place += 1
    return given


def _show_experts(one: Any, proposal: Proposal | None, out: Output) -> dict[str, str]:
    """Show the router's ranking and the teacher's proposal; the experts by their keys."""
    names = dict(zip(KEYS, (name for name, _ in one.ranking), strict=False))
    for (key, name), (_, value) in zip(names.items(), one.ranking, strict=False):
        out.result(line((f"  {key} ", "bold cyan"), (name, ""), (f"  {percent(value)}", FAINT)))
    if proposal is not None:
        sure = "" if proposal.probability is None else f"  {percent(proposal.probability)}"
        out.result(line(("  the teacher proposes ", ""), (proposal.expert, "bold cyan"), (sure, FAINT)))
    return names


def _judge_teacher(teacher: str, given: Mapping[int, str], proposals: Sequence[Proposal | None]) -> Block:
    """How often people confirmed the teacher: its accuracy on these prompts."""
    both = [(one, given[place]) for place, one in enumerate(proposals) if one is not None and place in given]
    judged = [proposal.expert == expert for proposal, expert in both]
    if not judged:
        return line((f"no proposal of {teacher} was confirmed or overruled", ""))
    right = sum(judged)
    share = lib.intervals.estimate_share(right, len(judged))
    counts = f"{right:,} confirmed, {len(judged) - right:,} overruled"
    interval = f" (95 %: {100 * share.low:.1f} to {percent(share.high)})"
    return line((f"{teacher}: {counts}, ", ""), (f"{percent(share.value)} right", "bold"), (interval, FAINT))


def _show_domains(
    found: Sequence[Any], router_path: Path, journal_path: Path, take: int | None, target: Path | None, out: Output
) -> None:
    if take is not None and target is not None:
        if not 1 <= take <= len(found):
            raise click.UsageError(f"--take {take}: there are {len(found)} new domains; list them with --new-domains")
        options.refuse_existing(target, force=False)
        prompts = found[take - 1].prompts
        files.write(target, "".join(json_text({"text": text}) + "\n" for text in prompts).encode())
        out.show({"output": str(target), "prompts": len(prompts)}, [
            line((f"{len(prompts):,} prompts written to ", ""), (str(target), "bold")),
            hint(f"ir3de add {router_path} NAME={target}", "read them, then add the expert:"),
        ])  # fmt: skip
        return
    out.json({"new_domains": [one.to_dict() for one in found]})
    if not found:
        out.result(line(("no group of prompts fits no expert", "green")))
    for number, one in enumerate(found, 1):
        about = f"these {one.requests:,} requests fit no expert: add one?"
        out.result(heading(f"{number}  {', '.join(map(printable, one.words)) or 'various'}", about))
        for text in one.prompts[:EXAMPLES]:
            out.result(line(("  ", ""), (one_line(text, 90), FAINT)))
    if found:
        command = f"ir3de label {router_path} --from {journal_path} --take 1 -o new.jsonl"
        out.note(hint(command, "its prompts as a file:"))
