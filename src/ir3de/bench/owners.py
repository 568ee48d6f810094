"""Many owners: their files merged into a router, and one of them taken out again, to the last bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

from ir3de import demo
from ir3de.bench.measurement import Figure, Watch
from ir3de.counting import Recipe, collect, count
from ir3de.embeddings import Embedding
from ir3de.errors import IR3DEError
from ir3de.router import Router
from ir3de.statistics import Statistics
from ir3de.storage import Contribution

PROMPTS = 40  # of an owner
LONGEST = 2_000  # characters of a prompt
EXPERT = "law"  # that all of them give to
CALIBRATED = ", with prompts kept and confidence calibrated"
MERGED_S, REMOVED_S = 10.0, 2.0  # what is aimed at


def owners(texts: Sequence[str], number: int, *, rounds: int) -> list[Figure]:
    """So many contributions merged and one taken out, round by round, without prompts and with some of everybody's."""
    return [figure for keep in (False, True) for figure in _measured(texts, number, rounds, keep_sample=keep)]


def _measured(texts: Sequence[str], number: int, rounds: int, *, keep_sample: bool) -> list[Figure]:
    collected = {name: collect(prompts, keep_sample=keep_sample) for name, prompts in demo.prompts().items()}
    with tempfile.TemporaryDirectory(prefix="ir3de-") as name:
        folder, watch = Path(name), Watch()
        paths = write_contributions(texts, number, folder / "given", keep_sample=keep_sample)
        for _ in range(rounds):
            router = _merged(collected, paths, watch, keep_sample=keep_sample)
        with watch("save"):
            router.save(folder / "router")
        if not keep_sample:
            _check_sum(paths, folder, router.statistics[EXPERT], collected[EXPERT], watch)
        gone = [path.stem for path in paths[:: max(1, number // rounds)][:rounds]]
        for contribution in gone:
            _remove(folder / "router", contribution, watch)
        check_same(folder, collected, [path for path in paths if path.stem not in gone], keep_sample=keep_sample)
        raw = {
            "contributions": number,
            "prompts_each": PROMPTS,
            "megabytes": sum(path.stat().st_size for path in paths) / 1e6,
            "calibrated": router.calibrated,
            "removed": gone,
            "same_bits": True,  # or it would have been refused
            **watch.to_dict(),
        }
    return list(_figures(number, watch, raw, CALIBRATED if keep_sample else ""))


def _figures(number: int, watch: Watch, raw: dict[str, Any], kind: str) -> Iterable[Figure]:
    took = watch.medians
    merged, removed = took["read"] + took["merge"], took["load"] + took["remove"] + took["save again"]
    timed: list[tuple[str, float, float | None]] = [
        (f"{number:,} contributions read and merged", merged, MERGED_S),
        (f"{number:,} contributions read and merged, the router saved", merged + took["save"], None),
        (f"{number:,} contributions added up by `ir3de merge`", took.get("ir3de merge", 0.0), None),
        (f"one of {number:,} contributions removed", took["remove"], REMOVED_S),
        (f"one of {number:,} contributions removed, the router loaded and saved", removed, None),
    ]
    for name, seconds, bar in timed:
        if seconds:
            yield Figure(f"{name}{kind}", seconds, "s", bar, False, raw)


def write_contributions(texts: Sequence[str], number: int, folder: Path, *, keep_sample: bool) -> list[Path]:
    """Files of so many owners, each with some of the texts, named as their contributions are."""
    embedding, recipe = Embedding.default(), Recipe(keep_sample=keep_sample)

    def write(owner: int) -> Path:
        prompts = [text[:LONGEST] for text in Random(owner).choices(texts, k=PROMPTS)]
        name = f"owner-{owner:04}"
        made = Contribution.of(count(prompts, embedding, recipe), owner=f"Owner {owner}", id=name)
        return made.save(folder / f"{name}.stats")

    return [write(0), *_on_every_core(write, range(1, number))]


def _on_every_core(action: Any, items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(action, items))


def _merged(collected: dict[str, Statistics], paths: Sequence[Path], watch: Watch, *, keep_sample: bool) -> Router:
    router = Router.fit(collected, keep_sample=keep_sample)
    with watch("read"):
        contributions = _on_every_core(Contribution.load, paths)
    with watch("merge"):
        router.merge(EXPERT, contributions)
    return router


def _remove(folder: Path, contribution: str, watch: Watch) -> None:
    with watch("load"):
        router = Router.load(folder)
    with watch("remove"):
        router.remove(EXPERT, contribution=contribution)
    with watch("save again"):
        router.save(folder)


def _check_sum(paths: Sequence[Path], folder: Path, whole: Statistics, own: Statistics, watch: Watch) -> None:
    """Add the files up on the command line; with what the expert had, that must be what it has."""
    target = folder / "sum.stats"
    command = [sys.executable, "-m", "ir3de", "merge", str(target), str(paths[0].parent / "*.stats")]
    with watch("ir3de merge"):
        subprocess.run(command, check=True, capture_output=True)
    if Contribution.load(target).statistics() + own != whole:
        raise IR3DEError("`ir3de merge` and Router.merge made different sums of the same files")


def check_same(folder: Path, collected: dict[str, Statistics], paths: Sequence[Path], *, keep_sample: bool) -> None:
    """The router that others were removed from must be the one that never saw them."""
    never = _merged(collected, paths, Watch(), keep_sample=keep_sample).save(folder / "never")
    left, right = (json.loads((router / "router.json").read_bytes())["sha256"] for router in (folder / "router", never))
    if left != right:
        raise IR3DEError(f"a router after a removal is {left[:16]}, and {right[:16]} where it never was: bits differ")
