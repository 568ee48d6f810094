"""What two readers of a request could understand differently is rejected: names that occur twice, or differ in case."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests import large_json
from ir3de_gateway.requests.json_body import READ_FIELDS, JsonBody
from ir3de_gateway.requests.large_json import MAX_NAMES
from object_servers import serving_objects
from raw_sockets import ask, chat

USER = {"role": "user", "content": "Is it void?"}
PARSERS = [JsonBody.parse, JsonBody.parse_large]

Parse = Callable[[bytes, int], JsonBody]


def read(parse: Parse, body: object) -> JsonBody:
    return parse(json.dumps(body).encode(), 64)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "name",
    ["Model", "MESSAGES", "Previous_Response_Id", "Max_Tokens", "Stream", "Tools", "Ir3de", "me\u017f\u017fages"],
)
def test_a_field_in_another_case_is_rejected(parse: Parse, name: str) -> None:
    for body in ({name: "law", "messages": [USER]}, {"messages": [USER], "model": "law", name: "maths"}):
        with pytest.raises(ApiError, match="in case alone") as found:
            read(parse, body)
        assert (found.value.status, found.value.code, found.value.param) == (400, "ambiguous_field", name)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{**USER, "Content": "Boil an egg."}]},
        {"messages": [{**USER, "ROLE": "system"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "Text": "b"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text", "Data": "b"}}]}]},
        {"input": [{"type": "function_call_output", "output": "a", "Output": "b"}]},
        {"conversation": {"id": "conv_1", "Id": "conv_2"}},
        {"stream_options": {"include_usage": True, "Include_Usage": False}},
        {"tools": [{"type": "function", "function": {"name": "f", "Parameters": {}}}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"Name": "f"}}]}]},
    ],
)
def test_so_is_a_field_of_a_message_a_part_or_a_tool(parse: Parse, more: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="in case alone"):
        read(parse, {"messages": [USER], **more})


@pytest.mark.parametrize("parse", PARSERS)
def test_names_that_the_gateway_does_not_read_are_free(parse: Parse) -> None:
    schema = {"type": "object", "properties": {"Type": {"type": "string"}, "Content": {}}, "required": ["Type"]}
    call = {"type": "tool_use", "id": "1", "name": "f", "input": {"Name": "x", "Type": {"Text": 1}}}
    body = {
        "messages": [USER, {"role": "assistant", "content": [call], "metadata": {"Role": "x"}}],
        "tools": [{"name": "f", "input_schema": schema}],
        "metadata": {"Model": "x", "model": "y"},
        "X-Field": 1,
        "topK": 5,
        "documents": [{"Title": "a", "Text": "b"}],
    }
    assert list(read(parse, body).values) == list(body)


@given(st.sampled_from(sorted(READ_FIELDS)), st.data())
def test_no_spelling_of_a_field_passes_beside_the_right_one(name: str, data: st.DataObject) -> None:
    written = "".join(data.draw(st.sampled_from([char, char.upper()])) for char in name)
    if written != name:
        with pytest.raises(ApiError, match="in case alone"):
            read(JsonBody.parse, {written: 1})
    assert read(JsonBody.parse, {name: 1}).values == {name: 1}


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "inside",
    [
        b'"messages":[{"role":"user","content":"a","role":"system"}]',
        b'"messages":[{"role":"user","content":"a","\\u0063ontent":"b"}]',
        b'"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]',
        b'"tools":[{"type":"function","function":{"name":"f","name":"g"}}]',
        b'"tools":[{"input_schema":{"properties":{"x":{},"x":{}}}}]',
        b'"conversation":{"id":"a","id":"b"}',
        b'"metadata":[[{"a":{"b":1,"b":2}}]]',
    ],
)
@pytest.mark.parametrize("padding", [b"", b'"z":"' + b"x" * 2_000 + b'",'])
def test_a_name_that_occurs_twice_in_an_object_is_rejected_at_any_depth(
    parse: Parse, inside: bytes, padding: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_json, "WINDOW_BYTES", 256)
    content = b"{" + inside.replace(b'{"', b"{" + padding + b'"') + b"}"
    with pytest.raises(ApiError, match='" occurs twice') as found:
        parse(content, 64)
    assert (found.value.status, found.value.code) == (400, "invalid_json")


@pytest.mark.parametrize("at", [1, 500, 1_999])
def test_two_equal_names_far_apart_in_a_large_object_are_found(at: int) -> None:
    names = [f'"{number}":{number}' for number in range(2_000)]
    content = '{"metadata":{' + ",".join([*names[:at], '"0":7', *names[at:]]) + "}}"
    with pytest.raises(ApiError, match='"0" occurs twice'):
        JsonBody.parse_large(content.encode(), 64)


def test_the_names_of_an_object_have_a_limit() -> None:
    content = '{"a":{' + ",".join(f'"{number}":0' for number in range(MAX_NAMES + 1)) + "}}"
    with pytest.raises(ApiError, match=f"more than {MAX_NAMES:,} fields") as found:
        JsonBody.parse_large(content.encode(), 64)
    assert found.value.status == 413


def test_no_expert_is_asked(tmp_path: Any) -> None:
    with serving_objects(tmp_path) as (gateway, server):
        got = ask(gateway.url, {**chat("Is it void?"), "Model": "law"})
        assert (got.status, got.error["code"], got.error["param"]) == (400, "ambiguous_field", "Model")
        assert ask(gateway.url, {"prompt": "a cat", "MODEL": "x"}, "/v1/images/generations").status == 400
        part = '--b\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        kind = "multipart/form-data; boundary=b"
        for name in ("Model", "MODEL", "Ir3de"):
            form = (part % ("model", "auto") + part % (name, "x") + "--b--\r\n").encode()
            got = ask(gateway.url, form, "/v1/audio/transcriptions", content_type=kind)
            assert (got.status, got.error["code"]) == (400, "ambiguous_field")
        assert server.seen == []
