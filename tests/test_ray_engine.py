"""The engine ray on a real local cluster of three workers, which all tests here share."""

from __future__ import annotations

import json
import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import ir3de
import tiny
from ir3de.counting import Recipe, collect
from ir3de.engines import Files, Job, collect_files, plan
from ir3de.errors import EngineError, InputError

pytestmark = pytest.mark.ray
RECIPE = Recipe(window=16, keep_sample=True)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A cluster as a caller would have it, closed to other users of this machine."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"AUTH_MODE": "token", "AUTH_TOKEN_PATH": token, "USAGE_STATS_ENABLED": 0}.items():
            patch.setenv(f"RAY_{name}", str(value))
        patch.delenv("RAY_ADDRESS", raising=False)
        import ray

        ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield ray
        assert ray.is_initialized()  # no test's engine may end the caller's connection
        ray.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of three kinds, each with what cannot be read in the middle."""
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("files")
    law, maths, cooking = (tiny.sentences(domain, 400) for domain in tiny.DOMAINS)
    lines = [text.encode() for text in law]
    (folder / "law.txt").write_bytes(b"\n".join([*lines[:200], b"caf\xe9", b"", *lines[200:]]))
    rows = [json.dumps({"prompt": text}) for text in maths]
    (folder / "maths.jsonl").write_text("\n".join([*rows[:200], "{broken", '{"id": 7}', *rows[200:]]))
    table = pyarrow.table({"text": [*cooking[:200], None, *cooking[200:]]})
    pyarrow.parquet.write_table(table, folder / "cooking.parquet", row_group_size=100)
    return folder


def test_the_cluster_counts_the_same_bits_as_this_process(
    ray: ModuleType, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are named relative to where this process works, and the workers work elsewhere."""
    monkeypatch.chdir(files)
    options = {"embedding": tiny.embedding(), "recipe": RECIPE, "skip_bad": 3, "shard_bytes": 4_000}
    told: list[int] = []
    here = collect_files(Files("."), **options)
    there = collect_files(Files("."), engine="ray", on_bytes=told.append, **options)
    assert there.statistics == here.statistics and there.statistics.sample == here.statistics.sample
    assert (there.records, there.skipped, there.shards) == (here.records, here.skipped, here.shards)
    assert here.skipped == 3 and here.shards > 10
    assert {Path(example).name for example in there.examples} == {Path(example).name for example in here.examples}
    assert sum(told) == there.bytes == here.bytes


def test_a_worker_killed_in_the_middle_changes_nothing(ray: ModuleType, tmp_path: Path) -> None:
    from ir3de.engines.ray_engine import RayEngine

    path = tmp_path / "long.txt"
    path.write_text("\n".join(tiny.sentences("law", 60_000)))
    shards, job = plan(Files(path), shard_bytes=path.stat().st_size // 24), Job(RECIPE)
    here = collect_files(path, embedding=tiny.embedding(), recipe=RECIPE)
    counts = RayEngine().count(shards, job, tiny.embedding())
    done = [next(counts)]
    killed = _kill_a_worker_at_work()
    done += counts
    assert not Path(f"/proc/{killed}").exists()
    assert sorted(count.index for count in done) == [shard.index for shard in shards]
    total = done[0].statistics
    for count in done[1:]:
        total += count.statistics
    assert total == here.statistics and sum(count.records for count in done) == here.records


def _kill_a_worker_at_work() -> int:
    """Kill one of this process's workers that is in a task; stopped first, so that it still is."""
    while True:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _is_ours(entry) and _title(entry).startswith(b"ray::MapBatches"):
                worker = int(entry.name)
                os.kill(worker, signal.SIGSTOP)
                at_work = _title(entry).startswith(b"ray::MapBatches")
                os.kill(worker, signal.SIGKILL if at_work else signal.SIGCONT)
                if at_work:
                    return worker


def _title(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _is_ours(process: Path) -> bool:
    """Whether a process descends from this one."""
    while process.name not in ("0", "1", str(os.getpid())):
        try:
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            return False
        process = process.parent / parent
    return process.name == str(os.getpid())
