"""Whether a result still describes the code: the digests that it recorded, beside those of today."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, InputError
from ir3de_lab.catalogue.entries import Benchmark, benchmarks, published
from ir3de_lab.catalogue.sources import digest_data, digest_source

MEASURES = "measures"  # the field of a result that says what it depends on
TOOK = "took_s"  # its field for the time of the whole command; the field "seconds" of earlier results missed most of it
FRESH, STALE, UNKNOWN, KEPT = "fresh", "stale", "unknown", "kept"
CHOICES, EXPECTATIONS = "choices", "expectations"  # folders of a setting that hold a file for each router
RECORDS = ("dynamic.json", "decentralised.json", "complexity.json")  # of a setting, beside them


@dataclass(frozen=True)
class Standing:
    """How a result stands: fresh, stale, unknown if it recorded nothing, kept if it shows an earlier version."""

    file: str
    state: str
    changed: tuple[str, ...] = ()  # the sources and the data that are not what they were
    command: str = ""
    page: str = ""
    needs: tuple[str, ...] = ()  # what its command needs beside this repository
    is_timed: bool = False
    seconds: float | None = None  # that it took last time

    @property
    def is_stale(self) -> bool:
        return self.state in (STALE, UNKNOWN)


def describe(benchmark: Benchmark, data: Path | None = None) -> dict[str, Any]:
    """What a result of a benchmark depends on, as it is now: kept in the result."""
    folders = benchmark.data if data is not None else ()
    found = {one: digest_data(data / one) for one in folders if data is not None and (data / one).is_dir()}
    return {
        "benchmark": benchmark.name,
        "sources": {source: digest_source(source) for source in benchmark.sources},
        "data": found,
    }


def judge(recorded: object, data: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """Whether what a result recorded still holds, and what has changed; without `data`, texts are not compared."""
    if not isinstance(recorded, Mapping) or recorded.get("benchmark") not in benchmarks():
        return UNKNOWN, ()
    benchmark = benchmarks()[recorded["benchmark"]]
    before: Mapping[str, str] = recorded["sources"]
    changed = [one for one in benchmark.sources if before.get(one) != digest_source(one)]
    if data is not None:
        texts: Mapping[str, str] = recorded["data"]
        changed += [f"data/{one}" for one, digest in texts.items() if digest_data(data / one) != digest]
    return (STALE if changed else FRESH), tuple(changed)


def find_standings(results: Path, data: Path | None = None) -> list[Standing]:
    """How every file at the top of results/ stands, and every part of a setting's folder."""
    if not results.is_dir():
        raise InputError(f"there is no folder {results}: run this in a checkout of IR3DE, or name one with --results")
    found = []
    for name, entry in published().items():
        if not (results / name).is_file():
            continue
        recorded = _read_document(results / name).get(MEASURES)
        state, changed = (KEPT, ()) if entry.keep_because else judge(recorded, data)
        timed, seconds = entry.benchmark.is_timed, _get_seconds(recorded)
        found.append(Standing(name, state, changed, entry.command, entry.page, entry.needs, timed, seconds))
    for folder in sorted(path for path in results.iterdir() if path.is_dir()):
        found += _judge_setting(folder, data)
    return found


def _judge_setting(folder: Path, data: Path | None) -> Iterator[Standing]:
    """The records of a setting, together where one command made them: the whole part is as old as its oldest record."""
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for about in _read_records(folder):
        parts.setdefault(str(about.get("command", "")), []).append(about)
    for command, records in parts.items():
        judged = [judge(about.get(MEASURES), data) for about in records]
        state = next((one for one in (UNKNOWN, STALE) if any(found == one for found, _ in judged)), FRESH)
        changed = tuple(sorted({one for _, some in judged for one in some}))
        needs = ("data", "accelerator") if any(about.get("encoder") for about in records) else ("data",)
        timed = "dynamic" in command or "complexity" in command
        seconds = max((_get_seconds(about.get(MEASURES)) or 0.0 for about in records), default=0.0) or None
        yield Standing(folder.name, state, changed, command, "experiments.md", needs, timed, seconds)


def _get_seconds(recorded: object) -> float | None:
    found = recorded.get(TOOK) if isinstance(recorded, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def _read_records(folder: Path) -> Iterator[Mapping[str, Any]]:
    """What every record of a setting says about itself."""
    for path in sorted([*(folder / CHOICES).glob("*.*"), *(folder / EXPECTATIONS).glob("*.*")]):
        try:
            content = path.read_bytes()
            text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode("utf-8")
            documents = [json.loads(one) for one in (text.splitlines() if ".jsonl" in path.name else [text])]
        except (lzma.LZMAError, ValueError) as error:
            raise ArtifactError(f"{path} is damaged ({error}). Make it again by its command") from error
        yield from map(_get_about, documents)
    for name in RECORDS:
        if (folder / name).is_file():
            document = _read_document(folder / name)
            yield {**_get_about(document), **({MEASURES: document[MEASURES]} if MEASURES in document else {})}


def _get_about(document: Mapping[str, Any]) -> Mapping[str, Any]:
    about = document.get("about")
    return about if isinstance(about, Mapping) else {}


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged: it is not JSON ({error}). Make it again by its command") from error
    if not isinstance(document, dict):
        raise ArtifactError(f"{path} is damaged: it holds no table of figures. Make it again by its command")
    return document
