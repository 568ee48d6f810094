"""explain: a prompt with every token in the colour of its vote, and the tokens that decided."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ir3de.cli.chats import Chat, pick_only_source, read_chats, route_chat, weights_table
from ir3de.cli.commands.route import why_abstained
from ir3de.cli.costs import once_weight_option, utility_table, warn_without_costs
from ir3de.cli.options import chat_option, number_option, output_options, router_argument
from ir3de.cli.output import FAINT, Output, colour_of, format_value, heading, line, one_line, printable, table
from ir3de.cli.saving import load_router

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ir3de.router import Router
    from ir3de.routing.explanation import Explanation, TokenVote

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
OTHER_COLUMNS_WIDTH = 32  # a token, how often, its entropy
MAX_NAME_CHARACTERS = 18  # of an expert in a table


@click.command()
@router_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@chat_option
@number_option("--tokens", "rows", least=0, default=10, help="Show at most N tokens in the table.")
@once_weight_option
@output_options
def explain(
    router_path: Path, text: str | None, chat: str | None, rows: int, weights: Mapping[str, float], out: Output
) -> None:
    """Show which tokens of a prompt decided, and for which expert.

    Without TEXT, all of standard input is one prompt. Every token has the colour of the expert it votes for; a token
    that did not count is dim. Without colours, letters below the tokens say the same. With --chat, every turn of the
    user is explained: how much each turn weighed, which one decided, and by which tokens.

    \b
    Examples:
      ir3de explain router "Can my landlord evict me?"
      ir3de explain router --chat chat.json
    """
    if chat is not None:
        pick_only_source((text,))
    router = load_router(router_path)
    warn_without_costs(out, router, weights)
    if chat is not None:
        for one in read_chats(chat):
            _explain_chat(out, router, one, rows, weights)
        return
    explanation = router.explain(_text(text), weights=weights or None)
    out.json(explanation.to_dict())
    if not out.as_json:
        show_explanation(out, router, explanation, rows)


def _explain_chat(out: Output, router: Router, chat: Chat, rows: int, weights: Mapping[str, float]) -> None:
    """Every turn: its decision, the weights of the turns in it, and the tokens of the turn that decided."""
    conversation = route_chat(router, chat, weights)
    explanations = [conversation.explain(turn) for turn in range(len(conversation))]
    out.json({"chat": chat.place, "turns": [found.to_dict() for found in explanations]} if out.as_json else None)
    for found, turn in zip(explanations, conversation.turns, strict=True):
        if out.as_json:
            break
        decision = found.decision
        value = format_value(decision, decision.quality[0][1])
        out.result(heading(f"{found.turn + 1}  {one_line(turn.text, out.console.width - 5)}"))
        out.result(
            line((decision.expert, f"bold {colour_of(router.experts.index(decision.expert))}"), (f"  {value}", ""))
        )
        if decision.abstained:
            out.warn(why_abstained(decision))
        why = "this turn began a new subject" if found.changed else f"turn {found.decided + 1} decided"
        out.note(line((why, FAINT)), weights_table(found, out.console.width))
        if rows:
            title, deciding = _deciding(router, found.tokens)
            out.note(heading(title), _token_table(found.tokens, deciding[:rows], out.console.width))


def _text(text: str | None) -> str:
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise click.UsageError("nothing to explain: write the prompt in quotes, or pipe it")
    from ir3de.corpora.streams import Source, decode_utf8

    return decode_utf8(sys.stdin.buffer.read(), Source(None, "-")).rstrip("\n")


def show_explanation(out: Output, router: Router, explanation: Explanation, rows: int) -> None:
    """The prompt, the legend, and a table of the tokens that decided most."""
    decision = explanation.decision
    coloured = out.console.color_system is not None and not out.console.no_color
    out.result(*(_colour_prompt(explanation) if coloured else _letter_prompt(explanation, out.console)))
    if unseen := decision.tokens - len(explanation.tokens):
        out.result(line((f"… and {unseen:,} more tokens, beyond the first {len(explanation.tokens):,}", FAINT)))
    out.result(line(("", "")), _legend(explanation, coloured))
    if decision.penalties is not None:
        out.note("", utility_table(decision, router))
    if decision.abstained:
        out.warn(why_abstained(decision))
    elif rows:
        title, deciding = _deciding(router, explanation)
        out.note(heading(title), _token_table(explanation, deciding[:rows], out.console.width))


def _colour_prompt(explanation: Explanation) -> Iterator[Text]:
    colours = {name: colour_of(index) for index, name in enumerate(explanation.experts)}
    tokens = explanation.tokens
    yield line(*((printable(one.text), colours[one.vote] if one.counted else f"dim {FAINT}") for one in tokens))


def _letter_prompt(explanation: Explanation, console: Console) -> Iterator[Text]:
    """The prompt in lines, below each the letters of its tokens' votes."""
    letters, tokens = dict(zip(explanation.experts, cycle(LETTERS), strict=False)), explanation.tokens
    # the letter is passed as a style, so that rich keeps it with its token when it breaks the lines
    prompt = line(*((printable(one.text), letters[one.vote] if one.counted else "") for one in tokens))
    for part in prompt.wrap(console, console.width):
        yield from (line((part.plain, "")), line((_marks(part), FAINT)))


def _marks(part: Text) -> str:
    """The letters below a line, as wide as what is above them."""
    from rich.cells import cell_len

    marks = [" "] * len(part.plain)
    for span in part.spans:
        marks[span.start : span.end] = str(span.style) * (span.end - span.start)
    cells = zip(part.plain, marks, strict=True)
    return "".join(" " if character == " " else mark * cell_len(character) for character, mark in cells).rstrip()


def _legend(explanation: Explanation, coloured: bool) -> Text:
    """Every expert with its probability or expected score, best first, in its colour or with its letter."""
    letters = dict(zip(explanation.experts, cycle(LETTERS), strict=False))
    parts: list[tuple[str, str]] = []
    for place, (expert, value) in enumerate(explanation.decision.ranking):
        mark, colour = "■" if coloured else letters[expert], colour_of(explanation.experts.index(expert))
        styles = ("bold", "") if place == 0 else ("", FAINT)
        shown = f"{'   ' if place else ''}{mark} "
        parts += [(shown, colour), (expert, styles[0]), (f" {format_value(explanation.decision, value)}", styles[1])]
    return line(*parts)


def _deciding(router: Router, explanation: Explanation) -> tuple[str, list[TokenVote]]:
    """A title, and the counted tokens without repetition, those that decided most first."""
    from ir3de.selectors import Average

    distinct = list({token.id: token for token in explanation.tokens if token.counted}.values())
    if not isinstance(router.selector, Average):
        return "The tokens with the lowest entropy", sorted(distinct, key=lambda token: token.entropy)
    winner = explanation.decision.ranking[0][0]
    others = [expert for expert, _ in explanation.decision.quality if expert != winner]  # the likeliest first
    if not others:
        return "The tokens", distinct
    first, second = map(explanation.experts.index, (winner, others[0]))
    title = f"The tokens that speak most for {winner} over {others[0]}"
    return title, sorted(distinct, key=lambda token: token.scores[second] - token.scores[first])


def _score_columns(explanation: Explanation, width: int) -> list[int]:
    """The experts whose scores are shown, best first: as many as there is room for, but always two."""
    columns: list[int] = []
    room = width - OTHER_COLUMNS_WIDTH - max(len(_short(name)) for name in explanation.experts)
    for expert, _ in explanation.decision.ranking:
        room -= max(len(_short(expert)), len("+0.00")) + 3
        if room < 0 and len(columns) >= 2:
            break
        columns.append(explanation.experts.index(expert))
    return columns


def _token_table(explanation: Explanation, deciding: Sequence[TokenVote], width: int) -> Table:
    times = Counter(token.id for token in explanation.tokens if token.counted)
    columns = _score_columns(explanation, width)
    names = [_short(explanation.experts[column]) for column in columns]
    shown = table("token", "", "vote", "entropy", *names, right=("", "entropy", *names))
    for token in deciding:
        place = explanation.experts.index(token.vote)
        styles = [colour_of(column) if column == place else FAINT for column in columns]
        scores = [line((f"{token.scores[at]:+.2f}", style)) for at, style in zip(columns, styles, strict=True)]
        repeated = f"×{times[token.id]}" if times[token.id] > 1 else ""
        vote = line((_short(token.vote), colour_of(place)))
        shown.add_row(_visible(token), line((repeated, FAINT)), vote, f"{token.entropy:.2f}", *scores)
    return shown


def _short(name: str) -> str:
    """The end of a long name, such as a model's, so that a table of several still fits."""
    return name if len(name) <= MAX_NAME_CHARACTERS else "…" + name[1 - MAX_NAME_CHARACTERS :]


def _visible(token: TokenVote) -> str:
    """The token with its spaces shown; part of a character has nothing of its own to show."""
    return printable(token.text).replace(" ", "␣").replace("\n", "⏎") or f"#{token.id}"
