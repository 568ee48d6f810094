"""The benchmark of keys' limits: it finds what is wrong, and a real gateway passes it at a small size."""

from __future__ import annotations

import pytest

from ir3de_lab.benchmarks.gateway.key_limits import FIELDS, Kind, Plan, build_keys, measure_key_limits


def test_a_request_too_many_and_one_too_few_are_found() -> None:
    kind = Kind("requests")
    kind.judge("exact", admitted=5, allowed=5, sent=9)
    kind.judge("all", admitted=9, allowed=12, sent=9)
    assert (kind.over, kind.below) == ({"exact": 0, "all": 0}, {"exact": 0, "all": 0})
    kind.judge("over", admitted=8, allowed=5, sent=9)
    kind.judge("below", admitted=3, allowed=5, sent=9)
    over, below, _ = kind.figures()
    assert (over.value, over.reached, below.value, below.reached) == (3, False, 2, False)


def test_limits_reach_from_one_to_more_than_is_sent() -> None:
    plan = Plan(requests=1_000, keys=10)
    allowed = [plan.allow("requests", number) for number in range(10)]
    assert allowed[0] < plan.each < allowed[-1]
    keys = build_keys(plan, tokens=30)
    assert len({key["hash"] for key in keys}) == len(keys) == 61
    assert {field for key in keys for field in key["limits"]} == set(FIELDS.values())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_gateway_with_two_workers_is_exact() -> None:
    figures = [figure for kind in measure_key_limits(Plan(requests=60, keys=3)) for figure in kind.figures()]
    assert len(figures) == 21 and all(figure.value == 0 for figure in figures)
