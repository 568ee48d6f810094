"""The comparison of HTTP clients: the gateway's passes every case, and the page shows the raw file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from ir3de_lab.benchmarks.transports.__main__ import format_table
from ir3de_lab.benchmarks.transports.clients import CLIENTS
from ir3de_lab.benchmarks.transports.faults import CASES, try_all
from ir3de_lab.benchmarks.transports.measuring import measure_speed

ROOT = Path(__file__).parents[2]


def test_the_gateway_s_transport_passes_every_case() -> None:
    found = asyncio.run(try_all(CLIENTS["the gateway's"]))
    assert [name for name, passed in found.items() if not passed] == []
    assert list(found) == list(CASES)


def test_a_case_can_fail() -> None:
    case = CASES["error: body cut off"]

    class Forgiving(CLIENTS["the gateway's"]):  # type: ignore[misc]
        """A client that takes what it gets."""

        async def ask(self, url: str, body: bytes) -> object:
            reply = await super().ask(url, body)
            read = reply.read

            async def forgive() -> bytes:
                try:
                    return await read()  # type: ignore[no-any-return]
                except OSError:
                    return b""

            reply.read = forgive
            return reply

    assert asyncio.run(_run(case, Forgiving)) is False


async def _run(case: object, create: object) -> bool:
    client = create()  # type: ignore[operator]
    try:
        return await case(client)  # type: ignore[operator,no-any-return]
    finally:
        await client.stop()


def test_speed_is_measured_of_each() -> None:
    found = asyncio.run(measure_speed(["the gateway's"], rounds=1))
    assert {f"{plan}_{what}" for plan in ("whole", "whole_alone", "stream") for what in ("cpu_us", "p50_us")} == set(
        found["the gateway's"]
    )


def test_the_page_shows_the_raw_file() -> None:
    result = json.loads((ROOT / "results" / "transports.json").read_text("utf-8"))
    assert format_table(result) in (ROOT / "docs" / "transports.md").read_text("utf-8")
