"""An explanation in short: equal words taken together, and one sentence about the strongest of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ir3de.routing.shown import ShownDecision, ShownExplanation, ShownWord

MAX_FOR = 3  # words that a sentence names for the best expert
MAX_AGAINST = 2  # and for the next one
NAMED_SHARE = 0.35  # of the strongest word's contribution: what a sentence names has at least that
MAX_WORD_CHARACTERS = 20
NOTHING = "·"  # in place of a number that is rounded to zero


class WordSum(NamedTuple):
    """A word, how often it occurs, and the sums of its contributions and scores."""

    text: str
    times: int
    contribution: float
    scores: tuple[float, ...]


def merge_words(explanation: ShownExplanation) -> list[WordSum]:
    """Each distinct word once, the strongest first; of equally strong ones, the first in the prompt.

    Expected scores do not add up, so that there a word has the mean of its contributions.
    """
    found: dict[str, list[ShownWord]] = {}
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


def tabulate_words(explanation: ShownExplanation, most: int) -> tuple[list[WordSum], list[WordSum]]:
    """The rows of a table of words: the strongest ones, then the rest together and all together.

    Words that say nothing are in the rest. The sums are left out for expected scores, which do not add up.
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


def shorten(text: str, longest: int = MAX_WORD_CHARACTERS) -> str:
    """The beginning of a long word."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def count_digits(decision: ShownDecision) -> int:
    """How many digits contributions have after the point: expected scores are small."""
    return 2 if decision.expected_score is None else 3


def format_signed(value: float, digits: int) -> str:
    """The number with its sign. Halves are rounded away from zero, as browsers do: the page shows the same numbers.

    >>> format_signed(0.125, 2), format_signed(-1.5, 2), format_signed(0.001, 2)
    ('+0.13', '−1.50', '·')
    """
    rounded = Decimal(round(value, 6)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{rounded:+}".replace("-", "−") if rounded else NOTHING


def summarise(explanation: ShownExplanation) -> str:
    """One sentence: which words speak for the best expert, and which for the next one."""
    if not explanation.decision.counted or not explanation.words:
        return "No word is known to the router."
    merged = merge_words(explanation)
    strongest = abs(merged[0].contribution)
    named = [word for word in merged if strongest and abs(word.contribution) >= NAMED_SHARE * strongest]
    named = [word for word in named if _says_something(word.text)] or named
    best, *others = explanation.compared
    if not named:
        return f"No word speaks for {best} more than for {others[0]}." if others else ""
    ours = [word.text for word in named if word.contribution > 0][:MAX_FOR]
    theirs = [word.text for word in named if word.contribution < 0][:MAX_AGAINST]
    if not others:
        return f"{_say(ours or theirs)} for {best}." if ours else ""
    told = f"{_say(ours)} for {best} against {others[0]}" if ours else ""
    if theirs:
        told += f"; {_say(theirs)} for {others[0]}" if ours else f"{_say(theirs)} for {others[0]} against {best}"
    return f"{told}{_name_costs(explanation)}."


def _say(words: Sequence[str]) -> str:
    quoted = [f"‘{shorten(word)}’" for word in words]
    return (
        f"{' and '.join(filter(None, (', '.join(quoted[:-1]), quoted[-1])))} {'speak' if len(words) > 1 else 'speaks'}"
    )


def _says_something(word: str) -> bool:
    """Whether a word has more than punctuation: letters, numbers or pictures."""
    return any(character.isalnum() or unicodedata.category(character) == "So" for character in word)


def _name_costs(explanation: ShownExplanation) -> str:
    """That costs decided, where the next expert is the better one."""
    decision = explanation.decision
    return "; costs decide" if decision.penalties is not None and decision.margin < 0 else ""
