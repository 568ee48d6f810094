"""Probabilities and the log-odds of the domain, by the native kernel and by Python.

Both compute the same operations in the same order. Only exp, log and pow come from two places: the kernel's C library
and the one that Python's `math` was built with. Where these are one library, all bits are equal.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from ir3de import Average, EntropyTopK, Router, kernel
from ir3de.policies import AssumedCalibration, Calibration, Familiarity, Membership, Policy
from ir3de.routing.decision import make_plain_decision
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import Consulted, Probabilities
from ir3de.scorers.subjects import Subjects
from ir3de.selectors import SCORE_UNIT

WIDTH = 19
TOLERANCE = 1e-12  # of a probability and of the log-odds: a few times what two C libraries' exp may differ
needs_kernel = pytest.mark.skipif(kernel.native is None, reason=kernel.engine.reason)


def make_subjects(rng: np.random.Generator, experts: int, length: float = 1.0) -> Subjects:
    sizes = rng.integers(1, 30, experts)
    rows = rng.normal(size=(sizes.sum() + 7, WIDTH)).astype(np.float32)
    rows *= length / np.linalg.norm(rows, axis=1, keepdims=True)
    rows[1] = rows[0]  # a tie
    centre = rng.normal(scale=5, size=WIDTH).astype(np.float32)
    return Subjects(centre, rows[: sizes.sum()], sizes, rows[sizes.sum() :], (0.3, 0.1), (0.2, 0.3))


def make_rules(rng: np.random.Generator, experts: int, trust: float | None, member: bool) -> DecisionRules:
    scale, growth = float(rng.uniform(0.1, 30)), float(rng.uniform(0, 1))
    most = tuple(rng.uniform(0.2, 1.0, experts).tolist()) if rng.random() < 0.5 else ()
    calibration = Calibration(scale, growth, most=most) if trust is None else None
    assumed = None if trust is None else AssumedCalibration(scale, growth, trust=trust)
    weights = rng.normal(size=4).tolist()
    known = Familiarity(-0.5, 0.2, 0.9, -3.0) if member else None
    subjects = make_subjects(rng, experts)
    return DecisionRules(
        tuple(f"expert {place}" for place in range(experts)),
        Average(),
        valuation=Probabilities(calibration, assumed=assumed),
        familiarity=known,
        membership=Membership(*weights, -0.5, nearness=0.7, contrast=0.4, subjects=subjects) if member else None,
    )


def make_tally(rng: np.random.Generator, experts: int, tokens: int, spread: float) -> np.ndarray:
    scores = np.rint(rng.normal(scale=spread * SCORE_UNIT, size=experts)) * tokens
    familiarity = np.rint(rng.normal(-500, 300, 1)) * tokens
    return np.concatenate((scores, familiarity, rng.integers(-127 * tokens, 127 * tokens + 1, WIDTH))).astype(float)


@needs_kernel
@tiny.LAW
@given(
    st.integers(0, 9_999),
    st.sampled_from([1, 2, 3, 8, 77]),
    st.integers(1, 3_000),
    st.sampled_from([0.0, 1e-3, 1.0, 300.0]),
    st.sampled_from([None, 0.0, 0.6]),
    st.booleans(),
)
def test_values_are_those_of_python(
    seed: int, experts: int, tokens: int, spread: float, trust: float | None, member: bool
) -> None:
    rng = np.random.default_rng(seed)
    rules = make_rules(rng, experts, trust, member)
    tally = make_tally(rng, experts, tokens, spread)
    for given_tally in (tally, tally[: experts + 1], tally[:experts]):
        found = make_plain_decision(rules, given_tally, tokens, min(tokens, 1_024), 0)
        native, (values, odds) = found._find_natively(), found._find_in_python()
        assert native is not None
        np.testing.assert_allclose(native[0], values, rtol=TOLERANCE, atol=TOLERANCE)
        assert native[1] == pytest.approx(odds, rel=TOLERANCE, abs=TOLERANCE)
        assert (odds == math.inf) is (not member)
        packed = make_plain_decision(rules, given_tally.tobytes(), tokens, min(tokens, 1_024), 0)
        assert packed._find_natively() == native  # bit for bit: it is the same engine
        assert math.fsum(native[0]) == pytest.approx(1.0)


@needs_kernel
@tiny.LAW
@given(st.integers(0, 999), st.sampled_from([1.0, 1.0005, 40.0, 0.0]))
def test_subjects_have_the_bits_of_numpy_whatever_their_length(seed: int, length: float) -> None:
    """Rough cosines find the nearest centroids; where these are too long for them, all products are computed."""
    rng = np.random.default_rng(seed)
    subjects = make_subjects(rng, 3, length)
    plain = replace(subjects)
    vars(plain)["native"] = None
    centre = subjects._prepared[2]
    for tokens in (1, 50, 4_096):
        near = np.rint(subjects.centroids[0] * 100 * tokens + tokens * centre)  # two are equally near
        for sums in (near, np.rint(tokens * centre), rng.integers(-127 * tokens, 127 * tokens + 1, WIDTH)):
            row = sums.astype(np.float64)
            assert subjects.measure(row, tokens, 1) == plain.measure(row, tokens, 1)


@needs_kernel
def test_other_evidence_and_odd_arrays_are_left_to_python() -> None:
    rng = np.random.default_rng(0)
    rules, tally = make_rules(rng, 3, None, True), make_tally(rng, 3, 5, 1.0)
    for other in (
        replace(rules, selector=EntropyTopK(3)),
        replace(rules, valuation=Probabilities()),
        replace(rules, valuation=Consulted()),
    ):
        assert other.values is None
    whole = tally.astype(np.int64)
    for odd in (np.repeat(tally, 2)[::2], tally.astype(np.float32), whole, tally[:2], tally[:-1]):
        assert make_plain_decision(rules, odd, 5, 5, 0)._find_natively() is None
    natively, plainly = (make_plain_decision(rules, one, 5, 5, 0) for one in (tally, whole))
    assert plainly.confidence == pytest.approx(natively.confidence, abs=TOLERANCE)
    native = rules.values
    assert native is not None
    assert native.find(tally, 5, 0) is None and native.find(tally, 0, 5) is None
    for wrong in ((tally, 5), (tally, "5", 5), (tally, 5, None)):
        with pytest.raises(TypeError):
            native.find(*wrong)  # type: ignore[arg-type, call-arg]


@needs_kernel
def test_arguments_that_do_not_fit_are_errors() -> None:
    right = (None, 3, (1.0, 1.0, 0.0, 1.0), (), (), ())
    kernel.native.Values(*right)
    for place, wrong in (
        (0, 7),
        (1, 0),
        (2, (1.0,)),
        (2, None),
        (3, (1.0,)),
        (3, "abc"),
        (3, (1.0, 1.0, "")),
        *((place, one) for place in (4, 5) for one in ((1.0,), None, [])),
    ):
        with pytest.raises((TypeError, ValueError)):
            kernel.native.Values(*right[:place], wrong, *right[place + 1 :])


@needs_kernel
@pytest.mark.parametrize(
    "policy", [Policy(), Policy(0.9), Policy(0.2, {"price": 0.5}, {"law": {"price": 1.0}})], ids=str
)
def test_a_router_abstains_on_the_same_prompts_with_either_engine(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = tiny.fit_router(60, policy=policy)
    prompts = [*tiny.mixed(40), "zebra quark", "ok thanks", "", "x", "🙂", "court " * 3_000]
    found = [made.to_dict() for made in [*map(router.route, prompts), *router.route_batch(prompts)]]
    assert router.route(prompts[0])._rules.values is not None
    monkeypatch.setattr(kernel, "native", None)
    compiled = router._parts.compiled
    rules = replace(compiled.rules)  # without what the kernel made of them
    plainly = Router(replace(router._parts, compiled=replace(compiled, rules=rules)))
    expected = [made.to_dict() for made in [*map(plainly.route, prompts), *plainly.route_batch(prompts)]]
    assert plainly.route(prompts[0])._rules.values is None
    assert found == expected
