"""SIGKILL at every write: a process ends itself just before the n-th change of a file, for each n.

A change is what Python's audit hooks tell of: a file that is opened for writing, renamed, removed, linked or cut, a
folder that is made or removed. After each kill, what was there before or what was to be there must be whole.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ir3de import IR3DEError, Router, collect
from ir3de.corpora import examples as demo
from ir3de.statistics import load_statistics, save_statistics
from ir3de_lab.benchmarks.gateway import processes
from ir3de_lab.benchmarks.gateway.processes import Server, module, started
from ir3de_lab.benchmarks.gateway.rolling import TOKEN, TOKEN_VARIABLE
from ir3de_lab.benchmarks.trust.traffic import Fault, chats

MOST_STEPS = 200
AFTER = 5
# Python runs this module at the start of every process that finds it, so the hook is in workers too
HOOK = """
import os, signal, sys
_place, _step, _armed = os.environ["TRUST_FOLDER"], int(os.environ["TRUST_STEP"]), os.environ["TRUST_ARMED"]
_names = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_seen = 0

def _hook(event, given):
    global _seen
    writes = event in _names or (event == "open" and isinstance(given[2], int) and given[2] & 3)
    if writes and isinstance(given[0], (str, bytes)) and os.fsdecode(given[0]).startswith(_place):
        if os.path.exists(_armed):
            _seen += 1
            if _seen == _step:
                os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(_hook)
"""


@contextmanager
def hooked(folder: Path, place: Path, step: int) -> Iterator[dict[str, str]]:
    """The environment of a process that ends itself at that step, counted in `place` once the file `armed` is there."""
    hooks = folder / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    path = os.pathsep.join([str(hooks), os.environ.get("PYTHONPATH", "")])
    armed = folder / "armed"
    yield {"PYTHONPATH": path, "TRUST_FOLDER": str(place), "TRUST_STEP": str(step), "TRUST_ARMED": str(armed)}
    armed.unlink(missing_ok=True)


def _steps(rounds: int) -> Iterator[int]:
    """Every step, or some of them in a quick run: the first ones, then ever fewer."""
    yield from range(1, MOST_STEPS) if rounds > 1 else (1, 2, 4, 6, 9, 13, 20, 30, 60)


def _until_done(
    fault: Fault, folder: Path, place: Path, rounds: int, code: str, check: Callable[[], str | None]
) -> None:
    """Run the code with a kill at each step until a run comes to its end."""
    for step in _steps(rounds):
        with hooked(folder, place, step) as environment:
            (folder / "armed").touch()
            ended = subprocess.run(
                [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True
            )
        if ended.returncode == 0:
            return
        if ended.returncode != -signal.SIGKILL:
            fault.problems.append(f"step {step}: exit code {ended.returncode}: {ended.stderr[-300:]}")
            return
        fault.injected += 1
        problem = check()
        fault.expect(problem is None, f"killed before step {step}: {problem}")


def kill_router_save(fault: Fault, folder: Path, rounds: int) -> None:
    """A router is saved over another one."""
    place, first, second = folder / "router", folder / "first", folder / "second"
    prompts = demo.prompts()
    for count, path in ((6, first), (9, second)):
        Router.fit({name: texts[:count] for name, texts in prompts.items()}).save(path)
    known = {_digest(first), _digest(second)}
    Router.load(first).save(place)
    code = f"from ir3de import Router\nRouter.load({str(second)!r}).save({str(place)!r})"
    again = f"from ir3de import Router\nRouter.load({str(first)!r}).save({str(place)!r})"

    def check() -> str | None:
        try:
            Router.load(place).route("Can my landlord keep the deposit?")
        except IR3DEError as error:
            return f"the router cannot be loaded: {error}"
        if _digest(place) not in known:
            return "it is neither the router before nor the one after"
        retried = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, check=False)
        return f"the next save fails: {retried.stderr[-200:]}" if retried.returncode else None

    _until_done(fault, folder, place, rounds, code, check)


def _digest(folder: Path) -> str:
    return str(json.loads((folder / "router.json").read_bytes())["sha256"])


def kill_statistics_save(fault: Fault, folder: Path, rounds: int) -> None:
    """Statistics are saved over others."""
    place = folder / "files"
    place.mkdir()
    made = [save_statistics(collect(demo.prompts()["law"][:n]), folder / f"{n}.stats") for n in (5, 9)]
    known = {load_statistics(path).digest for path in made}
    target = place / "a.stats"
    target.write_bytes(made[0].read_bytes())
    code = (
        "from ir3de.statistics import load_statistics, save_statistics\n"
        f"save_statistics(load_statistics({str(made[1])!r}), {str(target)!r})"
    )

    def check() -> str | None:
        try:
            return None if load_statistics(target).digest in known else "other statistics than before and after"
        except IR3DEError as error:
            return str(error)

    _until_done(fault, folder, place, rounds, code, check)


def kill_admin_change(fault: Fault, folder: Path, rounds: int) -> None:
    """A gateway is killed while /admin adds an expert, and started again: state, audit log, pins, router copy."""
    steps = [step for step in _steps(rounds) if rounds > 1 or step in (1, 4, 9)]
    with started(module("upstream", latency=0.001), measured=False) as upstream:
        for step in steps:
            name = f"expert-{step}"
            with (
                hooked(folder, folder / "state", step) as environment,
                _gateway(folder, upstream, environment) as gateway,
            ):
                (folder / "armed").touch()
                status = _add_expert(gateway, name, upstream.port)
            fault.injected += status == 0
            with _gateway(folder, upstream, {}) as gateway:
                there = name in gateway_experts(gateway)
                fault.expect(there or status != 201, f"step {step}: a confirmed change is gone after the restart")
                kinds = chats(gateway.port, AFTER)
                fault.add(kinds)
                fault.expect(kinds["answered"] == AFTER, f"step {step}: after the restart {dict(kinds)}")
            if status:
                return


@contextmanager
def _gateway(folder: Path, upstream: Server, environment: Mapping[str, str]) -> Iterator[Server]:
    env = {TOKEN_VARIABLE: TOKEN, **environment}
    with processes.gateway(folder, upstream.port, env=env, serving=False, stderr=subprocess.DEVNULL) as gateway:
        yield gateway


def _ask_admin(gateway: Server, method: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.port}/admin/experts",
        None if document is None else json.dumps(document).encode(),
        {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return {"status": answer.status, **json.load(answer)}


def _add_expert(gateway: Server, name: str, port: int) -> int:
    """The status, 0 where the gateway ended."""
    document = {"name": name, "upstream": {"base_url": f"http://127.0.0.1:{port}/v1"}, "texts": ["one text"] * 3}
    try:
        return int(_ask_admin(gateway, "POST", document)["status"])
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return 0


def gateway_experts(gateway: Server) -> set[str]:
    """The experts that it has."""
    return {expert["name"] for expert in _ask_admin(gateway, "GET")["data"]}


def flip_state(fault: Fault, folder: Path, rounds: int) -> None:
    """A bit of each file in the state folder is flipped, or the file is cut: the gateway starts, or says why not."""
    with started(module("upstream", latency=0.001), measured=False) as upstream:
        with _gateway(folder, upstream, {}) as gateway:
            fault.expect(_add_expert(gateway, "extra", upstream.port) == 201, "an expert cannot be added")
            chats(gateway.port, AFTER)
        state = folder / "state"
        files = [path for path in sorted(state.rglob("*")) if path.is_file()]
        for path in files if rounds > 1 else [path for path in files if path.parent == state]:
            good = path.read_bytes()
            places = ((0.0, False), (0.5, False), (0.99, False), (0.0, True), (0.5, True), (0.99, True))
            for place, cut in places if rounds > 1 else places[1:5:3]:
                if good:
                    data = bytearray(good)
                    data[int(place * len(data))] ^= 0x04
                    path.write_bytes(data[: int(place * len(data))] if cut else data)
                    fault.injected += 1
                    told = f"{path.relative_to(state)}, {'cut' if cut else 'flipped'} at {place:.0%}"
                    _restart(fault, folder, upstream, told)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(good)


def _restart(fault: Fault, folder: Path, upstream: Server, told: str) -> None:
    messages = folder / "messages.log"
    with suppress(Exception), messages.open("wb") as stream:
        env = {TOKEN_VARIABLE: TOKEN}
        with processes.gateway(folder, upstream.port, env=env, serving=False, stderr=stream.fileno()) as gateway:
            kinds = chats(gateway.port, AFTER)
            fault.add(kinds)
            fault.expect(kinds["answered"] == AFTER, f"{told}: {dict(kinds)}")
            return
    text = messages.read_text("utf-8", "replace")
    fault.expect(text and "Traceback" not in text, f"{told}: the gateway does not start, and says {text[-300:]!r}")


KILLS: dict[str, Callable[[Fault, Path, int], None]] = {
    "SIGKILL at each write, router save": kill_router_save,
    "SIGKILL at each write, statistics save": kill_statistics_save,
    "SIGKILL at each write, /admin change": kill_admin_change,
    "bit flips and cuts in the state folder": flip_state,
}
