"""Flips: the words without which the prompt would go to another expert."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ir3de.policies import Costs
from ir3de.routing.compiled import CompiledRouter, decide
from ir3de.routing.content import MAX_GENERIC_CHARS
from ir3de.routing.decision import Decision, require_content
from ir3de.routing.words import Places, find_words, score_words
from ir3de.selectors import Ids

MAX_WORDS_TOGETHER = 32  # a longer list would explain nothing


@dataclass(frozen=True, slots=True)
class Flips:
    """Single words that flip the decision, and a small set of words that flip it together.

    Places are positions among the prompt's words. `together` is empty where no small set was found. The set is
    minimal: if any of its words stays in the prompt, the decision stays too.
    """

    expert: str | None  # None where none fits
    alone: Mapping[int, str | None]  # place of a word: the expert without it
    together: tuple[int, ...] = ()
    other: str | None = None  # the expert without the words of `together`

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        alone = [{"place": place, "expert": expert} for place, expert in self.alone.items()]
        together = {"places": list(self.together), "expert": self.other} if self.together else None
        return {"alone": alone, "together": together}


class _Prompt(NamedTuple):
    """The token ids of a prompt, and where its words begin."""

    ids: Ids
    starts: Places

    def without(self, places: Sequence[int]) -> _Prompt:
        """The prompt without the words at these places."""
        lengths = np.diff(self.starts, append=len(self.ids))
        stays = np.ones(len(lengths), bool)
        stays[list(places)] = False
        left = lengths[stays]
        return _Prompt(self.ids[np.repeat(stays, lengths)], np.cumsum(left) - left)


def find_flips(
    compiled: CompiledRouter, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Costs | None = None
) -> Flips:
    """Find the flips of a decision. The experts are those of `decide` for the prompt without the words."""
    prompt = _read_prompt(pieces, compiled.selector.cap)
    ends = [*prompt.starts[1:].tolist(), len(prompt.ids)]
    words = [
        "".join(text for _, text in pieces[first:end]) for first, end in zip(prompt.starts.tolist(), ends, strict=False)
    ]

    def decide_without(*places: int) -> Decision:
        decision = decide(compiled, prompt.without(places).ids, unknown, weights)
        if len(words) - len(places) > MAX_GENERIC_CHARS:  # so many words are never generic ones alone
            return decision
        return require_content(decision, "".join(word for place, word in enumerate(words) if place not in places))

    expert, alone = decide_without().expert, dict[int, Decision]()
    for place in range(np.count_nonzero(prompt.starts < compiled.selector.cap)):
        if (decision := decide_without(place)).expert != expert:
            alone[place] = decision
    if alone:
        surest = max(alone, key=lambda place: dict(alone[place].quality)[alone[place].best])
        experts = {place: decision.expert for place, decision in alone.items()}
        return Flips(expert, experts, (surest,), experts[surest])
    taken = [] if expert is None else _take_words(compiled, prompt, expert, decide_without)
    needed = 0
    while needed < len(taken):  # until no word can be put back
        fewer = taken[:needed] + taken[needed + 1 :]
        if fewer and decide_without(*fewer).expert != expert:
            taken, needed = fewer, 0
        else:
            needed += 1
    return Flips(expert, {}, tuple(sorted(taken)), decide_without(*taken).expert if taken else None)


def _read_prompt(pieces: Sequence[tuple[int, str]], cap: int) -> _Prompt:
    """The tokens that may be read: those beyond the cap move up when words are taken out, and twice the cap is enough
    unless words have dozens of tokens."""
    starts = find_words([text for _, text in pieces])
    longest = int(np.diff(starts, append=len(pieces)).max(initial=0))
    ids = np.array([token for token, _ in pieces[: cap + MAX_WORDS_TOGETHER * longest]], np.uint32)
    return _Prompt(ids, starts[starts < len(ids)])


def _take_words(
    compiled: CompiledRouter, prompt: _Prompt, expert: str, decide_without: Callable[..., Decision]
) -> list[int]:
    """Take out the words that favour the expert most until the decision flips; the places of all that were taken."""
    kept, taken, cap = list(range(len(prompt.starts))), list[int](), compiled.selector.cap
    while (decision := decide_without(*taken)).expert == expert:
        if len(taken) == MAX_WORDS_TOGETHER or len(kept) < 2 or len(compiled.experts) < 2:
            return []
        rival = next(name for name, _ in decision.ranking if name != expert)
        left = prompt.without(taken)
        scores = score_words(compiled, left.ids[:cap], left.starts[left.starts < cap])
        leads = scores[:, compiled.experts.index(expert)] - scores[:, compiled.experts.index(rival)]
        taken.append(kept.pop(int(leads.argmax())))
    return taken
