"""A comparison in sentences: what it shows, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from ir3de.evaluation.intervals import Estimate, write_points
from ir3de.routing.html import count, write_percent

if TYPE_CHECKING:
    from ir3de.traffic.comparison_report import Comparison, CostComparison, ScoreComparison
    from ir3de.traffic.estimates import ScoreEstimate

Finding: TypeAlias = Literal["better", "worse", "not shown"]
FEW_ANSWERS = 30
MAX_NAMED = 5
ACCURACY_WORDS = {
    "better": "{} chooses the right expert more often",
    "worse": "{} chooses the right expert less often",
    "not shown": "A difference of the accuracy is not shown",
}
SCORE_WORDS = {
    "better": "{} gets better answers",
    "worse": "{} gets worse answers",
    "not shown": "A difference of the expected score is not shown",
}


def find_direction(difference: Estimate | ScoreEstimate | None) -> Finding:
    """Whether an interval of a difference leaves out zero, and on which side."""
    if difference is None or difference.low <= 0 <= difference.high:
        return "not shown"
    return "better" if difference.low > 0 else "worse"


def judge(found: Comparison) -> tuple[str, ...]:
    """What the comparison shows, the most important first."""
    candidate, sentences = found.names[1], []
    for figure, words in ((found.accuracy, ACCURACY_WORDS), (found.score, SCORE_WORDS)):
        if figure is not None:
            difference = figure.difference
            points = f"{write_points(difference.value)} points, 95 % interval {_write_interval(difference)}"
            sentences.append(f"{words[find_direction(difference)].format(candidate)}: {points}.")
    if found.cost is not None:
        sentences.append(_judge_cost(found.cost, candidate))
    sentences.append(f"The two agree on {write_percent(found.agreement.value)} of {count(found.requests, 'request')}.")
    return tuple(sentences)


def _judge_cost(cost: CostComparison, candidate: str) -> str:
    saving, per = (cost.saving, "per 1,000 requests") if cost.month is None else (cost.month, "a month")
    direction = find_direction(saving)
    if not saving.value and direction == "not shown":
        return f"{candidate} costs the same."
    low, high = sorted((saving.low, saving.high)) if saving.value >= 0 else sorted((-saving.high, -saving.low))
    verb = "saves" if saving.value >= 0 else "costs"
    more = " more" if saving.value < 0 else ""
    interval = f"95 % interval {write_money(low)} to {write_money(high)}"
    return f"{candidate} {verb} {write_money(abs(saving.value))}{more} {per}, {interval}."


def write_money(amount: float) -> str:
    """An amount with as many digits as it is worth.

    >>> write_money(1234.5), write_money(12.345), write_money(0.001234), write_money(-3.0)
    ('1,234', '12.35', '0.00123', '-3.00')
    """
    size = abs(amount)
    text = f"{size:,.0f}" if size >= 1000 else f"{size:.2f}" if size >= 1 or not size else f"{size:.3g}"
    return f"-{text}" if amount < 0 else text


def _write_interval(difference: Estimate | ScoreEstimate) -> str:
    return f"{write_points(difference.low)} to {write_points(difference.high)}"


def list_unknown(found: Comparison, counts: Mapping[str, int], new_experts: Sequence[str]) -> Iterator[str]:
    """What the log does not show, in sentences."""
    yield from _doubt_prompts(found)
    if found.accuracy is None:
        yield "Accuracy is not known: no request has a label, which is feedback that names the right expert."
    else:
        labelled, of = found.accuracy.labelled, count(found.requests, "request")
        yield f"{labelled:,} of {of} have a label. People chose which ones: accuracy on the others may differ."
        if found.accuracy.contradictory:
            yield f"{_requests(found.accuracy.contradictory)} left out of the accuracy: their labels differ."
        if found.accuracy.foreign:
            yield f"{_requests(found.accuracy.foreign)} labelled with an expert that neither side has: both are wrong."
    if found.score is None:
        yield "The expected score is not known: no answer was scored."
    else:
        yield from _doubt_scores(found.score, found.requests)
    if counts["bad_propensity"]:
        yield f"{_requests(counts['bad_propensity'])} left out of the score: its propensity is not a probability."
    yield from _doubt_costs(found.cost)
    if new_experts:
        others = f" and {len(new_experts) - MAX_NAMED} more" if len(new_experts) > MAX_NAMED else ""
        named = ", ".join(new_experts[:MAX_NAMED]) + others
        yield f"{found.names[1]} has other experts than {found.names[0]}: {named}. The log may lack answers of theirs."


def note_damage(found: Comparison, rows: int) -> Comparison:
    """The comparison, with as many rows of the log that could not be read."""
    note = f"{count(rows, 'row')} of the log {'is' if rows == 1 else 'are'} left out: damaged, or not a decision."
    return replace(found, damaged=rows, unknown=(note, *found.unknown)) if rows else found


def _requests(number: int) -> str:
    return f"{count(number, 'request')} {'is' if number == 1 else 'are'}"


def _doubt_prompts(found: Comparison) -> Iterator[str]:
    if found.without_prompt:
        yield f"{_requests(found.without_prompt)} left out: the prompt was not kept."
    if found.unreadable:
        yield f"{_requests(found.unreadable)} left out: kept as counts of another tokenizer's tokens."
    if found.undecided:
        yield f"{_requests(found.undecided)} left out: imported, so no router decided then."
    if found.unordered:
        yield (
            f"{count(found.unordered, 'decision')} rest on statistics: the order of the tokens and the turns of a chat "
            "are not known, so decisions on long prompts and chats may differ from those of the gateway."
        )
    if found.decoded:
        yield f"{count(found.decoded, 'decision')} rest on text that was made from token ids again."


def _doubt_scores(score: ScoreComparison, requests: int) -> Iterator[str]:
    difference = score.difference
    if score.scored < requests:
        yield f"{score.scored:,} of {count(requests, 'request')} have a score. The others may differ."
    if difference.unknown_share:
        yield (
            f"For {write_percent(difference.unknown_share)} of the scored requests the log does not show how good the "
            "other expert's answer would have been: chance never chose it. The interval holds whatever those answers "
            "would score. `routing.explore` in the gateway's configuration makes such answers known."
        )
    if difference.answers < FEW_ANSWERS:
        yield f"The difference of the scores rests on {count(difference.answers, 'answer')} of the candidate's experts."


def _doubt_costs(cost: CostComparison | None) -> Iterator[str]:
    if cost is None:
        yield "Cost is not known: it needs token counts in the log, and prices there or in a file of prices."
        return
    yield "Answers are taken to be as long as they were, from any expert."
    if cost.moved_unknown:
        named = ", ".join(cost.unpriced[:MAX_NAMED])
        why = f"no price is known of {named}" if named else "their tokens are not known"
        yield f"The cost of {count(cost.moved_unknown, 'moved request')} is left out: {why}."
    if cost.inexact:
        yield f"The price of {', '.join(cost.inexact[:MAX_NAMED])} changed within the log: a mean price is used."
    if cost.month is None:
        yield "What a month costs is not known: the log covers less than a day."
