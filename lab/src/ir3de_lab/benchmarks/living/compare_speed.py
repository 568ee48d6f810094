"""How long `compare` takes for a log of 100,000 requests, from the journal on disk to the figures."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np

from ir3de import Router
from ir3de.traffic import Feedback, Journal, JournalPrompt, TrafficRecord, compare
from ir3de_lab.benchmarks.defaults import draw_few
from ir3de_lab.benchmarks.living import Note
from ir3de_lab.benchmarks.living.streams import list_labelled, read_sets
from ir3de_lab.benchmarks.measurement import Figure

REQUESTS, QUICK_REQUESTS = 100_000, 2_000
FEW = 16  # prompts an expert of the live router
LABELLED, SCORED = 0.05, 0.2  # shares of the requests
BAR_SECONDS = 30.0


def measure(data: Path, *, quick: bool, note: Note) -> list[Figure]:
    """Seconds for both routers on one set, with a label or a score on a part of the requests."""
    figures, requests = [], QUICK_REQUESTS if quick else REQUESTS
    for name, material in read_sets(data, quick=quick).items():
        texts, experts = list_labelled(material.splits["test"])
        routers = Router.fit(draw_few(material.train, FEW, 0)), Router.fit(material.train)
        with TemporaryDirectory() as folder, Journal.create(folder) as journal:
            _write_log(journal, routers[0], texts, experts, requests)
            note(f"{name}: {requests:,} requests are written")
            begun, used = perf_counter(), process_time()
            found = compare(*routers, journal.read())
            seconds, cpu = perf_counter() - begun, process_time() - used
        raw = {"requests": found.requests, "seconds": seconds, "cpu_seconds": cpu, "cores": os.cpu_count(),
               "requests_per_second": found.requests / seconds, "experts": len(found.experts)}  # fmt: skip
        bar = None if quick else BAR_SECONDS
        figures.append(Figure(f"{name}, {requests:,} requests", seconds, "s", bar, higher_is_better=False, raw=raw))
        figures.append(Figure(f"{name}, requests per second", found.requests / seconds, "1/s", None, raw=raw))
    return figures


def _write_log(journal: Journal, live: Router, texts: list[str], experts: list[str], requests: int) -> None:
    random = np.random.default_rng(0)
    decisions = live.route_batch(texts)
    records, given = [], []
    for number, place in enumerate(random.integers(len(texts), size=requests).tolist()):
        decided, time = decisions[place].best, 1.76e9 + 26.0 * number
        read, written = (int(one) for one in random.integers(20, 2_000, 2))
        ranking = tuple(decisions[place].ranking[:10]) if number % 10 == 0 else ()
        record = TrafficRecord(
            f"r{number}",
            time,
            decided=decided,
            served=decided,
            conversation=f"c{number // 2}",
            ranking=ranking,
            prompt_tokens=read,
            completion_tokens=written,
            cost=(read + 4 * written) * (1 + len(decided)) / 1e7,
            prompt=JournalPrompt.from_text([texts[place]]),
        )
        records.append(record)
        if random.random() < LABELLED + SCORED:
            is_label = random.random() < LABELLED / (LABELLED + SCORED)
            right = float(decided == experts[place])
            given.append(
                (record.id, Feedback("people", time, *((experts[place], None) if is_label else (None, right))))
            )
    journal.append(records)
    journal.put_all(given)
