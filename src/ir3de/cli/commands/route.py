"""route: one prompt, standard input line by line, or a file row by row."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import click

import ir3de
from ir3de.cli import decisions, hints, lib
from ir3de.cli.costs import once_weight_option, warn_of_idle_weights
from ir3de.cli.decisions import DECISION_FIELD, NONE_FITS, describe_chat, describe_decision, name_expert
from ir3de.cli.formats import FAINT, json_text, line, name_others, one_line, percent
from ir3de.cli.options import chat_option, field_option, force_option, number_option, output_options, router_argument
from ir3de.cli.output import Block, Output, reading, split_rows
from ir3de.cli.routed_files import check_target, write_routed
from ir3de.cli.saving import load_router
from ir3de.errors import InputError

Row = dict[str, object]
Routed: TypeAlias = "tuple[Row, ir3de.Decision, str]"  # a row, its decision and its text

STANDARD = "-"
BATCH_ROWS = 1_024
REASON_WIDTH = len("low confidence")


@click.command()
@hints.router_before_prompt
@router_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--input", "source", metavar="PATH", help="Route every row of a file or folder; - is standard input.")
@click.option(
    "--output",
    "target",
    metavar="PATH",
    help="Write the rows with their decisions to a .jsonl, .json, .csv, .tsv or .parquet file; - prints JSON lines.",
)
@force_option
@chat_option
@field_option
@number_option("--top", help="Keep only the N best experts of each ranking.  [default: shows 5; JSON has all]")
@once_weight_option
@output_options
def route(
    router_path: Path,
    text: str | None,
    source: str | None,
    target: str | None,
    force: bool,
    chat: str | None,
    field: str | None,
    top: int | None,
    weights: Mapping[str, float],
    out: Output,
) -> None:
    """Name the expert for a prompt, or for many.

    Without TEXT, prompts come from standard input: one per line, or JSON lines; if none comes, the exit code is 1. With
    --json, and in JSON files, rows keep all their fields and get the field "ir3de" with the decision; a prompt given
    as TEXT is a row with the field "text". In CSV, TSV and Parquet the decision has columns: expert, confidence,
    margin, abstained and reason. The --output file appears once it is complete. For many prompts, --json prints JSON
    lines and --quiet only the experts' names. With --chat, every turn of the user in each chat is routed.

    \b
    Examples:
      ir3de route router "Is this contract void?"
      ir3de route router "Is this contract void?" --weight price=0.1
      ir3de route router --input prompts.csv --output routed.csv
      ir3de route router --chat chats.jsonl
      tail -f prompts.txt | ir3de route router --json
    """
    is_chat = chat is not None
    if is_chat:
        refuse_prompt_and_chat(text, source, field)
    else:
        source = _one_source(text, source)
    path = None if target in (None, STANDARD) else check_target(str(target), force=force, tables=not is_chat)
    lines = target == STANDARD or out.as_json
    router = load_router(router_path)
    warn_of_idle_weights(out, router, weights)
    if chat is not None:
        _route_chats(out, router, chat, path, lines, top, weights)
        return
    if source is None and target is None:
        assert text is not None
        _show_one(out, router, text, weights, top)
        return
    rows: Iterable[Row] = [{"text": text}] if source is None else _rows(source, out if path else Output(quiet=True))
    routed = _routed(router, rows, field, 1 if source == STANDARD else BATCH_ROWS, weights)
    if path is not None:
        _write(path, routed, top, out)
        return
    for row, decision, own in _require_prompts(routed, source):
        if lines:
            document = {**row, DECISION_FIELD: describe_decision(decision, top)}
            print(json_text(document, sys.stdout.encoding), flush=source == STANDARD)
        elif out.quiet:
            print(decision.expert or NONE_FITS, flush=True)
        else:
            _show_line(out, router, decision.to_dict(), own)


def refuse_prompt_and_chat(*others: object) -> None:
    """Reject a prompt or --input together with --chat."""
    if any(one is not None for one in others):
        raise click.UsageError("--chat was given with a prompt or --input: leave one of them out")


def _route_chats(
    out: Output,
    router: ir3de.Router,
    source: str,
    target: Path | None,
    lines: bool,
    top: int | None,
    weights: Mapping[str, float],
) -> None:
    """Route the chats of a file turn by turn."""
    routed = ((chat, decisions.route_chat(router, chat, weights)) for chat in decisions.read_chats(source))
    if target is not None:
        found = [(chat.row, describe_chat(conversation, top)) for chat, conversation in routed]
        write_routed(target, found)
        chats, turns = len(found), sum(len(document["turns"]) for _, document in found)
        message = line((f"{turns:,} turns of {chats:,} chats routed to ", ""), (str(target), "bold"))
        out.show({"output": str(target), "chats": chats, "turns": turns}, [message])
        return
    for chat, conversation in routed:
        document = describe_chat(conversation, top)
        if lines:
            print(json_text({**chat.row, DECISION_FIELD: document}, sys.stdout.encoding))
        else:
            texts = [turn.text for turn in conversation.turns]
            out.show(document, decisions.view_chat(chat.place, document, texts, router.experts, out))


def _one_source(text: str | None, source: str | None) -> str | None:
    """The source of the prompts; None if the text is the prompt."""
    if text not in (None, STANDARD) and source is not None:
        raise click.UsageError("TEXT and --input were both given: leave one of them out")
    if text is None and source is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError(
            "nothing to route: write the prompt in quotes, name a file with --input, or pipe one per line"
        )
    return source or (STANDARD if text in (None, STANDARD) else None)


def _rows(source: str, out: Output) -> Iterator[Row]:
    if source == STANDARD:
        yield from lib.corpora.read_rows([source])
        return
    with reading(out, "routing", lib.corpora.total_bytes([source])) as on_bytes:
        yield from lib.corpora.read_rows([source], on_bytes=on_bytes)


def _routed(
    router: ir3de.Router, rows: Iterable[Row], field: str | None, most: int, weights: Mapping[str, float]
) -> Iterator[Routed]:
    """Each row with its decision and its text; `most` rows at a time, 1 for interactive input."""
    remaining = iter(rows)
    while batch := list(islice(remaining, most)):
        texts = [lib.corpora.text_of(row, field) for row in batch]
        yield from zip(batch, router.route_batch(texts, weights=weights or None), texts, strict=True)


def _require_prompts(routed: Iterable[Routed], source: str | None) -> Iterator[Routed]:
    """The routed rows as they are; an error if there is none, because the output would be empty."""
    found = None
    for found in routed:
        yield found
    if found is None:
        where = "standard input" if source in (None, STANDARD) else source
        raise InputError(f"no prompt came: {where} has none. Write a prompt in quotes, one on each line, or JSON lines")


def _write(target: Path, routed: Iterable[Routed], top: int | None, out: Output) -> None:
    counts: Counter[str] = Counter()

    def count() -> Iterator[tuple[Row, dict[str, Any]]]:
        for row, decision, _ in routed:
            counts[decision.expert or NONE_FITS] += 1
            yield row, describe_decision(decision, top)

    write_routed(target, count())
    document = {"output": str(target), "rows": sum(counts.values()), "experts": counts}
    out.show(document, _view_counts(document))


def _view_counts(document: Mapping[str, Any]) -> Iterator[Block]:
    total = document["rows"]
    yield line((f"{total:,} rows routed to ", ""), (document["output"], "bold"))
    most, left_out = split_rows(sorted(document["experts"].items(), key=lambda pair: -pair[1]))
    for expert, count in most:
        yield line((f"  {count:>9,}  ", ""), (expert, ""), (f"  {percent(count / total)}", FAINT))
    if left_out:
        yield line((f"  {name_others(left_out)}: --json has them all", FAINT))


def _show_one(out: Output, router: ir3de.Router, text: str, weights: Mapping[str, float], top: int | None) -> None:
    decision = router.route(text, weights=weights or None)
    whole, document = decision.to_dict(), describe_decision(decision, top)
    if out.quiet or out.as_json:
        out.json({"text": text, DECISION_FIELD: document})
        out.result(decision.expert or NONE_FITS)
        return
    mixed = () if decision.abstained else router.explain(text, weights=weights or None).mixed
    out.show(document, decisions.view_decision(whole, router, top, out.console.width, mixed))
    if decision.abstained:
        out.warn(decisions.why_abstained(whole))


def _show_line(out: Output, router: ir3de.Router, decision: Mapping[str, Any], text: str) -> None:
    """One line for a prompt."""
    default = f"{router.default} ({decisions.DEFAULT})" if router.default else ""
    width = max(map(len, (*router.experts, NONE_FITS, default)))
    room = max(20, out.console.width - width - REASON_WIDTH - 4)
    value = decision["reason"] or decisions.format_value(decision, decisions.value_of(decision["ranking"][0]))
    name, colour = name_expert(decision, router.experts)
    parts = (name.ljust(width), colour), (f"  {value:>{REASON_WIDTH}}  ", FAINT), (one_line(text, room), "")
    out.result(line(*parts))
