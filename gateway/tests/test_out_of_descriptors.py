"""A gateway that has no file descriptors left: it says so, and blames no expert."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, json, logging, os, resource, sys
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.transport.pool import HttpTransport
from ir3de_gateway.experts.expert import create_expert
from ir3de_gateway.experts.upstream import UpstreamFailure, send_request

async def main():
    expert = create_expert(ExpertConfig(name="law", base_url=sys.argv[1]))
    transport = HttpTransport()
    logged = []
    logging.getLogger("ir3de.gateway").addFilter(lambda record: logged.append(record.getMessage()) or False)
    used = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))
    try:
        await send_request(transport, expert, "chat/completions", b"", b"{}")
    except UpstreamFailure as failure:
        print(json.dumps([failure.reason, failure.status, failure.is_expert_fault, failure.message, logged]))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_running_out_of_descriptors_is_not_the_experts_fault(host: str) -> None:
    command = [sys.executable, "-c", SCRIPT, f"http://{host}:1/v1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    reason, status, is_expert_fault, message, logged = json.loads(done.stdout)
    assert (reason, status, is_expert_fault) == ("resources", 503, False)
    assert message == "the gateway has no file descriptors or memory left for a connection to 'law'"
    assert len(logged) == 1 and "Too many open files" in logged[0]
