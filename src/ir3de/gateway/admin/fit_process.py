"""Adds, extends or removes an expert of a router, in a process of its own.

A fit needs several hundred megabytes and as much CPU as it gets. In its own process it neither enlarges the worker
nor delays its requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ir3de import errors
from ir3de.errors import InputError, IR3DEError

STATISTICS_SUFFIXES = (".stats", ".safetensors")

_REFUSED_STATUS = 3  # exit status of a refusal; standard output says why


class FitFailed(Exception):  # noqa: N818 - not an error of the request: out of memory, or killed
    """The process ended without a reason."""


@dataclass(frozen=True)
class FitOrder:
    """A change to the router in `source`; the new router is saved in `target`."""

    source: str
    target: str
    action: Literal["more", "remove"]  # more: a new expert, or more texts for one that exists
    name: str
    texts: list[str] | None = None
    file: str | None = None  # instead of texts: the full path of an uploaded file
    file_name: str = ""  # what the client called that file; error messages use it


def fit(order: FitOrder) -> None:
    """Carry out an order in a child process. If it refuses, the same error is raised here.

    The child must never import a file that a client uploaded. `-P` keeps the current folder out of its module path,
    and the current folder is empty anyway.
    """
    command = [sys.executable, "-P", "-m", "ir3de.gateway.admin.fit_process"]
    with tempfile.TemporaryDirectory(prefix="ir3de-empty-") as empty:
        done = subprocess.run(command, input=json.dumps(asdict(order)).encode(), capture_output=True, cwd=empty)
    if done.returncode == _REFUSED_STATUS:
        refusal = json.loads(done.stdout)
        message = refusal["message"].replace(order.file, order.file_name) if order.file else refusal["message"]
        kind: Any = getattr(errors, refusal["kind"], InputError)
        refused: Exception = kind.__new__(kind, message)
        refused.args = (message,)
        raise refused
    if done.returncode:
        if done.returncode < 0:
            raise FitFailed(f"the fit of '{order.name}' was killed: perhaps memory ran out, it takes about 500 MB")
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise FitFailed(f"the fit of '{order.name}' ended with status {done.returncode}: {last}")


def apply_order(order: FitOrder) -> None:
    """Change the router and save it."""
    from ir3de.router import Router

    router = Router.load(order.source)
    if order.action == "remove":
        router.remove(order.name)
    else:
        domain = _read_domain(order, router.kind)
        (router.merge if order.name in router.experts else router.add)(order.name, domain)
    router.save(order.target)


def _read_domain(order: FitOrder, kind: str) -> Any:
    if order.file is None:
        return [text for text in order.texts or () if text.strip()]  # as files are read
    if Path(order.file).suffix.lower() in STATISTICS_SUFFIXES:
        from ir3de.statistics.contributions import Contribution

        return Contribution.load(order.file)
    from ir3de.corpora import read_rows, read_texts

    readers: dict[str, Any] = {"domains": read_texts, "outcomes": read_rows}
    return readers[kind]([order.file])


def main() -> int:
    """Carry out the order on standard input."""
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(10)  # requests have priority
    try:
        apply_order(FitOrder(**json.load(sys.stdin)))
    except IR3DEError as error:
        json.dump({"kind": type(error).__name__, "message": str(error)}, sys.stdout)
        return _REFUSED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
