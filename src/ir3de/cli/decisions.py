"""Decisions on prompts and on the turns of chats: their documents, and how a terminal shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ir3de
from ir3de.cli import lib
from ir3de.cli.costs import list_amounts
from ir3de.cli.formats import FAINT, bar, colour_of, line, name_others, one_line, percent
from ir3de.cli.output import PIPE_WIDTH, Block, Output, Result, heading, table
from ir3de.errors import InputError

Document = Mapping[str, Any]  # of a decision

DECISION_FIELD = "ir3de"
NONE_FITS = "none fits"  # in place of an expert's name
DEFAULT = "default"  # behind the name of the default expert, which gets a prompt if the router abstains
MOST_SHOWN = 5  # experts of a ranking
MOST_NAMED = 3  # experts of a mixed prompt
SMALLEST_SHOWN = 0.0005  # smaller probabilities would be shown as 0.0 %
BAR_WIDTH = 32
COST_BAR_WIDTH = 20
VALUE_WIDTH = len("  100.0 %  ")  # between a name and its bar
TURN_COLUMNS_WIDTH = 46  # turn, confidence, the turn that decided
REASONS = {
    "no known token": "the prompt holds no known token",
    "low confidence": "no expert is likely enough",
    "low expected score": "no model is expected to score enough",
    "out of domain": "the prompt is out of domain",
    "no content": "the prompt has no content of its own",
}


def describe_decision(decision: ir3de.Decision, top: int | None = None) -> dict[str, Any]:
    """A decision with the best `top` experts of its ranking, ready for JSON."""
    document = decision.to_dict()
    candidates = [] if decision.abstained else list(decision.candidates)
    return {**document, "ranking": document["ranking"][:top], "candidates": candidates}


def value_of(row: Document) -> float:
    """The probability or the expected score in a row of a ranking."""
    return float(row["probability"] if "probability" in row else row["expected_score"])


def format_value(decision: Document, value: float | None = None) -> str:
    """A probability as a percentage, an expected score as a number; by default the largest of the ranking."""
    value = max(map(value_of, decision["ranking"])) if value is None else value
    return f"{value:.3f}" if "expected_score" in decision else percent(value)


def name_expert(decision: Document, experts: Sequence[str]) -> tuple[str, str]:
    """The expert that a prompt goes to, and its colour; if the router abstained, the default expert or none."""
    name = decision["expert"]
    if name is None:
        return NONE_FITS, FAINT
    return f"{name} ({DEFAULT})" if decision["abstained"] else name, colour_of(experts.index(name))


def has_ranking(decision: Document) -> bool:
    """Whether a word of the prompt counted; if none did, all experts are equal and their order means nothing."""
    return not decision["reason"].startswith("no ")


def why_abstained(decision: Document) -> str:
    """The reason in words, and where the prompt goes."""
    why = REASONS[decision["reason"]] if decision["tokens"] else "the prompt is empty and nothing could decide"
    if decision["expert"] is not None:
        return f"abstained, because {why}: it goes to {decision['expert']}, the default expert"
    nearest = f"; the nearest is {decision['ranking'][0]['expert']}" if has_ranking(decision) else ""
    return f"abstained, because {why}: none fits, and no default expert was named{nearest}"


def view_decision(
    decision: Document, router: ir3de.Router, top: int | None, width: int, mixed: Sequence[str]
) -> Iterator[Block]:
    """The ranking, how many tokens counted, and the experts of a mixed prompt."""
    if not has_ranking(decision):
        yield Result(line(name_expert(decision, router.experts)))
        return
    ranking = decision["ranking"]
    if "penalty" in ranking[0]:
        yield Result(utility_table(decision, router, top))
    else:
        yield Result(ranking_table(decision, router.experts, top, width))
    if decision["abstained"]:
        return
    tokens, counted = decision["tokens"], decision["counted"]
    how_many = "all counted" if counted == tokens else f"{counted:,} of them counted"
    asked = "; the encoder was asked" if decision.get("consulted") else ""
    yield line((f"{'1 token' if tokens == 1 else f'{tokens:,} tokens'}, {how_many}{asked}", FAINT))
    if mixed:
        yield line(("mixed: ", "bold"), (" and ".join(mixed[:MOST_NAMED]), ""), ("; see `ir3de explain`", FAINT))


def count_shown(ranking: Sequence[Document], top: int | None, least: float = -math.inf) -> int:
    """How many experts of a ranking are shown: `top`; else all if they are few, else the first ones from `least` on."""
    if top is not None:
        return min(top, len(ranking))
    if len(ranking) <= MOST_SHOWN + 1:  # a line that counts one other is not shorter
        return len(ranking)
    return max(1, sum(value_of(row) >= least for row in ranking[:MOST_SHOWN]))


def ranking_table(decision: Document, experts: Sequence[str], top: int | None = None, width: int = PIPE_WIDTH) -> Block:
    """The first experts' probabilities or expected scores as bars, best first, and the sum of the others."""
    from rich.table import Table

    shown = Table.grid(padding=(0, 2))
    shown.add_column(overflow="fold")
    shown.add_column(justify="right", no_wrap=True)
    shown.add_column(no_wrap=True)
    ranking, has_scores = decision["ranking"], "expected_score" in decision
    kept = count_shown(ranking, top, -math.inf if has_scores else SMALLEST_SHOWN)
    longest = max((len(row["expert"]) for row in ranking[:kept]), default=0)
    room = max(0, min(BAR_WIDTH, width - longest - VALUE_WIDTH))  # on a narrow terminal names come before bars
    for place, row in enumerate(ranking[:kept]):
        colour = colour_of(experts.index(row["expert"]))
        name = line((row["expert"], f"bold {colour}" if place == 0 else ""))
        shown.add_row(name, format_value(decision, value_of(row)), bar(value_of(row), room, colour))
    if top is None and len(ranking) > kept:
        left = "" if has_scores else percent(sum(map(value_of, ranking[kept:])))
        shown.add_row(line((name_others(len(ranking) - kept), FAINT)), line((left, FAINT)), "")
    return shown


def utility_table(decision: Document, router: ir3de.Router, top: int | None = None) -> Block:
    """The first experts' quality, their costs, the penalty, and the utility that is left, best first."""
    ranking, costs = decision["ranking"], router.policy.to_dict()["costs"]
    shown = table("expert", "quality", "", "cost", "penalty", "utility", right=("quality", "penalty", "utility"))
    kept = count_shown(ranking, top)
    for place, row in enumerate(ranking[:kept]):
        colour = colour_of(router.experts.index(row["expert"]))
        shown.add_row(
            line((row["expert"], f"bold {colour}" if place == 0 else "")),
            format_value(decision, value_of(row)),
            bar(value_of(row), COST_BAR_WIDTH, colour),
            line((list_amounts(costs.get(row["expert"], {})), FAINT)),
            f"-{format_value(decision, row['penalty'])}" if row["penalty"] else "–",
            f"{row['utility']:+.3f}",
        )
    if top is None and len(ranking) > kept:
        shown.add_row(line((name_others(len(ranking) - kept), FAINT)))
    return shown


# chats --------------------------------------------------------------------------------------------------------------


class Chat(NamedTuple):
    """A chat of a file: its place, the row it came in, and its messages."""

    place: str
    row: Mapping[str, Any]
    messages: Any


def read_chats(source: str) -> list[Chat]:
    """The chats of a file or of standard input: JSON lines, an object with `messages`, or a list of messages."""
    chats: list[Chat] = []
    for found in lib.sources.expand([source]):
        with found.open() as file:
            chats += _read_document(lib.streams.decode_utf8(file.read(), found), found.name)
    return chats


def _read_document(content: str, name: str) -> Iterable[Chat]:
    if not content.strip():
        raise InputError(f"{name}: it is empty, and has no chat to read")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return _read_lines(content, name)
    if isinstance(document, list) and document and all(isinstance(one, dict) and "messages" in one for one in document):
        return [_make_chat(f"{name}[{number}]", row) for number, row in enumerate(document)]
    return [_make_chat(name, document)]


def _read_lines(content: str, name: str) -> Iterator[Chat]:
    for number, text in enumerate(content.splitlines(), 1):
        if not text.strip():
            continue
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name}:{number}: not JSON ({error}): write one chat a line") from None
        yield _make_chat(f"{name}:{number}", document)


def _make_chat(place: str, document: object) -> Chat:
    if isinstance(document, list):
        return Chat(place, {"messages": document}, document)
    if isinstance(document, dict) and "messages" in document:
        return Chat(place, document, document["messages"])
    fields = ", ".join(list(document)[:5]) or "no fields" if isinstance(document, dict) else ""
    found = f"an object with {fields}" if fields else type(document).__name__
    raise InputError(f'{place}: expected a list of messages or an object such as {{"messages": […]}}, found {found}')


def route_chat(router: ir3de.Router, chat: Chat, weights: Mapping[str, float]) -> ir3de.Conversation:
    """The conversation of a chat; an error names the place of the chat."""
    try:
        return ir3de.Conversation.from_messages(router, chat.messages, weights=weights or None)
    except InputError as error:
        raise InputError(f"{chat.place}: {error}") from None


def describe_chat(conversation: ir3de.Conversation, top: int | None = None) -> dict[str, Any]:
    """The decision of the last turn, and those of all turns, ready for JSON."""
    turns = []
    for index, turn in enumerate(conversation.turns):
        found = conversation.explain(index)
        weights = [{"turn": one.turn, "weight": round(one.weight, 6)} for one in found.weights]
        decision = turn.decision.to_dict()
        decision["ranking"] = decision["ranking"][:top]
        why = {"decided": found.decided, "changed": found.changed, "weights": weights}
        turns.append({"turn": index, "message": turn.place, **decision, **why})
    last = conversation.decision.to_dict()
    return {**last, "ranking": last["ranking"][:top], "turns": turns}


def view_chat(
    place: str, document: Document, texts: Sequence[str], experts: Sequence[str], out: Output
) -> Iterator[Block]:
    """A table with one row for each turn; with --quiet only their experts."""
    if out.quiet:
        yield from (Result(turn["expert"] or NONE_FITS) for turn in document["turns"])
        return
    room = max(20, out.console.width - TURN_COLUMNS_WIDTH - max(map(len, experts)))
    shown = table("turn", "expert", "", "decided by", "text", right=("turn",))
    for turn, text in zip(document["turns"], texts, strict=True):
        own = "itself" if turn["decided"] == turn["turn"] else f"turn {turn['decided'] + 1}"
        by = "a new subject" if turn["changed"] else own
        value = line((turn["reason"] or format_value(turn), FAINT))
        shown.add_row(str(turn["turn"] + 1), line(name_expert(turn, experts)), value, by, one_line(text, room))
    yield heading(place)
    yield shown
