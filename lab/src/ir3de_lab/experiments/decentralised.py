"""Every domain counted in a process of its own that sees its texts alone, and a router fitted from the files of that.

One domain is counted in shards as well, each in a process of its own, and the shards' files are added up in every
order: each sum must be the file of the whole domain, to the byte. Routers fitted from the files, and from some of the
sums, are compared with the one fitted where all the texts are: statistics, table and decisions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import ir3de
from ir3de import Router
from ir3de.errors import InputError
from ir3de.statistics import Statistics, load_statistics, save_statistics
from ir3de_lab.experiments.material import Material
from ir3de_lab.experiments.sameness import same_decisions, same_statistics, same_table

KIND, VERSION = "ir3de.decentralised", 1
SHARDS = 4
FITTED = 3  # of the orders in which shards are added up, those that a router is fitted from as well
TEXTS, STATISTICS = "texts.jsonl", "domain.stats"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """Routers fitted from files beside the one fitted centrally, all with samples of prompts or all without."""

    parts: Mapping[str, bool]  # files, statistics, table, decisions: whether they are the same
    bytes: Mapping[str, int]  # of each domain's statistics file
    files: int
    orders: int
    decisions: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class _Collected:
    path: Path
    seconds: float


def measure(material: Material, *, say: Say = lambda doing: None) -> dict[str, Any]:
    """All that was found: first of files that hold no prompt, then of files that keep a sample of them."""
    texts = {  # an empty text says nothing, and `ir3de collect` leaves it out
        name: [text for text in given if text and not text.isspace()]
        for name, given in material.training_texts().items()
    }
    split = max(texts, key=lambda name: len(texts[name]))
    if len(texts[split]) < SHARDS:
        raise InputError(f"no domain has the {SHARDS} texts it takes to split one: the longest has {len(texts[split])}")
    prompts = [item.text for item in material.items]
    plain, sampled = (_compared(texts, split, prompts, keep_sample, say) for keep_sample in (False, True))
    return {
        "identical": all((*plain.parts.values(), *sampled.parts.values())),
        "compared": {part: plain.parts[part] and sampled.parts[part] for part in plain.parts},
        "domains": len(texts),
        "split": {split: SHARDS},
        "files": plain.files + sampled.files,
        "orders": plain.orders,
        "decisions": plain.decisions + sampled.decisions,
        "text_bytes": {name: sum(len(text.encode(errors="replace")) for text in texts[name]) for name in texts},
        "bytes": dict(plain.bytes),
        "bytes_with_sample": dict(sampled.bytes),
        "seconds": {name: round(seconds, 4) for name, seconds in plain.seconds.items()},
    }


def _compared(
    texts: Mapping[str, Sequence[str]], split: str, prompts: Sequence[str], keep_sample: bool, say: Say
) -> Comparison:
    kept = "a sample kept" if keep_sample else "no prompt kept"
    with TemporaryDirectory(prefix="ir3de-") as folder:
        root, whole, shards = Path(folder), {}, []
        for place, (name, given) in enumerate(texts.items()):
            say(f"counting {name} in a process of its own, {kept}")
            whole[name] = _collected(root / str(place), given, keep_sample)
        for place in range(SHARDS):
            say(f"counting shard {place + 1} of {SHARDS} of {split}, {kept}")
            shards.append(_collected(root / f"shard-{place}", texts[split][place::SHARDS], keep_sample))
        say(f"fitting from the files, and where all the texts are, {kept}")
        begin = time.perf_counter()
        central = Router.fit(texts, keep_sample=keep_sample)
        central_seconds = time.perf_counter() - begin
        whole_files = {name: load_statistics(one.path) for name, one in whole.items()}
        sums = list(_sums([shard.path for shard in shards]))
        sample = sums[:: len(sums) // FITTED]
        routers = [whole_files, *({**whole_files, split: merged} for merged in sample)]
        parts, fits = _beside(central, routers, prompts, keep_sample)
        # labels aside, by which a collection and a sum of three tell themselves apart
        expected = save_statistics(whole_files[split], root / "whole.stats").read_bytes()
        same = all(save_statistics(merged, root / "merged.stats").read_bytes() == expected for merged in sums)
        processes = [one.seconds for one in whole.values()]
        seconds = {
            "longest process": max(processes),
            "all processes": sum(processes),
            "fit from files": median(fits),
            "fit centrally": central_seconds,
        }
        sizes = {name: one.path.stat().st_size for name, one in whole.items()}
    decisions = len(routers) * len(prompts)
    return Comparison({"files": same, **parts}, sizes, len(whole) + len(shards), len(sums), decisions, seconds)


def _beside(
    central: Router, domains: Sequence[Mapping[str, Statistics]], prompts: Sequence[str], keep_sample: bool
) -> tuple[dict[str, bool], list[float]]:
    """What of all the routers from files is the same as centrally; and the seconds of each fit."""
    parts, fits = dict.fromkeys(("statistics", "table", "decisions"), True), []
    expected = central.route_batch(prompts)
    for statistics in domains:
        begin = time.perf_counter()
        router = Router.fit(statistics, embedding=central.embedding, keep_sample=keep_sample)
        fits.append(time.perf_counter() - begin)
        parts["statistics"] &= same_statistics(router, central)
        parts["table"] &= same_table(router, central)
        parts["decisions"] &= same_decisions(router.route_batch(prompts), expected)
    return parts, fits


def _sums(paths: Sequence[Path]) -> Iterator[Statistics]:
    """What the files hold, added up in every order."""
    loaded = [load_statistics(path) for path in paths]
    for first, *others in permutations(loaded):
        yield sum(others, first)


def _collected(folder: Path, texts: Sequence[str], keep_sample: bool) -> _Collected:
    """Run `ir3de collect` in a folder that holds these texts and nothing else; the seconds include its start."""
    folder.mkdir()
    rows = ({"text": text, "source": getattr(text, "source", None)} for text in texts)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / TEXTS).write_text(lines, encoding="utf-8")
    command = [sys.executable, "-P", "-m", "ir3de", "collect", STATISTICS, TEXTS, "--subsample", "1", "--quiet"]
    here = str(Path(ir3de.__file__).parents[1])
    known = {name: value for name, value in os.environ.items() if name != "IR3DE_DATA"}
    environment = {**known, "PYTHONPATH": os.pathsep.join(filter(None, (here, known.get("PYTHONPATH"))))}
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, *(["--keep-sample"] if keep_sample else [])],
        cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if done.returncode:
        said = " ".join(done.stderr.split()) or "no message"
        raise InputError(f"`ir3de collect` ended with code {done.returncode} ({said}): see what its texts are")
    return _Collected(folder / STATISTICS, time.perf_counter() - begin)
