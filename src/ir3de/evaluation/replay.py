"""A candidate router beside what was served: the prompts of a decisions log, routed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ir3de.corpora import read_rows
from ir3de.errors import InputError
from ir3de.router import Router
from ir3de.routing.decision import Decision

BATCH_ROWS = 1_024
MOST_DAMAGED = 1_000  # lines; a log with more is no decisions log, or ruined
CLEARLY = 0.1  # a change of confidence that is worth counting

OnMove = Callable[["Served", Decision], None]  # hears of a prompt that would go elsewhere


@dataclass(frozen=True)
class Served:
    """One line of a decisions log, checked; None where it does not say."""

    text: str
    expert: str  # decided by the router of that time
    served: str  # who answered in the end
    confidence: float | None
    abstained: bool
    tokens: tuple[int, int] | None  # of prompt and answer
    cost: float | None
    price: tuple[float, float] | None  # of the expert that served, for a million tokens of each

    @classmethod
    def read(cls, row: Mapping[str, object]) -> Served | None:
        """The row, or None where it has no text to route; an `InputError` where it is no row of a decisions log."""
        expert, text = row.get("expert"), row.get("text")
        if not isinstance(expert, str) or not expert or "ranking" not in row:
            where = getattr(row, "place", "a row")
            raise InputError(f"{where}: no decision (fields 'expert' and 'ranking'), found {', '.join(row)[:200]}")
        if not isinstance(text, str):
            return None
        served = row.get("served")
        price = row.get("price")
        return cls(
            _encodable(text),
            expert,
            served if isinstance(served, str) and served else expert,
            _number(row.get("confidence")),
            row.get("abstained") is True,
            _pair(row, "prompt_tokens", "completion_tokens"),
            _number(row.get("cost")),
            _pair(price, "input_per_1m", "output_per_1m") if isinstance(price, Mapping) else None,
        )


@dataclass(frozen=True)
class Change:
    """An expert's prompts, as decided then and by the candidate."""

    before: int
    after: int
    kept: int
    lost: int  # go elsewhere now
    gained: int  # come from elsewhere


@dataclass(frozen=True)
class Costs:
    """What prompts cost as they were served, and at the prices of the experts that the candidate chooses.

    Only prompts whose tokens and both prices are in the log; answers are taken to be as long as they were.
    """

    prompts: int
    served: float
    candidate: float


@dataclass(frozen=True)
class ReplayReport:
    """What `replay` found. `matrix[i][j]` counts prompts decided for expert i then and for expert j now."""

    experts: tuple[str, ...]  # the candidate's, then those that only the log knows
    prompts: int
    without_text: int  # rows that could not be routed again
    agreement: float  # with what was decided
    served_agreement: float  # with who answered in the end
    matrix: tuple[tuple[int, ...], ...]
    changes: Mapping[str, Change]
    confidence_before: float | None  # means over prompts that have it in the log
    confidence_after: float | None
    surer: int  # by more than a tenth
    less_sure: int
    abstained_before: int
    abstained_after: int
    abstained_both: int
    costs: Costs | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


@dataclass
class Damage:
    """Lines that could not be read: counted up to a limit, the first one remembered."""

    most: int = MOST_DAMAGED
    lines: int = 0
    first: str = ""

    def __call__(self, error: InputError) -> None:
        self.first = self.first or str(error)
        self.lines += 1
        if self.lines > self.most:
            raise InputError(
                f"more than {self.most:,} lines are damaged or no decisions: name a log that `logs.decisions` of the "
                f"gateway's configuration wrote. The first one is {self.first}"
            )


def read_log(
    paths: Sequence[str | Path], damage: Damage, *, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Mapping[str, object]]:
    """The rows of decisions logs, packed or not; damaged lines are told to `damage` and passed over."""
    return read_rows(paths, on_bytes=on_bytes, on_damage=damage)


def replay(
    router: Router,
    rows: Iterable[Mapping[str, object]],
    *,
    damage: Damage | None = None,
    on_move: OnMove | None = None,
) -> ReplayReport:
    """Route the prompts of a decisions log and compare. They are streamed: memory does not grow with the log.

    >>> import ir3de
    >>> router = ir3de.Router.fit({"maths": ["Solve x + 3 = 10."], "law": ["Is this contract void?"]})
    >>> rows = [{"text": "Is the contract valid?", "expert": "law", "ranking": []}, {"expert": "law", "ranking": []}]
    >>> report = replay(router, rows)
    >>> report.agreement, report.prompts, report.without_text
    (1.0, 1, 1)
    """
    damage = damage or Damage()
    score = _Score(router.experts)
    checked = _checked(rows, damage, score)
    while batch := list(islice(checked, BATCH_ROWS)):
        decisions = router.route_batch([row.text for row in batch])
        for row, decision in zip(batch, decisions, strict=True):
            score.count(row, decision)
            if on_move is not None and decision.expert != row.expert:
                on_move(row, decision)
    if not score.prompts:
        why = f"{score.without_text:,} rows are without it" if score.without_text else "there is no row at all"
        raise InputError(
            f"nothing to replay, the log has no text: {why}. Set `logs.prompts: true` beside `logs.decisions` in the "
            "gateway's configuration, and let it serve for a while"
        )
    return score.report()


def _checked(rows: Iterable[Mapping[str, object]], damage: Damage, score: _Score) -> Iterator[Served]:
    for row in rows:
        try:
            found = Served.read(row)
        except InputError as error:
            damage(error)
            continue
        if found is None:
            score.without_text += 1
        else:
            yield found


@dataclass
class _Score:
    """The counts a report is made of."""

    experts: tuple[str, ...]
    prompts: int = 0
    without_text: int = 0
    as_served: int = 0
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)  # (then, now)
    sure: list[float] = field(default_factory=lambda: [0.0, 0.0])  # Σ confidence then and now
    with_confidence: int = 0
    surer: int = 0
    less_sure: int = 0
    abstained: list[int] = field(default_factory=lambda: [0, 0, 0])  # then, now, both
    prices: dict[str, tuple[float, float]] = field(default_factory=dict)
    spent: dict[str, list[float]] = field(default_factory=dict)  # by expert now: prompts, tokens in, out, cost then

    def count(self, row: Served, decision: Decision) -> None:
        now = decision.expert
        self.prompts += 1
        self.moves[row.expert, now] += 1
        self.as_served += row.served == now
        if row.confidence is not None:
            self.with_confidence += 1
            change = decision.confidence - row.confidence
            self.sure[0] += row.confidence
            self.sure[1] += decision.confidence
            self.surer += change > CLEARLY
            self.less_sure += change < -CLEARLY
        self.abstained[0] += row.abstained
        self.abstained[1] += decision.abstained
        self.abstained[2] += row.abstained and decision.abstained
        if row.price is not None:
            self.prices[row.served] = row.price
        if row.tokens is not None and row.cost is not None:
            spent = self.spent.setdefault(now, [0, 0, 0, 0.0])
            for index, value in enumerate((1, *row.tokens, row.cost)):
                spent[index] += value

    def report(self) -> ReplayReport:
        names = tuple(dict.fromkeys((*self.experts, *sorted(then for then, _ in self.moves))))
        kept = sum(count for (then, now), count in self.moves.items() if then == now)
        told = self.with_confidence or None
        then_abstained, now_abstained, both = self.abstained
        return ReplayReport(
            experts=names,
            prompts=self.prompts,
            without_text=self.without_text,
            agreement=kept / self.prompts,
            served_agreement=self.as_served / self.prompts,
            matrix=tuple(tuple(self.moves[then, now] for now in names) for then in names),
            changes={name: self._change(name) for name in names},
            confidence_before=self.sure[0] / told if told else None,
            confidence_after=self.sure[1] / told if told else None,
            surer=self.surer,
            less_sure=self.less_sure,
            abstained_before=then_abstained,
            abstained_after=now_abstained,
            abstained_both=both,
            costs=self._costs(),
        )

    def _change(self, name: str) -> Change:
        before = sum(count for (then, _), count in self.moves.items() if then == name)
        after = sum(count for (_, now), count in self.moves.items() if now == name)
        kept = self.moves[name, name]
        return Change(before, after, kept, before - kept, after - kept)

    def _costs(self) -> Costs | None:
        if not any(map(any, self.prices.values())):
            return None
        known = {name: spent for name, spent in self.spent.items() if name in self.prices}
        if not known:
            return None
        now = sum(
            (spent[1] * self.prices[name][0] + spent[2] * self.prices[name][1]) / 1e6 for name, spent in known.items()
        )
        return Costs(int(sum(spent[0] for spent in known.values())), sum(spent[3] for spent in known.values()), now)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _pair(row: Mapping[str, Any], first: str, second: str) -> Any:
    """Both numbers, or None."""
    values = _number(row.get(first)), _number(row.get(second))
    return None if None in values else values


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write and no tokenizer reads
        return text.encode(errors="replace").decode()
    return text
