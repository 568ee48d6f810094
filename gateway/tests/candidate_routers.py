"""A candidate router that disagrees with the tests' live router on law and cooking, and a gateway that tries it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ir3de import Router
from ir3de.traffic import Journal, TrafficRecord
from raw_sockets import eventually
from running_gateway import TEXTS, Running, running

SECOND = {"law": "cooking", "cooking": "law", "maths": "maths"}  # who answers instead


@cache
def other_router() -> Router:
    return Router.fit({name: TEXTS[SECOND[name]] for name in TEXTS})


def save_candidate(folder: Path, router: Router | None = None) -> Path:
    return (router or other_router()).save(folder / "candidate")


@contextmanager
def trying(
    folder: Path, /, routing: dict[str, Any] | None = None, changes: dict[str, Any] | None = None, **candidate: Any
) -> Iterator[Running]:
    """A gateway with a journal and that candidate; `changes` are of its configuration."""
    if not (folder / "candidate").exists():
        save_candidate(folder)
    more = {"candidate": {"router": str(folder / "candidate"), **candidate}, "threshold": 0.0, **(routing or {})}
    kept = {"folder": str(folder / "kept"), "keep": "text"}
    given = {"feedback": kept, "state": str(folder / "state"), **(changes or {})}
    with running(folder, routing=more, **given) as found:
        yield found


def read_rows(gateway: Running, folder: Path, least: int = 1) -> dict[str, TrafficRecord]:
    """The journal's rows, once there are that many: a request is kept a moment after its answer."""
    writer = gateway.gateway.get_journal()
    assert writer is not None
    found: dict[str, TrafficRecord] = {}

    def are_there() -> bool:
        writer.flush()
        with Journal.open(folder / "kept") as journal:
            found.update({row.id: row for row in journal.read()})
        return len(found) >= least

    assert eventually(are_there)
    return found
