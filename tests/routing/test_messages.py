"""Messages of chats: which words are read of them, and what is refused."""

import pickle
from typing import Any

import pytest

from ir3de.routing.messages import ENVELOPES, MessageError, Turn, compile_envelopes, parse_messages


def test_contents_of_every_form() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "7"}
    assert parse_messages(
        [
            {"role": "user", "content": "a"},
            {"role": "user", "content": ["a", {"type": "text", "text": "b"}, picture]},
            {"role": "assistant", "content": None, "tool_calls": []},
            {"role": "tool", "content": "7"},
            {"role": "user", "content": [result]},
            {"role": "user"},
        ]
    ) == [
        Turn("user", "a"),
        Turn("user", "a\nb", images=True),
        Turn("assistant", ""),
        Turn("tool", "7", tool_result=True),
        Turn("user", "", tool_result=True),
        Turn("user", ""),
    ]


@pytest.mark.parametrize(
    ("messages", "param", "said"),
    [
        ("secret", "messages", "messages must be a list of messages, found a string"),
        (None, "messages", "found nothing"),
        ([], "messages", "messages is empty: send at least one message"),
        ([3], "messages[0]", "messages[0] must be an object"),
        ([{"content": "a"}], "messages[0].role", "must be a string such as 'user', found nothing"),
        ([{"role": "user", "content": 7}], "messages[0].content", "must be a string or a list of parts, found 7"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", "must be a string"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0]", "must be an object"),
    ],
)
def test_what_cannot_be_read_is_named(messages: Any, param: str, said: str) -> None:
    with pytest.raises(MessageError) as caught:
        parse_messages(messages)
    assert caught.value.param == param and said in str(caught.value) and "secret" not in str(caught.value)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.param, copied.code) == (str(caught.value), param, caught.value.code)


def test_envelopes_are_removed() -> None:
    around = "<system-reminder>be\nbrief</system-reminder>"
    for given, left in ((f"{around}new{around}", "new"), ("a < b and b > c", "a < b and b > c")):
        for remove in compile_envelopes(ENVELOPES):
            given = remove(given)
        assert given == left


def test_a_picture_in_the_result_of_a_tool_is_one_and_so_is_sound() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}, {"type": "image"}]}
    spoken = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    turns = parse_messages([{"role": "user", "content": [result]}, {"role": "user", "content": [spoken]}])
    assert turns == [Turn("user", "", images=True, tool_result=True), Turn("user", "", audio=True)]
