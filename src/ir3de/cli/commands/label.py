"""label: which prompts of the traffic to label, one key for each; and new domains among them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ir3de import files
from ir3de.cli import lib, options
from ir3de.cli.commands.learn import journal_option
from ir3de.cli.formats import FAINT, json_text, line, one_line, percent, printable
from ir3de.cli.output import Output, heading, hint
from ir3de.cli.saving import load_router

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
@options.output_options
def label(
    router_path: Path, journal_path: Path | None, count: int, author: str | None, domains: bool, take: int | None,
    target: Path | None, out: Output,
) -> None:  # fmt: skip
    """Label the prompts of the traffic whose labels would help most.

    They are uncertain, frequent, and no near copies of one another. A number names the expert, s skips, u undoes, q
    quits. Each label is in the journal at once, as feedback of label:NAME; `ir3de learn` learns from it. --json lists
    the prompts alone. --new-domains groups the prompts that fit no expert.

    \b
    Example:
      ir3de label router --from state -n 50
      ir3de label router --from state --new-domains
      ir3de label router --from state --take 1 -o invoices.jsonl
    """
    if journal_path is None:
        raise click.UsageError("--from names the feedback folder, or the state folder of the gateway")
    if (take is None) != (target is None):
        raise click.UsageError("--take N and -o FILE belong together: the prompts of a new domain, and where they go")
    router = load_router(router_path)
    with lib.journal.Journal.open(journal_path) as journal:
        if domains or take is not None:
            found = lib.new_domains.find_new_domains(router, journal.read())
            _show_domains(found, router_path, journal_path, take, target, out)
            return
        with out.spinner("choosing prompts"):
            chosen = lib.labelling.choose_prompts(router, journal.read(), count)
        if out.as_json:
            out.json({"prompts": [one.to_dict() for one in chosen]})
            return
        done = _ask(journal, chosen, router.experts, f"{lib.sequential.LABEL_PREFIX}{author or getpass.getuser()}", out)
    out.note(line((f"{done:,} labels are in the journal", "")))
    out.note(hint(f"ir3de learn {router_path} --from {journal_path} -o candidate", "learn from them:"))


def _ask(journal: Any, chosen: Sequence[Any], experts: Sequence[str], author: str, out: Output) -> int:
    """Ask for one label after another. What was answered stays, whatever ends the loop."""
    given: list[int] = []  # places of the labelled prompts
    place = 0
    while place < len(chosen):
        one = chosen[place]
        out.result(heading(f"{place + 1} of {len(chosen)}", f"asked {one.requests:,} times"), printable(one.text))
        names = dict(zip(KEYS, (name for name, _ in one.ranking), strict=False))
        for (key, name), (_, value) in zip(names.items(), one.ranking, strict=False):
            out.result(line((f"  {key} ", "bold cyan"), (name, ""), (f"  {percent(value)}", FAINT)))
        try:
            answer = click.prompt("expert (number or name), s skip, u undo, q quit", default="s", show_default=False)
        except click.Abort:
            break
        answer = answer.strip()
        if answer == "q":
            break
        if answer == "u":
            if given:
                place = given.pop()
                journal.delete_feedback(chosen[place].request, author)
            continue
        expert = names.get(answer, answer)
        if expert in experts:
            journal.put_feedback(one.request, lib.traffic.Feedback(author, time.time(), expert=expert))
            given.append(place)
        elif answer != "s":
            out.warn(
                f"no expert {answer[:80]!r}: type a number above, or one of {', '.join(experts[:10])}", quiet=False
            )
            continue
        place += 1
    return len(given)


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
