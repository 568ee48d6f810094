"""Named keys and streams: usage is requested, charged and taken out again, whatever ends the stream."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api_answers import answer_as_servers_do, answers_as_openai, breaking_off
from client_keys import bearer, describe
from keyed_gateway import LAW, MESSAGES, PRICE, as_law, folder, gateway  # noqa: F401
from raw_sockets import Got, ask, chat, eventually, receive, sent
from running_gateway import QUESTIONS, Running, failing


def stream_of(gateway: Running, name: str, expert: str = "law", **fields: Any) -> Got:
    return ask(gateway.url, chat(QUESTIONS["law"], expert, stream=True, **fields), **bearer(name))


def test_the_usage_of_streams_is_asked_for_and_taken_out_again(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = gateway.upstream.behaviour["maths"] = answers_as_openai
    try:
        before = describe(gateway, "streams")["used"]["month"]
        got = stream_of(gateway, "streams")
        assert json.loads(gateway.upstream.bodies[-1])["stream_options"] == {"include_usage": True}
        assert b"usage" not in got.body and got.body.endswith(b'"stop"}]}\r\n\r\ndata: [DONE]\n\n')
        used = describe(gateway, "streams")["used"]["month"]
        assert (used["tokens"] - before["tokens"], used["estimated"]) == (77, before["estimated"])
        refused = stream_of(gateway, "streams", stream_options={"include_usage": False, "x": 1})
        assert json.loads(gateway.upstream.bodies[-1])["stream_options"] == {"include_usage": True, "x": 1}
        assert b"usage" not in refused.body
        wanted = stream_of(gateway, "streams", stream_options={"include_usage": True})
        assert b'"usage":{"prompt_tokens":70,' in wanted.body
        assert describe(gateway, "streams")["used"]["month"]["tokens"] - before["tokens"] == 3 * 77
        unasked = stream_of(gateway, "streams", "maths")  # it must not be asked: stream_usage is false
        assert "stream_options" not in json.loads(gateway.upstream.bodies[-1]) and b"usage" not in unasked.body
        after = describe(gateway, "streams")
        assert after["used"]["month"]["estimated"] == before["estimated"] + 1
        assert [row["expert"] for row in after["by_expert"]] == ["maths", "law"]
    finally:
        gateway.upstream.behaviour.clear()


def test_a_client_that_leaves_has_used_what_came_so_far_and_its_place_is_free(gateway: Running) -> None:
    left = threading.Event()

    async def never_ends(request: Request, asked: dict[str, Any]) -> Response:
        async def events() -> Any:
            try:
                for _ in range(5):
                    yield b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
                while True:
                    await asyncio.sleep(0.01)
                    yield b": still here\n\n"
            finally:
                left.set()

        return StreamingResponse(events(), media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = never_ends
    try:
        held = sent(gateway.url, json.dumps(chat("Is it void?", "law", stream=True)).encode(), **bearer("leaver"))
        seen = b""
        while seen.count(b"data:") < 5:
            seen += receive(held)
        expected = describe(gateway, "leaver")["used"]
        assert expected["tokens"] > 1_000 and expected["day"]["cost"] > 2.0  # as long an answer as may be expected
        held.close()
        assert left.wait(10)
        assert eventually(lambda: describe(gateway, "leaver")["used"]["concurrent"] == 0)
        used = describe(gateway, "leaver")["used"]
        assert 5 < used["tokens"] < 20 and used["month"]["estimated"] == 1
        assert 0.01 < used["day"]["cost"] < 0.03
    finally:
        gateway.upstream.behaviour.clear()


@pytest.mark.parametrize(("stream", "answer"), [(False, 80), (True, 0)])
def test_a_whole_answer_that_the_client_leaves_is_charged_as_the_longest_one(
    gateway: Running, stream: bool, answer: int
) -> None:
    """Nobody knows how much of it was written. Of a stream that has not begun, nothing was."""
    begun, left = threading.Event(), threading.Event()

    async def hang(request: Request, asked: dict[str, Any]) -> Response:
        begun.set()
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        left.set()
        return Response(status_code=500)

    gateway.upstream.behaviour["law"] = hang
    try:
        before = describe(gateway, "impatient")["used"]["month"]
        body = chat("Is it void?", "law", max_tokens=40, max_completion_tokens=40, n=2, stream=stream)
        held = sent(gateway.url, json.dumps(body).encode(), **bearer("impatient"))
        assert begun.wait(10)
        held.close()
        assert left.wait(10)
        assert eventually(lambda: describe(gateway, "impatient")["used"]["concurrent"] == 0)
        used = describe(gateway, "impatient")["used"]["month"]
        assert answer < used["tokens"] - before["tokens"] < answer + 10  # the prompt is an estimate
        assert used["estimated"] == before["estimated"] + 1
    finally:
        gateway.upstream.behaviour.clear()


def test_a_stream_that_breaks_off_is_charged_by_what_came_and_a_fallback_to_who_answered(gateway: Running) -> None:
    gateway.upstream.behaviour["law"] = breaking_off([b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'] * 3)
    gateway.upstream.behaviour["maths"] = failing(500)
    gateway.upstream.behaviour["cooking"] = answer_as_servers_do
    try:
        got = stream_of(gateway, "breaks")
        assert b"ended its stream in the middle" in got.body
        used = describe(gateway, "breaks")
        assert used["used"]["month"]["estimated"] == 1 and 3 < used["used"]["tokens"] < 20
        body = {**chat(QUESTIONS["maths"]), "ir3de": {"deny": ["law"]}}
        assert ask(gateway.url, body, **bearer("falls")).headers["x-ir3de-expert"] == "cooking"
        found = describe(gateway, "falls")
        assert [(row["expert"], row["tokens"]) for row in found["by_expert"]] == [("cooking", 15)]
        assert (found["used"]["tokens"], found["used"]["day"]["cost"], found["used"]["concurrent"]) == (15, 0, 0)
    finally:
        gateway.upstream.behaviour.clear()


@pytest.mark.parametrize("stream", [False, True])
def test_translated_answers_are_charged_by_what_the_expert_says(gateway: Running, stream: bool) -> None:
    """A chat for an expert that has only messages: it tells 10 and 5 tokens, and the client has not asked for them."""
    gateway.upstream.behaviour["cooking"] = answer_as_servers_do
    try:
        before = describe(gateway, "translated")["used"]["month"]
        got = ask(gateway.url, chat("An egg?", "cooking", stream=stream, max_tokens=9), **bearer("translated"))
        assert got.status == 200 and (b"usage" in got.body) != stream
        after = describe(gateway, "translated")["used"]["month"]
        assert (after["tokens"] - before["tokens"], after["estimated"]) == (15, 0)
        assert json.loads(gateway.upstream.bodies[-1])["max_tokens"] == 9
    finally:
        gateway.upstream.behaviour.clear()
