"""Measure the clients that are installed, and write a table and the raw file."""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from ir3de_lab import files
from ir3de_lab.benchmarks.transports.clients import CLIENTS, list_available
from ir3de_lab.benchmarks.transports.faults import try_all
from ir3de_lab.benchmarks.transports.measuring import (
    ROUNDS,
    hold_streams,
    list_versions,
    measure_memory,
    measure_speed,
)
from ir3de_lab.catalogue.recording import record

STREAMS = 9_900


def measure(names: list[str], streams: int, rounds: int) -> dict[str, Any]:
    speed = uvloop.run(measure_speed(names, rounds))
    clients: dict[str, Any] = {}
    for name in names:
        faults = uvloop.run(try_all(CLIENTS[name]))
        clients[name] = {**speed[name], "idle_stream_bytes": measure_memory(name, streams), "faults": faults}
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    return {"made": made, "machine": machine, "versions": list_versions(names), "streams": streams, "clients": clients}


def format_table(result: dict[str, Any]) -> str:
    lines = [
        "| client | whole answer, CPU µs | its latency, µs | stream of 20 tokens, CPU µs | idle stream, kB | cases |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["clients"].items():
        passed, held = found["faults"], found["idle_stream_bytes"]
        memory = "–" if held is None else f"{held / 1000:.1f}"
        numbers = [f"{found[key]:.0f}" for key in ("whole_cpu_us", "whole_alone_p50_us", "stream_cpu_us")]
        lines.append(f"| {name} | {' | '.join(numbers)} | {memory} | {sum(passed.values())} of {len(passed)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare HTTP clients.")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="separated by commas")
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--hold", help="only hold idle streams with this client")
    given = parser.parse_args()
    logging.disable()
    warnings.simplefilter("ignore")
    if given.hold:
        uvloop.run(hold_streams(given.hold, given.streams))
    result = measure(list_available(given.clients.split(",")), given.streams, given.rounds)
    sys.stdout.write(format_table(result))
    if given.save is not None:
        files.write_json(given.save, {**result, **record("transports")})


if __name__ == "__main__":
    main()
