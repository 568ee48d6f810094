"""The claims of the plan, and whether they held: signs after Holm's correction, and how many sets have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir3de_lab.benchmarks.held_out_tasks.expecting import SINGLE, Regime
from ir3de_lab.benchmarks.held_out_tasks.heads import list_heads
from ir3de_lab.benchmarks.held_out_tasks.measuring import IN_NO_ORDER, ZERO, Row
from ir3de_lab.experiments.resampling import Difference, find_signs

RIVALS = tuple(list_heads())
ENOUGH = 3  # sets of five in which ours must be above the best single model


@dataclass(frozen=True)
class Sign:
    """One comparison with ours: ▲ the other is surely above ours, ▼ surely below, "" neither."""

    family: str
    set: str
    way: str
    regime: Regime
    sign: str


@dataclass(frozen=True)
class Verdict:
    """One claim: whether it held, and the comparisons in which ours was surely above or surely below."""

    claim: str
    held: bool
    above: tuple[str, ...]
    below: tuple[str, ...]
    of: int


def list_signs(sets: Mapping[str, Sequence[Row]]) -> list[Sign]:
    """Every comparison of the plan, corrected within its family.

    A and B: the best single model on known and on held-out tasks. C and D: the tuned rivals there. E: the zero router
    or the random order, by what money buys, in both. F, which the plan does not have: the rivals by what money buys.
    """
    families: dict[str, dict[tuple[str, str, Regime], Difference]] = {}
    for name, rows in sets.items():
        for row in rows:
            known = row.regime == "known"
            if row.difference is not None and row.way == SINGLE:
                families.setdefault("A" if known else "B", {})[name, row.way, row.regime] = row.difference
            if row.difference is not None and row.way in RIVALS:
                families.setdefault("C" if known else "D", {})[name, row.way, row.regime] = row.difference
            if row.worth_difference is not None:
                family = "E" if row.way in (ZERO, IN_NO_ORDER) else "F"
                families.setdefault(family, {})[name, row.way, row.regime] = row.worth_difference
    return [sign for family in sorted(families) for sign in _sign_family(family, families[family])]


def _sign_family(family: str, found: Mapping[tuple[str, str, Regime], Difference]) -> list[Sign]:
    signs = find_signs(found.values())
    return [Sign(family, *key, {1: "▲", -1: "▼"}.get(sign, "")) for key, sign in zip(found, signs, strict=True)]


def judge(signs: Sequence[Sign], sets: int) -> list[Verdict]:
    """The five claims, by the numbers of the plan."""
    enough = min(ENOUGH, sets)
    worth = [sign for sign in signs if sign.family == "E" and sign.regime == "held out"]
    return [
        _judge_gain("outcomes help on tasks that are known", _family(signs, "A"), enough),
        _judge_gain("outcomes help on tasks never seen", _family(signs, "B"), enough),
        _judge_rivals("no tuned encoder is better on known tasks", _family(signs, "C")),
        _judge_rivals("no tuned encoder is better on tasks never seen", _family(signs, "D")),
        _judge_gain("outcomes are worth money on tasks never seen", worth, (len(worth) + 1) // 2),
    ]


def _family(signs: Sequence[Sign], family: str) -> list[Sign]:
    return [sign for sign in signs if sign.family == family]


def _judge_gain(claim: str, signs: Sequence[Sign], enough: int) -> Verdict:
    above, below = _list(signs, "▼"), _list(signs, "▲")
    return Verdict(claim, len(above) >= max(1, enough) and not below, above, below, len(signs))


def _judge_rivals(claim: str, signs: Sequence[Sign]) -> Verdict:
    above, below = _list(signs, "▼"), _list(signs, "▲")
    return Verdict(claim, not below, above, below, len(signs))


def _list(signs: Sequence[Sign], wanted: str) -> tuple[str, ...]:
    return tuple(f"{sign.set}: {sign.way}" for sign in signs if sign.sign == wanted)
