"""While a fit solves, other threads route, and the process forks: nothing crashes, and all have the right results."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ir3de import Router
from ir3de.corpora import examples
from ir3de.routing.decision import Decision
from ir3de.scorers import Blend
from ir3de.scorers.arithmetic import FITS, using

PROMPTS = {name: texts[:40] for name, texts in examples.prompts().items()}
QUESTIONS = [texts[-1] for texts in examples.prompts().values()]


def fit(on_solve: Callable[[], object] = lambda: None) -> Router:
    """A discriminative fit, which tells when it solves."""

    def report(stage: str, done: int, total: int) -> None:
        if stage == FITS and done:
            on_solve()

    with using(progress=report):
        return Router.fit(PROMPTS)


def route_all(router: Router) -> list[Decision]:
    return [router.route(question) for question in QUESTIONS]


def fit_beside(act: Callable[[], None]) -> Router:
    """Fit in another thread, and act again and again from when it solves until it ends."""
    solves, found = threading.Event(), list[Router]()
    thread = threading.Thread(target=lambda: found.append(fit(solves.set)))
    thread.start()
    while not solves.wait(0.1):
        assert thread.is_alive(), "the fit reports its solver"
    act()
    while thread.is_alive():
        act()
    return found[0]


@pytest.mark.nightly
def test_another_router_routes_while_a_fit_solves() -> None:
    other, alone = Router.fit(PROMPTS, scorer=Blend()), fit()
    expected = route_all(other)

    def route() -> None:
        assert route_all(other) == expected

    assert route_all(fit_beside(route)) == route_all(alone)


def fork_while_a_fit_solves() -> None:
    """In a process of its own: a child routes with a router of its parent, which goes on fitting."""
    other, alone = Router.fit(PROMPTS, scorer=Blend()), fit()
    expected, children = route_all(other), list[int]()

    def fork() -> None:
        if len(children) < 3:
            children.append(child := os.fork())
            if not child:
                os._exit(0 if route_all(other) == expected else 1)
            assert os.waitpid(child, 0)[1] == 0

    assert route_all(fit_beside(fork)) == route_all(alone)
    assert children


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.nightly
def test_a_process_forks_while_a_fit_solves() -> None:
    script = "import warnings; warnings.simplefilter('ignore'); import test_fits_beside_others as own; "
    command = [sys.executable, "-c", script + "own.fork_while_a_fit_solves()"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
