"""Explain a decision word by word, and token by token."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.colours import Colour, find_colours
from ir3de.routing.compiled import CompiledRouter, decide
from ir3de.routing.consulting import list_opinions
from ir3de.routing.decision import Decision, require_content
from ir3de.routing.html import MAX_ROWS, draw, shorten
from ir3de.routing.words import (
    Sentence,
    Word,
    decide_sentences,
    find_counted,
    find_words,
    score_words,
    share_familiarity,
)
from ir3de.selectors import Ids
from ir3de.statistics.domain import pair_buckets

MAX_COMPARED = 5  # experts whose scores each word shows
MAX_FOR = 3  # words that a sentence names for the best expert
MAX_AGAINST = 2  # and for the next one
NAMED_SHARE = 0.35  # of the strongest word's contribution: what a sentence names has at least that


@dataclass(frozen=True, slots=True)
class TokenVote:
    """One token of a prompt: its vote, entropy and scores, and whether it counted."""

    text: str
    id: int
    vote: str
    entropy: float
    scores: tuple[float, ...]  # in the order of the router's experts
    counted: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "id": self.id,
            "vote": self.vote,
            "entropy": round(self.entropy, 6),
            "scores": [round(score, 6) for score in self.scores],
            "counted": self.counted,
        }


@dataclass(frozen=True, slots=True)
class Opinion:
    """How likely an expert is if the prompt is in domain: by the table, by the encoder, and by both together."""

    expert: str
    table: float
    encoder: float
    together: float

    def to_dict(self) -> dict[str, Any]:
        return {name: value if isinstance(value, str) else round(value, 6) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """A decision, and the part of every word and token in it, up to the selector's cap.

    `compared` are the experts that the words are scored for: the best one, the one it is compared with, and up to three
    more. The contributions of all words add up to the lead of the first over the second.
    """

    decision: Decision
    experts: tuple[str, ...]
    compared: tuple[str, ...]
    words: tuple[Word, ...]
    tokens: tuple[TokenVote, ...]
    sentences: tuple[Sentence, ...] = ()  # where there are several
    opinions: tuple[Opinion, ...] = ()  # of the experts that are compared, where the encoder was asked

    @property
    def mixed(self) -> tuple[str, ...]:
        """The experts of a mixed prompt: those of its sentences, or its candidates; empty if it has one expert."""
        if self.decision.abstained:
            return ()
        spoken = dict.fromkeys(found.expert for found in self.sentences if found.expert is not None)
        named = tuple(name for name in spoken if name is not None)
        if len(named) < 2 and self.decision.expected_score is None:  # that two models score alike mixes nothing
            named = self.decision.candidates
        return named if len(named) > 1 else ()

    @property
    def strangest(self) -> tuple[Word, ...]:
        """The words that take the prompt out of domain, the least familiar first."""
        unfamiliar = [word for word in self.words if word.familiarity is not None and word.familiarity < 0]
        return tuple(sorted(unfamiliar, key=lambda word: word.familiarity or 0.0))

    @property
    def colours(self) -> dict[str, Colour]:
        """The colours of the experts that are compared, no two alike."""
        return find_colours(self.compared, self.experts)

    @property
    def summary(self) -> str:
        """One sentence: the words that speak for the best expert against the next one, and those that do not.

        Where the encoder was asked, another one names the expert that it takes to be the likeliest.
        """
        if not self.opinions:
            return summarise(self)
        likeliest = max(self.opinions, key=lambda one: one.encoder).expert
        return f"{summarise(self)} The encoder was asked, and speaks for {likeliest}."

    def __repr__(self) -> str:
        return f"Explanation({self.decision!r}: {self.summary})"

    def _repr_html_(self) -> str:
        """What notebooks show: the prompt with its words in colours, the sentence, and a table of the words."""
        return draw("explanation", found=self, table=tabulate_words(self, MAX_ROWS))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.decision.to_dict(), "experts": list(self.experts), **self.describe_parts()}

    def describe_parts(self) -> dict[str, Any]:
        """The words and tokens without the decision, ready for JSON."""
        return {
            "summary": self.summary,
            "compared": list(self.compared),
            "mixed": list(self.mixed),
            "sentences": [sentence.to_dict() for sentence in self.sentences],
            "words": [word.to_dict() for word in self.words],
            "votes": [token.to_dict() for token in self.tokens],
            **({"opinions": [one.to_dict() for one in self.opinions]} if self.opinions else {}),
        }


def explain(
    compiled: CompiledRouter,
    pieces: Sequence[tuple[int, str]],
    unknown: int | None,
    weights: Costs | None = None,
    *,
    about: Decision | None = None,
) -> Explanation:
    """Explain a decision by the contribution of every word, and the vote, entropy and scores of every token.

    Where pairs have scores, each token gets half of the scores of the pairs with its left and its right neighbour.
    In an outcome router, a token's scores are the expected scores if it were the whole prompt, and its entropy is
    that of its tasks. `about` is the decision whose experts are compared, if it is another one than the prompt's own.
    """
    ids = np.array([token for token, _ in pieces], np.uint32)
    decision = require_content(decide(compiled, ids, unknown, weights), "".join(text for _, text in pieces))
    pieces, ids = pieces[: compiled.selector.cap], ids[: compiled.selector.cap]
    counted = find_counted(compiled, ids) & (decision.reason != "no known token")
    scores, vote = _score_tokens(compiled, ids)
    rows = zip(
        pieces, vote.tolist(), compiled.table.entropy[ids].tolist(), scores.tolist(), counted.tolist(), strict=True
    )
    votes = tuple(
        TokenVote(text, token, compiled.experts[expert], entropy, tuple(row), counts)
        for (token, text), expert, entropy, row, counts in rows
    )
    compared = compare(about or decision)
    words = _explain_words(compiled, ids, [text for _, text in pieces], counted, compared)
    sentences = decide_sentences(compiled, pieces, unknown, weights)
    return Explanation(decision, compiled.experts, compared, words, votes, sentences)


def explain_consulted(explained: Explanation, decision: Decision) -> Explanation:
    """The explanation of a decision after the encoder was asked, from that of the table's own decision."""
    table, encoder, together = list_opinions(explained.decision, decision)
    rows = zip(explained.experts, table, encoder, together, strict=True)
    known = {name: Opinion(name, *parts) for name, *parts in rows}
    return replace(explained, decision=decision, opinions=tuple(known[name] for name in explained.compared))


def compare(decision: Decision) -> tuple[str, ...]:
    """The best expert, then the others by their quality, at most `MAX_COMPARED` in all."""
    others = [name for name, _ in decision.quality if name != decision.best]
    return (decision.best, *others[: MAX_COMPARED - 1])


def _explain_words(
    compiled: CompiledRouter, ids: Ids, texts: Sequence[str], counted: npt.NDArray[np.bool_], compared: Sequence[str]
) -> tuple[Word, ...]:
    """The words with their contributions: nothing in a prompt without a known token."""
    starts = find_words(texts)
    scores = score_words(compiled, ids, starts)[:, [compiled.experts.index(name) for name in compared]]
    if not counted.any():
        scores[:] = 0
    leads = scores[:, 0] - (scores[:, 1] if len(compared) > 1 else 0)
    words = []
    parts = zip(starts.tolist(), leads.tolist(), scores.tolist(), share_familiarity(compiled, ids, starts), strict=True)
    ends = [*starts[1:].tolist(), len(ids)][: len(starts)]
    for (first, lead, row, familiarity), end in zip(parts, ends, strict=True):
        counts = bool(counted[first:end].any())
        words.append(Word("".join(texts[first:end]), lead, tuple(row), first, end - first, counts, familiarity))
    return tuple(words)


def _score_tokens(compiled: CompiledRouter, ids: Ids) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.integer]]:
    """Each token's scores, with its half of its pairs, and its vote."""
    table = compiled.table
    scores = compiled.rules.valuation.value_tokens(table.scores[ids])
    if table.pairs is None or compiled.ballots.pairs is None or len(ids) < 2:
        return scores, table.vote[ids]
    halves = table.pairs[pair_buckets(ids)] / 2
    scores[:-1] += halves
    scores[1:] += halves
    return scores, scores.argmax(axis=1)


class WordSum(NamedTuple):
    """A word, how often it occurs, and the sums of its contributions and scores."""

    text: str
    times: int
    contribution: float
    scores: tuple[float, ...]


def merge_words(explanation: Explanation) -> list[WordSum]:
    """Each distinct word once, the strongest first; of equally strong ones, the first in the prompt.

    Expected scores do not add up, so that there a word has the mean of its contributions.
    """
    found: dict[str, list[Word]] = {}
    for word in explanation.words:
        found.setdefault(show_word(word.text), []).append(word)
    adds_up = explanation.decision.expected_score is None
    merged = []
    for text, equal in found.items():
        parts = 1 if adds_up else len(equal)
        scores = zip(*(word.scores for word in equal), strict=True)
        total = sum(word.contribution for word in equal)
        merged.append(WordSum(text, len(equal), total / parts, tuple(sum(column) / parts for column in scores)))
    return sorted(merged, key=lambda word: -abs(word.contribution))


def tabulate_words(explanation: Explanation, most: int) -> tuple[list[WordSum], list[WordSum]]:
    """The rows of a table of words: the strongest ones, then the rest together and all together.

    Words without a contribution are in the rest. The sums are left out for expected scores, which do not add up.
    """
    merged = merge_words(explanation)
    shown = [word for word in merged[:most] if word.contribution]
    if not merged or explanation.decision.expected_score is not None:
        return shown, []
    rest = merged[len(shown) :]
    sums = [_add_words(rest, f"{len(rest):,} more")] if rest else []
    return shown, [*sums, _add_words(merged, "all words")]


def _add_words(words: Sequence[WordSum], name: str) -> WordSum:
    scores = zip(*(word.scores for word in words), strict=True)
    return WordSum(name, 1, sum(word.contribution for word in words), tuple(map(sum, scores)))


def show_word(text: str) -> str:
    """A word without the space around it. White space itself is shown."""
    return text.strip() or text.replace(" ", "␣").replace("\n", "⏎")


def summarise(explanation: Explanation) -> str:
    """One sentence: which words speak for the best expert, and which for the next one."""
    if not explanation.decision.counted or not explanation.words:
        return "No word is known to the router."
    merged = merge_words(explanation)
    strongest = abs(merged[0].contribution)
    named = [word for word in merged if strongest and abs(word.contribution) >= NAMED_SHARE * strongest]
    named = [word for word in named if _has_content(word.text)] or named
    best, *others = explanation.compared
    if not named:
        return f"No word speaks for {best} more than for {others[0]}." if others else ""
    ours = [word.text for word in named if word.contribution > 0][:MAX_FOR]
    theirs = [word.text for word in named if word.contribution < 0][:MAX_AGAINST]
    if not others:
        return f"{_name_words(ours)} for {best}." if ours else ""
    sides = [f"{_name_words(words)} for {name}" for words, name in ((ours, best), (theirs, others[0])) if words]
    sides[0] += f" against {others[0] if ours else best}"
    decision = explanation.decision
    costs = ["costs decide"] if decision.penalties is not None and decision.margin < 0 else []
    return f"{'; '.join(sides + costs)}."


def _name_words(words: Sequence[str]) -> str:
    quoted = [f"‘{shorten(word)}’" for word in words]
    listed = " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
    return f"{listed} {'speak' if len(words) > 1 else 'speaks'}"


def _has_content(word: str) -> bool:
    """Whether a word has more than punctuation: letters, numbers or pictures."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in word)
