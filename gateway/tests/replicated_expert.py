"""An expert with three replicas behind a real gateway, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ir3de_gateway.experts.expert import Replica
from raw_sockets import ask
from running_gateway import QUESTIONS, Behaviour, Running, Upstream, running, served

LAW = QUESTIONS["law"]
NAMES = ("law-a", "law-b", "law-c")
# they take turns, whatever the conversation
CALM = {"affinity": 0, "retries": {"backoff": 0}, "health": {"active": False}, "slow_start": 0}


@contextmanager
def replicated(folder: Path, law: dict[str, Any] | None = None, **changes: Any) -> Iterator[Running]:
    """A gateway whose expert for law has three replicas, each with a name of its own behind one socket."""
    upstream = Upstream()
    with served(upstream.app()) as experts:
        addresses = [{"base_url": f"{experts}/{name}/v1", "name": name} for name in NAMES]
        given = {**CALM, "base_url": addresses[0]["base_url"], "replicas": addresses, **(law or {})}
        with running(folder, experts={"law": given}, **changes) as gateway:
            gateway.upstream.behaviour = upstream.behaviour
            gateway.upstream.asked = upstream.asked
            yield gateway


def replicas_of(gateway: Running) -> tuple[Replica, ...]:
    return gateway.gateway.live.snapshot.experts["law"].replicas


def states(gateway: Running) -> list[str]:
    return [replica.state for replica in replicas_of(gateway)]


def is_quiet(gateway: Running) -> bool:
    """Whether no replica has a request, and none is counted."""
    in_use = gateway.gateway.live.snapshot.experts["law"].concurrency.in_use
    return not in_use and not any(replica.in_flight for replica in replicas_of(gateway))


def fail_all(gateway: Running, behaviour: Behaviour) -> None:
    gateway.upstream.behaviour.update(dict.fromkeys(NAMES, behaviour))


def metric(gateway: Running, start: str) -> float:
    lines = ask(gateway.url, path="/metrics").body.decode().splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(start)), 0.0)
