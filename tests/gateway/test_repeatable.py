"""Which requests may reach an expert twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ir3de.gateway.requests.forwarding import OutgoingBody
from ir3de.gateway.requests.json_body import JsonBody
from ir3de.gateway.wire import FORMATS


@pytest.mark.parametrize(
    ("path", "more", "is_repeatable"),
    [
        ("chat/completions", {}, True),
        ("chat/completions", {"store": False}, True),
        ("chat/completions", {"store": True}, False),
        ("responses", {}, False),  # stored by default
        ("responses", {"store": None}, False),
        ("responses", {"store": False}, True),
        ("responses", {"store": False, "background": True}, False),
        ("embeddings", {}, True),
    ],
)
def test_what_is_stored_or_goes_on_in_the_background_is_sent_once(
    path: str, more: dict[str, Any], is_repeatable: bool
) -> None:
    wire = FORMATS[path]
    content = {"model": "auto", "messages": [{"role": "user", "content": "x"}], "input": "x", **more}
    body = JsonBody.parse(json.dumps(content).encode(), 10)
    assert OutgoingBody.from_request(wire, body).is_repeatable == is_repeatable
