"""A race of two replicas: whenever the client leaves, both have their places back, and no connection stays open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ir3de.gateway.config.experts import ExpertConfig
from ir3de.gateway.exchange.hedging import Race
from ir3de.gateway.experts.replica_set import ReplicatedExpert, create_expert


class Answer:
    status, is_stream = 200, False


class Connection:
    """A request to a replica: the first one hangs, the second one begins at once."""

    def __init__(self, open_ones: list[Any], is_first: bool, has_begun: asyncio.Event) -> None:
        self._open, self._is_first, self._has_begun = open_ones, is_first, has_begun

    async def __aenter__(self) -> Answer:
        if self._is_first:
            await asyncio.Event().wait()
        self._open.append(self)
        self._has_begun.set()
        return Answer()

    async def __aexit__(self, *error: object) -> None:
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

    def build(replica: Any) -> Any:
        return Connection(open_ones, replica is first, has_begun)

    race = Race(expert, build, lambda answer, replica: answer, lambda replica, failure, seconds: None)
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
        await begun.__aexit__(None, None, None)
        winner.leave()
    for _ in range(5):
        await asyncio.sleep(0)
    assert [replica.in_flight for replica in expert.replicas] == [0, 0]
    assert (expert.concurrency.in_use, open_ones) == (0, [])
