"""A gateway with an expert on a bare socket, for tests of what goes wrong on either side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_parts import QUESTIONS, Running, running
from gateway_raw import (
    GOOD,
    Conduct,
    Got,
    Raw,
    answer,
    ask,
    chat,
    eventually,
    raw_expert,
    says,
)

from ir3de.gateway.protocol import GuardedProtocol

SECRET = "sk-upstream-secret"
LAW = QUESTIONS["law"]


class World:
    """A gateway whose expert for law stands on a bare socket, has short limits, and does what a test says."""

    def __init__(self, gateway: Running, raw: Raw) -> None:
        self.gateway, self.raw, self.url = gateway, raw, gateway.url
        self.law = gateway.gateway.live.snapshot.experts["law"]

    def ask(self, model: str = "auto", *, does: Conduct | bytes | None = None, **more: object) -> Got:
        if does is not None:
            self.raw.does = says(does) if isinstance(does, bytes) else does
        return ask(self.url, chat(LAW, model, **more))

    @property
    def quiet(self) -> bool:
        """Nobody is with the expert for law, nor counted as being there."""
        counted = self.gateway.gateway.observer.in_flight["law"]
        return (self.law.slots.taken, self.law.slots.waiting, counted) == (0, 0, 0)

    def ended(self, outcome: str) -> float:
        """How many requests for law ended so, as metrics have it."""
        line = f'ir3de_requests_total{{expert="law",outcome="{outcome}"}} '
        said = ask(self.url, path="/metrics").body.decode()
        return next((float(one.rpartition(" ")[2]) for one in said.splitlines() if one.startswith(line)), 0.0)


@pytest.fixture(scope="module", params=[{"http": GuardedProtocol}, {}], ids=["our server", "any server"])
def everything(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patch = pytest.MonkeyPatch()
    patch.setenv("LAW_KEY", SECRET)
    with patch.context(), raw_expert() as raw:
        law = {
            "base_url": f"{raw.url}/v1",
            "api_key_env": "LAW_KEY",
            "timeouts": {"connect": 2, "first_token": 0.5, "idle": 0.5, "total": 1.5},
            "concurrency": {"limit": 2, "queue": 1, "wait": 0.2},
            "breaker": {"failures": 3, "rest": 0.3},
            "price": {"input_per_1m": 1},
        }
        folder = tmp_path_factory.mktemp("faults")
        limits = {"body_bytes": 400_000, "body_seconds": 0.5}
        with running(folder, request.param, experts={"law": law}, server={"limits": limits}) as it:
            yield World(it, raw)
    patch.undo()


@pytest.fixture
def world(everything: World) -> Iterator[World]:
    everything.raw.does = says(answer(200, GOOD))
    for expert in everything.gateway.gateway.live.snapshot.experts.values():
        expert.breaker.succeeded()
    everything.gateway.upstream.behaviour.clear()
    everything.gateway.upstream.asked.clear()
    yield everything
    assert eventually(lambda: everything.quiet), "a place at the expert was not given back"
