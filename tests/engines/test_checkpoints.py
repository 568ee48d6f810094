"""Jobs that are killed go on where they were, and every shard is counted once; other checkpoints are refused."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from corpus_files import Piped, json_lines, write

import tiny
from commands import complaint, run, run_json
from ir3de import Statistics, collect
from ir3de.cli.counting import CountedDomain, domains_table
from ir3de.cli.options import engine_options
from ir3de.engines import Collected, ShardCount, checkpoints, collect_files
from ir3de.engines.local import InProcess
from ir3de.engines.pool import Pool
from ir3de.errors import ArtifactError, InputError, IR3DEError, VersionError
from ir3de.statistics.counting import Recipe

pytestmark = pytest.mark.slow

TEXTS = tiny.sentences("law", 120)
SHARD = 400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, "law.txt", "\n".join(TEXTS))


def counted(file: Path, **options: object) -> Collected:
    given = {"embedding": tiny.embedding(), "engine": InProcess(), "shard_bytes": SHARD, "checkpoint_seconds": 0.0}
    return collect_files(file, checkpoint=file.parent / "kept", name="law", **given | options)  # type: ignore[arg-type]


def whole(**options: object) -> Statistics:
    return collect(TEXTS, embedding=tiny.embedding(), **options)  # type: ignore[arg-type]


class StoppedError(Exception):
    """As good as being killed, but for the last words."""


def stopping(after: int) -> Callable[[ShardCount], None]:
    """StoppedErrors a job after so many shards."""
    seen: list[int] = []

    def hear(done: ShardCount) -> None:
        seen.append(done.index)
        if len(seen) == after:
            raise StoppedError

    return hear


def begun(file: Path, after: int = 3, **options: object) -> Path:
    """A job that was stopped: its checkpoint."""
    with pytest.raises(StoppedError):
        counted(file, on_shard=stopping(after), **options)
    return file.parent / "kept" / "law.checkpoint"


def test_a_job_that_was_stopped_goes_on_by_any_engine(file: Path) -> None:
    recipe = Recipe(window=16, subsample=2, keep_sample=True)
    done = 0
    for after, engine in ((1, InProcess()), (2, Pool(2)), (4, InProcess()), (3, InProcess())):
        begun(file, after, engine=engine, recipe=recipe)
        done += after
    heard: list[int] = []
    collected = counted(file, recipe=recipe, on_bytes=heard.append)
    assert collected.resumed == done == 10
    assert collected.shards > 10 and collected.records == len(TEXTS)
    assert collected.bytes == file.stat().st_size
    assert abs(sum(heard) - collected.bytes) < SHARD  # what was written down is told to the shard, the rest to the line
    wanted = whole(window=16, subsample=2, keep_sample=True)
    assert collected.statistics == wanted and collected.statistics.sample == wanted.sample
    again = counted(file, recipe=recipe)  # until it is discarded, the result itself is there
    assert again.resumed == again.shards and again.statistics == wanted
    collected.discard_checkpoints()
    assert list((file.parent / "kept").iterdir()) == []


def test_a_job_that_version_0_1_began_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = checkpoints._identity

    def identity_then(*job: object) -> dict[str, object]:
        now = identity(*job)
        recipe = {"sample" if name == "subsample" else name: value for name, value in now["recipe"].items()}
        return {**now, "recipe": recipe}

    with monkeypatch.context() as then:
        then.setattr(checkpoints, "_identity", identity_then)
        begun(file, 3, recipe=Recipe(subsample=2))
    with pytest.raises(InputError, match="subsample was 2, now it is 3"):
        counted(file, recipe=Recipe(subsample=3))
    collected = counted(file, recipe=Recipe(subsample=2))
    assert collected.resumed == 3 and collected.statistics == whole(subsample=2)


KILLED = """
import sys
from pathlib import Path
from ir3de import Embedding
from ir3de.engines import collect_files
from ir3de.engines.local import InProcess

collect_files(
    sys.argv[1],
    embedding=Embedding.load(sys.argv[2]),
    engine=InProcess(),
    shard_bytes=int(sys.argv[3]),
    name="law",
    checkpoint=Path(sys.argv[1]).parent / "kept",
    checkpoint_seconds=0.0,
    on_shard=lambda done: (print(done.index, flush=True), sys.stdin.readline()),
)
"""


def test_a_process_killed_in_the_middle_loses_nothing_that_was_written_down(file: Path) -> None:
    embedding = tiny.embedding().save(file.parent / "embedding", compact=False)
    command, environment = tiny.python_command(KILLED, file, embedding, SHARD)
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    for _ in range(4):  # it waits after each shard, so it is in the middle
        assert process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    collected = counted(file)
    assert collected.resumed == 5
    assert collected.statistics == whole()


def test_both_readings_that_rare_tokens_take_are_gone_on_with(file: Path) -> None:
    options = {"recipe": Recipe(min_count=30)}
    begun(file, 40, **options)  # in the second reading, for there are fewer shards than that
    names = sorted(path.name.partition("-")[0] for path in (file.parent / "kept").iterdir())
    assert names == ["law.checkpoint", "law_second_reading_"]
    collected = counted(file, **options)
    assert 0 < collected.resumed < collected.shards
    assert collected.statistics == whole(min_count=30)
    collected.discard_checkpoints()
    assert list((file.parent / "kept").iterdir()) == []


def test_a_checkpoint_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    sizes = []
    for times in (1, 8):
        file = write(tmp_path / str(times), "law.txt", "\n".join(TEXTS * times))
        collected = counted(file, checkpoint_seconds=60.0)  # at the beginning and at the end
        assert collected.shards >= 25 * times
        sizes.append((file.parent / "kept" / "law.checkpoint").stat().st_size)
    assert sizes[1] < sizes[0] + 1_000  # the same numbers, wider


def test_skipped_records_are_remembered(tmp_path: Path) -> None:
    file = write(tmp_path, "law.jsonl", json_lines(["one", "two", "three"]) + b"{\n" * 3)
    options = {"shard_bytes": 6}
    with pytest.raises(InputError, match="3 records cannot be read, and no more than 2"):
        counted(file, skip_bad=2, **options)
    collected = counted(file, skip_bad=3, **options)
    assert (collected.records, collected.skipped, len(collected.examples)) == (6, 3, 3)
    assert collected.resumed > 0 and collected.statistics.prompts == 3


# --- what cannot be gone on from


def refused(kind: type[IR3DEError], file: Path, **options: object) -> str:
    """What is said of a checkpoint, which stays as it is."""
    path = file.parent / "kept" / "law.checkpoint"
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        counted(file, **options)
    assert path.read_bytes() == before
    return str(caught.value)


def test_another_jobs_checkpoint_is_refused_with_what_differs(file: Path) -> None:
    begun(file)
    for options, said in (
        ({"recipe": Recipe(window=64)}, "window was 128, now it is 64"),
        ({"recipe": Recipe(cap=9, prompt_sums=False)}, "cap was None, now it is 9; prompt_sums was True"),
        ({"embedding": tiny.other_embedding()}, "embedding was"),
        ({"shard_bytes": 2 * SHARD}, "shards"),
    ):
        told = refused(InputError, file, **options)
        assert "law.checkpoint is another job's" in told and said in told and "or delete it to begin again" in told


def test_a_checkpoint_of_files_that_have_changed_is_refused(file: Path) -> None:
    path = begun(file)
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))  # the same bytes, perhaps: who knows
    assert f"{file} has changed" in refused(InputError, file)
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    other = write(file.parent, "more.txt", "more\n")
    with pytest.raises(InputError, match=r"more.txt was not there"):
        collect_files(
            [file, other],
            checkpoint=path.parent,
            name="law",
            embedding=tiny.embedding(),
            engine=InProcess(),
            shard_bytes=SHARD,
        )
    assert counted(file).resumed == 3


def test_a_damaged_checkpoint_is_refused(file: Path) -> None:
    path = begun(file)
    content = path.read_bytes()
    for place in range(20, len(content), len(content) // 23):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        told = refused(ArtifactError, file)
        assert "law.checkpoint" in told
    for damaged in (b"", content[:100], content[:-1], b"something else"):
        path.write_bytes(damaged)
        assert "delete it to begin again" in refused(ArtifactError, file)
    path.write_bytes(content)
    assert counted(file).statistics == whole()


def test_a_checkpoint_of_a_newer_version_is_refused(file: Path) -> None:
    path = begun(file)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    inner = json.loads(header["__metadata__"]["ir3de"])
    header["__metadata__"]["ir3de"] = json.dumps({**inner, "version": 2})
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content[8 + length :])
    assert "is in version 2 of the ir3de.checkpoint format" in refused(VersionError, file)


def test_standard_input_cannot_be_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Piped(b"one\n"))
    with pytest.raises(InputError, match="standard input cannot be resumed"):
        collect_files("-", checkpoint=tmp_path, embedding=tiny.embedding())
    with pytest.raises(InputError, match="standard input can be read once"):
        collect_files("-", embedding=tiny.embedding(), recipe=Recipe(min_count=2))


# --- folders that cannot be written to


def test_a_folder_that_cannot_be_written_to_is_found_before_anything_is_counted(file: Path) -> None:
    counts: list[ShardCount] = []
    for folder in (file, file / "below", Path("/proc/nothing")):
        with pytest.raises(ArtifactError, match=r"cannot (make|write)"):
            collect_files(file, checkpoint=folder, embedding=tiny.embedding(), on_shard=counts.append)
    assert counts == []


FULL = """
import resource
import sys
from pathlib import Path
from ir3de import Embedding
from ir3de.engines import collect_files
from ir3de.engines.local import InProcess

def fill_the_disk(done):
    if done.index == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

try:
    collect_files(
        sys.argv[1],
        embedding=Embedding.load(sys.argv[2]),
        engine=InProcess(),
        shard_bytes=int(sys.argv[3]),
        name="law",
        checkpoint=Path(sys.argv[1]).parent / "kept",
        checkpoint_seconds=0.0,
        on_shard=fill_the_disk,
    )
except OSError as error:
    print(type(error).__name__, error)
"""


def test_when_the_disk_is_full_the_last_checkpoint_stays(file: Path) -> None:
    embedding = tiny.embedding().save(file.parent / "embedding", compact=False)
    command, environment = tiny.python_command(FULL, file, embedding, SHARD)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ArtifactError cannot write")
    assert "law.checkpoint: File too large. What was there before is unchanged" in done.stdout
    collected = counted(file)
    assert collected.resumed == 3
    assert collected.statistics == whole()


# --- the command line


def test_the_command_line_goes_on_and_cleans_up(tmp_path: Path) -> None:
    file = write(tmp_path, "law.jsonl", json_lines(TEXTS) + b"{\n")
    kept, out = tmp_path / "kept", tmp_path / "law.stats"
    assert "not valid JSON" in complaint("collect", out, file, "--checkpoint", kept)
    assert [path.name for path in kept.iterdir()] == ["law.checkpoint"]
    assert "subsample was 1, now it is 2" in complaint("collect", out, file, "--checkpoint", kept, "--subsample", "2")
    told = run_json("collect", out, file, "--checkpoint", kept, "--skip-bad", "1")
    assert (told["records"], told["skipped"]) == (len(TEXTS) + 1, 1)
    assert list(kept.iterdir()) == []
    run("fit", tmp_path / "router", f"law={out}", f"a/b={file}", "--checkpoint", kept, "--skip-bad", "1")
    assert list(kept.iterdir()) == []


def test_no_pace_is_told_of_what_a_run_before_counted(file: Path) -> None:
    paces = []
    for collected in (counted(file), counted(file)):  # the second finds all of it counted
        domain = CountedDomain("law", collected.statistics, (), 20_000_000, 0.5, collected)
        paces.append(
            [next(iter(column.cells)) for column in domains_table([domain.to_dict()]).renderables[0].columns][-1]
        )
    assert paces == ["40.0", "–"]


def test_ctrl_c_says_how_to_go_on() -> None:
    @click.command()
    @engine_options
    def busy(counting: object) -> None:
        raise KeyboardInterrupt

    said = CliRunner().invoke(busy, ["--checkpoint", "kept"]).stderr
    assert "kept in kept: run the same command again" in said
    assert "run the same command" not in CliRunner().invoke(busy, []).stderr
