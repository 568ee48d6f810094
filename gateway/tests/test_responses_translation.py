"""OpenAI's responses from experts that have only chats, by the official client: streams, tools, stored responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from client_keys import key, secret, write_keys
from ir3de_gateway.translation import UntranslatableError
from ir3de_gateway.translation.response_requests import build_chat_from_response
from official_client import connect_as
from raw_sockets import GOOD, ask
from running_gateway import ANSWER, QUESTIONS, Behaviour, Running, answer, event, running

TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 4,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


@pytest.fixture(scope="module")
def one_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    here = tmp_path_factory.mktemp("responses")
    file = write_keys(here / "keys.yaml", key("a"), key("b"), key("few", requests_per_minute=1))
    experts = {"law": {"system_prompt": "Be brief.", "model": "llama-law"}, "cooking": {"capabilities": ["messages"]}}
    with running(here, server={"keys_file": str(file)}, experts=experts) as found:
        yield found


@pytest.fixture
def gateway(one_gateway: Running) -> Running:
    one_gateway.upstream.behaviour.clear()
    return one_gateway


def client(gateway: Running, name: str = "a") -> openai.OpenAI:
    return connect_as(gateway.url, name)


def last_request(gateway: Running) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway.upstream.bodies[-1])
    return found


def streams(*deltas: dict[str, Any], finish: str = "stop", done: bool = True) -> Behaviour:
    async def events() -> AsyncIterator[bytes]:
        for delta in deltas:
            yield event({"id": "x", "model": "served", "choices": [{"index": 0, "delta": delta}]})
        yield event({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        yield event({"id": "x", "choices": [], "usage": USAGE})
        if done:
            yield b"data: [DONE]\n\n"

    async def behave(request: Request, asked: dict[str, Any]) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")

    return behave


# whole answers ------------------------------------------------------------------------------------------------------


def test_a_response_is_routed_and_answered_by_a_chat(gateway: Running) -> None:
    got = client(gateway).responses.create(
        model="auto", input=QUESTIONS["law"], instructions="Be kind.", max_output_tokens=50, temperature=0.5,
        metadata={"a": "b"}, reasoning={"effort": "low"}, text={"verbosity": "low"},
    )  # fmt: skip
    assert got.output_text == "".join(ANSWER) and got.status == "completed" and got.metadata == {"a": "b"}
    assert got.usage is not None and (got.usage.input_tokens, got.usage.output_tokens) == (10, 5)
    assert got.ir3de["expert"] == "law" and got.store  # type: ignore[attr-defined]
    asked = last_request(gateway)
    assert asked["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": QUESTIONS["law"]},
    ]
    more = {name: asked[name] for name in ("model", "max_tokens", "temperature", "reasoning_effort", "verbosity")}
    assert more == {
        "model": "llama-law",
        "max_tokens": 50,
        "temperature": 0.5,
        "reasoning_effort": "low",
        "verbosity": "low",
    }
    assert "metadata" not in asked and "store" not in asked


def test_provenance_and_the_system_prompt_of_the_expert(gateway: Running) -> None:
    got = ask(gateway.url, {"input": QUESTIONS["law"]}, "/v1/responses", authorization=f"Bearer {secret('a')}")
    assert got.headers["x-ir3de-translated"] == "responses to chat" and got.headers["x-ir3de-expert"] == "law"
    assert last_request(gateway)["messages"][0] == {"role": "system", "content": "Be brief."}


def test_parsed_answers_have_a_schema(gateway: Running) -> None:
    class Number(pydantic.BaseModel):
        value: int

    got = client(gateway).responses.parse(model="law", input="2 + 2", text_format=Number)
    assert got.output_parsed == Number(value=4)
    assert last_request(gateway)["response_format"]["json_schema"]["strict"] is True


def test_a_tool_loop(gateway: Running) -> None:
    first = client(gateway).responses.create(model="law", input="Call f.", tools=[TOOL], tool_choice="required")
    (call,) = first.output
    assert call.type == "function_call" and (call.name, call.call_id, call.arguments) == ("f", "call_1", '{"x": 1}')
    wanted = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}
    assert last_request(gateway)["tools"] == [{"type": "function", "function": wanted}]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
    second = client(gateway).responses.create(model="law", input=[result], previous_response_id=first.id)
    assert second.output_text == "".join(ANSWER) and second.previous_response_id == first.id
    call_again = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert last_request(gateway)["messages"][1:] == [
        {"role": "user", "content": "Call f."},
        {"role": "assistant", "content": None, "tool_calls": [call_again]},
        {"role": "tool", "tool_call_id": "call_1", "content": "4"},
    ]


@pytest.mark.parametrize(
    ("finish", "status", "reason"), [("length", "incomplete", "max_output_tokens"), ("stop", "completed", None)]
)
def test_how_it_ended_and_what_it_thought(gateway: Running, finish: str, status: str, reason: str | None) -> None:
    async def think(request: Request, asked: dict[str, Any]) -> Response:
        message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
        return JSONResponse({**GOOD, "choices": [{"index": 0, "message": message, "finish_reason": finish}]})

    gateway.upstream.behaviour["law"] = think
    got = client(gateway).responses.create(model="law", input="x")
    assert got.status == status and [item.type for item in got.output] == ["reasoning", "message"]
    assert (got.incomplete_details.reason if got.incomplete_details else None) == reason
    follow = client(gateway).responses.create(model="law", input="y", previous_response_id=got.id)
    assert follow.output_text == "Yes." and "Hm." not in gateway.upstream.bodies[-1].decode()


def test_errors_are_those_of_the_api_and_broken_answers_are_told(gateway: Running) -> None:
    async def refuse(request: Request, asked: dict[str, Any]) -> Response:
        return JSONResponse({"error": {"message": "too long", "type": "t", "code": "context"}}, 400)

    gateway.upstream.behaviour["law"] = refuse
    with pytest.raises(openai.BadRequestError, match="too long"):
        client(gateway).responses.create(model="law", input="x")

    async def mumble(request: Request, asked: dict[str, Any]) -> Response:
        return JSONResponse({"id": "x"})

    gateway.upstream.behaviour["law"] = mumble
    with pytest.raises(openai.InternalServerError, match="without choices"):
        client(gateway).responses.create(model="law", input="x")


# streams ------------------------------------------------------------------------------------------------------------


def test_the_official_client_parses_a_stream(gateway: Running) -> None:
    calls = [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]
    gateway.upstream.behaviour["law"] = streams(
        {"role": "assistant", "content": ""}, {"reasoning_content": "Hm"}, {"content": "Yes"}, {"content": "."}, *calls
    )
    with client(gateway).responses.stream(model="law", input="x", tools=[TOOL]) as stream:  # type: ignore[list-item]
        events = list(stream)
        final = stream.get_final_response()
    kinds = [one.type for one in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert final.output_text == "Yes." and final.output[2].arguments == '{"x": 1}' and final.output[3].name == "g"
    assert final.usage is not None and final.usage.input_tokens_details.cached_tokens == 3
    assert final.usage.output_tokens_details.reasoning_tokens == 2
    assert last_request(gateway)["stream_options"] == {"include_usage": True}
    assert client(gateway).responses.retrieve(final.id).output_text == "Yes."  # stored before its end was sent


@pytest.mark.parametrize("done", [True, False])
def test_streams_that_are_cut_off_are_told(gateway: Running, done: bool) -> None:
    gateway.upstream.behaviour["law"] = streams({"content": "Y"}, finish="length", done=done)
    *_, last = client(gateway).responses.create(model="law", input="x", stream=True)
    assert last.type == "response.incomplete" and last.response.incomplete_details.reason == "max_output_tokens"

    async def events() -> AsyncIterator[bytes]:
        yield event({"id": "x", "choices": [{"index": 0, "delta": {"content": "Y"}}]})
        if done:
            yield event({"error": {"message": "out of memory", "code": 500}})

    async def breaks(request: Request, asked: dict[str, Any]) -> Response:
        return StreamingResponse(events(), media_type="text/event-stream")

    gateway.upstream.behaviour["law"] = breaks
    with pytest.raises(openai.APIError, match="out of memory" if done else "ended its stream in the middle"):
        list(client(gateway).responses.create(model="law", input="x", stream=True))


# stored responses ---------------------------------------------------------------------------------------------------


def test_a_conversation_is_routed_with_all_its_turns(gateway: Running) -> None:
    ids: list[str] = []
    for question in (QUESTIONS["law"], "And then?", "Why?"):
        follows = {"previous_response_id": ids[-1]} if ids else {}
        got = client(gateway).responses.create(model="auto", input=question, **follows)  # type: ignore[call-overload]
        assert got.ir3de["expert"] == "law"
        ids.append(got.id)
    spoken = [one["content"] for one in last_request(gateway)["messages"] if one["role"] == "user"]
    assert spoken == [QUESTIONS["law"], "And then?", "Why?"]
    items = client(gateway).responses.input_items.list(ids[-1], order="asc", limit=2)
    assert [item.type for item in items] == ["message"] * 5  # over three pages
    assert [item.type for item in client(gateway).responses.input_items.list(ids[0])] == ["message"]


def test_store_false_stores_nothing_and_deleted_ones_are_gone(gateway: Running) -> None:
    got = client(gateway).responses.create(model="law", input="x", store=False)
    assert not got.store
    with pytest.raises(openai.NotFoundError):
        client(gateway).responses.retrieve(got.id)
    kept = client(gateway).responses.create(model="law", input="x")
    client(gateway).responses.delete(kept.id)
    with pytest.raises(openai.NotFoundError):
        client(gateway).responses.delete(kept.id)
    with pytest.raises(openai.BadRequestError, match="it was not made here, or it is gone"):
        client(gateway).responses.create(model="law", input="x", previous_response_id=kept.id)
    with pytest.raises(openai.BadRequestError, match="only a response in the background"):
        kept = client(gateway).responses.create(model="law", input="x")
        client(gateway).responses.cancel(kept.id)
    with pytest.raises(openai.BadRequestError, match="cannot be streamed again"):
        list(client(gateway).responses.retrieve(kept.id, stream=True))


def test_stored_responses_belong_to_their_key(gateway: Running) -> None:
    kept = client(gateway, "a").responses.create(model="law", input="x")
    with pytest.raises(openai.NotFoundError):
        client(gateway, "b").responses.retrieve(kept.id)
    with pytest.raises(openai.BadRequestError):
        client(gateway, "b").responses.create(model="law", input="x", previous_response_id=kept.id)
    with pytest.raises(openai.NotFoundError):
        client(gateway, "b").responses.delete(kept.id)
    assert client(gateway, "a").responses.retrieve(kept.id).id == kept.id
    client(gateway, "few").responses.create(model="law", input="x")
    with pytest.raises(openai.RateLimitError):
        client(gateway, "few").responses.create(model="law", input="x")


def test_they_outlive_a_restart_and_an_expert_with_responses_can_go_on(tmp_path: Path) -> None:
    state = {"state": str(tmp_path / "state")}
    with running(tmp_path, **state) as gateway:
        kept = client(gateway).responses.create(model="law", input="What is void?")

    async def respond(request: Request, asked: dict[str, Any]) -> Response:
        item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
        return JSONResponse({"id": "resp_1", "object": "response", "output": [item], "model": "m", "created_at": 1})

    experts = {"maths": {"capabilities": ["responses"]}}
    with running(tmp_path, experts=experts, **state) as gateway:
        gateway.upstream.behaviour["maths"] = respond
        got = client(gateway).responses.create(model="maths", input="Why?", previous_response_id=kept.id)
        sent = last_request(gateway)
        assert got.id == "resp_1" and "previous_response_id" not in sent
        assert [item["role"] for item in sent["input"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("off", ["setting", "ttl", "hooks"])
def test_where_nothing_is_stored(tmp_path: Path, off: str) -> None:
    changes: dict[str, Any] = {
        "setting": {"routing": {"pinning": {"store_responses": False}}},
        "ttl": {"routing": {"pinning": {"stored_ttl": 0}}},
        "hooks": {"hooks": {"after": [{"call": "hook_functions:after"}]}},
    }[off]
    with running(tmp_path, **changes) as gateway:
        got = client(gateway).responses.create(model="law", input="x")
        assert not got.store and got.output_text
        with pytest.raises(openai.NotFoundError):
            client(gateway).responses.retrieve(got.id)


# requests -----------------------------------------------------------------------------------------------------------


def test_items_become_messages() -> None:
    chat = build_chat_from_response({
        "input": [
            {"role": "developer", "content": "d"},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "t"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "low"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:x"},
            ]},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "2", "name": "f", "arguments": "{}"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "one"}]},
        ],
        "tools": [TOOL], "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_object"}}, "background": False, "include": ["reasoning.encrypted_content"],
    })  # fmt: skip
    roles = [message["role"] for message in chat["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert [part["type"] for part in chat["messages"][1]["content"]] == ["text", "image_url", "file"]
    assert chat["messages"][2]["content"] == "Let me see." and len(chat["messages"][2]["tool_calls"]) == 2
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chat["response_format"] == {"type": "json_object"} and "include" not in chat


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0] (web_search)"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0] (item_reference)"),
        ({"input": [{"type": "computer_call"}]}, "input[0] (computer_call)"),
        ({"include": ["message.output_text.logprobs"]}, "include[0] (message.output_text.logprobs)"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0] (input_image)",
        ),
        ({"text": {"format": {"type": "grammar"}}}, "text.format (grammar)"),
        ({"top_logprobs": 5}, "top_logprobs"),
    ],
)
def test_what_a_chat_cannot_do_is_named(gateway: Running, changes: dict[str, Any], param: str) -> None:
    with pytest.raises(UntranslatableError) as caught:
        build_chat_from_response({"input": "x", **changes})
    assert caught.value.param == param
    asked = {"model": "auto", "input": QUESTIONS["law"], **changes}
    if not {"previous_response_id", "conversation"} & changes.keys():  # which a key may not name at all
        got = ask(gateway.url, asked, "/v1/responses", authorization=f"Bearer {secret('a')}")
        assert got.status == 400 and got.error["code"] in ("no_eligible_expert", "untranslatable")


def test_an_expert_with_responses_gets_every_byte_and_translate_false_is_respected(tmp_path: Path) -> None:
    experts = {"law": {"capabilities": ["chat", "responses"]}, "maths": {"translate": False}}
    with running(tmp_path, experts=experts) as gateway:
        gateway.upstream.behaviour["law"] = answer
        ask(gateway.url, {"model": "law", "input": "x", "tools": [{"type": "web_search"}]}, "/v1/responses")
        assert last_request(gateway) == {"model": "law", "input": "x", "tools": [{"type": "web_search"}]}
        got = ask(gateway.url, {"model": "maths", "input": "x"}, "/v1/responses")
        assert got.status == 400 and "maths was chosen: has no responses" in got.error["message"]
