"""Chats from files: read, routed turn by turn, and shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ir3de.cli.output import (
    FAINT,
    NONE_FITS,
    Output,
    format_value,
    heading,
    line,
    name_expert,
    one_line,
    percent,
    table,
)
from ir3de.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ir3de.router import Router
    from ir3de.routing.conversation import Conversation
    from ir3de.routing.turn_explanation import TurnExplanation

MESSAGES_FIELD = "messages"
OTHER_COLUMNS_WIDTH = 46  # turn, confidence, the turn that decided


class Chat(NamedTuple):
    """A chat of a file: where it stands, the row it came in, and its messages."""

    place: str
    row: Mapping[str, Any]
    messages: Any


def read_chats(source: str) -> list[Chat]:
    """The chats of a file or of standard input: JSON lines, an object with `messages`, or a list of messages."""
    from ir3de.files.sources import expand
    from ir3de.files.streams import decode_utf8

    chats: list[Chat] = []
    for found in expand([source]):
        with found.open() as file:
            chats += _read_document(decode_utf8(file.read(), found), found.name)
    return chats


def _read_document(content: str, name: str) -> Iterable[Chat]:
    if not content.strip():
        raise InputError(f"{name}: it is empty, and has no chat to read")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return _read_lines(content, name)
    if isinstance(document, list) and document and all(_has_messages(one) for one in document):
        return [Chat(f"{name}[{number}]", row, row[MESSAGES_FIELD]) for number, row in enumerate(document)]
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


def _has_messages(document: object) -> bool:
    return isinstance(document, dict) and MESSAGES_FIELD in document


def _make_chat(place: str, document: object) -> Chat:
    if isinstance(document, list):
        return Chat(place, {MESSAGES_FIELD: document}, document)
    if isinstance(document, dict) and MESSAGES_FIELD in document:
        return Chat(place, document, document[MESSAGES_FIELD])
    found = (
        f"an object with {', '.join(list(document)[:5]) or 'no fields'}" if isinstance(document, dict) else "no object"
    )
    raise InputError(f'{place}: expected a list of messages or an object such as {{"messages": […]}}, found {found}')


def route_chat(router: Router, chat: Chat, weights: Mapping[str, float]) -> Conversation:
    """The conversation of a chat; an error names the place of the chat."""
    from ir3de.routing.conversation import Conversation

    try:
        return Conversation.from_messages(router, chat.messages, weights=weights or None)
    except InputError as error:
        raise InputError(f"{chat.place}: {error}") from None


def describe_chat(conversation: Conversation, top: int | None = None) -> dict[str, Any]:
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


def show_chat(out: Output, router: Router, chat: Chat, conversation: Conversation) -> None:
    """A table with one line for each turn."""
    if out.quiet:
        for turn in conversation.turns:
            out.result(turn.decision.expert or NONE_FITS)
        return
    room = max(20, out.console.width - OTHER_COLUMNS_WIDTH - max(map(len, router.experts)))
    shown = table("turn", "expert", "", "decided by", "text", right=("turn",))
    for index, turn in enumerate(conversation.turns):
        decision, found = turn.decision, conversation.explain(index)
        name = line(name_expert(decision, router))
        value = decision.reason or format_value(decision, decision.quality[0][1])
        by = "a new subject" if found.changed else "itself" if found.decided == index else f"turn {found.decided + 1}"
        shown.add_row(str(index + 1), name, line((value, FAINT)), by, one_line(turn.text, room))
    out.result(heading(chat.place), shown)


def weights_table(explanation: TurnExplanation, width: int) -> Table:
    """How much each turn weighed, and for or against the chosen expert."""
    shown = table("turn", "weight", "lead", "text", right=("turn", "weight", "lead"))
    for weight in explanation.weights:
        lead = f"{100 * weight.lead:+.0f} %"
        text = one_line(weight.text, max(20, width - 30))
        style = "bold" if weight.turn == explanation.decided else ""
        shown.add_row(str(weight.turn + 1), percent(weight.weight), lead, line((text, style)))
    return shown


def pick_only_source(given: Sequence[object]) -> None:
    """Refuse a prompt or --input beside --chat."""
    import click

    if any(one is not None for one in given):
        raise click.UsageError("--chat was given beside a prompt or --input: leave one of them out")
