"""Exploration: a share of the uncertain prompts goes to another candidate, and the chance of each choice is recorded.

Without it, a log shows the chosen expert alone, and whether another would have done better remains unknown. Only
choices of the router are explored. A client that names an expert, a pinned conversation, a loop of tools and a prompt
that is out of domain get the expert that they would get anyway.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple

from ir3de_gateway.exchange_record import Arm
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.stages.choice import EXPLORE, Choice, Prompt, Refusal

_DRAW_BYTES = 8
_UNCERTAIN = ("", "low confidence", "low expected score")  # reasons to abstain, or none


class Explored(NamedTuple):
    """A choice, and the probability with which its expert was chosen."""

    choice: Choice
    propensity: float = 1.0
    arm: Arm = ""  # who chose, where chance decided


def explore(choice: Choice, prompt: Prompt, share: float, draw: float) -> Explored:
    """The choice itself or, with the probability `share`, that of another candidate; `draw` is a number below 1.

    Each of the other candidates is as likely as the others.
    """
    others = list_others(choice, prompt)
    if not share or not others:
        return Explored(choice)
    if draw >= share:
        return Explored(choice, 1.0 - share, "live")
    other = others[int(draw / share * len(others))]
    explored = replace(choice, first=other, why=EXPLORE, wanted=None, refusal=Refusal(EXPLORE, ""), switch=None)
    return Explored(explored, share / len(others), "explore")


def list_others(choice: Choice, prompt: Prompt) -> list[Expert]:
    """The candidates besides the chosen expert that can and may answer; none if the choice is not to be explored."""
    decision = choice.decision
    if decision is None or choice.build_rejection is not None or choice.why not in ("", "abstained"):
        return []
    if prompt.tool_loop or prompt.follows or decision.reason not in _UNCERTAIN:
        return []
    there = {expert.name: expert for expert in choice.eligible}
    return [there[name] for name in decision.candidates if name in there and name != choice.first.name]


def draw_number(secret: bytes, request_id: str, text: str) -> float:
    """A number from 0 to 1, below it, that clients cannot foresee. A request that is sent again gets the same one.

    >>> draw_number(b"secret", "r1", "Is it void?") == draw_number(b"secret", "r1", "Is it void?")
    True
    """
    content = f"{request_id}\n{text}".encode(errors="surrogatepass")
    found = int.from_bytes(blake2b(content, key=secret, digest_size=_DRAW_BYTES).digest())
    return (found >> 11) / (1 << 53)  # as many bits as a number has
