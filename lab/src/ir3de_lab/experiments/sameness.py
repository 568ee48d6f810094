"""Whether two routers are the same to the last bit: what they were fitted from, their tables, and what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from ir3de import Decision, Router


def same_router(one: Router, other: Router) -> bool:
    """Statistics and table."""
    return same_statistics(one, other) and same_table(one, other)


def same_statistics(one: Router, other: Router) -> bool:
    """The same experts in the same order, with the same counts and the same prompts kept."""
    first, second = one.statistics, other.statistics
    return list(first) == list(second) and all(
        first[name] == second[name] and first[name].sample == second[name].sample for name in first
    )


def same_table(one: Router, other: Router) -> bool:
    """Every array of the table, the calibration, the default expert and the policy."""
    first, second = one.compiled, other.compiled
    return first.rules == second.rules and all(
        _bits(getattr(first.table, part.name)) == _bits(getattr(second.table, part.name))
        for part in fields(first.table)
    )


def same_decisions(one: Sequence[Decision], other: Sequence[Decision]) -> bool:
    """Every expert, its value and the reason, nothing rounded."""
    return [_said(decision) for decision in one] == [_said(decision) for decision in other]


def _bits(array: Any) -> object:
    """An array as it lies in memory, so that even the sign of a zero counts."""
    if array is None:
        return None
    values = np.asarray(array)
    return values.dtype.str, values.shape, values.tobytes()


def _said(decision: Decision) -> tuple[object, ...]:
    said = (decision.expert, decision.ranking, decision.tokens, decision.counted, decision.abstained)
    return (*said, decision.reason, decision.familiarity, decision.out_of_domain)
