"""Fit a router, route prompts, add an expert: timed in the environment of the router. Reads and writes JSON.

`python use_….py REQUEST ANSWER` is how a benchmark starts it. Nothing but the standard library is imported here,
because the environments hold one router each.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

ONE_BY_ONE = 200  # prompts that are timed one at a time, as a gateway has them
ROUNDS = 15  # of these prompts; the median round counts
FOLDS = 3  # of the training prompts, to choose a router's main setting on

S = TypeVar("S")
Split = tuple[list[int], list[int]]  # the places of prompts to fit on, and of prompts to be rated on


class Alternative(Protocol):
    """A router as its own documentation uses it."""

    def load(self, model: str) -> None:
        """Import what is needed and read the model folder, if there is one."""

    def fit(self, texts: list[str], labels: list[str]) -> None: ...

    def add(self, label: str, texts: list[str]) -> None:
        """Add an expert to a fitted router; a router that cannot do that is fitted again."""

    def route(self, text: str) -> tuple[str | None, float]:
        """The expert of one prompt, or None if the router abstains, and how sure the router is."""

    # a router that takes many prompts at once may have `route_many(texts)` as well; one that runs a sentence encoder
    # has `encode(texts)`, by which all of its vectors come, and `vectors`, the name of the encoder


class WithUnlabelled:
    """For routers that can learn from prompts without labels: they are there before the fit."""

    unlabelled: list[str] = []  # noqa: RUF012 - replaced, never changed


class Refitted:
    """For routers that cannot add an expert: they are fitted again from all texts."""

    def __init__(self) -> None:
        self._kept: tuple[list[str], list[str]] = ([], [])

    def keep(self, texts: list[str], labels: list[str]) -> None:
        self._kept = texts, labels

    def add(self, label: str, texts: list[str]) -> None:
        old, labels = self._kept
        self.fit([*old, *texts], [*labels, *[label] * len(texts)])

    def fit(self, texts: list[str], labels: list[str]) -> None:
        raise NotImplementedError


def main(alternative: Alternative) -> None:
    """Answer every request of a file: the first argument; answers go to the second."""
    requests, answers = Path(sys.argv[1]), Path(sys.argv[2])
    given = json.loads(requests.read_text(encoding="utf-8"))
    begun = time.perf_counter()
    alternative.load(given["model"])
    loaded = time.perf_counter() - begun
    memory = _remember(alternative, answers) if not any(one.get("timed") for one in given["requests"]) else None
    answered = []
    for place, request in enumerate(given["requests"], 1):
        answered.append(answer(alternative, request))
        if memory:
            memory.save()
        sys.stderr.write(f"{place} of {len(given['requests'])}: {time.perf_counter() - begun:.0f} s\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    document = {"load_s": round(loaded, 3), "peak_mb": round(peak), "machine": describe_machine(), "answers": answered}
    answers.write_text(json.dumps(document), encoding="utf-8")


class Memory:
    """Computes the vector of a text once: the sets are the same for all routers. Times are taken without it.

    It is kept in a file, where the next router with the same encoder finds it.
    """

    def __init__(self, encode: Callable[[list[str]], Any], place: Path) -> None:
        import numpy as np  # wherever there is an encoder

        self._numpy: Any = np
        self._encode, self._place = encode, place
        self._known: dict[str, Any] = {}
        if place.is_file():
            with np.load(place) as kept:
                self._known = dict(zip(json.loads(kept["texts"].tobytes()), kept["vectors"], strict=True))

    def __call__(self, texts: list[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._numpy.asarray(self._encode(new), self._numpy.float32), strict=True))
        return self._numpy.stack([self._known[text] for text in texts])

    def save(self) -> None:
        if not self._known:
            return
        texts = self._numpy.frombuffer(json.dumps(list(self._known)).encode(), dtype=self._numpy.uint8)
        self._numpy.savez(self._place, texts=texts, vectors=self._numpy.stack(list(self._known.values())))


def _remember(alternative: Any, answers: Path) -> Memory | None:
    if not hasattr(alternative, "encode"):
        return None
    memory = Memory(alternative.encode, answers.with_name(f"vectors-{alternative.vectors}.npz"))
    alternative.encode = memory
    return memory


def find_device() -> str:
    """Where an encoder runs: an accelerator if IR3DE_DEVICE names it, else the processor, where times are taken."""
    return os.environ.get("IR3DE_DEVICE", "cpu")


def describe_machine() -> dict[str, Any]:
    """The processor, the cores this process may use, and the day."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or "unknown"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": processor,
        "cores": cores,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,  # how busy it is
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def answer(alternative: Alternative, request: dict[str, Any]) -> dict[str, Any]:
    """Fit, route and, if it is asked for, add: with the seconds of each."""
    texts, labels = request["texts"], request["labels"]
    if isinstance(alternative, WithUnlabelled):
        alternative.unlabelled = request.get("unlabelled", [])
    found: dict[str, Any] = {}
    if new := request.get("new"):
        before = [(text, label) for text, label in zip(texts, labels, strict=True) if label != new]
        alternative.fit([text for text, _ in before], [label for _, label in before])
        begun, used = time.perf_counter(), time.process_time()
        alternative.add(new, [text for text, label in zip(texts, labels, strict=True) if label == new])
        alternative.route(request["test"][0])  # whatever was put off is done now
        found["add_s"], found["add_cpu_s"] = time.perf_counter() - begun, time.process_time() - used
    begun, used = time.perf_counter(), time.process_time()
    alternative.fit(texts, labels)
    found["fit_s"], found["fit_cpu_s"] = time.perf_counter() - begun, time.process_time() - used
    found["said"], found["sure"] = _route_all(alternative, request["test"])
    found["strange_said"], found["strange_sure"] = _route_all(alternative, request["strange"])
    if request.get("timed"):
        found["route_us"], found["route_cpu_us"] = _time_one_by_one(alternative, request["test"][:ONE_BY_ONE])
    return found


def choose(settings: Sequence[S], texts: list[str], labels: list[str], rate: Callable[[S, Split], int]) -> S:
    """The setting with most right on prompts that its fit did not see; among equals the first.

    The prompts of every label are parted into folds in turn, so that each fit has all labels. `rate` counts what a
    setting has right on one split.
    """
    seen: dict[str, int] = {}
    folds = []
    for label in labels:
        folds.append(seen.get(label, 0) % FOLDS)
        seen[label] = seen.get(label, 0) + 1
    totals = []
    for setting in settings:
        total = 0
        for fold in range(FOLDS):
            outside = [place for place, own in enumerate(folds) if own == fold and seen[labels[place]] > 1]
            inside = sorted(set(range(len(folds))) - set(outside))
            if outside:
                total += rate(setting, (inside, outside))
        totals.append(total)
    return settings[totals.index(max(totals))]


def find_nearest(vector: Any, vectors: Any, labels: Sequence[str], count: int) -> list[tuple[str, float]]:
    """The labels of the nearest prompts with their similarities, the nearest first: unit vectors, as numpy arrays."""
    near = vectors @ vector
    count = min(count, len(near))
    places = (-near).argpartition(count - 1)[:count]
    return [(str(labels[place]), float(near[place])) for place in places[(-near[places]).argsort()]]


def _route_all(alternative: Alternative, texts: list[str]) -> tuple[list[str | None], list[float]]:
    many = getattr(alternative, "route_many", None)
    routed = many(texts) if many else [alternative.route(text) for text in texts]
    return [label for label, _ in routed], [round(float(sure), 6) for _, sure in routed]


def _time_one_by_one(alternative: Alternative, texts: list[str]) -> tuple[float, float]:
    """Microseconds that a prompt takes: the median by the clock, and CPU time, which a busy machine changes little."""
    seconds, used = [], []
    for _ in range(ROUNDS):
        before = time.process_time()
        for text in texts:
            begun = time.perf_counter()
            alternative.route(text)
            seconds.append(time.perf_counter() - begun)
        used.append((time.process_time() - before) / len(texts))
    return round(1e6 * statistics.median(seconds), 1), round(1e6 * statistics.median(used), 1)
