"""The engine ray on a real local cluster of three workers, which all tests here share."""

from __future__ import annotations

import json
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

import ir3de
import tiny
from ir3de.engines import Files, Job, ShardCount, collect_files, plan
from ir3de.errors import EngineError, InputError
from ir3de.statistics.counting import Recipe, collect

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
    rows = [json.dumps({"prompt": text, "source": f"exam {number % 3}"}) for number, text in enumerate(maths)]
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
    assert there.statistics.sample is not None and there.statistics.sample.count_sources() == 3
    assert (there.records, there.skipped, there.shards) == (here.records, here.skipped, here.shards)
    assert here.skipped == 3 and here.shards > 10
    assert {Path(example).name for example in there.examples} == {Path(example).name for example in here.examples}
    assert sum(told) == there.bytes == here.bytes


@pytest.mark.nightly
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
            if entry.name.isdecimal() and _is_ours(entry) and _title(entry).startswith(b"ray::run"):
                worker = int(entry.name)
                os.kill(worker, signal.SIGSTOP)
                at_work = _title(entry).startswith(b"ray::run")
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


def test_a_job_begun_here_goes_on_on_the_cluster(ray: ModuleType, files: Path, tmp_path: Path) -> None:
    options = {"embedding": tiny.embedding(), "recipe": RECIPE, "skip_bad": 3, "shard_bytes": 4_000}

    def stop(done: ShardCount) -> None:
        if done.index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect_files(files, checkpoint=tmp_path, on_shard=stop, **options)
    resumed = collect_files(files, checkpoint=tmp_path, engine="ray", **options)
    whole = collect_files(files, **options)
    assert 4 <= resumed.resumed < resumed.shards
    assert resumed.statistics == whole.statistics and resumed.records == whole.records
    again = collect_files(files, checkpoint=tmp_path, engine="ray", **options)
    assert again.resumed == again.shards and again.statistics == whole.statistics


def test_what_a_worker_cannot_read_is_said_as_here(ray: ModuleType, files: Path) -> None:
    """The same class and the same words, with the place in the file."""
    said = []
    for engine in ("local", "ray"):
        with pytest.raises(InputError) as error:
            collect_files(files / "maths.jsonl", engine=engine, embedding=tiny.embedding())
        said.append(str(error.value))
    assert said[0] == said[1] and "maths.jsonl:201: not valid JSON" in said[0]


def test_a_file_that_a_node_does_not_have_is_said_with_the_node(ray: ModuleType, tmp_path: Path) -> None:
    from ir3de.engines.ray_engine import RayEngine

    path = tmp_path / "here.txt"
    path.write_text("What is a contract?\n")
    shards = plan(Files(path))
    path.unlink()
    with pytest.raises(InputError, match=rf"here\.txt: cannot be read .* the node .*{platform.node()}"):
        list(RayEngine().count(shards, Job(RECIPE), tiny.embedding()))


def test_a_worker_with_another_ir3de_is_refused(ray: ModuleType, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ir3de.engines.ray_engine.VERSION", "99.0")
    with pytest.raises(EngineError, match=rf"has IR3DE {ir3de.__version__}, and this machine has IR3DE 99\.0"):
        collect_files(files / "law.txt", engine="ray", embedding=tiny.embedding(), skip_bad=9)


def test_a_worker_that_counts_otherwise_is_refused(ray: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for other versions of what counting needs: the driver expects what no worker gets."""
    from ir3de.engines import ray_engine

    monkeypatch.setattr("ir3de.engines.ray_worker.PROBE", ("something else",))
    with pytest.raises(EngineError, match="counts a line of text otherwise"):
        ray_engine.collect_dataset(ray.data.from_items([{"text": "Is it so?"}]), embedding=tiny.embedding())


def test_a_worker_without_ir3de_says_so() -> None:
    """What travels is unpickled and run in a Python that has Ray, and cannot import IR3DE."""
    import ray

    from ir3de.engines import ray_tasks

    ray.cloudpickle.register_pickle_by_value(ray_tasks)
    travelling = ray.cloudpickle.dumps(partial(ray_tasks.run, work=ray_tasks.Work("shard", "1.0", None)))
    script = (
        "import pickle, sys; sys.modules['ir3de'] = None; work = pickle.load(sys.stdin.buffer)\n"
        "print(pickle.loads(work(None)))"
    )
    done = subprocess.run([sys.executable, "-c", script], input=travelling, capture_output=True, check=True)
    assert b"'unfit', \"cannot import IR3DE (No module named 'ir3de.engines'" in done.stdout


@pytest.mark.parametrize("kind", ["parquet", "json", "text"])
@pytest.mark.nightly
def test_what_ray_reads_is_counted_as_collect_counts_it(ray: ModuleType, tmp_path: Path, kind: str) -> None:
    import pyarrow.parquet

    from ir3de.engines.ray_engine import collect_dataset

    texts = tiny.sentences("maths", 300)
    rows = [{"id": number, "text": text, "source": f"s{number % 3}"} for number, text in enumerate([*texts, None, " "])]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(texts if kind == "text" else map(json.dumps, rows)))
    counted = collect_dataset(getattr(ray.data, f"read_{kind}")(str(path)), embedding=tiny.embedding(), recipe=RECIPE)
    given = texts if kind == "text" else rows[: len(texts)]
    here = collect(given, embedding=tiny.embedding(), window=RECIPE.window, keep_sample=True)
    assert counted == here and counted.sample == here.sample


def test_a_dataset_without_the_column_is_refused(ray: ModuleType) -> None:
    from ir3de.engines.ray_engine import collect_dataset

    with pytest.raises(InputError, match=r"(?s)'body'.*'title'"):
        collect_dataset(ray.data.from_items([{"title": "On cells"}]), column="body", embedding=tiny.embedding())
    with pytest.raises(InputError, match=r"takes a ray\.data\.Dataset, found list"):
        collect_dataset(["a text"], embedding=tiny.embedding())


@pytest.mark.nightly
def test_a_cluster_that_is_there_is_found_by_its_address(ray: ModuleType, files: Path, tmp_path: Path) -> None:
    """The command connects, counts, and leaves the cluster and the terminal as they were."""
    address = ray.get_runtime_context().gcs_address
    script = "import sys; from ir3de.cli import main; main()"
    given = ["collect", "out.stats", files / "cooking.parquet", "--engine", "ray", "--address", address, "--json"]
    arguments, environment = tiny.python_command(script, *given)
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout)["digest"] == collect_files(files / "cooking.parquet").statistics.digest
    with pytest.raises(
        InputError, match=r"initialised already, with the cluster at .*, and the address is 127\.0\.0\.1:1"
    ):
        collect_files(files, engine="ray", address="127.0.0.1:1", embedding=tiny.embedding())


def test_an_address_without_a_cluster_is_refused() -> None:
    """Nobody listens, or somebody else does, or it is no address."""
    from ir3de.engines.ray_cluster import check_address

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=_answer, args=(server, b"HTTP/1.0 400 Bad Request\r\n\r\n")).start()
        with pytest.raises(EngineError, match=rf"the server at {address} is not a Ray cluster, it answered b'HTTP/1"):
            check_address(address)
    with pytest.raises(EngineError, match=rf"no Ray cluster at ray://{address}: Connection refused\. Start one with"):
        check_address(f"ray://{address}")
    for wrong in ("head", "http://head:1", "head:port", ":6379"):
        with pytest.raises(InputError, match="HOST:PORT"):
            check_address(wrong)


def _answer(server: socket.socket, answer: bytes) -> None:
    with server.accept()[0] as connection:
        connection.sendall(answer)
        connection.recv(100)


def test_standard_input_is_not_for_a_cluster() -> None:
    with pytest.raises(InputError, match="standard input"):
        collect_files("-", engine="ray", embedding=tiny.embedding())
