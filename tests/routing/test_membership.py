"""P(in domain): confidence is its product with P(expert | in domain), and prompts without content have none."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from demo_router import demo_router
from ir3de import Average, EntropyTopK, Router
from ir3de.corpora import examples
from ir3de.policies import Calibration, Familiarity, Membership, Policy
from ir3de.routing.decision import Decision, make_decision
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import Probabilities
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import SCORE_UNIT
from laws import shown, wordy

TOKENS = 7
numbers = st.floats(-4, 4)
memberships = st.builds(Membership, numbers, st.floats(0, 3), st.floats(0, 3), st.floats(0, 3), st.floats(-9, 9))
evidences = st.lists(st.floats(-2, 2), min_size=2, max_size=6)


@pytest.fixture(scope="module")
def router() -> Router:
    return demo_router()


def rules(number: int, membership: Membership | None, policy: Policy | None = None) -> DecisionRules:
    """Rules under which a prompt's familiarity is the mean one of its tokens."""
    valuation, names = Probabilities(Calibration(1.0)), tuple("abcdef"[:number])
    return DecisionRules(
        names, Average(), None, valuation, Familiarity(0.0, 1.0, 0.0, -3.0), membership, policy or Policy()
    )


def decide(
    member: Membership | None, evidence: list[float], familiarity: float, policy: Policy | None = None
) -> Decision:
    tally = [*(TOKENS * SCORE_UNIT * one for one in evidence), TOKENS * FAMILIARITY_UNIT * familiarity]
    best = int(np.argmax(evidence))
    return make_decision(rules(len(evidence), member, policy), np.array(tally), TOKENS, TOKENS, best)


# one honest number ------------------------------------------------------------------------------------------------


@tiny.LAW
@given(memberships, evidences, st.floats(-9, 9))
def test_confidence_is_the_product(member: Membership, evidence: list[float], familiarity: float) -> None:
    found, alone = decide(member, evidence, familiarity), decide(None, evidence, familiarity)
    f = min(max(familiarity, -8.0), 2.0)
    p = alone.confidence
    c = min(max(math.log(p / (1 - p)), -4.0), 6.0) if p < 1 else 6.0
    z = member.bias + member.familiarity * f + member.strangeness * min(0.0, f + 1.0) + member.certainty * c
    assert found.in_domain == pytest.approx(1 / (1 + math.exp(-z)))
    assert found.confidence == pytest.approx(found.in_domain * alone.confidence)
    assert [name for name, _ in found.quality] == [name for name, _ in alone.quality]
    assert alone.in_domain is None and sum(share for _, share in alone.quality) == pytest.approx(1)
    assert found.out_of_domain == (found.reason == "out of domain")
    if abs(z - member.lowest) > 1e-6:
        assert found.out_of_domain == (z < member.lowest)


@tiny.LAW
@given(memberships, evidences, st.floats(-9, 9))
def test_a_quick_look_says_what_a_long_one_says(member: Membership, evidence: list[float], familiarity: float) -> None:
    """Without a threshold most prompts are seen to be in domain by their familiarity alone."""
    quick = decide(member, evidence, familiarity)
    long = decide(member, evidence, familiarity, Policy(1e-300))
    assert (quick.reason, quick.expert, quick.in_domain) == (long.reason, long.expert, long.in_domain)


@tiny.LAW
@given(memberships, evidences, st.lists(st.floats(-9, 9), min_size=2, max_size=6))
def test_the_less_familiar_the_less_probably_in_domain(
    member: Membership, evidence: list[float], some: list[float]
) -> None:
    found = [decide(member, evidence, familiarity) for familiarity in sorted(some)]
    values = [decision.in_domain for decision in found]
    assert values == sorted(values)
    told = [decision.out_of_domain for decision in found]
    assert told == sorted(told, reverse=True)


@tiny.LAW
@given(memberships, st.floats(-9, 9), st.lists(st.floats(0, 5), min_size=2, max_size=6))
def test_the_less_certain_the_less_probably_in_domain(
    member: Membership, familiarity: float, leads: list[float]
) -> None:
    values = [decide(member, [lead, 0.0, 0.0], familiarity).in_domain for lead in sorted(leads)]
    assert all(one <= other + 1e-12 for one, other in pairwise(values))


def test_no_prompt_is_sure_and_out_of_domain(router: Router) -> None:
    for some in (router, tiny.router(20), tiny.router(40), tiny.router(60, of=tiny.word_embedding())):
        assert some.compiled.rules.membership.lowest <= math.log(9) + 1e-12
        found = some.route_batch([*tiny.mixed(200), *examples.prompts()["law"], "\x01\x02\x03\x04" * 8, "🙂 " * 9])
        told = [decision for decision in found if decision.out_of_domain]
        assert told and max(decision.confidence for decision in told) < 0.9


def test_a_strange_prompt_is_not_sure_and_goes_to_nobody(router: Router) -> None:
    for text in ("xqzt vlorp brindlewick snorfax quomble", "🙂🙃🙂🙃🙂🙃", "\x01\x02\x03\x04" * 8):
        found = router.route(text)
        assert (found.expert, found.reason) == (None, "out of domain") and found.confidence < 0.6
        assert found.best in router.experts
    own = router.route("Can my landlord evict me?")
    assert own.expert == "law" and own.confidence > 0.9 and own.in_domain > 0.9


# mixed prompts ----------------------------------------------------------------------------------------------------


@tiny.LAW
@given(memberships, evidences, st.floats(-9, 9))
def test_candidates_are_at_least_a_third_as_likely_as_the_best(
    member: Membership, evidence: list[float], familiarity: float
) -> None:
    found = decide(member, evidence, familiarity)
    p = dict(decide(None, evidence, familiarity).quality)  # the domains' alone: how strange it is plays no part
    assert found.candidates[0] == found.best
    assert set(found.candidates) == {name for name in p if p[name] >= p[found.best] / 3}
    shares = [p[name] for name in found.candidates]
    assert shares == sorted(shares, reverse=True)


def test_a_prompt_of_two_domains_names_both(router: Router) -> None:
    both = "Can I sue my doctor for a wrong diagnosis?"
    assert set(router.route(both).candidates) == {"law", "medicine"}
    assert router.route("Can my landlord evict me?").candidates == ("law",)


# no content -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["hi", "ok thanks", "?", "Why?", "can you give me an example?"])
def test_generic_words_alone_are_no_content(router: Router, text: str) -> None:
    named = router.with_policy(Policy(), default="law")
    for way in (router.route(text), router.explain(text).decision, *router.route_batch([text])):
        assert (way.expert, way.reason, way.confidence, way.in_domain) == (None, "no content", 0.0, 0.0)
        assert way.out_of_domain and way.counted and way.best in router.experts
    assert named.route(text).expert == "law" and named.route(text).reason == "no content"
    assert router.route(f"{text} landlord tenancy contract court").reason == ""


def test_content_is_not_asked_for_where_the_own_prompts_have_none() -> None:
    router = tiny.router()
    assert not router.compiled.rules.membership.needs_content
    assert router.route("please explain").reason != "no content"


# other rules ------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(wordy | st.text(max_size=20) | st.sampled_from(["", "hi", "ok thanks"]), st.sampled_from([0.0, 0.5, 1.0]))
def test_under_other_rules_it_is_the_decision_of_a_router_with_those(
    router: Router, text: str, threshold: float
) -> None:
    costs = Policy(threshold, {"price": 0.3}, {"law": {"price": 1.0}})
    other = router.with_calibration(Calibration(3.0)).with_policy(costs, default="history")
    assert shown(router.route(text).under(other.compiled.rules)) == shown(other.route(text))
    assert shown(other.route(text).under(router.compiled.rules)) == shown(router.route(text))


def test_another_kind_of_selector_has_no_membership(router: Router) -> None:
    votes = router.with_selector(EntropyTopK(5))
    assert votes.route("Can my landlord evict me?").in_domain is None
    assert votes.route("hi").reason == ""
    capped = router.with_selector(replace(router.selector, cap=50))
    assert capped.route("Can my landlord evict me?").in_domain == router.route("Can my landlord evict me?").in_domain
