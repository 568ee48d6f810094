"""The page's chat says that a conversation stays with its expert because a switch is too dear."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser import Browser
from page_sessions import TOKEN, chromium, say, send, show  # noqa: F401 - one of them is a fixture
from running_gateway import running
from test_switch import LAW, MATHS, PRICED


@pytest.mark.browser
def test_the_note_says_why_the_chat_does_not_move(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chromium: Browser,
) -> None:
    monkeypatch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
    with running(tmp_path, experts=PRICED, routing={"switch": {"value": 1e-9}}) as gateway:
        chromium.open(f"{gateway.url}/#token={TOKEN}")
        chromium.until(lambda: chromium.all(".word"))
        show(chromium, "chat")
        assert send(chromium, LAW) == "law"
        say(chromium, MATHS)
        assert chromium.text("#chat-winner") == "maths" and chromium.text("#chat-send b") == "law"
        assert chromium.text("#chat-note") == "A switch to maths would cost more than it gains, so law answers."
        assert send(chromium, MATHS) == "law" and gateway.upstream.asked[-1] == "law"
        assert chromium.console() == []
