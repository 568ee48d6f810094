"""Adds, extends or removes an expert of a router, in a process of its own.

A fit needs several hundred megabytes and as much CPU as it gets. In its own process it neither enlarges the worker
nor delays its requests. The process has limits of time, of memory, and of what an upload may decompress to. It ends
when the change is stopped, and when the worker ends in whatever way: the worker holds the other end of its standard
input.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from ir3de import errors
from ir3de.errors import InputError, IR3DEError
from ir3de.serving import ScorerChoice
from ir3de_gateway.background import STOP_CHECK_S, Stopped

STATISTICS_SUFFIXES = (".stats", ".safetensors")

_REJECTED_STATUS = 3  # exit status of a rejection; standard output has the reason
_GRACE_S = 10.0  # after its limit of time a process that was not ended ends itself
_MAX_OUTPUT_BYTES = 100_000  # read of what the process prints
_DISK_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_FIRST_VICTIM = "1000"  # of the out-of-memory killer of Linux


class FitFailed(Exception):  # noqa: N818 - not an error of the request
    """The process ended without a reason: it was killed, or memory ran out; or the disk is full."""


@dataclass(frozen=True)
class FitOrder:
    """A change to the router in `source`; the new router is saved in `target`."""

    source: str
    target: str
    action: Literal["more", "remove", "scorer"]  # more: a new expert, or more texts for one that exists
    name: str  # of the expert, or what the scorer is called
    texts: list[str] | None = None
    file: str | None = None  # instead of texts: the full path of an uploaded file
    file_name: str = ""  # what the client called that file; error messages use it
    scorer: Mapping[str, Any] | None = None  # as a router's header describes it; the new router is a serving copy
    scorer_choice: ScorerChoice = "keep"
    threshold: float | None = None  # with which the gateway serves, where it differs from the router's own,
    default: str | None = None  # and the default expert: before and after are measured with them
    seconds: float = 600.0
    memory_bytes: int = 2_000_000_000
    text_bytes: int = 200_000_000  # of the file after decompression


def fit(order: FitOrder, stop: threading.Event | None = None) -> dict[str, Any] | None:
    """Carry out an order in a child process: the router before and after. An error of the child is raised here.

    The child must never import a file that a client uploaded. `-P` keeps the current folder out of its module path,
    and the current folder is empty anyway.
    """
    with tempfile.TemporaryDirectory(prefix="ir3de-fit-") as made:
        folder, empty = Path(made), Path(made, "empty")
        empty.mkdir()
        (folder / "order.json").write_text(json.dumps(asdict(order)))
        command = [sys.executable, "-P", "-m", "ir3de_gateway.admin.fit_process", str(folder / "order.json")]
        with (folder / "output").open("w+b") as output, (folder / "errors").open("w+b") as errors_file:
            status = _run(command, order, stop or threading.Event(), cwd=empty, stdout=output, stderr=errors_file)
            printed, printed_errors = (_read_end(file) for file in (output, errors_file))
    if status == _REJECTED_STATUS:
        rejection = json.loads(printed)
        message = rejection["message"].replace(order.file, order.file_name) if order.file else rejection["message"]
        if rejection["kind"] == FitFailed.__name__:
            raise FitFailed(message)
        kind: Any = getattr(errors, rejection["kind"], InputError)
        error: Exception = kind.__new__(kind, message)
        error.args = (message,)
        raise error
    if status == -signal.SIGABRT:  # native code ends like this without memory
        raise InputError(_describe_memory(order))
    if status < 0:
        raise FitFailed(
            f"the fit of '{order.name}' was killed by signal {-status}: perhaps memory ran out, it takes about 500 MB"
        )
    if status:
        last = (printed_errors.strip().splitlines() or ["no message"])[-1]
        raise FitFailed(f"the fit of '{order.name}' ended with status {status}: {last}")
    found: dict[str, Any] | None = json.loads(printed)
    return found


def _run(command: list[str], order: FitOrder, stop: threading.Event, **options: Any) -> int:
    """Run a command to its end, and not longer than it may; its exit status."""
    until = monotonic() + order.seconds
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, **options)
    try:
        while process.poll() is None:
            if stop.wait(STOP_CHECK_S):
                raise Stopped
            if monotonic() >= until:
                raise InputError(
                    f"the fit of '{order.name}' took longer than {order.seconds:g} seconds, which is the limit here "
                    "(server.limits.fit_seconds): give fewer texts, or statistics from `ir3de collect`"
                )
        return process.returncode
    finally:
        if process.poll() is None:
            _kill_group(process)
        assert process.stdin is not None
        process.stdin.close()


def _describe_memory(order: FitOrder) -> str:
    megabytes = f"{order.memory_bytes / 1e6:,.0f} MB"
    return (
        f"the fit of '{order.name}' needs more than {megabytes} of memory, which is the limit here "
        "(server.limits.fit_memory_bytes): give fewer or shorter texts"
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _read_end(file: Any) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _MAX_OUTPUT_BYTES))
    return str(file.read().decode(errors="replace"))


# in the child process -------------------------------------------------------------------------------------------


def apply_order(order: FitOrder) -> dict[str, Any] | None:
    """Change the router and save it: what changed."""
    from ir3de import Router
    from ir3de.evaluation import measure_change
    from ir3de.serving import SCORERS

    router = Router.load(order.source)
    if order.scorer is not None:
        own: Any = {"selector": router.selector, "default": router.default, "policy": router.policy}
        scorer = SCORERS.restore(order.scorer)
        Router.fit(router.statistics, embedding=router.embedding, scorer=scorer, **own).save(order.target, serving=True)
        return None
    before = copy(router)
    if order.action == "remove":
        router.remove(order.name, scorer=order.scorer_choice)
    else:
        change = router.merge if order.name in router.experts else router.add
        change(order.name, _read_domain(order, router.kind), scorer=order.scorer_choice)
    router.save(order.target)  # it learns confidence from the held-out prompts that are measured now
    return measure_change(*(_serve(one, order) for one in (before, router))).to_dict()


def _serve(router: Any, order: FitOrder) -> Any:
    """The router as the gateway serves it."""
    threshold = router.policy.threshold if order.threshold is None else order.threshold
    default = order.default if order.default in router.experts else None
    return router.with_policy(replace(router.policy, threshold=threshold), default=default)


def _read_domain(order: FitOrder, kind: str) -> Any:
    if order.file is None:
        return [text for text in order.texts or () if text.strip()]  # as files are read
    if Path(order.file).suffix.lower() in STATISTICS_SUFFIXES:
        from ir3de import Contribution

        return Contribution.load(order.file)
    from ir3de.corpora import read_rows, read_texts

    readers: dict[str, Any] = {"domains": read_texts, "outcomes": read_rows}
    return readers[kind]([order.file])


def main(path: str) -> int:
    """Carry out the order in a file."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    order = FitOrder(**json.loads(Path(path).read_bytes()))
    _limit_process(order)
    try:
        from ir3de.serving import limit_expansion

        with limit_expansion(order.text_bytes):
            found = apply_order(order)
        json.dump(found, sys.stdout)
        return 0
    except MemoryError:
        rejection = {"kind": InputError.__name__, "message": _describe_memory(order)}
    except IR3DEError as error:
        is_disk_full = isinstance(error.__cause__, OSError) and error.__cause__.errno in _DISK_FULL
        rejection = {"kind": FitFailed.__name__ if is_disk_full else type(error).__name__, "message": str(error)}
    json.dump(rejection, sys.stdout)
    return _REJECTED_STATUS


def _end_with_parent() -> None:
    """Nothing is ever sent to this process: what is read is the end of its parent."""
    os.read(0, 1)
    os._exit(1)


def _limit_process(order: FitOrder) -> None:
    """What the system limits, where it can."""
    if sys.platform == "win32":
        return
    import resource

    with suppress(OSError):
        os.nice(10)  # requests have priority
    with suppress(OSError, ValueError):  # there may be a lower limit already
        resource.setrlimit(resource.RLIMIT_DATA, (order.memory_bytes, order.memory_bytes))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_VICTIM)  # rather this process than a worker
    signal.setitimer(signal.ITIMER_REAL, order.seconds + _GRACE_S)  # the signal ends the process, whatever it does


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
