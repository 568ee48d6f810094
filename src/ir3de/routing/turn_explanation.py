"""Explain a decision in a conversation: how much each turn weighed, and which one decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import Decision
from ir3de.routing.explanation import Explanation, explain, tabulate_words
from ir3de.routing.html import MAX_ROWS, draw
from ir3de.selectors import Tally

MIN_FACTOR = 1e-6  # turns of less weight are not shown

# Why a turn goes where it goes: by its own words; with the expert of the turns before, which decided; by words that
# begin a new subject; or because all turns together now speak for another expert than before.
TurnWhy = Literal["routed", "stayed", "new subject", "moved"]


class TurnRecord(NamedTuple):
    """A turn that was routed: what it added to the total, and what the turns before kept."""

    text: str
    words: str
    paste: str
    content: int
    tally: Tally | None  # None if the turn added nothing
    tokens: int
    kept: float  # what the total before was multiplied by: older turns in the unit of this one
    decision: Decision
    place: int  # among the messages


_TALLY, _KEPT, _DECISION = map(TurnRecord._fields.index, ("tally", "kept", "decision"))


class TurnReason(NamedTuple):
    """A turn, counted from 0, the turn that decided it, and why it goes where it goes."""

    turn: int
    decided: int
    why: TurnWhy


@dataclass(frozen=True, slots=True)
class TurnWeight:
    """The part of one turn in a decision.

    `weight` is its share of the weighted tokens. `lead` is its share of the lead of the chosen expert over the next
    one: below zero if the turn speaks for the next one.
    """

    turn: int
    text: str
    content: int
    weight: float
    lead: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**asdict(self), "weight": round(self.weight, 6), "lead": round(self.lead, 6)}


@dataclass(frozen=True)
class TurnExplanation:
    """Why a turn went to its expert: every turn's weight, the turn that decided, and the words of that turn.

    `changed` is true if the turn began a new subject, so that the turns before no longer count. `why` is the reason.
    """

    turn: int
    decision: Decision
    decided: int
    changed: bool
    why: TurnWhy
    weights: tuple[TurnWeight, ...]
    explain_words: Callable[[], Explanation] = field(repr=False, compare=False)

    @cached_property
    def deciding(self) -> Explanation:
        """The words and tokens of the turn that decided: for and against the expert that this turn went to."""
        return self.explain_words()

    def _repr_html_(self) -> str:
        """What notebooks show: the decision, the weights of the turns, and the words of the turn that decided."""
        return draw("turn", found=self, table=tabulate_words(self.deciding, MAX_ROWS))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "turn": self.turn,
            **self.decision.to_dict(),
            "decided": self.decided,
            "changed": self.changed,
            "why": self.why,
            "weights": [weight.to_dict() for weight in self.weights],
            "experts": list(self.deciding.experts),
            **self.deciding.describe_parts(),
        }


def explain_turn(
    compiled: CompiledRouter, tokenizer: Any, fields: Sequence[tuple[Any, ...]], last: int
) -> TurnExplanation:
    """Explain the decision of a turn. `fields` are those of the `TurnRecord` of every turn."""
    records, factors = _find_counted(fields, last)
    decision = records[last].decision
    leads = _measure_leads(compiled, decision, factors, records)
    tokens = {turn: factor * records[turn].tokens for turn, factor in factors.items()}
    whole = sum(tokens.values())
    weights = tuple(
        TurnWeight(turn, records[turn].text, records[turn].content, tokens[turn] / whole if whole else 1.0, leads[turn])
        for turn in factors
    )
    _, decided, why = _give_reason(fields, last, leads)

    def explain_words() -> Explanation:
        record = records[decided]  # the paste is read where the user's words have no content
        read = record.paste if record.paste and not record.content else record.words
        pieces = tokenizer.pieces(read, compiled.cap)
        return explain(compiled, pieces, tokenizer.unknown_id, about=decision)

    return TurnExplanation(last, decision, decided, why == "new subject", why, weights, explain_words)


def find_reason(compiled: CompiledRouter, fields: Sequence[tuple[Any, ...]], last: int) -> TurnReason:
    """Which turn decided a turn, and why: a part of `explain_turn`, without weights and words."""
    records, factors = _find_counted(fields, last)
    return _give_reason(fields, last, _measure_leads(compiled, records[last].decision, factors, records))


def _give_reason(fields: Sequence[tuple[Any, ...]], last: int, leads: Mapping[int, float]) -> TurnReason:
    decided = max(leads, key=lambda turn: (leads[turn], turn))
    why: TurnWhy = "routed" if decided == last else "stayed"
    if last and fields[last][_KEPT] == 0 and any(one[_TALLY] is not None for one in fields[:last]):
        why = "new subject"
    elif last and fields[last - 1][_DECISION].best != fields[last][_DECISION].best:
        why = "moved"
    return TurnReason(last, decided, why)


def _find_counted(fields: Sequence[tuple[Any, ...]], last: int) -> tuple[dict[int, TurnRecord], dict[int, float]]:
    """The records of the turns that still count at a turn, and what is left of their weight, oldest first.

    Where no turn had content, the last one decided alone.
    """
    records = {last: TurnRecord._make(fields[last])}
    factors, factor = {}, 1.0
    for turn in range(last, -1, -1):
        if fields[turn][_TALLY] is None:  # a turn without content: there may be hundreds
            continue
        records[turn] = record = TurnRecord._make(fields[turn])
        factors[turn] = factor
        factor *= record.kept
        if factor < MIN_FACTOR:
            break
    return records, dict(reversed(factors.items())) or {last: 1.0}


def _measure_leads(
    compiled: CompiledRouter, decision: Decision, factors: Mapping[int, float], records: Mapping[int, TurnRecord]
) -> dict[int, float]:
    """Each turn's share of the lead of the best expert over the next one."""
    first = compiled.experts.index(decision.best)
    others = [compiled.experts.index(name) for name, _ in decision.quality if name != decision.best]
    valuation, selector, leads = compiled.rules.valuation, compiled.selector, {}
    for turn, factor in factors.items():
        tally, tokens = records[turn].tally, records[turn].tokens
        if tally is None or not others:
            return dict.fromkeys(factors, 1.0 / len(factors))
        values, scale = tally, factor
        if valuation.value_name != "probability":  # expected scores do not add up: each turn has its own
            values, scale = valuation.compare(selector, tally[None, :], tokens)[0], factor * tokens
        leads[turn] = scale * float(values[first] - values[others[0]])
    whole = sum(map(abs, leads.values()))
    return {turn: lead / whole if whole else 1.0 / len(leads) for turn, lead in leads.items()}
