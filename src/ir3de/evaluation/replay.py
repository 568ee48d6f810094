"""Compare a candidate router with a gateway's decision log by routing the logged prompts again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError, IR3DEError
from ir3de.evaluation.intervals import ExactSum, JSONReport
from ir3de.evaluation.prompts import route_in_batches
from ir3de.router import Router
from ir3de.routing.conversation import Conversation
from ir3de.routing.decision import Decision

MAX_DAMAGED_LINES = 1_000  # a file with more is not a decision log
CLEAR_CONFIDENCE_CHANGE = 0.1  # smaller changes of confidence are not counted

OnMove = Callable[["LoggedDecision", Decision], None]  # called with each prompt that would go to another expert


@dataclass(frozen=True)
class LoggedDecision:
    """One line of a decision log, checked; None where a field is missing."""

    text: str
    expert: str  # decided by the router of that time; the nearest one where none fitted
    served: str  # the expert that answered in the end
    confidence: float | None
    abstained: bool
    tokens: tuple[int, int] | None  # of prompt and answer
    cost: float | None
    price: tuple[float, float] | None  # of the expert that served, for a million tokens of each
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    turns: tuple[str, ...] = ()  # of a chat whose turns were routed together

    @classmethod
    def read(cls, row: Mapping[str, object]) -> LoggedDecision | None:
        """The row, or None where it has no text to route; an `InputError` where it is not a row of a decision log."""
        expert, text = row.get("expert"), row.get("text")
        if expert is None and row.get("abstained") is True:
            expert = _find_nearest(row.get("ranking"))
        if not isinstance(expert, str) or not expert or "ranking" not in row:
            where = getattr(row, "place", "a row")
            raise InputError(f"{where}: no decision (fields 'expert' and 'ranking'), found {', '.join(row)[:200]}")
        if not isinstance(text, str):
            return None
        served = row.get("served")
        price = row.get("price")
        return cls(
            replace_lone_surrogates(text),
            expert,
            served if isinstance(served, str) and served else expert,
            _number(row.get("confidence")),
            row.get("abstained") is True,
            _pair(row, "prompt_tokens", "completion_tokens"),
            _number(row.get("cost")),
            _pair(price, "input_per_1m", "output_per_1m") if isinstance(price, Mapping) else None,
            _number(row.get("expected_score")),
            _read_turns(row.get("turns")),
        )


@dataclass(frozen=True)
class ExpertChange:
    """An expert's prompts, as decided then and by the candidate."""

    before: int
    after: int
    kept: int
    lost: int  # go to another expert now
    gained: int  # came from another expert


@dataclass(frozen=True)
class ReplayCosts:
    """What the prompts cost when they were served, and what they would cost with the candidate.

    Only prompts whose tokens and both prices are in the log count. Answers are assumed to be as long as before.
    """

    prompts: int
    served: float
    candidate: float


@dataclass(frozen=True)
class ReplayReport(JSONReport):
    """What `replay_log` found. `matrix[i][j]` counts prompts decided for expert i then and for expert j now."""

    experts: tuple[str, ...]  # the candidate's, then those that only the log knows
    prompts: int
    without_text: int  # rows that could not be routed again
    agreement: float  # with what was decided
    served_agreement: float  # with the expert that answered in the end
    matrix: tuple[tuple[int, ...], ...]
    changes: Mapping[str, ExpertChange]
    confidence_before: float | None  # means over prompts that have a confidence in the log and now
    confidence_after: float | None
    expected_score_before: float | None  # the same of outcome routers
    expected_score_after: float | None
    more_confident: int  # by more than a tenth
    less_confident: int
    abstained_before: int
    abstained_after: int
    abstained_both: int
    costs: ReplayCosts | None


@dataclass
class DamagedLines:
    """Lines that could not be read: counted up to a limit, the first one remembered."""

    most: int = MAX_DAMAGED_LINES
    lines: int = 0
    first: str = ""

    def __call__(self, error: IR3DEError) -> None:
        self.first = self.first or str(error)
        self.lines += 1
        if self.lines > self.most:
            raise InputError(
                f"more than {self.most:,} lines are damaged or not decisions: name a log that `logs.decisions` of the "
                f"gateway's configuration wrote. The first one is {self.first}"
            )


def replay_log(
    router: Router,
    rows: Iterable[Mapping[str, object]],
    *,
    damage: DamagedLines | None = None,
    on_move: OnMove | None = None,
) -> ReplayReport:
    """Route the prompts of a decision log and compare. Rows are streamed, so memory does not grow with the log.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> rows = [{"text": "Is the contract valid?", "expert": "law", "ranking": []}, {"expert": "law", "ranking": []}]
    >>> report = replay_log(router, rows)
    >>> report.agreement, report.prompts, report.without_text
    (1.0, 1, 1)
    """
    damage = damage or DamagedLines()
    counts = _Counts(router.experts)
    for batch, decisions in route_in_batches(router, _parse_rows(rows, damage, counts), lambda row: row.text):
        for row, found in zip(batch, decisions, strict=True):
            decision = found
            if row.turns:  # of a chat; they have no envelopes any more
                chat = Conversation(router, envelopes=())
                decision = [chat.route(text) for text in row.turns][-1]
            counts.count(row, decision)
            if on_move is not None and (decision.expert or decision.best) != row.expert:
                on_move(row, decision)
    if not counts.numbers["prompts"]:
        without = counts.numbers["without_text"]
        why = f"{without:,} rows are without it" if without else "there are no rows"
        raise InputError(
            f"nothing to replay, the log has no text: {why}. Set `logs.prompts: true` next to `logs.decisions` in the "
            "gateway's configuration, and let it serve for a while"
        )
    return counts.report()


def _parse_rows(
    rows: Iterable[Mapping[str, object]], damage: DamagedLines, counts: _Counts
) -> Iterator[LoggedDecision]:
    for row in rows:
        try:
            found = LoggedDecision.read(row)
        except InputError as error:
            damage(error)
            continue
        if found is None:
            counts.numbers["without_text"] += 1
        else:
            yield found


@dataclass
class _Sums:
    """Sums of a number then and now, over the prompts that have both."""

    prompts: int = 0
    before: ExactSum = field(default_factory=ExactSum)
    after: ExactSum = field(default_factory=ExactSum)

    def add(self, before: float | None, after: float | None) -> float:
        """Count a prompt, and return how much its number has grown; 0 if there is nothing to compare."""
        if before is None or after is None:
            return 0.0
        self.prompts += 1
        self.before.add(before)
        self.after.add(after)
        return after - before

    def means(self) -> tuple[float | None, float | None]:
        n = self.prompts
        return (float(self.before) / n, float(self.after) / n) if n else (None, None)


@dataclass
class _Counts:
    """The counts that a report is made of."""

    experts: tuple[str, ...]
    numbers: Counter[str] = field(default_factory=Counter)  # by the field of the report
    as_served: int = 0
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)  # (then, now)
    confidence: _Sums = field(default_factory=_Sums)
    expected_score: _Sums = field(default_factory=_Sums)
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    spent: dict[str, tuple[Counter[str], ExactSum]] = field(default_factory=dict)  # by expert now: tokens, cost

    def count(self, row: LoggedDecision, decision: Decision) -> None:
        now = decision.expert or decision.best  # one of them answered
        change = self.confidence.add(row.confidence, decision.confidence)
        self.expected_score.add(row.expected_score, decision.expected_score)
        self.moves[row.expert, now] += 1
        self.as_served += row.served == now
        self.numbers.update(
            prompts=1,
            more_confident=change > CLEAR_CONFIDENCE_CHANGE,
            less_confident=change < -CLEAR_CONFIDENCE_CHANGE,
            abstained_before=row.abstained,
            abstained_after=decision.abstained,
            abstained_both=row.abstained and decision.abstained,
        )
        if row.price is not None:
            self.prices[row.served] = row.price
        if row.tokens is not None and row.cost is not None:
            tokens, cost = self.spent.setdefault(now, (Counter(), ExactSum()))
            tokens.update(prompts=1, read=row.tokens[0], written=row.tokens[1])
            cost.add(row.cost)

    def report(self) -> ReplayReport:
        names = tuple(dict.fromkeys((*self.experts, *sorted(then for then, _ in self.moves))))
        prompts, kept = self.numbers["prompts"], sum(self.moves[name, name] for name in names)
        before, after = self.confidence.means()
        score_before, score_after = self.expected_score.means()
        numbers: dict[str, Any] = {name: self.numbers[name] for name in ("without_text", *self.numbers)}
        return ReplayReport(
            experts=names,
            agreement=kept / prompts,
            served_agreement=self.as_served / prompts,
            matrix=tuple(tuple(self.moves[then, now] for now in names) for then in names),
            changes={name: self._change(name) for name in names},
            confidence_before=before,
            confidence_after=after,
            expected_score_before=score_before,
            expected_score_after=score_after,
            costs=self._costs(),
            **numbers,
        )

    def _change(self, name: str) -> ExpertChange:
        before = sum(count for (then, _), count in self.moves.items() if then == name)
        after = sum(count for (_, now), count in self.moves.items() if now == name)
        kept = self.moves[name, name]
        return ExpertChange(before, after, kept, before - kept, after - kept)

    def _costs(self) -> ReplayCosts | None:
        known = [(self.prices[name], *spent) for name, spent in self.spent.items() if name in self.prices]
        if not known or not any(map(any, self.prices.values())):
            return None
        now = [(tokens["read"] * read + tokens["written"] * written) / 1e6 for (read, written), tokens, _ in known]
        prompts = sum(tokens["prompts"] for _, tokens, _ in known)
        return ReplayCosts(prompts, math.fsum(float(cost) for *_, cost in known), math.fsum(now))


def _read_turns(given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        return ()
    return tuple(map(replace_lone_surrogates, given))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _find_nearest(ranking: object) -> object:
    """The first expert of a logged ranking; None where it is missing."""
    first = ranking[0] if isinstance(ranking, list) and ranking else None
    return first.get("expert") if isinstance(first, Mapping) else None


def _pair(row: Mapping[str, Any], first: str, second: str) -> Any:
    """Both numbers, or None."""
    values = _number(row.get(first)), _number(row.get(second))
    return None if None in values else values
