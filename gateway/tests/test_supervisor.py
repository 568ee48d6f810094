"""The supervisor of workers: what it does when workers end, cannot start, or do not stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import ROOT
from raw_sockets import eventually

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

# a worker reads the file that its gateway was given: "serve", "wait" (do not report that it serves), or why it cannot
PROGRAM = """
import logging, multiprocessing, os, signal, socket, sys, threading
from ir3de.errors import InputError
from ir3de_gateway.serving import supervisor

def work(reports, listening):
    said = open(sys.argv[1]).read()
    with open(f"{sys.argv[1]}.attempts", "a") as attempts:
        attempts.write(".")
    if said not in ("serve", "wait"):
        reports.send(said)
        sys.exit(3)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    if said == "serve":
        reports.send(None)
    open(f"{sys.argv[2]}/{os.getpid()}", "w").close()
    while not stop.wait(0.05) and multiprocessing.parent_process().is_alive():
        pass
    while os.path.exists(sys.argv[1] + ".stuck"):
        open(f"{sys.argv[2]}/../{os.getpid()}.stopping", "w").close()
        threading.Event().wait(0.05)
    os.unlink(f"{sys.argv[2]}/{os.getpid()}")

def say():
    logging.info("look at the file")

if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level="INFO")
    supervisor.STOP_GRACE_S = 0.5
    supervisor.MAX_DELAY_S = 0.05
    with socket.create_server(("127.0.0.1", 0)) as listening:
        try:
            print(supervisor.Supervisor(work, listening, workers=2, drain_seconds=0.5, on_replaced=say).serve())
        except InputError as error:
            print(error)
"""


class Supervised:
    """A supervisor in a process of its own, with two workers that do nothing."""

    def __init__(self, folder: Path) -> None:
        self.said, self._pids = folder / "said", folder / "pids"
        self._pids.mkdir()
        (folder / "program.py").write_text(PROGRAM)
        self.say("serve")
        self.log = folder / "log"
        self._command = [sys.executable, folder / "program.py", self.said, self._pids]

    def say(self, what: str) -> None:
        """Replace the file: a worker that starts meanwhile must not find it empty."""
        new = self.said.with_name("new")
        new.write_text(what)
        new.replace(self.said)

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self._command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    @property
    def workers(self) -> set[int]:
        """The workers that serve."""
        return {int(path.name) for path in self._pids.iterdir()}

    @property
    def attempts(self) -> int:
        """How many workers have been started."""
        return len(self.said.with_name("said.attempts").read_text())

    def kill_one(self) -> int:
        pid = min(self.workers)
        os.kill(pid, signal.SIGKILL)
        (self._pids / str(pid)).unlink()
        return pid

    def result(self) -> str:
        return self.process.communicate(timeout=60)[0].strip()


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised(tmp_path)
    made.start()
    assert made.process.stdout is not None
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        made.process.stdout.close()


def test_a_worker_that_cannot_start_again_is_tried_until_it_can(supervised: Supervised) -> None:
    assert eventually(lambda: len(supervised.workers) == 2)
    supervised.say("the router is away")
    killed = supervised.kill_one()
    assert eventually(lambda: "cannot start: the router is away" in supervised.log.read_text())
    supervised.kill_one()  # nobody is left, and it still goes on
    before = supervised.attempts
    assert eventually(lambda: supervised.attempts >= before + 4)  # several attempts, of both
    assert supervised.process.poll() is None
    supervised.say("serve")
    assert eventually(lambda: len(supervised.workers) == 2)
    supervised.process.terminate()
    assert supervised.result() == "True" and supervised.process.returncode == 0
    log = supervised.log.read_text()
    assert f"worker {killed} ended with code -9: starting another" in log
    # not once for each attempt; a second time where one worker serves again before the other's last attempt has failed
    assert 1 <= log.count("cannot start") == log.count("serves again") <= 2


def test_a_worker_that_is_killed_before_any_has_served_is_replaced(supervised: Supervised) -> None:
    supervised.process.kill()
    supervised.process.communicate()
    supervised.say("wait")
    supervised.start()
    assert eventually(lambda: len(supervised.workers) == 2)
    supervised.say("serve")
    killed = {supervised.kill_one(), supervised.kill_one()}
    assert eventually(lambda: len(supervised.workers - killed) == 2)
    assert supervised.process.poll() is None


def test_a_gateway_that_cannot_start_at_all_ends(supervised: Supervised) -> None:
    supervised.process.kill()
    supervised.process.communicate()
    supervised.say("no such router")
    supervised.start()
    assert supervised.result() == "the gateway did not start: no such router"


def test_sighup_replaces_the_workers_but_not_by_ones_that_cannot_start(supervised: Supervised) -> None:
    assert eventually(lambda: len(supervised.workers) == 2)
    old = supervised.workers
    supervised.say("the router is away")
    supervised.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: "a new worker did not start: the router is away" in supervised.log.read_text())
    assert supervised.workers == old
    supervised.say("serve")
    supervised.process.send_signal(signal.SIGHUP)
    assert eventually(lambda: "look at the file" in supervised.log.read_text())
    assert len(supervised.workers) == 2 and not supervised.workers & old
    said = supervised.log.read_text()
    assert said.count("SIGHUP: replacing 2 workers one by one") == 2 and said.count("has been replaced") == 1
    assert said.count("look at the file") == 1
    supervised.process.terminate()
    assert supervised.result() == "True" and not supervised.workers


def test_workers_end_with_their_supervisor(supervised: Supervised) -> None:
    assert eventually(lambda: len(supervised.workers) == 2)
    supervised.process.kill()
    assert eventually(lambda: not supervised.workers)


@pytest.mark.parametrize(("second", "expected"), [(signal.SIGINT, "False"), (None, "True")])
def test_workers_that_do_not_stop_are_killed(
    supervised: Supervised, second: signal.Signals | None, expected: str
) -> None:
    """At the second interrupt, or when their time is over."""
    assert eventually(lambda: len(supervised.workers) == 2)
    supervised.said.with_name("said.stuck").touch()
    supervised.process.send_signal(signal.SIGTERM)
    if second is not None:
        assert eventually(lambda: len(list(supervised.said.parent.glob("*.stopping"))) == 2)  # the first was handled
        supervised.process.send_signal(second)
    assert supervised.result() == expected
    assert ("were killed" in supervised.log.read_text()) == (second is None)
