"""Requests and whole answers of Anthropic's API as those of OpenAI's, and the reverse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de_gateway import translation as translated
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.translation import UntranslatableError
from ir3de_gateway.translation.answers import (
    FINISH_REASONS,
    STOP_REASONS,
    UnreadableAnswer,
    build_chat_usage,
    build_completion,
    build_message,
    build_message_usage,
    translate_error,
)
from ir3de_gateway.translation.requests import build_chat_request, build_messages_request
from ir3de_gateway.translation.translation import ChatByMessages, MessagesByChat, find_untranslatable
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import count_usage

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PAGE = Path(__file__).parents[2] / "docs" / "translation.md"


def to_chat(**fields: Any) -> dict[str, Any]:
    return build_chat_request({"model": "auto", "max_tokens": 10, **fields})


def to_messages(**fields: Any) -> dict[str, Any]:
    return build_messages_request({"model": "auto", **fields})


def says(text: str = "Hi") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


# Anthropic's requests as chats ----------------------------------------------------------------------------------------


def test_a_tool_loop_with_images_and_errors_becomes_a_chat() -> None:
    png = {"type": "base64", "media_type": "image/png", "data": "iVBO"}
    chat = to_chat(
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}, text_block("Be kind.")],
        messages=[
            {"role": "user", "content": [text_block("What is this?"), {"type": "image", "source": png}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    text_block("I look."),
                    {"type": "tool_use", "id": "t1", "name": "look", "input": {"city": "Zürich"}},
                    {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "It rains."},
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": True, "content": [text_block("no city")]},
                    text_block("Well?"),
                ],
            },
        ],
    )
    assert chat["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {
            "role": "user",
            "content": [text_block("What is this?"), image_part("data:image/png;base64,iVBO")],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [call("t1", '{"city": "Zürich"}'), call("t2", "{}")],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "It rains."},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: no city"},
        {"role": "user", "content": "Well?"},
    ]


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def call(call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_images_of_a_tool_s_result_go_to_the_user_s_message() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text_block("Done."), image]}
    chat = to_chat(messages=[{"role": "user", "content": [result]}])
    assert chat["messages"][0] == {"role": "tool", "tool_call_id": "t1", "content": "Done."}
    assert chat["messages"][1]["content"][1] == image_part("https://x/y.png")


def test_a_document_of_plain_text_is_sent_as_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "Rule 1."}
    content = [{"type": "document", "title": "Rules", "source": source}]
    assert to_chat(messages=[{"role": "user", "content": content}])["messages"][0]["content"] == "Rules\n\nRule 1."


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "look"}, {"type": "function", "function": {"name": "look"}}),
    ],
)
def test_tools_and_their_choice(choice: dict[str, Any], expected: Any) -> None:
    tool = {"name": "look", "description": "Looks.", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}
    chat = to_chat(messages=says(), tools=[tool], tool_choice={**choice, "disable_parallel_tool_use": True})
    function = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert (chat["tool_choice"], chat["parallel_tool_calls"]) == (expected, False)
    back = build_messages_request(chat)
    assert back["tools"] == [{key: value for key, value in tool.items() if key != "cache_control"}]
    assert {key: value for key, value in back["tool_choice"].items() if key != "disable_parallel_tool_use"} == choice


def test_settings_have_their_counterparts() -> None:
    output = {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}
    chat = to_chat(
        messages=says(), stop_sequences=["."], temperature=0.5, top_p=0.9, top_k=5, metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024}, stream=True, output_config=output,
    )  # fmt: skip
    wanted = {"name": "answer", "schema": SCHEMA, "strict": True}
    assert {key: value for key, value in chat.items() if key != "messages"} == {
        "max_tokens": 10, "stop": ["."], "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stream": True, "user": "u",
        "stream_options": {"include_usage": True}, "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": wanted},
    }  # fmt: skip
    back = build_messages_request(chat)
    assert (back["output_config"], back["stop_sequences"], back["metadata"]) == (output, ["."], {"user_id": "u"})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0] (web_search_20250305)"),
        ({"container": "c"}, "container"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"task_budget": 1}}, "output_config.task_budget"),
        (
            content := {"type": "document", "source": {"type": "base64", "data": ""}},
            "messages[0].content[0] (document)",
        ),
        ({"type": "search_result"}, "messages[0].content[0] (search_result)"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "messages[0].content[0].source.type (file)"),
    ],
)
def test_what_chats_do_not_have_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    given = (
        {"messages": [{"role": "user", "content": [fields]}]} if "type" in fields else {"messages": says(), **fields}
    )
    with pytest.raises(UntranslatableError, match=re.escape(param)) as caught:
        to_chat(**given)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "untranslatable", param)
    assert find_untranslatable(FORMATS["messages"], given) is not None


# chats as Anthropic's requests ----------------------------------------------------------------------------------------


def test_a_chat_with_tools_becomes_messages() -> None:
    request = to_messages(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [text_block("And this?"), image_part("data:image/png;base64,iVBO")]},
            {"role": "assistant", "content": None, "tool_calls": [call("t1", '{"city": "Rome"}'), call("t2", "")]},
            {"role": "tool", "tool_call_id": "t1", "content": "Sun."},
            {"role": "tool", "tool_call_id": "t2", "content": [text_block("Rain.")]},
            {"role": "user", "content": "Well?"},
            {"role": "developer", "content": [text_block("Be kind.")]},
        ]
    )
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    assert request["system"] == "Be brief.\n\nBe kind."
    assert request["max_tokens"] == translated.DEFAULT_MAX_TOKENS
    assert request["messages"] == [
        {"role": "user", "content": [text_block("And this?"), image]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "Sun."},
                {"type": "tool_result", "tool_use_id": "t2", "content": [text_block("Rain.")]},
                text_block("Well?"),
            ],
        },
    ]


def test_numbers_and_names_of_a_chat() -> None:
    request = to_messages(
        messages=says(), max_completion_tokens=7, max_tokens=9, stop="END", n=1, logprobs=False, seed=4,
        presence_penalty=0, logit_bias={}, parallel_tool_calls=False, reasoning_effort="none", user="u",
        response_format={"type": "text"}, tools=[{"type": "function", "function": {"name": "f"}}],
    )  # fmt: skip
    assert request == {
        "messages": says(), "max_tokens": 7, "stop_sequences": ["END"], "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "thinking": {"type": "disabled"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"store": True}, "store"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "audio"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"response_format": {"type": "json_object"}}, "response_format (json_object)"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0] (custom)"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools"}},
            "tool_choice (allowed_tools)",
        ),
        ({"type": "input_audio", "input_audio": {}}, "messages[0].content[0] (input_audio)"),
        ({"type": "file", "file": {}}, "messages[0].content[0] (file)"),
    ],
)
def test_what_messages_do_not_have_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    given = (
        {"messages": [{"role": "user", "content": [fields]}]} if "type" in fields else {"messages": says(), **fields}
    )
    with pytest.raises(UntranslatableError, match=re.escape(param)) as caught:
        to_messages(**given)
    assert caught.value.param == param
    assert find_untranslatable(FORMATS["chat/completions"], given) is not None


@pytest.mark.parametrize("build", [build_chat_request, build_messages_request])
@given(
    messages=st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["user", "assistant", "tool", "text", "tool_use"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["role", "content", "type", "text", "source", "tool_calls", "function", "input", "id"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    other=st.dictionaries(
        st.sampled_from(["system", "tools", "tool_choice", "metadata", "stop", "output_config", "response_format"]),
        st.none() | st.integers() | st.lists(st.integers(), max_size=2) | st.just({"type": 3}),
    ),
)
def test_whatever_comes_is_translated_or_refused_in_words(build: Any, messages: Any, other: dict[str, Any]) -> None:
    try:
        assert isinstance(build({"messages": messages, **other})["messages"], list)
    except ApiError as error:
        assert error.status == 400 and error.param


def test_every_field_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    fields = {
        *(translated.MESSAGES_CARRIED | translated.MESSAGES_DROPPED),
        *(translated.CHAT_CARRIED | translated.CHAT_DROPPED | translated.CHAT_NEUTRAL.keys()),
        *FINISH_REASONS, *STOP_REASONS,
    }  # fmt: skip
    assert [field for field in sorted(fields) if f"`{field}`" not in page] == []


def test_an_expert_s_settings_are_applied_in_its_own_format() -> None:
    config = {"name": "law", "base_url": "https://api.openai.com/v1", "model": "gpt", "system_prompt": "Be a lawyer."}
    hosted = ExpertConfig.model_validate({**config, "defaults": {"temperature": 0.2, "seed": 1}})
    asked = {"model": "auto", "max_tokens": 5, "temperature": 1, "messages": says()}
    assert MessagesByChat(asked, hosted).content == (
        b'{"model":"gpt","seed":1,"messages":[{"role":"system","content":"Be a lawyer."},'
        b'{"role":"user","content":"Hi"}],"max_completion_tokens":5,"temperature":1}'
    )
    silent = ExpertConfig.model_validate({**config, "stream_usage": False})
    assert b"stream_options" in MessagesByChat({**asked, "stream": True}, hosted).content
    assert b"stream_options" not in MessagesByChat({**asked, "stream": True}, silent).content
    claude = ExpertConfig.model_validate({**config, "capabilities": ["messages"], "defaults": {"max_tokens": 99}})
    assert ChatByMessages({"messages": says()}, claude).content == (
        b'{"model":"gpt","system":"Be a lawyer.","messages":[{"role":"user","content":"Hi"}],"max_tokens":99}'
    )


# whole answers --------------------------------------------------------------------------------------------------------


def completion(message: dict[str, Any], finish: str = "stop", **choice: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    made = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **choice}
    return {"id": "chatcmpl-1", "model": "m", "choices": [made], "usage": usage}


def test_an_answer_with_thoughts_and_calls_as_a_message() -> None:
    said = {"reasoning_content": "Hm.", "content": "I look.", "tool_calls": [call("t1", '{"city": "Rome"}')]}
    message = build_message(completion(said, "tool_calls"))
    assert message["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        text_block("I look."),
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"city": "Rome"}},
    ]
    assert (message["id"], message["stop_reason"], message["model"]) == ("msg_1", "tool_use", "m")
    counts = {"input_tokens": 6, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0, "output_tokens": 5}
    assert message["usage"] == counts
    back = build_completion(message)
    assert back["choices"][0]["message"] == {"role": "assistant", "refusal": None, **said}
    assert back["usage"]["prompt_tokens"] == 10
    assert back["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert (back["id"], back["choices"][0]["finish_reason"]) == ("chatcmpl-1", "tool_calls")


def test_a_refusal_is_one_in_both_formats() -> None:
    message = build_message(completion({"content": None, "refusal": "No."}))
    assert (message["stop_reason"], message["content"]) == ("refusal", [text_block("No.")])
    details = {"stop_details": {"type": "refusal", "explanation": "No."}}
    back = build_completion({**message, "content": [], **details})
    assert (back["choices"][0]["finish_reason"], back["choices"][0]["message"]["refusal"]) == ("content_filter", "No.")


def test_a_stop_sequence_is_named_where_the_server_names_it() -> None:
    stopped = build_message(completion({"content": "a"}, stop_reason="END"), ("END",))
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "END")
    assert build_message(completion({"content": "a"}, stop_reason=32000), ("END",))["stop_reason"] == "end_turn"
    assert build_message(completion({"content": "a"}), ("END",))["stop_reason"] == "end_turn"


def test_calls_that_end_with_stop_are_calls() -> None:
    assert build_message(completion({"tool_calls": [call("t", "{}")]}, "stop"))["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    "answer",
    [{}, {"choices": []}, {"choices": [{}]}, completion({"tool_calls": [call("t", "{broken")]}),
     completion({"tool_calls": [3]})],
)  # fmt: skip
def test_an_answer_that_says_nothing_is_unreadable(answer: dict[str, Any]) -> None:
    with pytest.raises(UnreadableAnswer):
        build_message(answer)


@given(*[st.integers(0, 10**6)] * 4)
def test_usage_survives_there_and_back(plain: int, read: int, written: int, answer: int) -> None:
    usage = {
        "input_tokens": plain, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
        "output_tokens": answer,
    }  # fmt: skip
    there = build_chat_usage(usage)
    assert count_usage(there) == count_usage(usage) == (plain + read + written, answer)
    assert there["total_tokens"] == sum(usage.values())
    assert build_message_usage(there) == usage


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error"),
     (429, "rate_limit_error"), (500, "api_error"), (503, "overloaded_error")],
)  # fmt: skip
def test_errors_keep_status_and_message(status: int, kind: str) -> None:
    sent = {"error": {"message": "too long", "type": "t", "code": "c", "param": "messages"}}
    found = translate_error(FORMATS["messages"], status, sent, "law")
    assert (found["type"], found["error"]["type"], found["error"]["message"]) == ("error", kind, "too long")
    back = translate_error(FORMATS["chat/completions"], status, found, "law")
    assert (back["error"]["message"], back["error"]["code"]) == ("too long", "c")
    assert "'law' answered with status" in str(translate_error(FORMATS["messages"], status, None, "law"))
