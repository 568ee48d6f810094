"""Two routers on the same logged traffic: exact routes, figures that can be counted by hand, and what is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import tiny
from ir3de import Conversation, Router
from ir3de.errors import InputError
from ir3de.scorers import Blend
from ir3de.traffic import Feedback, JournalPrompt, Price, TrafficRecord, compare
from ir3de.traffic.records import Keep
from ir3de.traffic.rerouting import list_reachable

DAY = 86_400.0
TEXTS = {
    "maths": ["Solve x + 3 = 10 for x.", "What is 12 times 7?", "Add the fractions.", "Prove that the sum is even."],
    "law": ["Is this contract void?", "Can my landlord evict me?", "May I sue my neighbour?", "Is the will valid?"],
}


@cache
def live() -> Router:
    return Router.fit(TEXTS, embedding=tiny.embedding(), scorer=Blend())


@cache
def candidate() -> Router:
    """A router that learnt the opposite of what it should."""
    return Router.fit({"maths": TEXTS["law"], "law": TEXTS["maths"]}, embedding=tiny.embedding(), scorer=Blend())


def keep_prompt(keep: Keep, turns: Sequence[str]) -> JournalPrompt:
    if keep == "text":
        return JournalPrompt.from_text(turns)
    return JournalPrompt.from_ids(keep, [live().tokenizer.encode(turn, 1024) for turn in turns])


def make_records(keep: Keep = "text", *, times: int = 3, **fields: object) -> list[TrafficRecord]:
    """Every text some times, as the live router decided it: ten requests a day."""
    texts = [text for _ in range(times) for own in TEXTS.values() for text in own]
    found = []
    for number, text in enumerate(texts):
        expert = live().route(text).expert or ""
        values: dict[str, object] = {"decided": expert, "served": expert, "prompt": keep_prompt(keep, [text]), **fields}
        found.append(TrafficRecord(f"r{number}", 1e9 + number * DAY / 10, **values))  # type: ignore[arg-type]
    return found


def label(records: list[TrafficRecord]) -> list[TrafficRecord]:
    """Every request labelled with the expert whose text it is."""
    experts = [name for name, own in TEXTS.items() for _ in own] * (len(records) // 8)
    labels = [Feedback("alice", 1.0, expert=expert) for expert in experts]
    return [TrafficRecord(**{**_fields(one), "feedback": (given,)}) for one, given in zip(records, labels, strict=True)]


def _fields(record: TrafficRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in record.__slots__}


@pytest.mark.parametrize("keep", ["text", "tokens", "statistics"])
def test_a_router_agrees_with_itself_whatever_is_kept(keep: Keep) -> None:
    found = compare(live(), live(), make_records(keep))
    assert found.agreement.value == 1.0 and not found.moves and found.as_decided == (1.0, 1.0)
    assert any("statistics" in sentence for sentence in found.unknown) == (keep == "statistics")


@pytest.mark.parametrize("keep", ["text", "tokens"])
def test_chats_are_routed_by_their_turns(keep: Keep) -> None:
    turns = ["Is this contract void?", "and how long does that take?"]
    chat = Conversation(live(), envelopes=())
    expert = [chat.route(turn) for turn in turns][-1].expert
    record = TrafficRecord("r1", 1.0, decided=expert, served=str(expert), prompt=keep_prompt(keep, turns))
    found = compare(live(), "always maths", [record])
    assert found.as_decided[0] == 1.0 and found.decoded == (keep == "tokens")


def test_accuracy_is_counted_on_labelled_prompts() -> None:
    records = label(make_records())
    found = compare(live(), candidate(), records).accuracy
    assert found is not None and found.labelled == len(records)
    right = [sum((side.route(text).expert == name) for name, own in TEXTS.items() for text in own) / 8
             for side in (live(), candidate())]  # fmt: skip
    assert (found.live.value, found.candidate.value) == pytest.approx(right)
    assert found.difference.value == pytest.approx(right[1] - right[0])
    assert found.difference.high < 0
    back = compare(candidate(), live(), records).accuracy
    assert back is not None and back.difference.value == pytest.approx(-found.difference.value)
    assert back.difference.low == pytest.approx(-found.difference.high)


def test_people_who_contradict_one_another_are_left_out() -> None:
    records = label(make_records(times=1))
    both = (Feedback("alice", 1.0, expert="law"), Feedback("bob", 1.0, expert="maths"))
    records[0] = TrafficRecord(**{**_fields(records[0]), "feedback": both})
    records[1] = TrafficRecord(**{**_fields(records[1]), "feedback": (Feedback("bob", 1.0, expert="cooking"),)})
    found = compare(live(), candidate(), records)
    assert found.accuracy is not None
    assert (found.accuracy.labelled, found.accuracy.contradictory, found.accuracy.foreign) == (7, 1, 1)
    assert any("labels differ" in sentence for sentence in found.unknown)


def test_costs_come_from_tokens_and_prices() -> None:
    records = make_records(prompt_tokens=1_000, cached_tokens=400, completion_tokens=100)
    prices = {"maths": Price(1.0, 10.0, 0.5), "law": Price(2.0, 20.0)}
    found = compare("always law", "always maths", records, prices=prices)
    assert found.cost is not None and found.cost.month is not None
    law, maths = (1_000 * 2 + 100 * 20) / 1e6, (600 * 1 + 400 * 0.5 + 100 * 10) / 1e6
    assert found.cost.live == pytest.approx(24 * law) and found.cost.candidate == pytest.approx(24 * maths)
    assert found.cost.saving.value == pytest.approx(1_000 * (law - maths))
    assert found.cost.month.value == pytest.approx(24 / 2.3 * 30.44 * (law - maths))
    assert found.cost.saving.low < found.cost.saving.value < found.cost.saving.high


def test_prices_are_solved_from_the_log() -> None:
    prices = {"maths": Price(1.0, 10.0, 0.5), "law": Price(2.0, 20.0, 1.0)}
    random, records = np.random.default_rng(0), []
    for one in make_records():
        read, cached, written = (int(value) for value in random.integers(100, 1_000, 3))
        price = prices[one.served].as_row()
        cost = read * price[0] + cached * price[1] + written * price[2]
        numbers = {"prompt_tokens": read + cached, "cached_tokens": cached, "completion_tokens": written, "cost": cost}
        records.append(TrafficRecord(**{**_fields(one), **numbers}))
    found = compare(live(), candidate(), records).cost
    assert found is not None and not found.inexact
    for name, price in prices.items():
        assert found.prices[name].as_row() == pytest.approx(price.as_row())
    dearer = [TrafficRecord(**{**_fields(one), "cost": 2 * (one.cost or 0)}) for one in records[12:]]
    changed = compare(live(), candidate(), [*records[:12], *dearer])
    assert changed.cost is not None and changed.cost.inexact
    assert any("changed within the log" in sentence for sentence in changed.unknown)


def test_days_are_clusters_of_a_long_log() -> None:
    numbers = {"prompt_tokens": 100, "completion_tokens": 10}
    prices = {"maths": Price(1.0, 1.0), "law": Price(2.0, 2.0)}
    for times, cluster in ((3, "conversation"), (20, "day")):
        found = compare(live(), candidate(), make_records(times=times, **numbers), prices=prices).cost
        assert found is not None and found.cluster == cluster


def test_what_is_not_known_is_said() -> None:
    found = compare(live(), candidate(), make_records(times=1))
    assert found.accuracy is found.score is found.cost is None
    said = " ".join(found.unknown)
    assert "no request has a label" in said and "no answer was scored" in said and "Cost is not known" in said
    records = [*make_records(times=1), TrafficRecord("gone", 1e9, decided="law", served="law")]
    assert compare(live(), candidate(), records).without_prompt == 1


def test_imported_labels_say_nothing_of_what_was_decided() -> None:
    """No router decided then: the log is not wrong on them."""
    decided = label(make_records())
    imported = label(make_records(decided="", served="", why="imported"))
    found = compare(None, candidate(), [*decided, *imported])
    assert (found.requests, found.undecided) == (len(decided), len(imported)) and "" not in found.experts
    assert replace(found, undecided=0, unknown=()) == replace(compare(None, candidate(), decided), unknown=())
    assert any("imported" in sentence for sentence in found.unknown)
    both, alone = (compare(live(), candidate(), records) for records in ([*decided, *imported], decided))
    assert (both.requests, both.experts) == (2 * len(decided), alone.experts)
    assert (both.as_decided, both.as_served) == (alone.as_decided, alone.as_served)
    with pytest.raises(InputError, match="were imported"):
        compare(None, candidate(), imported)
    prices = {"maths": Price(1.0, 1.0)}
    partly = compare(live(), "always maths", make_records(prompt_tokens=9, completion_tokens=9), prices=prices)
    assert partly.cost is not None and partly.cost.unpriced == ("law",)
    assert "no price is known of law" in " ".join(partly.unknown)


def test_scores_of_certain_choices_are_bounded() -> None:
    records = make_records(feedback=(Feedback("alice", 1.0, score=0.5),))
    found = compare(live(), candidate(), records)
    assert found.score is not None
    moved = found.moved / found.requests
    assert found.score.difference.unknown_share == pytest.approx(moved)
    assert found.score.difference.low < -0.5 * moved and found.score.difference.high > 0.5 * moved
    assert "chance never chose it" in " ".join(found.unknown)


def test_explored_scores_are_weighed_by_their_propensity() -> None:
    """One in four requests goes to the other expert by chance; that expert's answers are always good."""
    records = []
    for number, one in enumerate(make_records(times=25)):
        explored = number % 4 == 0
        served = {"maths": "law", "law": "maths"}[one.served] if explored else one.served
        score = (Feedback("alice", 1.0, score=float(explored)),)
        values = {"served": served, "propensity": 0.25 if explored else 0.75, "feedback": score}
        records.append(TrafficRecord(**{**_fields(one), **values}))
    found = compare(live(), candidate(), records)
    assert found.score is not None and found.score.difference.unknown_share == 0
    moved = found.moved / found.requests
    assert found.score.difference.value == pytest.approx(moved, abs=0.05)
    assert found.score.difference.low > 0.5 * moved
    assert sum(one.score for one in found.decisive) == pytest.approx(found.score.difference.value, abs=1e-6)


def test_which_experts_chance_could_have_chosen() -> None:
    ranking = (("law", 0.6), ("maths", 0.3), ("cooking", 0.1))
    certain = TrafficRecord("r", 1.0, decided="law", served="law", ranking=ranking)
    explored = TrafficRecord("r", 1.0, decided="law", served="law", propensity=0.9, arm="live", ranking=ranking)
    canary = TrafficRecord(
        "r", 1.0, decided="law", served="law", propensity=0.5, arm="live", candidate_expert="cooking", ranking=ranking
    )
    assert list_reachable(certain) == {"law"}
    assert list_reachable(explored) == {"law", "maths"}
    assert list_reachable(canary) == {"law", "cooking"}
    assert list_reachable(TrafficRecord("r", 1.0, served="law", propensity=0.5)) is None


def test_the_prompts_that_decide_are_added_up() -> None:
    found = compare(live(), candidate(), label(make_records(times=4)), examples=3)
    assert len(found.decisive) == 3 and all(one.requests == 4 for one in found.decisive)
    assert found.decisive[0].prompt in [text for own in TEXTS.values() for text in own]
    hidden = compare(live(), candidate(), make_records("statistics"))
    assert hidden.decisive and not any(one.prompt for one in hidden.decisive)


def test_a_candidate_with_other_experts() -> None:
    other = Router.fit(
        {**TEXTS, "cooking": ["Boil an egg.", "Bake bread."]}, embedding=tiny.embedding(), scorer=Blend()
    )
    found = compare(live(), other, make_records())
    assert "cooking" in " ".join(found.unknown)


def test_a_candidate_with_another_tokenizer() -> None:
    other = Router.fit(TEXTS, scorer=Blend())
    found = compare(live(), other, make_records("tokens"))
    assert found.decoded == found.requests == 24
    with pytest.raises(InputError, match="another tokenizer"):
        compare(live(), other, make_records("statistics"))


def test_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="there are no requests"):
        compare(live(), candidate(), [])
    with pytest.raises(InputError, match="none of the 1 requests keeps its prompt"):
        compare(live(), candidate(), [TrafficRecord("r", 1.0, decided="law", served="law")])
    with pytest.raises(InputError, match="no expert 'gpt-4o'"):
        compare("always gpt-4o", candidate(), make_records(times=1))


def test_a_comparison_is_plain_values() -> None:
    records = label(make_records(prompt_tokens=9, completion_tokens=9))
    found = compare(None, candidate(), records, prices={"maths": Price(1.0, 1.0), "law": Price(2.0, 1.0)})
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["names"] == ["log", "router"]
