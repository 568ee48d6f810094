"""The turns of a chat for POST /v1/route: where each of them would go, which turn decided, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import sleep
from typing import TYPE_CHECKING, Any

from ir3de_gateway.requests.prompt import MAX_INLINE_TURNS

if TYPE_CHECKING:
    from ir3de import Conversation
    from ir3de.serving import Explanation, TurnExplanation

SpokenTurn = tuple[int, str]  # a turn of the user: its place among the messages, and its text

MAX_TURNS = 1_000  # that are shown, the last ones
MAX_EXPLAINED_TURNS = 100  # of them, with the words that decided, as far as these are not too long
MAX_TEXT_CHARS = 200  # of a turn


def describe_turns(
    chat: Conversation, turns: Sequence[SpokenTurn], *, explained_chars: int, read_chars: int
) -> Iterator[Mapping[str, Any]]:
    """A row for each turn, newest first, ready for JSON.

    The newest ones have the words that decided: `explained_chars` together, where `read_chars` of each turn are read.
    Unless that is 0, each row tells whether it has them.
    """
    is_asked, first_explained = explained_chars > 0, len(chat) - MAX_EXPLAINED_TURNS
    known: dict[tuple[int, str], dict[str, Any]] = {}  # turns that one turn decided share its words
    for turn in reversed(range(max(0, len(chat) - MAX_TURNS), len(chat))):
        found = chat.explain(turn)
        key, words = (found.decided, found.decision.best), dict[str, Any]()
        if key in known:
            words = known[key]
        elif explained_chars > 0 and turn >= first_explained:
            explained_chars -= min(len(turns[found.decided][1]), read_chars)
            words = known[key] = _describe_words(found.deciding) if explained_chars >= 0 else {}
        place, text = turns[turn]
        row = {"turn": turn, "message": place, "text": text.strip()[:MAX_TEXT_CHARS], **_describe_turn(found)}
        words = words if turn >= first_explained else {}
        yield {**row, **({"explained": bool(words)} if is_asked else {}), **words}
        if len(chat) > MAX_INLINE_TURNS:
            sleep(0)  # whoever waits for the interpreter's lock has it now


def _describe_turn(found: TurnExplanation) -> dict[str, Any]:
    decision, confidence, score = found.decision, found.decision.confidence, found.decision.expected_score
    return {
        "expert": decision.expert,
        "best": decision.best,
        "confidence": None if confidence is None else round(confidence, 6),
        **({} if score is None else {"expected_score": round(score, 6)}),
        "abstained": decision.abstained,
        "reason": decision.reason,
        "why": found.why,
        "decided": found.decided,
        "weights": [
            {"turn": one.turn, "weight": round(one.weight, 6), "lead": round(one.lead, 6)} for one in found.weights
        ],
    }


def _describe_words(found: Explanation) -> dict[str, Any]:
    return {
        "summary": found.summary,
        "compared": list(found.compared),
        "words": [word.to_dict() for word in found.words],
    }
