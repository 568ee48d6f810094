"""One walk finds every text that a model reads: hooks see and change it, estimates and context windows count it."""

from __future__ import annotations

import json
from base64 import b64encode
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.requests.model_texts import list_request_slots
from ir3de_gateway.stages.read import count_tokens
from request_texts import PLACES, SECRET, USER

PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(30_000)).decode()
PDF = b64encode(b"%PDF-1.7\n" + b"stream of letters " * 2_000).decode()


def find(body: dict[str, Any], text: str) -> list[str]:
    return [slot.text for slot in list_request_slots(body) if text in slot.text]


@pytest.mark.parametrize("place", PLACES)
def test_a_text_is_found_and_changed_wherever_it_stands(place: str) -> None:
    body = deepcopy(PLACES[place][1])
    assert len(find(body, SECRET)) == 1
    for slot in reversed(list(list_request_slots(body))):
        slot.put(slot.text.replace(SECRET, "[redacted]"))
    assert not find(body, SECRET) and len(find(body, "[redacted]")) == 1
    assert SECRET not in json.dumps(body)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_a_text_is_counted_wherever_it_stands(place: str, is_large: bool) -> None:
    def count(text: str) -> int:
        written = json.dumps(PLACES[place][1]).replace(SECRET, text)
        for start in ("", "%PDF-", "\f\x01"):  # of files in base64
            old, new = (b64encode(f"{start}Dear tenant, {one}.".encode()).decode() for one in (SECRET, text))
            written = written.replace(old, new)
        content = written.encode()
        return count_tokens((JsonBody.parse_large if is_large else JsonBody.parse)(content, 64).values)

    assert 450 <= count(SECRET * 100) - count(SECRET) <= 1_500


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "image", "source": {"type": "url", "url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "input_file", "file_data": PDF},
        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": PICTURE}}]},
        {"type": "redacted_thinking", "data": PICTURE},
    ],
)
def test_pictures_sound_and_binary_files_are_no_text(part: dict[str, Any], is_large: bool) -> None:
    content = json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode()
    values = (JsonBody.parse_large if is_large else JsonBody.parse)(content, 64).values
    assert count_tokens(values) < 40 and not [slot for slot in list_request_slots(values) if len(slot.text) > 64]


def test_a_picture_that_is_a_variable_is_no_text() -> None:
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    assert [slot.text for slot in list_request_slots({"prompt": {"variables": {"image": picture}}})] == []


def test_prompts_of_token_ids_are_counted() -> None:
    assert count_tokens({"prompt": [7] * 500}) == count_tokens({"prompt": [[7] * 250] * 2}) == 500
    written = json.dumps({"input": [[7] * 3_000]}).encode()
    assert count_tokens(JsonBody.parse_large(written, 64).values) == 3_000


def test_numbers_are_not_visited_one_by_one() -> None:
    class Numbers(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            raise AssertionError(f"{place} was visited")

    assert count_tokens({"input": Numbers([7, 8.5, None, True] * 500)}) == 500
    assert [slot.text for slot in list_request_slots({"input": [1, "Hi", Numbers([7] * 500)]})] == ["Hi"]


def test_what_is_no_text_is_not_shown() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": []}}}
    body = {"model": "auto", "messages": [USER], "tools": [tool], "user": "u", "metadata": {"a": "b"}, "stop": ["x"]}
    assert [slot.text for slot in list_request_slots(body)] == [USER["content"], "f"]


def test_a_property_may_be_called_type() -> None:
    schema = {"type": "object", "properties": {"type": {"type": "string", "enum": ["image"]}}}
    body = {"messages": [USER], "tools": [{"name": "f", "input_schema": schema}]}
    assert [slot.text for slot in list_request_slots(body)] == [USER["content"], "f", "type", "image"]


anything = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=4)
    | st.sampled_from(["data:text/plain;base64,é", "YWJjZGVmZ2hpamtsbQ"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "data", "input", "parameters", "properties", "text"]), inner)
    ),
    max_leaves=20,
)


@given(anything)
def test_texts_that_stay_the_same_change_nothing(value: Any) -> None:
    body = {"messages": [value], "tools": value}
    before = deepcopy(body)
    for slot in reversed(list(list_request_slots(body))):
        if slot.kind != "file":  # base64 may be written in more than one way
            slot.put(slot.text)
    assert body == before
