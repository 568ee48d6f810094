"""The defaults of `routing.switch`, chosen on conversations of training prompts: chats, and agents without a session.

Each conversation is replayed with the gateway's rule, as docs/conversations.md states it. Of all margins and values
that lose no accuracy on chats and none on agents, on average over the sets, the one with the fewest switches is chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any, NamedTuple

from ir3de import Conversation, Decision, Router
from ir3de_lab.benchmarks.gateway.switching import PRICE
from ir3de_lab.benchmarks.switches import Row, add_up, count_switches
from ir3de_lab.benchmarks.traces import CHARS_PER_TOKEN, Ask

MARGINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
VALUE_TOKENS = (10_000, 20_000, 50_000, 100_000, 1_000_000)


class Rule(NamedTuple):
    """When a conversation moves: the least lead of the other expert, and the value of a right answer in tokens."""

    margin: float
    value_tokens: int

    def allows(self, decision: Decision, holder: str, tokens: int) -> bool:
        """Whether a switch to the decided expert gains more than it costs. Abstentions are not weighed."""
        if decision.abstained or decision.best == holder:
            return True
        values, full = dict(decision.quality), PRICE["input_per_1m"]
        gain = (values[decision.best] - values.get(holder, 0.0) - self.margin) * self.value_tokens * full
        return gain > tokens * (full - PRICE["cached_input_per_1m"])


@dataclass(frozen=True)
class Replayed:
    """A conversation that was routed: its requests' places in the trace, and each turn's decision and tokens before."""

    places: Sequence[int]
    turns: Sequence[int]  # of each request: which turn of the user it belongs to
    decisions: Sequence[Decision]
    tokens: Sequence[int]


@dataclass(frozen=True, eq=False)
class Material:
    """The traces of one set, routed."""

    name: str
    traces: Sequence[Sequence[Ask]]
    routed: Sequence[Sequence[Replayed]]


def route_traces(name: str, router: Router, traces: Sequence[Sequence[Ask]]) -> Material:
    """Route all conversations of the traces, once."""
    return Material(name, traces, [list(_route(router, asks)) for asks in traces])


def _route(router: Router, asks: Sequence[Ask]) -> Iterator[Replayed]:
    for conversation in dict.fromkeys(ask.conversation for ask in asks):
        places = [place for place, ask in enumerate(asks) if ask.conversation == conversation]
        messages = asks[places[-1]].messages
        chat = Conversation.from_messages(router, messages)
        spoken = [turn.place for turn in chat.turns]
        turns = [sum(place < len(asks[number].messages) for place in spoken) - 1 for number in places]
        before = [0, *accumulate(map(_count_chars, messages))]
        tokens = [int(before[place] / CHARS_PER_TOKEN) for place in spoken]
        yield Replayed(places, turns, [turn.decision for turn in chat.turns], tokens)


def _count_chars(value: Any) -> int:
    """The characters of all texts in a message."""
    if isinstance(value, dict):
        return sum(map(_count_chars, value.values()))
    return sum(map(_count_chars, value)) if isinstance(value, list) else len(value) if isinstance(value, str) else 0


def replay(material: Material, way: str, rule: Rule | None) -> Row:
    """The figures of a rule; of the router alone without one."""
    chosen = []
    for asks, conversations in zip(material.traces, material.routed, strict=True):
        experts = [""] * len(asks)
        for one in conversations:
            found = list(_decide(one, rule))
            for place, turn in zip(one.places, one.turns, strict=True):
                experts[place] = found[turn]
        chosen.append(experts)
    return count_switches(material.name, way, material.traces, chosen)


def _decide(one: Replayed, rule: Rule | None) -> Iterator[str]:
    holder = ""
    for decision, tokens in zip(one.decisions, one.tokens, strict=True):
        if not holder or rule is None or rule.allows(decision, holder, tokens):
            holder = decision.best
        yield holder


def choose_defaults(chats: Sequence[Material], agents: Sequence[Material]) -> dict[str, Any]:
    """The margin and value with the fewest switches among those that lose nothing, and all that was tried."""
    before = [add_up([replay(one, "none", None) for one in some])[0] for some in (chats, agents)]
    tried: list[dict[str, Any]] = []
    for margin, tokens in product(MARGINS, VALUE_TOKENS):
        rule = Rule(margin, tokens)
        found = [add_up([replay(one, "", rule) for one in some])[0] for some in (chats, agents)]
        tried.append(
            {
                "margin": margin,
                "value_tokens": tokens,
                "switches": [row.switches for row in found],
                "accuracy": [row.accuracy - base.accuracy for row, base in zip(found, before, strict=True)],
            }
        )
    allowed = [one for one in tried if min(one["accuracy"]) >= 0.0]
    chosen = min(allowed, key=lambda one: sum(one["switches"]))
    return {"without": [row.to_dict() for row in before], "chosen": chosen, "tried": tried}
