"""A quick rollback, A → B → A, under load: every answer has the hash of the router that decided it."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tiny
from ir3de.files.router_folder import read_header
from raw_sockets import ask, chat
from running_gateway import running
from saved import first_router, second_router

CLIENTS = 4
PROMPTS = tiny.mixed(60)


class Flipping:
    """A folder that is a link to one router, then to another, then to the first one again, and so on."""

    def __init__(self, folder: Path) -> None:
        routers = {"a": first_router(), "b": second_router()}
        of_both = zip(PROMPTS, *(router.route_batch(PROMPTS) for router in routers.values()), strict=True)
        self.texts = [
            text for text, one, other in of_both if one.expert != other.expert and one.expert and other.expert
        ]
        assert len(self.texts) > 3
        self.saved = {name: router.save(folder / name) for name, router in routers.items()}
        self.decisions = {  # of each hash
            read_header(path)["sha256"][:16]: {text: routers[name].route(text).expert for text in self.texts}
            for name, path in self.saved.items()
        }
        self.link, self.flips = folder / "router", 0
        self._stop = threading.Event()
        self.flip("a")

    def flip(self, name: str) -> None:
        fresh = self.link.with_name("fresh")
        fresh.symlink_to(self.saved[name])
        fresh.replace(self.link)
        self.flips += 1

    def run(self) -> None:
        while not self._stop.wait(0.01):
            self.flip("b")
            self._stop.wait(0.003 * (self.flips % 7))
            self.flip("a")

    def stop(self) -> None:
        self._stop.set()


def count_answers(folder: Path, requests: int) -> Counter[str]:
    """How many answers had the label of the router that decided them, and how many another one."""
    flipping = Flipping(folder)
    counted: Counter[str] = Counter()

    def send(number: int) -> tuple[str, bool]:
        text = flipping.texts[number % len(flipping.texts)]
        headers = ask(url, chat(text)).headers  # whether the expert answers well does not matter
        label = headers["x-ir3de-router"]
        return label, headers["x-ir3de-decided"] == flipping.decisions[label][text]

    with running(folder, router={"path": str(flipping.link), "follow": 0.01}) as gateway:
        url = gateway.url
        flips = threading.Thread(target=flipping.run)
        flips.start()
        try:
            with ThreadPoolExecutor(CLIENTS) as clients:
                for label, is_right in clients.map(send, range(requests)):
                    counted["right" if is_right else "wrong"] += 1
                    counted[label] += 1
        finally:
            flipping.stop()
            flips.join()
    return counted


@pytest.mark.parametrize("requests", [60, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_no_answer_has_the_hash_of_another_router(tmp_path: Path, requests: int) -> None:
    counted = count_answers(tmp_path, requests)
    assert (counted["wrong"], counted["right"]) == (0, requests), counted
