"""Many owners: their files merged into a router, and some of them taken out again, to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from ir3de import Router
from ir3de.corpora import examples as demo
from ir3de.embedding import Embedding
from ir3de.errors import IR3DEError
from ir3de.statistics import Contribution, Statistics, collect
from ir3de_lab.benchmarks.measurement import Figure, Watch, usable_cores

PROMPTS = 40  # of an owner
LONGEST = 2_000  # characters of a prompt
EXPERT = "law"  # that all of them give to
CALIBRATED = ", prompts kept and confidence calibrated"
MERGED_S, REMOVED_S = 10.0, 2.0  # what is aimed at

A = TypeVar("A")
B = TypeVar("B")


def owners(texts: Sequence[str], number: int, *, rounds: int = 1, embedding: Embedding | None = None) -> list[Figure]:
    """So many contributions merged, and one taken out a round; without any prompts, and with some of everybody's."""
    figures: list[Figure] = []
    for keep_sample in (False, True):
        with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
            trial = Trial(Path(folder), embedding or Embedding.default(), keep_sample)
            figures += _measured(trial, trial.write(texts, number), rounds)
    return figures


def _measured(trial: Trial, paths: Sequence[Path], rounds: int) -> Iterator[Figure]:
    watch = trial.watch
    for _ in range(rounds):
        router = trial.merged(paths)
    with watch("save"):
        router.save(trial.router)
    if not trial.keep_sample:
        trial.add_up(paths, router.statistics[EXPERT])
    gone = paths[:: max(1, len(paths) // (rounds + 1))][: rounds + 1]
    for path in gone[1:]:
        trial.remove(path.stem)
    trial.command("ir3de remove", "remove", trial.router, EXPERT, "--contribution", gone[0].stem)
    trial.check([path for path in paths if path not in gone])
    raw = {
        "contributions": len(paths),
        "prompts_each": PROMPTS,
        "megabytes": sum(path.stat().st_size for path in paths) / 1e6,
        "calibrated": router.calibrated,
        "removed": [path.stem for path in gone],
        "same_bits": True,  # or it would have been refused
        **watch.to_dict(),
    }
    return _figures(len(paths), watch.medians, raw, CALIBRATED if trial.keep_sample else "")


def _figures(number: int, took: dict[str, float], raw: dict[str, Any], kind: str) -> Iterator[Figure]:
    merged, removed = took["read"] + took["merge"], took["load"] + took["remove"] + took["save again"]
    timed: dict[str, tuple[float | None, float | None]] = {
        f"{number:,} contributions read and merged": (merged, MERGED_S),
        f"{number:,} contributions read and merged, the router saved": (merged + took["save"], None),
        f"{number:,} contributions added up by `ir3de merge`": (took.get("ir3de merge"), None),
        f"one of {number:,} contributions removed": (took["remove"], REMOVED_S),
        f"one of {number:,} contributions removed, the router loaded and saved": (removed, None),
        f"one of {number:,} contributions removed by `ir3de remove`": (took["ir3de remove"], None),
    }
    for name, (seconds, bar) in timed.items():
        if seconds is not None:
            yield Figure(f"{name}{kind}", seconds, "s", bar, False, raw)


@dataclass(frozen=True)
class Trial:
    """A router of five experts, in a folder, one of which is given what many owners have."""

    folder: Path
    embedding: Embedding
    keep_sample: bool
    watch: Watch = field(default_factory=Watch)

    @property
    def router(self) -> Path:
        return self.folder / "router"

    @cached_property
    def own(self) -> dict[str, Statistics]:
        """What the experts have without the owners."""
        return {
            name: collect(prompts, embedding=self.embedding, keep_sample=self.keep_sample)
            for name, prompts in demo.prompts().items()
        }

    def write(self, texts: Sequence[str], number: int) -> list[Path]:
        """Files of so many owners, each with some of the texts, named as their contributions are."""

        def write_one(owner: int) -> Path:
            prompts = [text[:LONGEST] for text in Random(owner).choices(texts, k=PROMPTS)]
            name = f"owner-{owner:04}"
            counted = collect(prompts, embedding=self.embedding, keep_sample=self.keep_sample)
            made = Contribution.of(counted, owner=f"Owner {owner}", id=name)
            return made.save(self.folder / "given" / f"{name}.stats")

        return [write_one(0), *_on_every_core(write_one, range(1, number))]

    def merged(self, paths: Sequence[Path], watch: Watch | None = None) -> Router:
        """The router with all of these."""
        watch = watch or self.watch
        router = Router.fit(self.own, embedding=self.embedding, keep_sample=self.keep_sample)
        with watch("read"):
            contributions = _on_every_core(Contribution.load, paths)
        with watch("merge"):
            router.merge(EXPERT, contributions)
        return router

    def remove(self, contribution: str) -> None:
        """Take one out of the router in its folder."""
        with self.watch("load"):
            router = Router.load(self.router)
        with self.watch("remove"):
            router.remove(EXPERT, contribution=contribution)
        with self.watch("save again"):
            router.save(self.router)

    def add_up(self, paths: Sequence[Path], whole: Statistics) -> None:
        """Have the command line add the files up; with what the expert had, that must be what it has."""
        target = self.folder / "sum.stats"
        self.command("ir3de merge", "merge", target, paths[0].parent / "*.stats")
        if Contribution.load(target).statistics() + self.own[EXPERT] != whole:
            raise IR3DEError("`ir3de merge` and Router.merge made different sums of the same files")

    def check(self, paths: Sequence[Path]) -> None:
        """The router in its folder must be, bit for bit, one that was given these and never saw another."""
        never = self.merged(paths, Watch()).save(self.folder / "never")
        here, there = (json.loads((path / "router.json").read_bytes())["sha256"] for path in (self.router, never))
        if here != there:
            raise IR3DEError(f"bits differ: the router is {here[:16]}, and one that never saw the others {there[:16]}")

    def command(self, what: str, *arguments: str | Path) -> None:
        """Time a command in a process of its own."""
        with self.watch(what):
            subprocess.run([sys.executable, "-P", "-m", "ir3de", *map(str, arguments)], check=True, capture_output=True)


def _on_every_core(action: Callable[[A], B], items: Iterable[A]) -> list[B]:
    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(action, items))
