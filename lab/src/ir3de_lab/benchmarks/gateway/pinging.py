"""Ask /livez every 2 ms until a line comes, and write how long each answer took: what a stall looks like from outside.

python -m ir3de_lab.benchmarks.gateway.pinging --port 8100
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import time
from contextlib import suppress

EVERY_S = 0.002
WARM = 20  # pings that do not count
TIMEOUT_S = 120.0
REQUEST = b"GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def ping(port: int) -> list[float]:
    """Seconds of each ping until a line comes on standard input."""
    waits: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(waits) < WARM or not select.select([sys.stdin], [], [], 0)[0]:
            begin = time.perf_counter()
            connection.sendall(REQUEST)
            if not connection.recv(65_536):
                break
            waits.append(time.perf_counter() - begin)
            if len(waits) == WARM:
                sys.stdout.write("\n")
                sys.stdout.flush()
            time.sleep(max(0.0, EVERY_S - waits[-1]))
    return waits[WARM:] or [TIMEOUT_S]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ping a gateway.")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    with suppress(OSError):  # only root may: its own waits must not be counted as the gateway's
        os.nice(-10)
    json.dump(ping(given.port), sys.stdout)


if __name__ == "__main__":
    main()
