"""A router that was replaced is given up at once, also where a request before has failed.

Errors keep the frames that they came through, and frames their callers. Where one of these keeps the error in turn,
only a collection finds the circle.
"""

import gc
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from raw_sockets import FIRST, STREAM_HEAD, Got, answer, ask, chat, eventually, holds, says
from raw_upstream import RawGateway, raw_gateway, raw_gateway_session
from replicated_expert import fail_all, replicated
from running_gateway import QUESTIONS, Running, failing, running
from strange_prompts import strange  # noqa: F401

__all__ = ["raw_gateway", "raw_gateway_session"]  # fixtures


HALF = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
# none of these connections is used again: a request that is sent again, because an idle connection was just closed,
# keeps its router until the next collection
FAILURES = {
    "nothing": says(b""),
    "garbage": says(b"\x00 this is not HTTP \r\n\r\n"),
    "half": says(HALF),
    "status 500": says(answer(500, {"error": {"message": "no"}}, connection="close")),
    "half a stream": says(STREAM_HEAD + FIRST),
    "no compression": says(answer(200, b"{}", content_encoding="gzip", connection="close")),
}


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    """What only a collection would find stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@contextmanager
def given_up(gateway: Running, what: str = "") -> Iterator[None]:
    """The router that a block uses is released after it, without a collection."""
    live = gateway.gateway.live
    live.swap(replace(live.snapshot))
    kept = weakref.ref(live.snapshot)
    yield
    live.swap(replace(live.snapshot))
    ask(gateway.url, chat(QUESTIONS["maths"], "maths"))  # an idle connection may keep what it was last used for
    assert eventually(lambda: kept() is None), what


def test_a_failed_request_does_not_keep_its_router(raw_gateway: RawGateway) -> None:
    for name, does in FAILURES.items():
        with given_up(raw_gateway.gateway, name):
            for _ in range(4):  # the circuit breaker may reject the last one
                raw_gateway.ask("law", does=does, stream=name == "half a stream")
        raw_gateway.reset()


def test_a_request_that_nobody_answered_in_time_does_not_keep_its_router(raw_gateway: RawGateway) -> None:
    raw_gateway.limit(first_token=0.05)
    with given_up(raw_gateway.gateway):
        assert raw_gateway.ask("law", does=holds()).status == 504


def test_a_failed_request_to_replicas_does_not_keep_its_router(tmp_path: Path) -> None:
    for number, hedge_after in enumerate((None, 0.001, 60.0)):
        with replicated(tmp_path / str(number), {"hedge_after": hedge_after}) as gateway:
            fail_all(gateway, failing(500))
            with given_up(gateway):
                assert ask(gateway.url, chat(QUESTIONS["law"], "law")).status == 500


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_request_that_reached_nobody_does_not_keep_its_router(tmp_path: Path, host: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://{host}:{nobody.getsockname()[1]}/v1"
        with running(tmp_path, experts={"law": {"base_url": address}}) as gateway, given_up(gateway):
            assert ask(gateway.url, chat(QUESTIONS["law"], "law")).status == 502


@pytest.mark.usefixtures("strange")
def test_a_refused_request_does_not_keep_its_router(tmp_path: Path) -> None:
    def ask_target(gateway: Running) -> Got:
        body = {"messages": chat(QUESTIONS["law"])["messages"], "target": True}
        return ask(gateway.url, body, "/v1/route")

    with running(tmp_path, routing={"out_of_domain": "refuse"}) as gateway:
        with given_up(gateway):
            assert ask(gateway.url, chat(QUESTIONS["law"])).status == 422
        with given_up(gateway):
            assert ask_target(gateway).json["data"][0]["target"]["expert"] is None
