"""Saving that fails, is killed, or meets other readers and writers: a folder is always one router, whole."""

import errno
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tiny
from ir3de import Contribution, Router, Statistics, collect, files
from ir3de.errors import ArtifactError
from ir3de.files import atomic
from ir3de.statistics.domain import BUCKETS, PromptSums
from ir3de.statistics.files import load_statistics, save_statistics
from saved import assert_same_router, first_router, part, refusal, second_router

# saving that fails ----------------------------------------------------------------------------------------------


def assert_one_of_two(folder: Path, first: Router, second: Router) -> Router:
    loaded = Router.load(folder)
    which = first if loaded.scorer == first.scorer else second
    assert_same_router(loaded, which)
    assert loaded.statistics == which.statistics
    return which


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[int]]:
    """The disk is full at the n-th thing that is asked of it."""
    calls = [0]

    def full(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            calls[0] += 1
            if calls[0] - 1 == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments, **options)

        return call

    opened, made = os.open, full(os.open)
    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "fsync", full(os.fsync))
        patch.setattr(atomic.os, "fdopen", full(os.fdopen))
        patch.setattr(atomic.os, "open", lambda path, flags, *mode: (made if mode else opened)(path, flags, *mode))
        patch.setattr(Path, "replace", full(Path.replace))
        patch.setattr(Path, "chmod", full(Path.chmod))
        yield calls


@pytest.mark.slow
@pytest.mark.nightly
def test_a_disk_that_is_full_at_any_step_leaves_a_whole_router(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = first_router(), second_router()
    second.merge(second.experts[0], Contribution.of(collect(["a text"], embedding=second.embedding), owner="x"))
    for at in range(200):
        folder = first.save(tmp_path / str(at))
        before = tiny.contents(folder)
        with failing(monkeypatch, at) as calls:
            try:
                second.save(folder)
            except ArtifactError as error:
                assert "No space left on device" in str(error)
            else:
                break
        assert not list(folder.glob(".*.part"))
        if assert_one_of_two(folder, first, second) is first:
            assert before.items() <= tiny.contents(folder).items()
        second.save(folder)
        assert tiny.contents(folder) == tiny.contents(second.save(tmp_path / "clean"))
    assert calls[0] == at
    assert at >= 20


def test_a_disk_that_is_full_at_the_first_save_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = first_router()
    expected = tiny.contents(router.save(tmp_path / "clean"))
    for at in range(0, 30, 4):
        folder = tmp_path / str(at)
        with failing(monkeypatch, at), pytest.raises(ArtifactError, match="No space left"):
            router.save(folder)
        assert "no such folder" in refusal(Router.load, folder)
        router.save(folder)
        assert tiny.contents(folder) == expected


def test_files_that_may_not_grow_leave_a_whole_router(tmp_path: Path) -> None:
    """The system's own refusal in the middle of a write, at every size there is to write."""
    resource = pytest.importorskip("resource")
    first, second = first_router(), second_router()
    folder = first.save(tmp_path / "router")
    other = tiny.contents(second.save(tmp_path / "other"))
    sizes = [len(content) for name, content in other.items() if name == "router.json" or not (folder / name).exists()]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in sorted({edge for size in sizes for edge in (0, size // 2, size - 1)}):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            with pytest.raises(ArtifactError, match="File too large"):
                second.save(folder)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not list(folder.glob(".*.part"))
        assert assert_one_of_two(folder, first, second) is first
    second.save(folder)
    assert tiny.contents(folder) == other


def test_a_small_disk_leaves_a_whole_router(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    if (
        not mount
        or subprocess.run([mount, "-t", "tmpfs", "-o", "size=96k", "none", disk], capture_output=True).returncode
    ):
        pytest.skip("mounting a small disk is not permitted")
    try:
        first, second = first_router(), second_router()
        folder = first.save(disk / "router")
        filler = disk / "filler"
        for spare in (0, 4_096, 8_192):
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
                while True:
                    file.write(b"x" * 4_096)
            os.truncate(filler, filler.stat().st_size - spare)
            assert "No space left on device" in refusal(second.save, folder)
            assert not list(folder.glob(".*.part"))
            assert assert_one_of_two(folder, first, second) is first
            filler.unlink()
        second.save(folder)
        assert assert_one_of_two(folder, first, second) is second
    finally:
        subprocess.run(["umount", disk], check=True)


SAVES_FOREVER = """
import sys
from ir3de import Router
first, second = Router.load(sys.argv[1]), Router.load(sys.argv[2])
first.statistics, second.statistics, first.embedding, second.embedding
print("ready", flush=True)
while True:
    second.save(sys.argv[3])
    first.save(sys.argv[3])
"""


@contextmanager
def saving_forever(first: Path, second: Path, target: Path) -> Iterator[subprocess.Popen]:
    command, environment = tiny.python_command(SAVES_FOREVER, first, second, target)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def test_an_interrupt_as_a_file_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = os.open, []

    def interrupted(*arguments: object) -> int:
        os.close(real(*arguments))
        made.extend(tmp_path.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write(tmp_path / "file", b"content")
    assert len(made) == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kills", [6, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_process_killed_while_saving_leaves_a_whole_router(tmp_path: Path, kills: int) -> None:
    first, second = first_router(), second_router()
    one, two = first.save(tmp_path / "first"), second.save(tmp_path / "second")
    target = first.save(tmp_path / "target")
    draw = random.Random()
    for _ in range(kills):
        with saving_forever(one, two, target):
            time.sleep(draw.uniform(0, 0.1))
        assert_one_of_two(target, first, second)
    left = target / ".table-0123456789abcdef.safetensors.abcd1234.part"
    left.write_bytes(b"half")
    second.save(target)
    assert tiny.contents(target) == tiny.contents(two)


def test_a_reader_never_sees_half_a_replacement(tmp_path: Path) -> None:
    first, second = first_router(), second_router()
    one, two = first.save(tmp_path / "first"), second.save(tmp_path / "second")
    target = first.save(tmp_path / "target")
    seen = set()
    with saving_forever(one, two, target) as process:
        for _ in range(500):
            loaded = Router.load(target)
            which = first if loaded.scorer == first.scorer else second
            assert tiny.same_table(loaded, which)
            seen.add(loaded.scorer)
        assert process.poll() is None
    assert seen == {first.scorer, second.scorer}


@pytest.mark.parametrize("serving", [False, True])
@pytest.mark.parametrize("replacements", [1, 3])
def test_a_router_replaced_between_its_header_and_its_files_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: bool, replacements: int
) -> None:
    """The one moment that matters, every time: the header has been read, and then another router is saved."""
    routers = [first_router(), second_router()]
    target = routers[0].save(tmp_path / "target", serving=serving)
    real, made = files.parse_json, []

    def parse_json(*arguments: object, **options: object) -> files.Header:
        header = real(*arguments, **options)
        if len(made) < replacements:
            made.append(routers[(len(made) + 1) % 2])
            made[-1].save(target, serving=serving)
        return header

    monkeypatch.setattr(files, "parse_json", parse_json)
    loaded = Router.load(target)
    assert_same_router(loaded, made[-1])
    assert len(made) == replacements


@pytest.mark.slow
@pytest.mark.nightly
def test_readers_and_a_writer_in_one_process(tmp_path: Path) -> None:
    first, second = first_router(), second_router()
    target = first.save(tmp_path / "target")
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                Router.load(target).route("prove")
        except BaseException as error:  # a thread's error is lost unless it is carried out
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(30):
            second.save(target)
            first.save(target)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []


def test_a_serving_copy_never_takes_the_place_of_the_whole_router(folder: Path) -> None:
    with pytest.raises(ArtifactError, match="would lose its statistics"):
        second_router().save(folder, serving=True)
    assert_same_router(Router.load(folder), first_router())


def test_an_edited_header_is_found_out(folder: Path) -> None:
    header = json.loads((folder / "router.json").read_text())
    header["experts"][0]["name"] += "!"
    header["default"] = header["experts"][0]["name"]
    (folder / "router.json").write_text(json.dumps(header))
    with pytest.raises(ArtifactError, match="damaged or was edited"):
        Router.load(folder)


def test_saving_again_writes_nothing_anew(folder: Path) -> None:
    anew = ("router.json", "ledger.jsonl")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name not in anew}
    first_router().save(folder)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name not in anew} == before


def test_a_file_is_readable_as_the_umask_says(folder: Path) -> None:
    if os.name != "posix":
        pytest.skip("there is no umask")
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o666 & ~mask}


def test_the_tokenizer_can_be_read_by_others(folder: Path) -> None:
    definition = gzip.decompress(part(folder, "tokenizer-*.json").read_bytes())
    assert definition == tiny.embedding().tokenizer.definition
    assert json.loads(definition)["model"]["type"] == "BPE"


# several writers ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_experts_added_by_several_processes_at_once_all_stay(tmp_path: Path) -> None:
    target = first_router().save(tmp_path / "router")
    texts = tmp_path / "texts.txt"
    texts.write_text("How long do I boil an egg?\nBread without yeast?\n")
    names = ["boiling", "baking", "frying"]
    commands = [[sys.executable, "-m", "ir3de", "add", str(target), f"{name}={texts}"] for name in names]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands]
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in running] == [(b"", 0)] * 3
    router = Router.load(target)
    assert sorted(router.experts) == sorted([*tiny.DOMAINS, *names])
    assert set(router.statistics) == set(router.experts)


def test_a_thread_may_enter_a_folder_that_it_holds(tmp_path: Path) -> None:
    with files.lock_folder(tmp_path), files.lock_folder(tmp_path):
        first_router().save(tmp_path / "inside")
    with files.lock_folder(tmp_path):
        pass


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    files.write(pipe, b"through")
    reader.join(timeout=10)
    assert read == [b"through"]
    assert pipe.is_fifo()


def test_sums_of_any_size_come_back_whole(tmp_path: Path) -> None:
    """Beyond 32 bits and below zero at once: no smaller type holds both, and a float would not be exact."""
    fingerprint, histogram = "f" * 64, np.array([2**40 + 1, 0, 3], np.int64)
    for low, high in [(0, 200), (0, 2**40 + 1), (-1, 2**33 + 1), (-(2**62) + 1, 2**62 - 1), (-(2**31), 5)]:
        sums = PromptSums(
            128, 2.0**-18, 7, np.array([low], np.int64), np.array([high], np.int64), np.zeros(BUCKETS, np.int64)
        )
        statistics = Statistics(fingerprint, 3, histogram, sums)
        assert load_statistics(save_statistics(statistics, tmp_path / "one.stats")) == statistics
