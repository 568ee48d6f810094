"""Stored objects and hooks of a gateway that is a process of its own, with several workers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from object_servers import ObjectServer
from raw_sockets import ask
from running_gateway import served
from test_admin import token  # noqa: F401
from test_admin_workers import folder, process  # noqa: F401

HOOKS = """
import threading

def hang(request):
    if "hang" in str(request["texts"]):
        threading.Event().wait()
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_workers_share_stored_objects_and_outlive_hooks_that_hang(folder: Path) -> None:  # noqa: F811
    """Each request may come to another worker. Threads that hang do not keep the gateway from stopping."""
    (folder / "hooks.py").write_text(HOOKS)
    server = ObjectServer()
    with served(server.app()) as url:
        expert = {"name": "law", "base_url": f"{url}/law/v1", "capabilities": ["chat", "responses", "files"]}
        experts = [expert, {**expert, "name": "coding", "base_url": f"{url}/coding/v1"}]
        hooks = {"before": [{"call": "hooks.py:hang", "timeout": 0.1}]}
        with process(folder, 2, experts=experts, hooks=hooks) as gateway:
            for name in ("law", "coding"):
                made = ask(gateway.address, {"model": name, "input": "x"}, "/v1/responses").json["id"]
                for _ in range(20):
                    got = ask(gateway.address, path=f"/v1/responses/{made}")
                    assert (got.status, got.headers["x-ir3de-expert"]) == (200, name)
            for _ in range(6):
                got = ask(gateway.address, {"model": "law", "input": "hang"}, "/v1/responses")
                assert (got.status, got.error["code"]) == (504, "hook_timeout")
            assert ask(gateway.address, {"model": "law", "input": "x"}, "/v1/responses").status == 200
            gateway.running.send_signal(signal.SIGTERM)
            assert gateway.running.wait(60) == 0
