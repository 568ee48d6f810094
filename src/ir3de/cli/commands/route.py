"""route: one prompt, standard input line by line, or a file row by row."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli import hints
from ir3de.cli.chats import Chat, describe_chat, pick_only_source, read_chats, route_chat, show_chat
from ir3de.cli.costs import once_weight_option, utility_table, warn_of_idle_weights
from ir3de.cli.options import chat_option, field_option, force_option, number_option, output_options, router_argument
from ir3de.cli.output import (
    DEFAULT,
    FAINT,
    NONE_FITS,
    PIPE_WIDTH,
    Output,
    bar,
    colour_of,
    count_shown,
    format_value,
    json_text,
    line,
    name_expert,
    name_others,
    one_line,
    percent,
    split_rows,
)
from ir3de.cli.routed_files import DECISION_FIELD, check_target, open_routed
from ir3de.cli.saving import load_router
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.router import Router
    from ir3de.routing.conversation import Conversation
    from ir3de.routing.decision import Decision

    Routed = tuple[dict[str, object], Decision, str]  # a row, its decision and its text

Row = dict[str, object]

STANDARD = "-"
BATCH_ROWS = 1_024
REASON_WIDTH = len("low confidence")
SMALLEST_SHOWN = 0.0005  # probabilities below it would be shown as 0.0 %
MOST_NAMED = 3  # experts of a mixed prompt
BAR_WIDTH = 32
VALUE_WIDTH = len("  100.0 %  ")  # between a name and its bar


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
        pick_only_source((text, source, field))
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
    elif lines:
        for row, decision, _ in require_prompts(routed, source):
            print(_line(row, decision, top, sys.stdout.encoding), flush=source == STANDARD)
    else:
        _show_many(out, router, require_prompts(routed, source))


def _route_chats(
    out: Output,
    router: Router,
    source: str,
    target: Path | None,
    lines: bool,
    top: int | None,
    weights: Mapping[str, float],
) -> None:
    """Route the chats of a file turn by turn."""
    routed = ((chat, route_chat(router, chat, weights)) for chat in read_chats(source))
    if target is not None:
        _write_chats(target, routed, top, out)
        return
    for chat, conversation in routed:
        if lines:
            print(json_text({**chat.row, DECISION_FIELD: describe_chat(conversation, top)}, sys.stdout.encoding))
        else:
            show_chat(out, router, chat, conversation)


def _write_chats(target: Path, routed: Iterable[tuple[Chat, Conversation]], top: int | None, out: Output) -> None:
    chats = turns = 0
    with open_routed(target) as write:
        for chat, conversation in routed:
            write(chat.row, describe_chat(conversation, top))
            chats, turns = chats + 1, turns + len(conversation)
    out.json({"output": str(target), "chats": chats, "turns": turns})
    out.note(line((f"{turns:,} turns of {chats:,} chats routed to ", ""), (str(target), "bold")))


def _one_source(text: str | None, source: str | None) -> str | None:
    """Where the prompts come from; None when the text is the prompt."""
    if text not in (None, STANDARD) and source is not None:
        raise click.UsageError("TEXT and --input were both given: leave one of them out")
    if text is None and source is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError(
            "nothing to route: write the prompt in quotes, name a file with --input, or pipe one per line"
        )
    return source or (STANDARD if text in (None, STANDARD) else None)


def _rows(source: str, out: Output) -> Iterator[Row]:
    from ir3de.cli.progress import reading
    from ir3de.corpora import read_rows, total_bytes

    if source == STANDARD:
        yield from read_rows([source])
        return
    with reading(out, "routing", total_bytes([source])) as (on_bytes, _):
        yield from read_rows([source], on_bytes=on_bytes)


def _routed(
    router: Router, rows: Iterable[Row], field: str | None, most: int, weights: Mapping[str, float]
) -> Iterator[Routed]:
    """Each row with its decision and its text; `most` rows at a time, 1 where someone is waiting for the next."""
    from ir3de.corpora import text_of

    remaining = iter(rows)
    while batch := list(islice(remaining, most)):
        texts = [text_of(row, field) for row in batch]
        yield from zip(batch, router.route_batch(texts, weights=weights or None), texts, strict=True)


def require_prompts(routed: Iterable[Routed], source: str | None) -> Iterator[Routed]:
    """What was routed, as it is; where nothing was, that is an error, for otherwise nothing at all would be shown."""
    found = None
    for found in routed:
        yield found
    if found is None:
        where = "standard input" if source in (None, STANDARD) else source
        raise InputError(f"no prompt came: {where} has none. Write a prompt in quotes, one on each line, or JSON lines")


def _line(row: Row, decision: Decision, top: int | None, encoding: str | None = "utf-8") -> str:
    return json_text({**row, DECISION_FIELD: _described(decision, top)}, encoding)


def _described(decision: Decision, top: int | None) -> dict[str, Any]:
    described = decision.to_dict()
    likely = () if decision.abstained else decision.candidates
    return {**described, "ranking": described["ranking"][:top], "candidates": list(likely)}


def _write(target: Path, routed: Iterable[Routed], top: int | None, out: Output) -> None:
    counts: dict[str, int] = {}
    with open_routed(target) as write:
        for row, decision, _ in routed:
            write(row, _described(decision, top))
            name = decision.expert or NONE_FITS
            counts[name] = counts.get(name, 0) + 1
    total = sum(counts.values())
    out.json({"output": str(target), "rows": total, "experts": counts})
    out.note(line((f"{total:,} rows routed to ", ""), (str(target), "bold")))
    most, left_out = split_rows(sorted(counts.items(), key=lambda pair: -pair[1]))
    for expert, count in most:
        out.note(line((f"  {count:>9,}  ", ""), (expert, ""), (f"  {percent(count / total)}", FAINT)))
    if left_out:
        out.note(line((f"  {name_others(left_out)}: --json has them all", FAINT)))


def _show_one(out: Output, router: Router, text: str, weights: Mapping[str, float], top: int | None) -> None:
    decision = router.route(text, weights=weights or None)
    out.json({"text": text, DECISION_FIELD: _described(decision, top)})
    if out.quiet or out.as_json:
        out.result(decision.expert or NONE_FITS)
        return
    if not something_decided(decision):
        out.result(line(name_expert(decision, router)))
        out.warn(why_abstained(decision))
        return
    costs_matter = decision.penalties is not None
    out.result(
        utility_table(decision, router, top)
        if costs_matter
        else ranking_table(decision, router.experts, top, out.console.width)
    )
    if decision.abstained:
        out.warn(why_abstained(decision))
        return
    counted = "all counted" if decision.counted == decision.tokens else f"{decision.counted:,} of them counted"
    tokens = "1 token" if decision.tokens == 1 else f"{decision.tokens:,} tokens"
    out.note(line((f"{tokens}, {counted}", FAINT)))
    if mixed := router.explain(text, weights=weights or None).mixed:
        out.note(line(("mixed: ", "bold"), (" and ".join(mixed[:MOST_NAMED]), ""), ("; see `ir3de explain`", FAINT)))


def something_decided(decision: Decision) -> bool:
    """Whether any word spoke for an expert; if none did, all probabilities are 0 and their order means nothing."""
    return not decision.reason.startswith("no ")


def why_abstained(decision: Decision) -> str:
    """The reason in words, and what was done."""
    reasons = {
        "no known token": "the prompt holds no known token",
        "low confidence": "no expert is likely enough",
        "low expected score": "no model is expected to score enough",
        "out of domain": "the prompt is out of domain",
        "no content": "the prompt has no content of its own",
    }
    why = reasons[decision.reason] if decision.tokens else "the prompt is empty and nothing could decide"
    why = f"abstained, because {why}"
    if decision.expert is not None:
        return f"{why}: it goes to {decision.expert}, the default expert"
    nearest = f"; the nearest is {decision.best}" if something_decided(decision) else ""
    return f"{why}: none fits, and no default expert was named{nearest}"


def ranking_table(
    decision: Decision, experts: tuple[str, ...], top: int | None = None, width: int = PIPE_WIDTH
) -> Table:
    """The first experts' probabilities or expected scores as bars, best first, and what is left for the others."""
    from rich.table import Table

    shown = Table.grid(padding=(0, 2))
    shown.add_column(overflow="fold")
    shown.add_column(justify="right", no_wrap=True)
    shown.add_column(no_wrap=True)
    ranking = decision.ranking
    kept = count_shown(ranking, top, SMALLEST_SHOWN if decision.expected_score is None else -math.inf)
    longest = max((len(expert) for expert, _ in ranking[:kept]), default=0)
    room = max(0, min(BAR_WIDTH, width - longest - VALUE_WIDTH))  # on a narrow terminal names come before bars
    for place, (expert, value) in enumerate(ranking[:kept]):
        colour = colour_of(experts.index(expert))
        name = line((expert, f"bold {colour}" if place == 0 else ""))
        shown.add_row(name, format_value(decision, value), bar(value, room, colour))
    if top is None and len(ranking) > kept:
        left = percent(sum(value for _, value in ranking[kept:])) if decision.expected_score is None else ""
        shown.add_row(line((name_others(len(ranking) - kept), FAINT)), line((left, FAINT)), "")
    return shown


def _show_many(out: Output, router: Router, routed: Iterable[Routed]) -> None:
    """One line a prompt, as they come."""
    width = max(map(len, (*router.experts, NONE_FITS, f"{router.default} ({DEFAULT})" if router.default else "")))
    room = max(20, out.console.width - width - REASON_WIDTH - 4)
    for _, decision, text in routed:
        if out.quiet:
            print(decision.expert or NONE_FITS, flush=True)
            continue
        value = decision.reason or format_value(decision, decision.ranking[0][1])
        name, colour = name_expert(decision, router)
        parts = (name.ljust(width), colour), (f"  {value:>{REASON_WIDTH}}  ", FAINT), (one_line(text, room), "")
        out.result(line(*parts))
