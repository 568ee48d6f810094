"""A router that was replaced is given up at once, also where a request before has failed."""

import gc
import weakref
from dataclasses import replace

import pytest
from raw_sockets import eventually, says
from raw_upstream import RawGateway, raw_gateway, raw_gateway_session

__all__ = ["raw_gateway", "raw_gateway_session"]  # fixtures


HALF = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"


@pytest.mark.parametrize("said", [b"", b"\x00 this is not HTTP \r\n\r\n", HALF], ids=["nothing", "garbage", "half"])
def test_a_failed_request_does_not_keep_its_router(raw_gateway: RawGateway, said: bytes) -> None:
    live = raw_gateway.gateway.gateway.live
    gc.collect()
    gc.disable()  # what only a collection would find stays
    try:
        live.swap(replace(live.snapshot))
        kept = weakref.ref(live.snapshot)
        for _ in range(3):
            raw_gateway.ask("law", does=says(said))
        raw_gateway.reset()
        raw_gateway.ask("law")
        assert eventually(lambda: kept() is None)
    finally:
        gc.enable()
