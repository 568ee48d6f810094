"""An explanation in short: one sentence, equal words together, and numbers with a sign."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answered_prompts import answers
from ir3de import EntropyTopK, Router
from ir3de.policies import Policy
from ir3de.routing.explanation import merge_words, tabulate_words
from ir3de.routing.html import NOTHING, format_signed
from laws import wordy

PROMPT = "Is this contract void? The contract!"


@pytest.fixture(scope="module")
def router() -> Router:
    return tiny.router()


def test_a_sentence_names_the_words_that_speak_for_the_best_expert_and_those_that_do_not(router: Router) -> None:
    found = router.explain(PROMPT)
    best, other, *_ = found.compared
    assert re.fullmatch(
        rf"‘contract’.* speaks? for {best} against {other}(; ‘.*’ speaks? for {other})?\.", found.summary
    )
    assert found.to_dict()["summary"] == found.summary


def test_it_says_so_where_nothing_is_known_or_there_is_nobody_else(router: Router) -> None:
    assert router.explain("").summary == "No word is known to the router."
    alone = Router.fit({"law": tiny.sentences("law", 5)}, embedding=tiny.embedding())
    assert re.fullmatch(r"(‘.*’ speaks? for law\.)?", alone.explain(PROMPT).summary)


def test_it_says_that_costs_decided(router: Router) -> None:
    best = router.route(PROMPT).best
    dear = router.with_policy(Policy(costs={best: {"price": 1000.0}}, weights={"price": 1.0}))
    found = dear.explain(PROMPT)
    assert found.compared[1] == best and found.summary.endswith("; costs decide.")


def test_of_expected_scores_equal_words_are_not_added_up() -> None:
    found = Router.fit_outcomes(answers(number=10), embedding=tiny.embedding(), guard=False).explain(
        "contract contract contract void"
    )
    words, sums = tabulate_words(found, 5)
    (contract,) = (word for word in words if word.text == "contract")
    alone = [word.contribution for word in found.words if word.text.strip() == "contract"]
    assert contract.times == 3 and contract.contribution == pytest.approx(sum(alone) / 3) and sums == []


@tiny.LAW
@given(wordy, st.integers(0, 4), st.booleans())
def test_the_rows_of_a_table_add_up_to_the_lead_whatever_the_prompt(text: str, most: int, votes: bool) -> None:
    found = (VOTING if votes else AVERAGE).explain(text)
    words, sums = tabulate_words(found, most)
    assert len(words) <= most and all(word.contribution for word in words)
    lead = sum(word.contribution for word in found.words)
    shown = sum(word.contribution for word in words) + sum(one.contribution for one in sums[:-1])
    assert not found.words or sums[-1].contribution == pytest.approx(lead) == pytest.approx(shown)
    assert sum(word.times for word in merge_words(found)) == len(found.words)
    assert "\n" not in found.summary or "\n" in text


@tiny.LAW
@given(st.floats(-1e4, 1e4), st.sampled_from([2, 3]))
def test_numbers_have_a_sign_or_are_nothing(value: float, digits: int) -> None:
    said = format_signed(value, digits)
    if said == NOTHING:
        assert abs(value) <= 0.5 * 10**-digits + 1e-6
    else:
        assert re.fullmatch(rf"[+−]\d+\.\d{{{digits}}}", said)
        assert float(said.replace("−", "-")) == pytest.approx(value, abs=0.5 * 10**-digits + 2e-6)


AVERAGE, VOTING = tiny.router(), tiny.router(selector=EntropyTopK(3))
