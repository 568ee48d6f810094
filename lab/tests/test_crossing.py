"""Features of the gateway that meet in one request: every pair of them does, and the laws hold."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from ir3de_lab.benchmarks.trust.crossing import laws
from ir3de_lab.benchmarks.trust.crossing.covering import cover, list_pairs, meet_pairs
from ir3de_lab.benchmarks.trust.crossing.features import CONFIGURATION, FEATURES, FORBIDDEN, MASKS, list_cases
from ir3de_lab.benchmarks.trust.crossing.gateways import fit_router
from ir3de_lab.benchmarks.trust.crossing.laws import Answer
from ir3de_lab.benchmarks.trust.crossing.requests import build_request
from ir3de_lab.benchmarks.trust.crossing.running import cross

SEED = 0
PLAIN = {name: values[0] for name, values in FEATURES.items()}


def test_every_pair_of_features_meets_in_some_case() -> None:
    cases, pairs = list_cases(SEED), list_pairs(FEATURES, FORBIDDEN, MASKS)
    met = {pair for case in cases for pair in meet_pairs(case, MASKS)}
    assert met.issuperset(pairs), f"{len(set(pairs) - met)} of {len(pairs)} pairs are missing"
    assert len(pairs) > 3_500 and len(cases) < 120
    assert len({tuple(case[name] for name in CONFIGURATION) for case in cases}) < 60  # gateways to start


def test_no_case_has_a_pair_that_is_forbidden_or_two_masks() -> None:
    for case in list_cases(SEED):
        assert FORBIDDEN.isdisjoint(frozenset(pair) for pair in combinations(case.items(), 2))
        assert sum(mask <= set(case.items()) for mask in MASKS) <= 1


def test_a_mask_hides_the_other_pairs_of_its_case() -> None:
    features, mask = {"a": "12", "b": "12", "c": "12"}, frozenset({("a", "2")})
    hidden = {"a": "2", "b": "1", "c": "1"}
    assert set(meet_pairs(hidden, [mask])) == {frozenset({("a", "2"), (name, "1")}) for name in "bc"}
    cases = cover(features, 0, masks=[mask])
    assert {(case["b"], case["c"]) for case in cases if case["a"] == "1"} == {(b, c) for b in "12" for c in "12"}
    assert cover(features, 0, masks=[mask]) == cases  # the same seed gives the same cases
    with pytest.raises(ValueError, match="no case can have"):
        cover({"a": "1", "b": "1", "c": "1"}, 0, [frozenset({("b", "1"), ("c", "1")})])


@pytest.mark.nightly
def test_the_laws_hold_in_all_cases() -> None:
    campaign = cross(SEED)
    assert campaign.inputs == len(list_cases(SEED)) and campaign.accepted > campaign.inputs // 3
    assert not campaign.findings, json.dumps(campaign.findings, indent=1)


def test_broken_laws_are_seen() -> None:
    """Answers that break them, one by one."""
    case = {**PLAIN, "scorer": "TokenRidge", "selector": "all tokens"}
    request, expected = build_request(case, 0), laws.expect(case, fit_router("TokenRidge", "all tokens", "none"))
    assert expected.decided == "law" and expected.allowed == {"law"} and expected.decision is not None
    figures = {"confidence": expected.decision.confidence, "margin": expected.decision.margin}
    sent = json.dumps({**request.body, "model": "law-v1"}).encode()

    def judge(status: int = 200, passed: bytes = sent, **changes: object) -> list[str]:
        member = {"expert": "law", "decided": "law", **figures, **changes}
        headers = {
            f"x-ir3de-{name}": f"{value:.4f}" if name in figures else str(value) for name, value in member.items()
        }
        headers["x-ir3de-model"] = f"{member['expert']}-v1"
        body = {"model": headers["x-ir3de-model"], "ir3de": member} if status == 200 else {"error": {"message": "?"}}
        answer = Answer(status, headers, json.dumps(body).encode())
        return list(laws.check(case, request, answer, expected, [(str(member["expert"]), "chat/completions", passed)]))

    assert judge() == []
    assert any("maths answered; law was decided" in law for law in judge(expert="maths"))
    assert any("figures of the expert that answered" in law for law in judge(confidence=0.1))
    assert any("decided is law" in law for law in judge(decided="maths"))
    assert any(law.startswith("500") for law in judge(500))
    assert any("another body" in law for law in judge(passed=sent.replace(b"statute", b"statutes")))
    assert list(laws.check_spending(5_000.0, request, {**case, "key": "budget"})) == []
    assert list(laws.check_spending(50_000.0, request, {**case, "key": "budget"})) != []
