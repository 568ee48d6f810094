"""explain: a prompt with every word in the colour of the expert it speaks for, and the words that decided."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import ir3de
from ir3de.cli import decisions, lib
from ir3de.cli.commands.route import refuse_prompt_and_chat
from ir3de.cli.costs import once_weight_option, warn_of_idle_weights
from ir3de.cli.decisions import format_value, name_expert, why_abstained
from ir3de.cli.formats import FAINT, bar, colour_of, line, one_line, percent, printable
from ir3de.cli.hints import router_before_prompt
from ir3de.cli.options import chat_option, number_option, output_options, router_argument
from ir3de.cli.output import NARROW_WIDTH, Block, Output, Result, heading, table
from ir3de.cli.saving import load_router
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from ir3de.routing.explanation import Explanation, WordSum
    from ir3de.routing.turn_explanation import TurnExplanation
    from ir3de.routing.words import Word

OTHER_COLUMNS_WIDTH = 44  # a word, how often, its contribution, its bar
MAX_NAME_CHARACTERS = 18  # of an expert in a table
BAR_WIDTH = 10
STRANGE_WORDS = 5  # named if a prompt is out of domain
SENTENCE_CHARS = 80  # shown of a sentence
STRONG_SHARE = 0.5  # of the strongest word's contribution
WEAK_SHARE = 0.1  # weaker words are shown as if they had no contribution


@click.command()
@router_before_prompt
@router_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@chat_option
@number_option("--words", "rows", least=0, default=10, help="Show at most N words in the table.")
@once_weight_option
@output_options
def explain(
    router_path: Path, text: str | None, chat: str | None, rows: int, weights: Mapping[str, float], out: Output
) -> None:
    """Show which words of a prompt decided, and for which expert.

    Without TEXT, all of standard input is one prompt. The best expert is compared with the next one: a word has the
    colour of the one that it speaks for, and strong words stand out. Without colours, + and - below the words mean the
    same. The contributions of all words add up to the lead of the best expert. With --chat, every turn of the user is
    explained: how much each turn weighed, which one decided, and by which words. --json also gives every token.

    \b
    Examples:
      ir3de explain router "Can my landlord evict me?"
      ir3de explain router --chat chat.json
    """
    if chat is not None:
        refuse_prompt_and_chat(text)
    router = load_router(router_path)
    warn_of_idle_weights(out, router, weights)
    for one in decisions.read_chats(chat) if chat is not None else ():
        conversation = decisions.route_chat(router, one, weights)
        explanations = [conversation.explain(turn) for turn in range(len(conversation))]
        document = {"chat": one.place, "turns": [found.to_dict() for found in explanations]} if out.as_json else {}
        out.json(document)
        for found, turn in zip(explanations, conversation.turns, strict=True):
            _show_turn(out, router, found, turn.text, rows)
    if chat is None:
        explanation = router.explain(_read_text(text), weights=weights or None)
        out.json(explanation.to_dict())
        show_explanation(out, router, explanation, rows)


def _show_turn(out: Output, router: ir3de.Router, found: TurnExplanation, text: str, rows: int) -> None:
    """A turn: its decision, the weights of the turns in it, and the words of the turn that decided."""
    if out.as_json:
        return
    decision = found.decision.to_dict()
    name, colour = name_expert(decision, router.experts)
    out.result(heading(f"{found.turn + 1}  {one_line(text, out.console.width - 5)}"))
    out.result(line((name, f"bold {colour}"), (f"  {format_value(decision)}", "")))
    if decision["abstained"]:
        out.warn(why_abstained(decision))
    why = "this turn began a new subject" if found.changed else f"turn {found.decided + 1} decided"
    out.note(line((why, FAINT)), _weights_table(found, out.console.width))
    out.note("", *_draw_words(out, found.deciding), line((printable(found.deciding.summary), "")))
    if rows and found.deciding.decision.counted:
        out.note(*_word_table(found.deciding, rows, out.console.width))


def _weights_table(explanation: TurnExplanation, width: int) -> Block:
    """The weight of each turn, for or against the chosen expert."""
    shown = table("turn", "weight", "lead", "text", right=("turn", "weight", "lead"))
    for weight in explanation.weights:
        text = one_line(weight.text, max(20, width - 30))
        style = "bold" if weight.turn == explanation.decided else ""
        lead = f"{100 * weight.lead:+.0f} %"
        shown.add_row(str(weight.turn + 1), percent(weight.weight), lead, line((text, style)))
    return shown


def _read_text(text: str | None) -> str:
    if text is not None and text != "-":
        return text
    if sys.stdin is None or (text is None and sys.stdin.isatty()):
        raise click.UsageError("nothing to explain: write the prompt in quotes, or pipe it")

    if not (found := lib.streams.decode_utf8(sys.stdin.buffer.read(), lib.streams.Source(None, "-")).rstrip("\n")):
        raise InputError("no prompt came: standard input has none. Write the prompt in quotes, or pipe it")
    return found


def show_explanation(out: Output, router: ir3de.Router, explanation: Explanation, rows: int) -> None:
    """Print the prompt, the legend, and a table of the words that decided most."""
    if not out.as_json:
        decision = explanation.decision.to_dict()
        out.show({}, _view_explanation(out, router, explanation, decision, rows))
        if decision["abstained"]:
            out.warn(why_abstained(decision))


def _view_explanation(
    out: Output, router: ir3de.Router, explanation: Explanation, decision: Mapping[str, Any], rows: int
) -> Iterator[Block]:
    """The prompt and what decided; then why it is out of domain or mixed, and the table of words."""
    expert, summary = line(name_expert(decision, router.experts)), line((printable(explanation.summary), ""))
    if not decision["counted"]:
        yield from (Result(expert), Result(summary))
        return
    yield from map(Result, _draw_words(out, explanation))
    if len(explanation.tokens) == router.selector.cap:
        yield Result(line((f"… only the first {router.selector.cap:,} tokens are read", FAINT)))
    yield Result(line(("", "")))
    yield Result(_legend(explanation, decision, out.console.width) if decisions.has_ranking(decision) else expert)
    yield Result(summary)
    if "penalty" in decision["ranking"][0]:
        yield from ("", decisions.utility_table(decision, router))
    if decision["out_of_domain"]:
        yield _describe_strangeness(explanation)
    if explanation.mixed:
        yield line(("mixed: ", "bold"), (" and ".join(explanation.mixed[: decisions.MOST_NAMED]), ""))
    for found in explanation.sentences if explanation.mixed else ():
        if found.expert is not None:  # the sentence clearly speaks for it
            colour = _colour_of(found.expert, explanation)
            yield line((f"  {found.expert}  ", colour), (one_line(found.text, SENTENCE_CHARS), FAINT))
    if explanation.opinions:
        yield from ("", _opinions_table(explanation))
    if rows:
        yield from _word_table(explanation, rows, out.console.width)


def _opinions_table(explanation: Explanation) -> Block:
    """How likely table, encoder and both together take the experts to be, if the prompt is in domain."""
    shown = table("expert", "table", "encoder", "together", right=("table", "encoder", "together"))
    for one in explanation.opinions:
        name = line((one.expert, _colour_of(one.expert, explanation)))
        shown.add_row(name, percent(one.table), percent(one.encoder), percent(one.together))
    return shown


def _describe_strangeness(explanation: Explanation) -> Block:
    """The probability that the prompt is in domain, and the evidence against it."""
    decision = explanation.decision
    share = decision.in_domain or 0.0
    parts = [("in domain ", ""), (percent(share), "bold")]
    if share and decision.confidence is not None:
        parts.append((f"; if it is, {decision.best} has {percent(decision.confidence / share)}", ""))
    if decision.familiarity is not None:
        parts.append((f"; familiarity {decision.familiarity:+.1f} standard deviations", ""))
    words = list(dict.fromkeys(printable(word.text).strip() for word in explanation.strangest))
    parts.append((f"; strangest words: {', '.join(filter(None, words[:STRANGE_WORDS]))}" if words else "", ""))
    return line(*parts)


def _draw_words(out: Output, explanation: Explanation) -> Iterator[Block]:
    """The prompt, its words in colours, or with marks below them where there are no colours."""
    if out.console.color_system is not None and not out.console.no_color:
        yield line(*((printable(word.text), _style(word, explanation)) for word in explanation.words))
    else:
        yield from _mark_words(explanation, out.console)


def _style(word: Word, explanation: Explanation) -> str:
    """The colour of the expert that a word speaks for, bold if it is strong; faint if it is weak."""
    share = _strength(word.contribution, explanation)
    if share < WEAK_SHARE:
        return FAINT
    colour = _colour(word.contribution, explanation)
    return f"bold {colour}" if share >= STRONG_SHARE else colour


def _colour(contribution: float, explanation: Explanation) -> str:
    """The colour of the best expert, or of the next one if the contribution is below zero."""
    side = int(contribution < 0 and len(explanation.compared) > 1)
    return _colour_of(explanation.compared[side], explanation)


def _colour_of(expert: str, explanation: Explanation) -> str:
    found = explanation.colours.get(expert)
    return colour_of(explanation.experts.index(expert)) if found is None else found.terminal


def _strength(contribution: float, explanation: Explanation) -> float:
    """A contribution as a share of the strongest word's."""
    strongest = max((abs(word.contribution) for word in explanation.words), default=0.0)
    return abs(contribution) / strongest if strongest else 0.0


def _mark_words(explanation: Explanation, console: Any) -> Iterator[Block]:
    """The prompt in lines. Below a word that speaks for the best expert stands +, for the next one -.

    Below a strong word there is one under every character.
    """
    parts: list[tuple[str, str]] = []
    for word in explanation.words:
        text, share = printable(word.text), _strength(word.contribution, explanation)
        mark = "" if share < WEAK_SHARE else "+" if word.contribution > 0 else "-"
        begin = len(text) - len(text.lstrip())
        end = len(text) if share >= STRONG_SHARE else begin + 1
        # the mark is passed as a style, so that rich keeps it with its word when it breaks the lines
        parts += [(text[:begin], ""), (text[begin:end], mark), (text[end:], "")]
    for part in line(*parts).wrap(console, console.width):
        yield from (line((part.plain, "")), line((_marks(part), FAINT)))


def _marks(part: Any) -> str:
    """The marks below a line, as wide as what is above them."""
    from rich.cells import cell_len

    marks = [" "] * len(part.plain)
    for span in part.spans:
        marks[span.start : span.end] = str(span.style) * (span.end - span.start)
    cells = zip(part.plain, marks, strict=True)
    return "".join(" " if character == " " else mark * cell_len(character) for character, mark in cells).rstrip()


def _legend(explanation: Explanation, document: Mapping[str, Any], width: int) -> Block:
    """The experts that are compared with their probability or expected score, best first, and how many more there are.

    Where the router abstained, the default expert comes first. A line is never broken inside an expert.
    """
    decision = explanation.decision
    ranking = [row for row in decision.ranking if row[0] in explanation.compared]
    if decision.abstained and decision.expert is not None and decision.expert not in explanation.compared:
        ranking.insert(0, decision.ranking[0])
    entries: list[Text] = []
    for expert, value in ranking:
        is_first = not entries
        name = (expert, "bold" if is_first else "")
        shown = (f" {format_value(document, value)}", "" if is_first else FAINT)
        entries.append(line(("■ ", _colour_of(expert, explanation)), name, shown))
    if others := len(explanation.experts) - len(ranking):
        entries.append(line((f"… and {others:,} more", FAINT)))
    legend = entries[0]
    column = len(legend)
    for entry in entries[1:]:
        between = "   " if column + 3 + len(entry) <= width else "\n"
        column = len(entry) + (column + 3 if between == "   " else 0)
        legend = legend + between + entry
    return legend


def _word_table(explanation: Explanation, rows: int, width: int) -> tuple[Block, Block]:
    """A title, and the strongest words: their contributions, and what they give to each expert.

    Equal words are one row. The other words follow together, so that the rows add up to the lead.
    """
    best, *others = explanation.compared
    title = f"The words that speak for {best} (+)" + (f" or {others[0]} (−)" if others else "")
    words, sums = lib.explanation.tabulate_words(explanation, rows)
    narrow = width < NARROW_WIDTH
    columns = [] if narrow else _score_columns(explanation, width)
    names = [_short(explanation.compared[column]) for column in columns]
    shown = table("word", "", "+ −", " ", *names, right=("", "+ −", *names))
    digits, strongest = lib.html.count_digits(explanation.decision), abs(words[0].contribution) if words else 1.0

    def add(word: WordSum, style: str = "") -> None:
        colour, share = _colour(word.contribution, explanation), abs(word.contribution) / strongest
        shown.add_row(
            line((printable(lib.html.shorten(word.text)), style)),
            line((f"×{word.times}" if word.times > 1 else "", FAINT)),
            line((lib.html.format_signed(word.contribution, digits), colour)),
            line(("", "")) if style or narrow else bar(share, BAR_WIDTH, colour),
            *(line((lib.html.format_signed(word.scores[column], digits), FAINT)) for column in columns),
        )

    for word in words:
        add(word)
    for one in sums:
        add(one, "bold" if one is sums[-1] else FAINT)
    return heading(title), shown


def _score_columns(explanation: Explanation, width: int) -> list[int]:
    """The compared experts whose scores are shown: as many as there is room for, but always two."""
    room, columns = width - OTHER_COLUMNS_WIDTH, list[int]()
    for column, name in enumerate(explanation.compared):
        room -= max(len(_short(name)), len("+0.00")) + 3
        if room < 0 and len(columns) >= 2:
            break
        columns.append(column)
    return columns


def _short(name: str, longest: int = MAX_NAME_CHARACTERS) -> str:
    """The end of a long name, such as a model's, so that a table of several still fits."""
    return name if len(name) <= longest else "…" + name[1 - longest :]
