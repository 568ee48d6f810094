"""What the gateway's clients see of requests that are sent again to an expert."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from ir3de_gateway.transport import Destination, pool
from raw_sockets import GOOD, answer, ask
from raw_upstream import RawGateway

KEPT_SECONDS = count(600)


def test_a_connection_that_was_closed_meanwhile_is_no_failure(
    raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CLOSE_DETECTION_S", 60.0)  # on a busy machine it may take long to notice

    connections = count()

    async def closes_unannounced(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(connections)  # before the answer, after which the test may end
        writer.write(answer(200, GOOD))
        if number % 2:  # at once, or just as the next request arrives
            await reader.read(1)

    raw_gateway.raw.does = closes_unannounced
    for _ in range(8):
        assert raw_gateway.ask("law").status == 200
    assert next(connections) == 8


def test_a_request_that_is_sent_again_says_so(raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CLOSE_DETECTION_S", 60.0)

    async def closes_at_the_second_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, GOOD))
        await reader.read(1)

    def count_resends() -> float:
        line = 'ir3de_resends_total{expert="law"} '
        lines = ask(raw_gateway.url, path="/metrics").body.decode().splitlines()
        return next((float(one.removeprefix(line)) for one in lines if one.startswith(line)), 0.0)

    raw_gateway.ask("law", does=closes_at_the_second_request)
    before = count_resends()
    assert [raw_gateway.ask("law").headers.get("x-ir3de-resends") for _ in range(2)] == ["1", "1"]
    assert count_resends() - before == 2


class ClosesAKeptConnection:
    """An expert that answers, keeps the connection, and closes it when the next request has come."""

    def __init__(self) -> None:
        self.unanswered = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(200, GOOD))
        if await reader.read(1):
            self.unanswered += 1


@pytest.mark.parametrize(("more", "resend"), [({"store": True}, True), ({}, False)])
def test_what_would_be_stored_twice_is_not_sent_again_nor_anything_where_that_is_switched_off(
    raw_gateway: RawGateway, monkeypatch: pytest.MonkeyPatch, more: dict[str, object], resend: bool
) -> None:
    monkeypatch.setattr(pool, "CLOSE_DETECTION_S", 60.0)
    # connections that no other test has left, and that are kept however long it takes from one request to the next
    there = Destination(raw_gateway.law.config.base_url, keep_alive=next(KEPT_SECONDS))
    monkeypatch.setattr(raw_gateway.law, "destination", there)
    raw_gateway.law.config = raw_gateway.law.config.model_copy(update={"resend": resend})
    raw_gateway.raw.does = expert = ClosesAKeptConnection()
    asked = len(raw_gateway.raw.heads)
    assert raw_gateway.ask("law").status == 200
    got = raw_gateway.ask("law", **more)
    assert (got.status, got.error["code"], expert.unanswered) == (502, "upstream_broken", 1)
    assert len(raw_gateway.raw.heads) == asked + 1
