"""Feedback together with what else a gateway does: streams, other APIs, hooks, the cache, pins, translation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_answers import CHAT, EVERYTHING, tell_all
from hook_functions import DOES, LET_GO, SEEN
from ir3de.traffic import Journal, TrafficRecord
from raw_sockets import Got, ask, chat
from running_gateway import QUESTIONS, TEXTS, Running, failing, running

LAW = QUESTIONS["law"]
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": chat(LAW),
    "/v1/completions": {"model": "auto", "prompt": LAW},
    "/v1/responses": {"model": "auto", "input": LAW},
    "/v1/messages": {**chat(LAW), "max_tokens": 9},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[Running]:
    experts = {name: {"capabilities": EVERYTHING} for name in TEXTS}
    feedback = {"folder": str(folder / "kept"), "keep": "text"}
    routing = {"pinning": {"release": 1.0}}
    with running(folder, experts=experts, cache={"ttl": 3_600}, feedback=feedback, routing=routing) as found:
        tell_all(found)
        yield found


def give(gateway: Running, **fields: Any) -> Got:
    return ask(gateway.url, fields, "/v1/feedback")


def row_of(folder: Path, request_id: str) -> TrafficRecord:
    with Journal.open(folder / "kept") as journal:
        found = journal.find(request_id)
    assert found is not None
    return found


def read_id(body: bytes, stream: bool) -> str:
    """The id that a client sees in an answer."""
    if not stream:
        return str(json.loads(body)["id"])
    data = next(line for line in body.splitlines() if line.startswith(b"data: {"))
    first = json.loads(data.removeprefix(b"data: "))
    return str((first.get("response") or first.get("message") or first)["id"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_each_api_s_answers_are_found_by_either_id(gateway: Running, folder: Path, path: str, stream: bool) -> None:
    body = {**ENDPOINTS[path], "temperature": len(path) / 100}  # so that no answer is of the cache
    got = ask(gateway.url, {**body, "stream": True} if stream else body, path)
    assert got.status == 200
    request_id, response_id = got.headers["x-request-id"], read_id(got.body, stream)
    found = give(gateway, response_id=response_id, thumb="down")
    assert (found.status, found.json["request_id"], found.json["response_id"]) == (200, request_id, response_id)
    row = row_of(folder, request_id)
    assert (row.response, row.served, row.prompt_tokens, row.completion_tokens) == (response_id, "law", 10, 5)
    assert row.cached_tokens == (None if path == "/v1/messages" else 0)
    assert row.prompt is not None and row.prompt.turns == (LAW,)
    assert give(gateway, request_id=request_id, thumb="up").status == 200


def test_an_answer_of_the_cache_is_a_request_of_its_own(gateway: Running, folder: Path) -> None:
    first, second = (ask(gateway.url, chat(LAW, seed=7)) for _ in range(2))
    assert second.headers["x-ir3de-cache"] == "hit"
    ids = [one.headers["x-request-id"] for one in (first, second)]
    give(gateway, request_id=ids[0], score=0.0)
    give(gateway, request_id=ids[1], score=1.0)
    rows = [row_of(folder, one) for one in ids]
    assert [row.feedback[0].score for row in rows] == [0.0, 1.0]
    assert rows[0].response == rows[1].response == json.loads(CHAT)["id"]
    assert (rows[1].prompt_tokens, rows[1].cost) == (None, None)  # it cost nothing


def test_turns_of_a_pinned_chat_are_requests_of_one_conversation(gateway: Running, folder: Path) -> None:
    ids = []
    for text in (LAW, QUESTIONS["maths"]):
        got = ask(gateway.url, chat(text), x_session_id="of-alice")
        ids.append(got.headers["x-request-id"])
    give(gateway, request_id=ids[1], expert="maths")
    first, second = (row_of(folder, one) for one in ids)
    assert first.conversation == second.conversation != ""
    assert "alice" not in first.conversation
    assert (second.decided, second.served, second.why, second.propensity) == ("maths", "law", "pinned", 1.0)
    assert second.feedback[0].expert == "maths"


def test_what_is_not_routed_is_not_kept(gateway: Running) -> None:
    named = ask(gateway.url, chat(LAW, "law", seed=1))
    counted = ask(gateway.url, ENDPOINTS["/v1/messages"], "/v1/messages/count_tokens")
    vector = ask(gateway.url, {"model": "auto", "input": "x"}, "/v1/embeddings")
    for got in (named, counted, vector):
        assert give(gateway, request_id=got.headers["x-request-id"], score=1).status == 404


def test_a_request_that_failed_is_kept_with_its_status(gateway: Running, folder: Path) -> None:
    gateway.upstream.behaviour["law"] = failing(400)
    try:
        got = ask(gateway.url, chat(LAW, seed=2))
    finally:
        tell_all(gateway)
    assert give(gateway, request_id=got.headers["x-request-id"], score=0).status == 200
    assert row_of(folder, got.headers["x-request-id"]).status == got.status == 400


@pytest.mark.parametrize("streams", ["hold", "observe"])
@pytest.mark.parametrize("stream", [False, True])
def test_hooks_do_not_hide_an_answer(tmp_path: Path, streams: str, stream: bool) -> None:
    """A hook changes the prompt, and the changed one is kept. One that observes may still run when feedback comes."""
    SEEN.clear()
    DOES.clear()
    LET_GO.clear()
    DOES["before"] = lambda event: {"texts": [one.replace("SECRET", "my") for one in event["texts"]]}
    hooks = {
        "before": [{"call": "hook_functions:before"}],
        "after": [{"call": "hook_functions:after", "streams": streams}],
    }
    feedback = {"folder": str(tmp_path / "kept"), "keep": "text"}
    experts = {name: {"capabilities": EVERYTHING} for name in TEXTS}
    try:
        with running(tmp_path, hooks=hooks, feedback=feedback, experts=experts) as gateway:
            tell_all(gateway)
            got = ask(gateway.url, chat("Is SECRET contract void?", stream=stream))
            assert give(gateway, response_id=read_id(got.body, stream), score=1).status == 200
        row = row_of(tmp_path, got.headers["x-request-id"])
        assert row.prompt is not None and row.prompt.turns == ("Is my contract void?",)
        assert len(SEEN) == 2
    finally:
        DOES.clear()
        LET_GO.set()


@pytest.mark.parametrize("stream", [False, True])
def test_a_translated_answer_has_the_id_that_the_client_sees(tmp_path: Path, stream: bool) -> None:
    experts = {name: {"capabilities": ["chat"]} for name in TEXTS}
    with running(tmp_path, experts=experts, feedback={"folder": str(tmp_path / "kept")}) as gateway:
        tell_all(gateway)
        body = {**ENDPOINTS["/v1/messages"], **({"stream": True} if stream else {})}
        got = ask(gateway.url, body, "/v1/messages")
        assert got.headers.get("x-ir3de-translated")
        found = give(gateway, response_id=read_id(got.body, stream), thumb="up")
        assert (found.status, found.json["request_id"]) == (200, got.headers["x-request-id"])
