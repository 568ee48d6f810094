"""A race of two replicas: whenever the client leaves, both have their places back, and no connection stays open."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from client_keys import bearer, key, write_keys
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.expert import ReplicatedExpert, create_expert
from ir3de_gateway.stages.ask import Race
from raw_sockets import ask, chat, eventually, sent
from replicated_expert import LAW, fail_all, is_quiet, replicated
from running_gateway import Running, failing


class Answer:
    """An answer that has begun; a test counts those that are open."""

    status, is_stream = 200, False

    def __init__(self, open_ones: list[Any]) -> None:
        self._open = open_ones
        open_ones.append(self)

    def close(self) -> None:
        self._open.remove(self)


@pytest.mark.parametrize("steps", range(8))
def test_whenever_the_client_leaves_nothing_is_left_behind(steps: int) -> None:
    asyncio.run(leave_after(steps))


async def leave_after(steps: int) -> None:
    config = ExpertConfig.model_validate({"name": "law", "replicas": ["http://a/v1", "http://b/v1"]})
    expert = create_expert(config)
    assert isinstance(expert, ReplicatedExpert)
    open_ones: list[Any] = []
    has_begun, first = asyncio.Event(), expert.pick()
    assert first is not None

    async def send(replica: Any) -> Any:
        if replica is first:  # it hangs, and the second one begins at once
            await asyncio.Event().wait()
        has_begun.set()
        return Answer(open_ones)

    race = Race(expert, send, lambda answer, replica: answer, lambda replica, failure, seconds: None)
    running = asyncio.create_task(race.run(first, (first,), 0.0))
    await has_begun.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    try:
        winner, begun = await running
    except asyncio.CancelledError:
        pass
    else:  # it was over already
        begun.source.close()
        winner.leave()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [replica.in_flight for replica in expert.replicas] == [0, 0]
    assert (expert.concurrency.in_use, open_ones) == (0, [])


def read_used(gateway: Running) -> dict[str, Any]:
    found: dict[str, Any] = ask(gateway.url, path="/v1/usage", **bearer("ada")).json["used"]
    return found


async def hang(request: Request, asked: dict[str, Any]) -> Response:
    while not await request.is_disconnected():
        await asyncio.sleep(0.01)
    return Response(status_code=500)


@pytest.mark.parametrize("hedge_after", [None, 60, 0.01])
def test_a_whole_answer_that_the_client_leaves_costs_the_same_with_hedging(
    tmp_path: Path, hedge_after: float | None
) -> None:
    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    law = {"hedge_after": hedge_after, "max_output_tokens": 4_000}
    with replicated(tmp_path, law, server={"keys_file": str(file)}) as gateway:
        fail_all(gateway, hang)
        with sent(gateway.url, json.dumps(chat(LAW, "law")).encode(), **bearer("ada")):
            assert eventually(lambda: len(gateway.upstream.asked) == (2 if hedge_after == 0.01 else 1))
        assert eventually(lambda: read_used(gateway)["concurrent"] == 0 and is_quiet(gateway))
        assert 4_000 < read_used(gateway)["day"]["tokens"] < 4_030  # the prompt is an estimate


@pytest.mark.parametrize("hedge_after", [None, 60])
def test_a_client_that_leaves_the_queue_of_a_fallback_pays_nothing(tmp_path: Path, hedge_after: float | None) -> None:
    """An expert failed before, and the fallback never had the request."""
    file = write_keys(tmp_path / "keys.yaml", key("ada"))
    law = {"fallbacks": ["maths"], "hedge_after": hedge_after, "retries": {"others": 0}}
    with replicated(tmp_path, law, server={"keys_file": str(file)}) as gateway:
        fail_all(gateway, failing(500))
        queue = gateway.gateway.live.snapshot.experts["maths"].concurrency
        while queue.try_acquire():
            pass
        with sent(gateway.url, json.dumps(chat(LAW, "law")).encode(), **bearer("ada")):
            assert eventually(lambda: queue.waiting == 1)
        assert eventually(lambda: read_used(gateway)["concurrent"] == 0)
        assert read_used(gateway)["day"]["tokens"] == 0 and len(gateway.upstream.asked) == 1
