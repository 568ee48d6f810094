"""Conversations: the same turns give the same decisions, follow-ups stay, and a new subject is noticed."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de
import tiny
from answered_prompts import answers
from demo_router import demo_router
from ir3de import AllTokens, Average, Conversation, EntropyTopK, Router
from ir3de.corpora import examples
from ir3de.errors import InputError
from ir3de.policies import Policy, TurnWeights
from ir3de.routing.decision import Decision
from ir3de.routing.messages import END_CHARS, MAX_TURN_CHARS, MIN_PASTE_CHARS, count_content, split_paste
from ir3de.scorers import Blend
from ir3de.scorers.table import FAMILIARITY_UNIT
from ir3de.selectors import Selector
from laws import SELECTORS, shown, wordy

FOLLOW_UPS = ["ok, and how long does that take?", "thanks", "why?", "can you give me an example?", "the second one"]
ROUTERS = {
    "calibrated": lambda: tiny.router(20, default="law"),
    "not calibrated": lambda: tiny.router(keep_sample=False),
    "few votes": lambda: tiny.router(20, selector=EntropyTopK(3)),
    "votes": lambda: tiny.router(of=tiny.word_embedding(), selector=AllTokens()),
    "pairs": lambda: tiny.router(scorer=Blend(0.5, 0.5)),
    "outcomes": lambda: Router.fit_outcomes(answers(number=20), embedding=tiny.embedding()),
}
_MADE: dict[str, Router] = {}


def made(kind: str) -> Router:
    if kind not in _MADE:
        _MADE[kind] = ROUTERS[kind]()
    return _MADE[kind]


@pytest.fixture(scope="module")
def router() -> Router:
    return demo_router()


kinds = st.sampled_from(list(ROUTERS))
long_turns = st.builds("{}\n\n{}".format, wordy, st.lists(wordy, min_size=20, max_size=30).map(" ".join))
turns = st.lists(wordy | st.sampled_from(FOLLOW_UPS) | st.text(max_size=20) | long_turns, min_size=1, max_size=8)


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def users(*texts: str) -> list[dict[str, Any]]:
    return [said("user", text) for text in texts]


# laws -----------------------------------------------------------------------------------------------------------------


@tiny.LAW
@given(kinds, turns, st.integers(0, 8))
def test_the_same_history_gives_the_same_decisions_to_the_bit(kind: str, texts: list[str], cut: int) -> None:
    """At once, turn by turn, or in two parts; with or without what is not the user's."""
    router = made(kind)
    at_once = [turn.decision for turn in Conversation.from_messages(router, users(*texts)).turns]
    chat = Conversation(router)
    one_by_one = [chat.route(text) for text in texts]
    noise = [said("system", "Sort this list in Python."), said("assistant", "A court decides."), said("tool", "egg")]
    parts = Conversation(router)
    for part in (texts[:cut], texts[cut:]):
        if part:
            parts.add_messages([*noise, *(one for text in part for one in (said("user", text), *noise))])
    for others in (one_by_one, [turn.decision for turn in parts.turns]):
        for one, other in zip(at_once, others, strict=True):
            assert one._tally.tobytes() == other._tally.tobytes() and shown(one) == shown(other)


@tiny.LAW
@given(kinds, wordy | st.text(max_size=60))
def test_a_first_turn_is_routed_like_a_prompt(kind: str, text: str) -> None:
    router = made(kind)
    assert shown(Conversation(router).route(text)) == shown(router.route(text))


@tiny.LAW
@given(kinds, turns, st.sampled_from(FOLLOW_UPS))
def test_turns_without_content_change_nothing(kind: str, texts: list[str], follow_up: str) -> None:
    chat = Conversation.from_messages(made(kind), users("landlord contract court", *texts))
    before = chat.decision
    assert shown(chat.route(follow_up)) == shown(before)
    after = Conversation.from_messages(made(kind), users("landlord contract court", *texts, follow_up))
    assert shown(after.route("boil flour")) == shown(chat.route("boil flour"))


@tiny.LAW
@given(kinds, turns)
def test_explanations_add_up(kind: str, texts: list[str]) -> None:
    chat = Conversation.from_messages(made(kind), users(*texts))
    for place, turn in enumerate(chat.turns):
        found = chat.explain(place)
        assert found.turn == place and shown(found.decision) == shown(turn.decision)
        assert sum(one.weight for one in found.weights) == pytest.approx(1)
        assert found.decided in {one.turn for one in found.weights} and found.decided <= place
        assert max(one.lead for one in found.weights) == next(
            one.lead for one in found.weights if one.turn == found.decided
        )
        assert json.dumps(found.to_dict())
    assert len(chat) == len(chat.turns) == len(texts)


def test_the_total_is_the_weighted_sum_of_the_turns(router: Router) -> None:
    """The formula by hand: total ← decay · total + own · tally, up to a common factor, tokens rounded."""
    texts = [
        "Can my landlord evict me without a court order, although the lease that we signed says nothing about it?",
        "Is a verbal contract binding?",
        "And a lease?",
    ]
    chat, weights = Conversation(router), TurnWeights()
    *_, decision = (chat.route(text) for text in texts)
    total, tokens, before = np.zeros(len(decision._tally)), 0, 1.0
    for text, content in zip(texts, (1.0, 1.0, 0.5), strict=True):
        ids = router.tokenizer.encode(text)
        own = content * min(1.0, weights.cap / len(ids))
        left = int(weights.decay * tokens * before / own + 0.5)
        total = total * (left / max(1, tokens)) + router.compiled.ballots.tally(ids)
        tokens, before = left + len(ids), own
    assert decision.counted == decision.tokens == tokens and np.array_equal(decision._tally, total)


def test_a_short_turn_keeps_the_weight_of_one_token(router: Router) -> None:
    """Rounding must not lose it: 0.1 of half a token is left."""
    chat = Conversation(router, turn_weights=TurnWeights(decay=0.1, change=math.inf))
    text = "Can my landlord evict me?"
    assert chat.route("contract").counted == 1
    assert chat.route(text).counted == router.route(text).counted + 1


def mean_familiarity(decision: Decision) -> float:
    """Of the tokens; the decision has it in standard deviations."""
    mean = decision._tally.item(len(decision.experts)) / (FAMILIARITY_UNIT * decision.tokens)
    known = decision._rules.familiarity
    assert known is not None and decision.familiarity == pytest.approx(known.deviation(mean, decision.tokens))
    return mean


@pytest.mark.parametrize("selector", [*SELECTORS, Average(cap=5), EntropyTopK(2, cap=9)], ids=str)
def test_the_familiarity_of_a_chat_lies_between_those_of_its_turns(router: Router, selector: Selector) -> None:
    selected = router.with_selector(selector)
    texts = [text for own in zip(*examples.held_out().values(), strict=False) for text in own][:12]
    pasted = f"{texts[0]}\n\n{' '.join(texts)}"
    chat, means = Conversation(selected, turn_weights=TurnWeights(change=math.inf)), []
    for text in (*texts[:6], pasted, *texts[6:]):
        parts = split_paste(text) if text is pasted else (text,)
        means += [mean_familiarity(selected.route(part)) for part in parts]
        decision = chat.route(text)
        assert decision.counted <= decision.tokens
        assert min(means) - 1e-9 <= mean_familiarity(decision) <= max(means) + 1e-9


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_a_turn_that_is_repeated_stays_as_familiar(router: Router, selector: Selector) -> None:
    selected, text = router.with_selector(selector), examples.held_out()["law"][2]
    chat, mean = Conversation(selected), mean_familiarity(selected.route(text))
    assert [mean_familiarity(chat.route(text)) for _ in range(5)] == pytest.approx([mean] * 5, rel=1e-12)


@pytest.mark.parametrize("selector", [AllTokens(), EntropyTopK(3), EntropyTopK(10)], ids=str)
def test_parts_of_votes_count_where_a_chat_begins_with_a_paste(router: Router, selector: Selector) -> None:
    selected = router.with_selector(selector)
    texts = [text for own in examples.held_out().values() for text in own[:8]]
    chat = Conversation(selected)
    decision = chat.route(f"contract?\n\n{' '.join(texts)}")
    votes = chat._records[0][4][: len(selected.experts)]
    assert decision.evidence == pytest.approx((votes / votes.sum()).tolist(), abs=0.02)


def test_legal_turns_are_in_domain_also_where_few_tokens_vote(router: Router) -> None:
    voted = router.with_selector(EntropyTopK(3))
    texts = examples.held_out()["law"][:6]
    assert not any(voted.route(text).out_of_domain for text in texts)
    chat = Conversation(voted)
    assert not any(chat.route(text).out_of_domain for text in texts)


# what counts ----------------------------------------------------------------------------------------------------------


def test_a_chat_about_a_landlord(router: Router) -> None:
    chat = Conversation(router)
    asked = ["My landlord wants to evict me, what can I do?", *FOLLOW_UPS]
    assert [chat.route(text).expert for text in asked] == ["law"] * 6
    assert chat.explain().decided == 0 and not chat.explain().changed
    assert chat.route("How do I reverse a linked list in Python?").expert == "coding"
    found = chat.explain()
    assert found.changed and found.decided == 6 and [one.turn for one in found.weights] == [6]
    assert chat.route("and in Java?").expert == "coding"
    assert chat.explain(2).decided == 0 and chat.explain(-1).turn == 7
    assert "landlord" in "".join(token.text for token in chat.explain(2).deciding.tokens)


def test_older_turns_weigh_less(router: Router) -> None:
    chat = Conversation(router)
    for text in ("Can my landlord evict me?", "Is my tenancy contract void?", "Can a court fine my landlord?"):
        chat.route(text)
    weights = [one.weight for one in chat.explain().weights]
    assert len(weights) == 3 and all(old < new for old, new in pairwise(weights))


def test_only_the_users_words_count(router: Router) -> None:
    block = {"type": "tool_result", "tool_use_id": "1", "content": "def f(): return sorted(x)"}
    messages = [
        said("system", "You are a Python coding agent. Write code."),
        said("developer", "Sort lists."),
        said("user", "<system-reminder>Use Python.</system-reminder>Can my landlord evict me?"),
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "python", "arguments": "{}"}}]},
        said("tool", "import numpy as np"),
        said("assistant", "Here is the Python code."),
        said("user", [block]),
        said("user", [{"type": "text", "text": "and how long does that take?"}, {"type": "image_url"}]),
        said("user", [{"type": "image_url", "image_url": {"url": "data:,"}}]),
    ]
    chat = Conversation.from_messages(router, messages)
    assert [turn.place for turn in chat.turns] == [2, 7, 8]
    assert {turn.decision.expert for turn in chat.turns} == {"law"}
    more = chat.add_messages([said("assistant", "Yes."), said("user", "thanks")])
    assert [(turn.place, turn.text, turn.decision.expert) for turn in more] == [(10, "thanks", "law")]


LAWSUIT = "The judge read the statute, and the court found the tenant liable under the contract. " * 30


def test_a_pasted_document_neither_dominates_nor_vanishes(router: Router) -> None:
    chat = Conversation(router)
    assert chat.route(f"Please summarise this:\n{LAWSUIT}").expert == "law"
    assert chat.explain().decided == 0
    chat = Conversation(router)
    question = "How do I parse a text file into a dictionary in Python?"
    assert router.route(f"{question}\n\n{LAWSUIT}").expert == "law"  # what the paste does to a plain route
    assert chat.route(f"{question}\n\n{LAWSUIT}").expert == "coding"
    assert chat.route("What is the derivative of x squared times the sine of x?").expert == "mathematics"


def test_pastes_are_told_from_words() -> None:
    assert split_paste("short\n\nturn") == ("short\n\nturn", "")
    assert split_paste("x" * 500) == ("x" * 500, "")
    long = "A long line. " * 50
    assert split_paste(f"Fix this:\n{long}") == ("Fix this:", long)
    assert split_paste(f"Fix this\n```\n{long}\n```\nWhy does it fail?")[0] == "Fix this\n\n\nWhy does it fail?"
    assert split_paste(f"{long}\n\nWhat does it say?") == ("What does it say?", long)
    words, paste = split_paste("question?\n\n" + "y " * MAX_TURN_CHARS + "\n\nwhy?")
    assert words == "question?\nwhy?" and len(paste) <= MAX_TURN_CHARS
    assert END_CHARS < MAX_TURN_CHARS and len(long) > MIN_PASTE_CHARS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("?!", 0),
        ("OK — thanks…", 0),
        ("I don’t understand", 0),
        ("and in Python?", 1),
        ("python, Python, PYTHON!", 1),
        ("Can my landlord evict me?", 2),
        ("我的房东想赶我走", 1),
        ("ok " * 50, 2),
    ],
)
def test_content_of_turns(text: str, words: int) -> None:
    assert count_content(text) == words


# options --------------------------------------------------------------------------------------------------------------


def test_costs_and_thresholds_hold_in_conversations(router: Router) -> None:
    priced = router.with_policy(Policy(costs={"law": {"price": 5.0}}))
    chat = Conversation(priced)
    assert chat.route("Can my landlord evict me?").expert == "law"
    assert chat.route("why?", weights={"price": 1.0}).expert != "law"
    assert chat.route("why?").expert == "law"
    unsure = Conversation(router.with_policy(Policy(threshold=1.0), default="history"))
    assert unsure.route("Can my landlord evict me?").expert == "history"
    assert unsure.route("why?").reason == "low confidence"


def test_other_weights(router: Router) -> None:
    texts = ["Can my landlord evict me?", "How do I reverse a linked list in Python?"]
    never = TurnWeights(change=1e9, decay=1.0)
    stubborn = Conversation.from_messages(router, users(*texts * 3), turn_weights=never)
    assert not any(stubborn.explain(turn).changed for turn in range(6))
    assert Conversation.from_messages(router, users(*texts)).explain().changed


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"decay": 1.5}, "decay must be a number between 0 and 1, found 1.5"),
        ({"change": -1}, "change must be a number at least 0, found -1"),
        ({"paste": "x"}, "paste must be a number, found 'x'"),
        ({"cap": 0}, "cap must be a whole number of tokens, at least 1, found 0"),
        ({"cap": 2.5}, "cap must be a whole number"),
        ({"decay": True}, "decay must be a number"),
    ],
)
def test_wrong_weights_are_refused(weights: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said.replace("'", ".")):
        TurnWeights(**weights)


# bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages is empty: send at least one message"),
        ("hello", "messages must be a list of messages"),
        ([{"role": "system", "content": "S"}, {"role": "tool", "content": "7"}], "only the roles system, tool"),
        ([{"role": "user", "content": [{"type": "tool_result", "content": "7"}]}], "has no words of the user"),
        (
            [{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}],
            "role must be one of user, system",
        ),
        ([{"role": "user", "content": 7}], r"messages\[0\].content must be a string or a list of parts, found 7"),
        ([{"role": "user", "content": "a"}, None], r"messages\[1\] must be an object"),
    ],
)
def test_bad_chats_are_refused_and_change_nothing(router: Router, messages: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Conversation.from_messages(router, messages)
    chat = Conversation.from_messages(router, users("Can my landlord evict me?"))
    with pytest.raises(InputError, match=said):
        chat.add_messages(messages)
    assert len(chat) == 1 and chat.route("why?").expert == "law" and chat.turns[1].place == 1


def test_a_conversation_without_turns_says_so(router: Router) -> None:
    for ask in (lambda: Conversation(router).decision, Conversation(router).explain):
        with pytest.raises(InputError, match="no turn yet"):
            ask()
    with pytest.raises(InputError, match="no turn 4: the conversation has 1"):
        Conversation.from_messages(router, users("a")).explain(4)
    with pytest.raises(InputError, match="str"):
        Conversation(router).route(7)  # type: ignore[arg-type]


def test_roles_in_any_order_are_harmless(router: Router) -> None:
    messages = [said("assistant", "Hello!"), *users("Can my landlord evict me?", "why?"), said("system", "S")]
    assert [turn.decision.expert for turn in Conversation.from_messages(router, messages).turns] == ["law", "law"]


def test_a_thousand_turns_and_a_turn_of_a_megabyte(router: Router) -> None:
    chat = Conversation.from_messages(router, users(*["Can my landlord evict me?", "why?"] * 500))
    assert chat.decision.expert == "law" and len(chat.explain().weights) < 100
    assert chat.route("landlord " * 120_000).expert == "law"
    assert chat.route("\n" * 1_000_000 + "Can a court evict me?").expert == "law"
    assert chat.route("<system-reminder>" * 60_000).best in router.experts


def test_a_conversation_keeps_its_router() -> None:
    router = tiny.router()
    chat = Conversation(router)
    before = chat.route("landlord contract")
    router.remove("cooking")
    assert shown(chat.route("why?")) == shown(before)
    assert ir3de.Conversation is Conversation
