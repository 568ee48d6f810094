"""Logged prompts, routed again as the gateway routed them: texts, chats by their turns, token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError
from ir3de.router import Router
from ir3de.routing.conversation import Conversation
from ir3de.routing.decision import CANDIDATE_RATIO, Decision, require_content
from ir3de.routing.messages import MAX_GENERIC_CHARS, MIN_PASTE_CHARS, split_paste
from ir3de.traffic.records import JournalPrompt, TrafficRecord

ALWAYS = "always "
MAX_GENERIC_TOKENS = 40  # no text of generic words has more

Reading: TypeAlias = Literal["exact", "decoded", "unordered"]
"""How a prompt was routed again: as it was; from token ids made text again; without the order of its tokens."""


@dataclass(frozen=True)
class FixedExpert:
    """A side of a comparison that sends every prompt to one expert."""

    name: str


@dataclass(frozen=True)
class Log:
    """A side of a comparison: what was decided when the traffic was served."""


Side: TypeAlias = Router | FixedExpert | Log


def parse_side(given: Router | FixedExpert | Log | str | None) -> Side:
    """A side as a caller names it: a router, "always gpt-4o" or the expert's name, None for what was decided then.

    >>> parse_side("always gpt-4o"), parse_side(None)
    (FixedExpert(name='gpt-4o'), Log())
    """
    if given is None:
        return Log()
    if isinstance(given, str):
        name = given.strip().removeprefix(ALWAYS).strip()
        if not name:
            raise InputError(f'a fixed expert is named as "always gpt-4o", found {given!r:.80}')
        return FixedExpert(name)
    return given


def name_side(side: Side) -> str:
    """The side in a word, where its caller gives none."""
    return f"{ALWAYS}{side.name}" if isinstance(side, FixedExpert) else "log" if isinstance(side, Log) else "router"


def find_logged_expert(record: TrafficRecord) -> str:
    """The expert that was decided; the nearest one where the router abstained without a default expert."""
    return record.decided or (record.ranking[0][0] if record.ranking else record.served)


def list_reachable(record: TrafficRecord) -> frozenset[str] | None:
    """The experts that could have answered this request, chance permitting; None for all.

    A canary chooses between the live router's expert and the candidate's. Exploration chooses among the candidates of
    the decision. A request whose expert was certain shows that expert alone.
    """
    if record.propensity >= 1:
        return frozenset((record.served,))
    named = {record.served, record.decided, record.candidate_expert} - {None}
    if record.candidate_expert is None and record.arm in ("", "live", "explore"):
        if not record.ranking:
            return None
        best = max(value for _, value in record.ranking)
        least = best * CANDIDATE_RATIO if best > 0 else best / CANDIDATE_RATIO
        named |= {name for name, value in record.ranking if value >= least}
    return frozenset(name for name in named if name)


class PromptReader:
    """Routes kept prompts. Token ids are those of one tokenizer; for another one they are made text again."""

    def __init__(self, owner: Router) -> None:
        self._tokenizer = owner.tokenizer

    def route(self, router: Router, prompts: Sequence[JournalPrompt]) -> list[tuple[Decision, Reading] | None]:
        """The decisions on these prompts. None for one that the router cannot read: unordered ids of other tokens."""
        found: list[tuple[Decision, Reading] | None] = [None] * len(prompts)
        texts: dict[int, tuple[str, Reading]] = {}
        ids: list[int] = []
        same = router.tokenizer.sha256 == self._tokenizer.sha256
        for place, prompt in enumerate(prompts):
            if prompt.keep != "text" and same and len(prompt.ids) == 1:
                ids.append(place)
                continue
            turns, reading = self._read_turns(prompt), _name_reading(prompt)
            if not turns:
                continue
            if len(turns) > 1 or _has_paste(turns[0]):
                found[place] = _route_chat(router, turns), reading
            else:
                texts[place] = turns[0], reading
        decisions = router.route_batch([text for text, _ in texts.values()]) if texts else []
        for (place, (_, reading)), decision in zip(texts.items(), decisions, strict=True):
            found[place] = decision, reading
        for place, decision in zip(ids, self._route_ids(router, [prompts[place] for place in ids]), strict=True):
            found[place] = decision, _name_reading(prompts[place], ids=True)
        return found

    def _route_ids(self, router: Router, prompts: Sequence[JournalPrompt]) -> list[Decision]:
        """Short prompts may be of generic words alone, which only their text shows."""
        if not prompts:
            return []
        found = router.route_ids([prompt.ids[0] for prompt in prompts])
        short = [
            place
            for place, prompt in enumerate(prompts)
            if prompt.keep == "tokens" and len(prompt.ids[0]) <= MAX_GENERIC_TOKENS
        ]
        texts = self._tokenizer.decode_batch([prompts[place].ids[0] for place in short])
        for place, text in zip(short, texts, strict=True):
            if len(text) <= MAX_GENERIC_CHARS:
                found[place] = require_content(found[place], text)
        return found

    def _read_turns(self, prompt: JournalPrompt) -> list[str]:
        if prompt.keep == "text":
            return [replace_lone_surrogates(turn) for turn in prompt.turns]
        return self._tokenizer.decode_batch(prompt.ids) if prompt.keep == "tokens" else []

    def read(self, prompt: JournalPrompt | None) -> str:
        """The prompt's last words for people; empty where only counts are kept."""
        if prompt is None or prompt.keep == "statistics":
            return ""
        turns = prompt.turns if prompt.keep == "text" else self._tokenizer.decode_batch(prompt.ids[-1:])
        return next((turn for turn in reversed(turns) if turn.strip()), "")


def _name_reading(prompt: JournalPrompt, *, ids: bool = False) -> Reading:
    if prompt.keep == "statistics":
        return "unordered"
    return "exact" if ids or prompt.keep == "text" else "decoded"


def _has_paste(turn: str) -> bool:
    return len(turn) >= MIN_PASTE_CHARS and bool(split_paste(turn)[1])


def _route_chat(router: Router, turns: Sequence[str]) -> Decision:
    """The decision on the last turn. The turns are kept without envelopes."""
    chat = Conversation(router, envelopes=())
    return [chat.route(turn) for turn in turns][-1]
