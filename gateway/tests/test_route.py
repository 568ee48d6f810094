"""POST /v1/route says what `Router` says, and refuses what it cannot read by naming the field."""

import copy
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
from ir3de import AllTokens, Conversation, EntropyTopK, PromptRidge, Router
from ir3de_gateway.http import route as chat_turns
from ir3de_gateway.http import variants
from ir3de_gateway.http.route import (
    MAX_EXPLAINED_CHARS,
    MAX_EXPLAINED_CHAT_CHARS,
    MAX_EXPLAINED_INPUTS,
    MAX_INPUTS,
    MAX_KEPT_BYTES,
)
from ir3de_gateway.wire.signal import build_signal
from running_gateway import QUESTIONS, TEXTS, Running, running, small_router

PROMPTS = [
    *QUESTIONS.values(),
    "",
    "zzz",
    "Is a contract to boil an egg void?",
    "SOLVE THIS EQUATION FOR ME",
    "\ud800x",
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("route")) as found:
        yield found


def ask(gateway: Running, body: object, path: str = "/v1/route") -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(gateway.url + path, content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def plain(value: Any) -> Any:
    """As it is after a way through JSON."""
    return json.loads(json.dumps(value).encode(errors="replace"))


def test_one_prompt_and_many_are_routed_as_the_router_routes_them(gateway: Running) -> None:
    router = small_router()
    status, found = ask(gateway, {"input": PROMPTS})
    assert status == 200
    assert (found["object"], found["experts"], found["default"]) == ("list", list(TEXTS), None)
    assert found["router"] == gateway.gateway.live.snapshot.digest
    decisions = [router.route(text).to_dict() for text in PROMPTS]
    assert found["data"] == plain([{"index": index, **said} for index, said in enumerate(decisions)])
    for index, text in enumerate(PROMPTS):
        assert ask(gateway, {"input": text})[1]["data"] == [{**found["data"][index], "index": 0}]


def test_signal_comes_when_it_is_asked_for(gateway: Running) -> None:
    found = ask(gateway, {"input": PROMPTS[:2], "signal": True})[1]
    assert [row["signal"] for row in found["data"]] == [
        plain(build_signal(small_router().route(text), found["router"])) for text in PROMPTS[:2]
    ]


def test_explanations_and_flips_are_the_routers_own(gateway: Running) -> None:
    router = small_router()
    _, found = ask(gateway, {"input": PROMPTS[:-1], "explain": True, "flips": True})
    for text, row in zip(PROMPTS, found["data"], strict=False):
        said = plain(router.explain(text).to_dict())
        assert [row[part] for part in ("compared", "words", "votes")] == [
            said[part] for part in ("compared", "words", "votes")
        ]
        assert row["flips"] == plain(router.flips(text).to_dict())


@pytest.mark.parametrize(
    ("asked", "selector"),
    [
        ({"selector": "all"}, AllTokens()),
        ({"selector": "entropy"}, EntropyTopK()),
        ({"selector": "entropy", "k": 2}, EntropyTopK(2)),
        ({"selector": "average"}, None),
    ],
)
def test_another_selector_reads_the_same_fit(gateway: Running, asked: dict[str, Any], selector: Any) -> None:
    router = small_router() if selector is None else small_router().with_selector(selector)
    _, found = ask(gateway, {"input": PROMPTS[:-1], "explain": True, **asked})
    for text, row in zip(PROMPTS, found["data"], strict=False):
        assert row["votes"] == plain(router.explain(text).to_dict()["votes"])
        assert row["ranking"] == plain(router.route(text).to_dict()["ranking"])


def test_another_scorer_is_fitted_from_the_same_statistics(gateway: Running) -> None:
    wanted = Router.fit(TEXTS, scorer=PromptRidge()).with_selector(EntropyTopK(3))
    asked = {"input": "Is my egg void?", "scorer": "prompt-ridge", "selector": "entropy", "k": 3}
    status, found = ask(gateway, asked)
    assert status == 200
    assert found["data"][0]["ranking"] == plain(wanted.route("Is my egg void?").to_dict()["ranking"])
    assert found["options"] == ask(gateway, {"input": ""})[1]["options"]
    assert found["options"]["selectors"] == ["average", "all", "entropy"]
    assert (found["options"]["selector"], found["options"]["scorer"]) == ("average", "as fitted")
    assert "prompt-ridge" in found["options"]["scorers"]


def test_another_scorer_is_fitted_elsewhere_and_few_variants_are_kept(
    gateway: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a fit enlarges this process for good")

    monkeypatch.setattr(Router, "fit", fail)
    for asked in ({"scorer": "posterior", "selector": "all"}, {"scorer": "posterior"}, {"selector": "all"}):
        assert ask(gateway, {"input": "Is my egg void?", **asked})[0] == 200
    assert len(variants._caches[gateway.gateway.live.snapshot.router].routers) == variants.MAX_VARIANTS


def test_a_router_that_is_being_replaced_has_no_other_scorer_yet(tmp_path: Path) -> None:
    with running(tmp_path) as gateway:
        assert "blend" in ask(gateway, {"input": "x"})[1]["options"]["scorers"]
        live = gateway.gateway.live
        variants._caches[replaced := copy.copy(live.snapshot.router)] = variants._caches[live.snapshot.router]
        live.swap(replace(live.snapshot, digest="0" * 64, router=replaced))
        status, found = ask(gateway, {"input": "x", "scorer": "blend"})
        assert status == 409 and "being replaced" in found["error"]["message"]


# --- what a request may cost ---


def test_a_prompt_of_megabytes_is_routed_by_its_beginning(gateway: Running) -> None:
    text = "Is my contract void? " * 500_000
    status, found = ask(gateway, {"input": text, "explain": True})
    assert status == 200
    expected = small_router().route(text).to_dict()
    assert {name: found["data"][0][name] for name in expected} == plain(expected)
    assert len(found["data"][0]["votes"]) == expected["tokens"] == 1024


def test_many_long_prompts_are_routed_one_and_all(gateway: Running) -> None:
    texts = [f"{question} " * 200 for question in QUESTIONS.values()] * 100
    status, found = ask(gateway, {"input": texts})
    assert status == 200
    assert [row["expert"] for row in found["data"]] == list(QUESTIONS) * 100


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"input": ["egg " * 3_000] * 40, "explain": True},
            f"at most {MAX_EXPLAINED_CHARS:,} are possible with explain",
        ),
        ({"input": ["法" * 3_000] * 40, "flips": True}, "have 120,000 characters"),
        ({"input": ["x" * 15_000] * 1_000}, f"more than {MAX_KEPT_BYTES:,} bytes"),
        ({"input": ["x"] * 20_000 + ["y" * 600_000]}, "more than 10,000 messages"),
    ],
)
def test_what_costs_too_much_is_refused_with_its_limit(gateway: Running, body: object, said: str) -> None:
    status, found = ask(gateway, body)
    assert status == 413 and said in found["error"]["message"]


def test_messages_are_read_as_the_chat_endpoint_reads_them(gateway: Running) -> None:
    messages = [
        {"role": "system", "content": "You boil eggs."},
        {"role": "user", "content": "How do I boil an egg?"},
        {"role": "assistant", "content": "Gently."},
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>egg</system-reminder>Solve 3x = 12."}]},
    ]
    assert ask(gateway, {"messages": messages})[1]["data"] == ask(gateway, {"input": "Solve 3x = 12."})[1]["data"]


CHAT = [
    {"role": "system", "content": "You boil eggs."},
    {"role": "user", "content": "Can my landlord evict me?"},
    {"role": "assistant", "content": "No."},
    {"role": "user", "content": "<system-reminder>egg</system-reminder>ok, and how long does that take?"},
    {"role": "tool", "content": "Boil an egg."},
    {"role": "user", "content": [{"type": "text", "text": "Solve 3x = 12."}]},
]


@pytest.mark.parametrize("explain", [False, True])
def test_the_turns_of_a_chat_are_those_of_the_library(gateway: Running, explain: bool) -> None:
    chat = Conversation.from_messages(small_router(), CHAT)
    status, found = ask(gateway, {"messages": CHAT, "explain": explain})
    assert status == 200
    assert [(row["turn"], row["message"], row["text"]) for row in found["turns"]] == [
        (0, 1, "Can my landlord evict me?"),
        (1, 3, "ok, and how long does that take?"),
        (2, 5, "Solve 3x = 12."),
    ]
    assert [(row["expert"], row["why"], row["decided"]) for row in found["turns"]] == [
        ("law", "routed", 0),
        ("law", "stayed", 0),
        ("maths", "new subject", 2),
    ]
    for index, row in enumerate(found["turns"]):
        said = plain(chat.explain(index).to_dict())
        same = ("expert", "confidence", "abstained", "reason", "why", "decided", *(("compared", "words") * explain))
        assert [row[name] for name in same] == [said[name] for name in same]
        weights = [{name: one[name] for name in ("turn", "weight", "lead")} for one in said["weights"]]
        assert row["weights"] == weights and ("words" in row) == explain
    last = plain(chat.explain().to_dict())
    assert [{name: row[name] for name in row if name in last} for row in found["data"]] == [
        {name: last[name] for name in found["data"][0] if name in last}
    ]
    assert ("votes" in found["data"][0]) == explain


def test_a_chat_of_one_turn_is_routed_as_a_prompt_and_flips_with_it(gateway: Running) -> None:
    asked = {"explain": True, "flips": True}
    as_prompt = ask(gateway, {"input": "Can my landlord evict me?", **asked})[1]
    as_chat = ask(gateway, {"messages": CHAT[:2], **asked})[1]
    assert as_chat["data"] == as_prompt["data"] and "turns" not in as_prompt
    assert "flips" not in ask(gateway, {"messages": CHAT, **asked})[1]["data"][0]


def test_a_chat_without_words_of_the_user_has_no_turns(gateway: Running) -> None:
    _, found = ask(gateway, {"messages": CHAT[:1], "explain": True})
    assert found["turns"] == [] and found["data"][0]["reason"] == "no known token"


def test_a_chat_of_thousands_of_turns_shows_the_last_ones(gateway: Running) -> None:
    messages = [{"role": "user", "content": text} for text in (*QUESTIONS.values(), "why? " * 99)] * 500
    status, found = ask(gateway, {"messages": messages, "explain": True})
    assert status == 200 and [row["turn"] for row in found["turns"]] == list(range(1_000, 2_000))
    explained = [row["turn"] for row in found["turns"] if "words" in row]
    assert 0 < len(explained) <= 100 and explained[-1] == 1_999
    assert found["turns"][-1]["expert"] == Conversation.from_messages(small_router(), messages).decision.expert


@pytest.mark.parametrize(("turns", "repeats"), [(200, 25), (1_000, 5), (3, 2_000)])
def test_the_words_of_a_long_chat_are_explained_as_far_as_the_bound_goes(
    gateway: Running, turns: int, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """107 kB: newest turns first, and nothing is explained that is not shown. Rows tell whether they are explained."""
    explained, describe = list[int](), chat_turns._describe_words

    def count(found: Any) -> dict[str, Any]:
        explained.append(sum(len(word.text) for word in found.words))
        return describe(found)

    monkeypatch.setattr(chat_turns, "_describe_words", count)
    texts = [f"{question} " * repeats for question in QUESTIONS.values()]
    messages = [{"role": "user", "content": texts[place % 3]} for place in range(turns)]
    assert len(json.dumps(messages)) > 100_000
    status, found = ask(gateway, {"messages": messages, "explain": True})
    assert status == 200 and sum(explained) <= MAX_EXPLAINED_CHAT_CHARS
    assert [row["explained"] for row in found["turns"]] == ["words" in row for row in found["turns"]]
    shown = {(row["decided"], row["best"]) for row in found["turns"] if row["explained"]}
    assert len(shown) == len(explained) > 0 and found["turns"][-1]["explained"]
    _, plain_rows = ask(gateway, {"messages": messages[:3]})
    assert "explained" not in plain_rows["turns"][0]


def test_other_ways_to_read_a_chat_have_no_turns(tmp_path: Path) -> None:
    with running(tmp_path, routing={"text": "last_user"}) as gateway:
        found = ask(gateway, {"messages": CHAT[:4]})[1]
        expected = small_router().route("ok, and how long does that take?").to_dict()
        assert "turns" not in found and found["data"] == [{"index": 0, **plain(expected)}]


def test_weights_are_those_of_this_request(tmp_path: Path) -> None:
    from ir3de.policies import Policy

    router = small_router().with_policy(Policy(costs={"law": {"price": 1.0}}))
    router.save(tmp_path / "router")
    with running(tmp_path) as gateway:
        for weights in ({}, {"price": 0.0}, {"price": 9.0}):
            _, found = ask(gateway, {"input": "Is my contract void?", "weights": weights})
            decision = router.route("Is my contract void?", weights=weights)
            assert found["data"] == plain([{"index": 0, **decision.to_dict()}])
        for weight, shown in (("1e308", "1e+308"), ("1e400", "inf"), ("1" + "0" * 400, "1" + "0" * 9)):
            content = b'{"input": "x", "weights": {"price": %s}}' % weight.encode()
            status, found = ask(gateway, content)
            assert (status, found["error"]["param"]) == (400, "weights") and shown in found["error"]["message"]
            chat = b'{"messages": [{"role": "user", "content": "x"}], "ir3de": {"weights": {"price": %s}}}'
            status, found = ask(gateway, chat % weight.encode(), "/v1/chat/completions")
            assert (status, found["error"]["param"]) == (400, "ir3de.weights") and shown in found["error"]["message"]


def test_a_serving_copy_offers_no_scorer(tmp_path: Path) -> None:
    small_router().save(tmp_path / "router", serving=True)
    with running(tmp_path) as gateway:
        assert ask(gateway, {"input": "x"})[1]["options"]["scorers"] == []
        status, found = ask(gateway, {"input": "x", "scorer": "paper"})
        assert (status, found["error"]["param"]) == (422, "scorer")
        assert ask(gateway, {"input": "x", "selector": "all"})[0] == 200


def test_a_router_from_outcomes_is_read_in_one_way(tmp_path: Path) -> None:
    rows = [
        {"text": text, "task": task, "scores": {name: float(name == task) for name in TEXTS}}
        for task, texts in TEXTS.items()
        for text in texts
    ]
    router = Router.fit_outcomes(rows, embedding=tiny.embedding())
    router.save(tmp_path / "router")
    with running(tmp_path) as gateway:
        _, found = ask(gateway, {"input": "Is my contract void?", "explain": True, "flips": True})
        row = found["data"][0]
        assert row["confidence"] is None and row["expected_score"] == row["ranking"][0]["expected_score"]
        assert all(set(one) == {"expert", "expected_score"} for one in row["ranking"])
        assert (found["options"]["selectors"], found["options"]["scorers"]) == (["average"], [])
        assert found["data"][0]["flips"] == plain(router.flips("Is my contract void?").to_dict())
        assert ask(gateway, {"input": "x", "selector": "all"})[0] == 422


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"", 400, None),
        (b"[]", 400, None),
        (b'{"input": ', 400, None),
        ({}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": 7}, 400, "input"),
        ({"input": None}, 400, "input"),
        ({"input": ["a", None]}, 400, "input[1]"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, 400, "input"),
        ({"input": ["a"] * (MAX_EXPLAINED_INPUTS + 1), "explain": True}, 400, "input"),
        ({"input": "a", "messages": [{"role": "user", "content": "b"}]}, 400, "input"),
        ({"messages": []}, 400, "messages"),
        ({"messages": "hello"}, 400, "messages"),
        ({"input": "a", "explain": 1}, 400, "explain"),
        ({"input": "a", "flips": "yes"}, 400, "flips"),
        ({"input": "a", "selector": 1}, 400, "selector"),
        ({"input": "a", "selector": "best"}, 422, "selector"),
        ({"input": "a", "scorer": "magic"}, 422, "scorer"),
        ({"input": "a", "k": 3}, 422, "k"),
        ({"input": "a", "selector": "entropy", "k": 0}, 400, "k"),
        ({"input": "a", "selector": "entropy", "k": True}, 400, "k"),
        ({"input": "a", "selector": "entropy", "k": 2.5}, 400, "k"),
        ({"input": "a", "weights": [1]}, 400, "weights"),
        ({"input": "a", "weights": {"price": "high"}}, 400, "weights"),
        ({"input": "a", "inputs": "b"}, 400, "inputs"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(gateway: Running, body: object, status: int, param: str | None) -> None:
    found, answer = ask(gateway, body)
    assert (found, answer["error"]["param"]) == (status, param)
    assert answer["error"]["message"] and answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": 7}, "input must be a prompt or a list of prompts (or send messages), found 7"),
        (
            {"input": {"text": "private"}},
            "input must be a prompt or a list of prompts (or send messages), found an object",
        ),
        ({"input": "a", "explain": 1}, "explain: must be true or false, found 1"),
        ({"input": "a", "selector": ["all"]}, "selector: must be a valid string, found a list"),
        ({"input": "a", "k": 0}, "k: must be greater than or equal to 1, found 0"),
        ({"input": "a", "weights": {"price": "high"}}, "weights: price must be a number, found 'high'"),
        ({"input": "a", "k": "x" * 99}, 'k: must be a valid integer, found "' + "x" * 58 + "…"),
    ],
)
def test_errors_say_what_was_found(gateway: Running, body: object, message: str) -> None:
    assert ask(gateway, body)[1]["error"]["message"] == message


def test_many_readings_at_once_are_made_once_each_and_answered_alike(gateway: Running) -> None:
    asked = {"input": "Is my egg void?", "scorer": "posterior", "selector": "all"}
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(ask(gateway, asked)[1]["data"])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 6
    assert all(answer == answers[0] for answer in answers)


def test_the_k_that_is_served_is_reported_and_can_be_changed_alone(tmp_path: Path) -> None:
    router = small_router().with_selector(EntropyTopK(4))
    router.save(tmp_path / "router")
    with running(tmp_path) as gateway:
        options = ask(gateway, {"input": "x"})[1]["options"]
        assert (options["selector"], options["k"]) == ("entropy", 4)
        _, found = ask(gateway, {"input": "Is my contract void?", "k": 1})
        assert found["data"][0]["counted"] == 1
