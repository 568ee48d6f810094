"""Replicas behind several workers: shares, drains and health are those of all of them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

from admin_client import TOKEN, token  # noqa: F401
from running_gateway import Upstream, failing, served
from test_admin_workers import folder, process  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="workers share no table on Windows")]


def test_workers_share_replicas_checks_and_drains(folder: Path) -> None:  # noqa: F811
    upstream = Upstream()
    chat = {"model": "law", "messages": [{"role": "user", "content": "Is this contract void?"}]}
    with served(upstream.app()) as experts:
        checks = {"interval": 0.2, "down_interval": 0.2, "timeout": 5, "unhealthy": 1}
        replicas = [{"base_url": f"{experts}/{name}/v1", "name": name} for name in ("a", "b", "c")]
        law = {"name": "law", "replicas": replicas, "health": checks, "slow_start": 0, "affinity": 0}
        maths = {"name": "maths", "base_url": f"{experts}/maths/v1"}
        began = monotonic()
        with process(folder, 2, experts=[law, maths]) as gateway:

            def see_states() -> set[tuple[str, ...]]:
                """As all workers see them: each connection may be another one's."""
                rows = [gateway.ask("GET", "/admin/experts")["data"][0] for _ in range(12)]
                return {tuple(replica["state"] for replica in row["replicas"]) for row in rows}

            def share() -> Counter[str]:
                before = len(upstream.bodies)
                for _ in range(30):
                    gateway.ask("POST", "/v1/chat/completions", chat)
                asked = list(zip(upstream.asked, upstream.bodies, strict=True))[before:]
                return Counter(name for name, body in asked if body)

            while see_states() != {("up", "up", "up")}:
                pass
            assert all(8 <= count <= 12 for count in share().values())
            upstream.behaviour["b"] = failing(500)
            while see_states() != {("up", "down", "up")} or set(share()) != {"a", "c"}:
                pass  # twelve answers may all be of one worker, and the other may still have to learn of it
            assert set(share()) == {"a", "c"}
            upstream.behaviour.clear()
            gateway.ask("PUT", "/admin/experts/law/replicas/a", {"drain": True})
            while see_states() != {("drained", "up", "up")} or set(share()) != {"b", "c"}:
                pass
            assert set(share()) == {"b", "c"}
            checked = Counter(name for name, body in zip(upstream.asked, upstream.bodies, strict=True) if not body)
            most = (monotonic() - began) / checks["interval"] + 2  # as if there were one worker
            assert all(0 < count <= most for count in checked.values())
            gateway.kill()
        with process(folder, 2, experts=[law, maths]) as gateway:
            assert {states[0] for states in see_states()} == {"drained"}
            gateway.ask("PUT", "/admin/experts/law/replicas/a", {"drain": False})
            while see_states() != {("up", "up", "up")}:
                pass
