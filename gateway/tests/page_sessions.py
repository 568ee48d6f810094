"""The page in a real browser, with a real gateway behind it, as fixtures of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser import Browser, open_browser
from running_gateway import Running, running

TOKEN = "the-admin-token"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway whose admin token the page gets by its link."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR3DE_ADMIN_TOKEN", TOKEN)
        with running(tmp_path_factory.mktemp("page")) as found:
            yield found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(gateway: Running, chromium: Browser) -> Iterator[Browser]:
    """The page, opened by its link; at the end nothing was complained about, and nobody else was asked for anything."""
    chromium.size(1280, 900)
    chromium.prefer(prefers_color_scheme="light", prefers_reduced_motion="reduce")
    gateway.upstream.behaviour.clear()
    chromium.open(f"{gateway.url}/#token={TOKEN}")
    chromium.until(lambda: chromium.all(".word"))
    yield chromium
    assert chromium.console() == []
    assert {address.split("/", 3)[2] for address in chromium.addresses()} <= {gateway.url.split("/")[2]}


def show(page: Browser, view: str) -> None:
    page.find(f"#tab-{view}").click()
    page.until(lambda: page.find(f"#{view}").is_displayed())


def say(page: Browser, text: str) -> None:
    """Type a message, and wait until the page says who would answer it."""
    page.type("#chat-text", text)
    page.until(lambda: page.run("return document.querySelector('#chat').dataset.ready") == text)


def send(page: Browser, text: str) -> str:
    """Send a message with the Enter key; return whom the button named before."""
    say(page, text)
    announced = page.text("#chat-send b")
    turns = len(page.all(".turn"))
    page.press("\ue007")
    page.until(lambda: len(page.all(".turn")) == turns + 1 and not page.all(".turn.streaming"))
    return announced
