"""The words and sentences of a prompt, what each gives to each expert, and the words that flip a decision."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.compiled import CompiledRouter, decide
from ir3de.routing.decision import Decision, require_content
from ir3de.routing.messages import MAX_GENERIC_CHARS
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import Ids, Tally, find_unit
from ir3de.statistics.domain import pair_buckets

MAX_SENTENCES = 64  # of a prompt that are read
CLEAR = 0.5  # the confidence from which on a sentence speaks for its expert
MAX_WORDS_TOGETHER = 32  # of a flip: a longer list would explain nothing
_ENDS = re.compile(r"[.?!…。？！](?=\s|$)|[;\n。？！]")  # of sentences

Places = npt.NDArray[np.intp]

ZERO_WIDTH_JOINER = "\u200d"
# Thai to Myanmar, Khmer, kana and Han: in these scripts no space ends a word
_SPACELESS = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a prompt, and for whom it speaks.

    `contribution` is what the word gives to the best expert minus what it gives to the next one: above zero it speaks
    for the best one. `scores` are what it gives to each expert of `Explanation.compared`. Both are in votes where the
    selector counts votes. `text` includes the space before the word. The word is made of `tokens` tokens, from `first`.

    `familiarity` is the word's part of the prompt's familiarity, None where that is not known: below zero it takes the
    prompt out of domain.
    """

    text: str
    contribution: float
    scores: tuple[float, ...]
    first: int
    tokens: int
    counted: bool
    familiarity: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {  # not by `asdict`, which takes most of the time of an explanation
            "text": self.text,
            "contribution": round(self.contribution, 6),
            "scores": [round(score, 6) for score in self.scores],
            "first": self.first,
            "tokens": self.tokens,
            "counted": self.counted,
            "familiarity": None if self.familiarity is None else round(self.familiarity, 6),
        }


def find_words(pieces: Sequence[str]) -> Places:
    """The place of the first token of each word. `pieces` are the stretches of text of the tokens.

    White space and punctuation end a word. A token is never cut. Where a script has no spaces, a token is a word. White
    space is a word of its own if it is more than one space.

    >>> find_words(["Can", " land", "lord", "s", "?"]).tolist()
    [0, 1, 4]
    """
    starts, text, word, at = [0][: len(pieces)], "".join(pieces), "", 0
    for place, piece in enumerate(pieces):
        if place and not _continues(word, piece, pieces[place - 1], text, at):
            starts.append(place)
            word = ""
        word += piece
        at += len(piece)
    return np.array(starts, np.intp)


def _continues(word: str, piece: str, last: str, text: str, at: int) -> bool:
    """Whether a piece that begins at a place of the text belongs to the word before it."""
    if not last or at == len(text):  # a character of several tokens: the last of them shows it
        return True
    if word.isspace():
        return piece.isspace() or (word == " " and not text[at].isspace())
    return not text[at - 1].isspace() and not text[at].isspace() and _joins(text, at)


def _joins(text: str, at: int) -> bool:
    """Whether the two characters on both sides of a place belong to one word. Neither is white space."""
    left, right = text[at - 1], text[at]
    if left == ZERO_WIDTH_JOINER or unicodedata.category(right) in ("Mn", "Mc", "Me", "Cf"):
        return True
    if _SPACELESS.match(left) or _SPACELESS.match(right):
        return False
    if _is_letter(left) and _is_letter(right):
        return True
    before, after = text[at - 2 : at - 1], text[at + 1 : at + 2]
    return left == right or _is_inside(before, left, right) or _is_inside(left, right, after)


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _is_inside(before: str, mark: str, after: str) -> bool:
    """Whether a mark belongs to the word around it: the apostrophe of "don't", the point of 3.14."""
    if mark in "'’":
        return before.isalpha() and after.isalpha()
    return mark in ".," and before.isdecimal() and after.isdecimal()


def find_counted(compiled: CompiledRouter, ids: Ids) -> npt.NDArray[np.bool_]:
    """Which positions of the prompt the selector counts. Of equal tokens, the earliest count."""
    counted = np.zeros(len(ids), bool)
    rank = compiled.ballots.rank
    order = np.arange(len(ids)) if rank is None else np.argsort(rank[ids], kind="stable")
    counted[order[: compiled.ballots.limit]] = True
    return counted


def score_words(compiled: CompiledRouter, ids: Ids, starts: Places) -> Tally:
    """What each word gives to each expert: (words, experts).

    A pair is credited by halves to its two tokens. Ballots are integers and their unit is a power of two, so the words
    add up to the tally exactly. Expected scores do not add up: there, a word gives what would be expected if it were
    the whole prompt, minus what is expected of an empty prompt.
    """
    rules, ballots = compiled.rules, compiled.ballots
    counted, unit = find_counted(compiled, ids), find_unit(rules.selector)
    rows = np.zeros((len(ids), rules.columns))
    chosen = ids[counted]
    rows[counted] = ballots.values.take(chosen if ballots.rank is None else ballots.rank[chosen], 0)[:, : rules.columns]
    if ballots.pairs is not None and len(ids) > 1:
        halves = ballots.pairs.take(pair_buckets(ids), 0)[:, : rules.columns].astype(np.float64) / 2
        rows[:-1] += halves
        rows[1:] += halves
    if not len(ids):
        return np.zeros((0, len(rules.experts)))
    words: Tally = np.add.reduceat(rows, starts, axis=0) / unit
    if rules.valuation.value_name == "probability":
        return words
    means = words / np.diff(starts, append=len(ids))[:, None]
    alone = rules.valuation.value_tokens(means.astype(np.float32))
    return alone.astype(np.float64) - rules.valuation.tally_nothing(len(rules.experts))


def share_familiarity(compiled: CompiledRouter, ids: Ids, starts: Places) -> list[float | None]:
    """What each word adds to the familiarity of a prompt, in standard deviations; they add up to it."""
    known, column = compiled.rules.familiarity, compiled.table.familiarity
    if known is None or column is None or not len(starts):
        return [None] * len(starts)
    above = column[ids].astype(np.float64) / FAMILIARITY_UNIT - known.mean
    spread = len(ids) * math.sqrt(known.between**2 + known.within**2 / len(ids))
    parts: list[float | None] = (np.add.reduceat(above, starts) / spread).tolist()
    return parts


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a prompt, and the decision if it were the whole prompt."""

    text: str
    decision: Decision

    @property
    def expert(self) -> str | None:
        """The expert that the sentence clearly speaks for; None without one."""
        confidence = self.decision.confidence
        is_clear = not self.decision.abstained and confidence is not None and confidence >= CLEAR
        return self.decision.expert if is_clear else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        confidence = self.decision.confidence
        return {"text": self.text, "expert": self.expert, "confidence": confidence and round(confidence, 6)}


def decide_sentences(
    compiled: CompiledRouter, pieces: Sequence[tuple[int, str]], unknown: int | None, weights: Costs | None
) -> tuple[Sentence, ...]:
    """The sentences of a prompt with their decisions. A prompt of one sentence has none apart from itself."""
    found: list[Sentence] = []
    for part in _split_sentences(pieces)[:MAX_SENTENCES]:
        text = "".join(piece for _, piece in part)
        ids = np.array([token for token, _ in part], np.uint32)
        found.append(Sentence(text.strip(), require_content(decide(compiled, ids, unknown, weights), text)))
    return tuple(found) if len(found) > 1 else ()


def _split_sentences(pieces: Sequence[tuple[int, str]]) -> list[list[tuple[int, str]]]:
    """The tokens of each sentence. A token is never cut; it belongs to the sentence that it ends."""
    parts: list[list[tuple[int, str]]] = [[]]
    text = "".join(piece for _, piece in pieces)
    ends, at = [match.end() for match in _ENDS.finditer(text)], 0
    for token, piece in pieces:
        parts[-1].append((token, piece))
        at += len(piece)
        if ends and at >= ends[0]:
            ends = [end for end in ends if end > at]
            parts.append([])
    return [part for part in parts if "".join(piece for _, piece in part).strip()]


@dataclass(frozen=True, slots=True)
class Flips:
    """Single words that flip the decision, and a small set of words that flip it together.

    Places are positions among the prompt's words. `together` is empty where no small set was found. The set is
    minimal: if any of its words stays in the prompt, the decision stays too.
    """

    expert: str | None  # None where the router abstains without a default
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
