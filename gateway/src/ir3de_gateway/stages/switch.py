"""Whether a conversation changes its expert: finds the expert that it has, and weighs a switch (`experts/switch`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir3de_gateway.experts.snapshot import Snapshot
from ir3de_gateway.experts.switch import Switch
from ir3de_gateway.stages.choice import Candidates, Prompt, Routed, find_default

if TYPE_CHECKING:
    from ir3de import Conversation


def find_holder(snapshot: Snapshot, chat: Conversation, prompt: Prompt) -> str | None:
    """The expert that has answered the turns before the last one, as the history shows it; None if there is none."""
    rule = snapshot.switch_rule
    if rule is None or len(chat) < 2 or not prompt.before:
        return None
    decisions = [turn.decision for turn in chat.turns[:-1]]
    return rule.find_holder(decisions, prompt.before, find_default(snapshot))


def weigh_switch(candidates: Candidates, before: str, routed: Routed) -> Switch | None:
    """The switch from one expert to the decided one, if both can and may answer."""
    rule = candidates.snapshot.switch_rule
    if rule is None or candidates.find(before) is None or candidates.find(routed.decision.expert) is None:
        return None
    tokens = candidates.prompt.before
    return rule.weigh(routed.decision, before, tokens[-1] if tokens else 0)
