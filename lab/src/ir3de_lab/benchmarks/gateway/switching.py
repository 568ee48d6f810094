"""Traces of agents through a real gateway, in several ways: by the last message, with and without a price of switches.

The gateway is a process of its own, with a stand-in behind it for all experts.
"""

from __future__ import annotations

import http.client
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.errors import InputError
from ir3de_lab.benchmarks.gateway.processes import gateway, module, require_extra, started
from ir3de_lab.benchmarks.traces import MAIN, Ask

PRICE: Mapping[str, float] = {"input_per_1m": 3.0, "cached_input_per_1m": 0.3, "output_per_1m": 15.0}


@dataclass(frozen=True)
class Way:
    """How requests are sent and routed."""

    name: str
    routing: Mapping[str, Any] = field(default_factory=dict)
    is_priced: bool = False
    has_session: bool = True
    one_system: bool = False  # all conversations of a session look like one: each has the system prompt of the main one


LAST_MESSAGE = Way("last message", {"text": "last_user"}, has_session=False)
ONE_PIN = Way("one pin for the session", one_system=True)
PINS = Way("a pin for each agent")
PRICED = Way("a pin for each agent, prices", is_priced=True)
HISTORY = Way("no session", has_session=False)
PRICED_HISTORY = Way("no session, prices", is_priced=True, has_session=False)
WAYS = (LAST_MESSAGE, ONE_PIN, PINS, PRICED, HISTORY, PRICED_HISTORY)


def add_price(config: dict[str, Any]) -> None:
    """Give all experts of a configuration the same price."""
    config["experts"] = [{**expert, "price": dict(PRICE)} for expert in config["experts"]]


@contextmanager
def serve(router: Router, way: Way) -> Iterator[int]:
    """The port of a gateway with this router, whose experts are all one stand-in."""
    require_extra()
    with tempfile.TemporaryDirectory(prefix="ir3de-agents-") as made:
        folder = Path(made)
        router.save(folder / "router", serving=True)

        def edit(config: dict[str, Any]) -> None:
            config["experts"] = [{**config["experts"][0], "name": name} for name in router.experts]
            config["logs"]["access"] = None
            config["routing"] = dict(way.routing)
            if way.is_priced:
                add_price(config)

        with (
            started(module("upstream", latency=0, tokens=1), measured=False) as experts,
            gateway(folder, experts.port, edit=edit) as served,
        ):
            yield served.port


def hold_traces(router: Router, traces: Sequence[Sequence[Ask]], way: Way) -> list[list[str]]:
    """The experts that got the requests of each trace."""
    with (
        serve(router, way) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection,
    ):
        return [[_send(connection, ask, way, f"trace-{number}") for ask in asks] for number, asks in enumerate(traces)]


def _send(connection: http.client.HTTPConnection, ask: Ask, way: Way, session: str) -> str:
    messages = ask.messages
    if way.one_system:
        messages = [{"role": "system", "content": MAIN}, *messages[1:]]
    headers = {"content-type": "application/json", **({"x-session-id": session} if way.has_session else {})}
    body = json.dumps({"model": "auto", "messages": messages})
    connection.request("POST", "/v1/chat/completions", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise InputError(f"the gateway answered with status {answer.status}: {content[:300]!r}")
    return answer.headers["x-ir3de-expert"]
