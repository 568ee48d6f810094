"""A gateway with an expert on a bare socket, for tests of what goes wrong on either side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ir3de_gateway.config.experts import Timeouts
from ir3de_gateway.experts.circuit_breaker import CircuitBreaker
from ir3de_gateway.serving.request_filter import RequestFilter
from raw_sockets import (
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
from running_gateway import QUESTIONS, Running, running

SECRET = "sk-upstream-secret"
LAW = QUESTIONS["law"]


class RawGateway:
    """A gateway whose expert for law stands on a bare socket and does what a test says.

    All its time limits are long, so that no test fails because the machine is busy. A test about a time limit sets
    that limit alone, and a conduct that exceeds it however long things take. The breaker's clock is `now`.
    """

    def __init__(self, gateway: Running, raw: Raw) -> None:
        self.gateway, self.raw, self.url = gateway, raw, gateway.url
        self.law = gateway.gateway.live.snapshot.experts["law"]
        self._config, self._snapshot = self.law.config, gateway.gateway.live.snapshot
        self.reset()

    def reset(self) -> None:
        """All limits long, all experts well."""
        live = self.gateway.gateway.live
        live.swap(self._snapshot)
        self.raw.does = says(answer(200, GOOD))
        self.now = 0.0
        self.law.config, self.law.concurrency.wait = self._config, 60.0
        for expert in live.snapshot.experts.values():
            expert.breaker = CircuitBreaker(**expert.config.breaker.model_dump())
        self.law.breaker = CircuitBreaker(3, 0.3, clock=lambda: self.now)
        self.gateway.upstream.behaviour.clear()
        self.gateway.upstream.asked.clear()

    def limit(self, **seconds: float) -> None:
        """Set time limits for the expert for law."""
        timeouts = Timeouts(**{**self._config.timeouts.model_dump(), **seconds})
        self.law.config = self._config.model_copy(update={"timeouts": timeouts})

    def limit_body(self, seconds: float) -> None:
        """Set the time within which a request's body must arrive."""
        config = self._snapshot.config
        limits = config.server.limits.model_copy(update={"body_seconds": seconds})
        server = config.server.model_copy(update={"limits": limits})
        self.gateway.gateway.live.swap(replace(self._snapshot, config=config.model_copy(update={"server": server})))

    def ask(self, model: str = "auto", *, does: Conduct | bytes | None = None, **more: object) -> Got:
        if does is not None:
            self.raw.does = says(does) if isinstance(does, bytes) else does
        return ask(self.url, chat(LAW, model, **more))

    @property
    def quiet(self) -> bool:
        """Nobody is with the expert for law, nor counted as being there."""
        counted = self.gateway.gateway.observer.in_flight["law"]
        return (self.law.concurrency.in_use, self.law.concurrency.waiting, counted) == (0, 0, 0)

    def ended(self, outcome: str) -> float:
        """How many requests for law ended so, as metrics have it."""
        line = f'ir3de_requests_total{{expert="law",outcome="{outcome}"}} '
        said = ask(self.url, path="/metrics").body.decode()
        return next((float(one.rpartition(" ")[2]) for one in said.splitlines() if one.startswith(line)), 0.0)


@pytest.fixture(scope="module", params=[{"http": RequestFilter}, {}], ids=["our server", "any server"])
def raw_gateway_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RawGateway]:
    patch = pytest.MonkeyPatch()
    patch.setenv("LAW_KEY", SECRET)
    with patch.context(), raw_expert() as raw:
        law = {
            "base_url": f"{raw.url}/v1",
            "api_key_env": "LAW_KEY",
            "timeouts": {"connect": 300, "first_token": 300, "idle": 300, "total": 600},
            "concurrency": {"limit": 2, "queue": 1, "wait": 60},
            "price": {"input_per_1m": 1},
        }
        folder = tmp_path_factory.mktemp("faults")
        limits = {"body_bytes": 400_000, "body_seconds": 300}
        changes: dict[str, Any] = {"experts": {"law": law}, "server": {"limits": limits}}
        with running(folder, request.param, routing={"default": "cooking"}, **changes) as it:
            yield RawGateway(it, raw)
    patch.undo()


@pytest.fixture
def raw_gateway(raw_gateway_session: RawGateway) -> Iterator[RawGateway]:
    raw_gateway_session.reset()
    yield raw_gateway_session
    assert eventually(lambda: raw_gateway_session.quiet), "a place at the expert was not given back"
