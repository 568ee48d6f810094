"""What the journal keeps of an answer besides its tokens: its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de_gateway.wire.events import read_events
from ir3de_gateway.wire.formats import is_object_id


def read_answer_id(answer: Mapping[str, Any]) -> str:
    """The id of an answer, by which clients may name it; empty if it has none."""
    found = answer.get("id")
    return found if isinstance(found, str) and is_object_id(found) is not None else ""


def find_streamed_id(head: bytes, tail: bytes) -> str:
    """The id of a streamed answer. The first event has it; of chats each one, and their first is not kept.

    >>> find_streamed_id(b"", b'l":1}\\n\\ndata: {"id":"chatcmpl-1","choices":[]}\\n\\n')
    'chatcmpl-1'
    """
    for event in read_events(head or tail):
        if (found := event.parse()) is not None:
            inner = next((one for name in ("response", "message") if isinstance(one := found.get(name), dict)), found)
            return read_answer_id(inner)
    return ""
