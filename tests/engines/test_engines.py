"""Files counted by engines: the same bits however they are cut and whoever counts them, and nothing lost in silence."""

import gzip
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import pytest
from corpus_files import Piped, as_rows, json_lines, separated, write, write_parquet
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from ir3de import Embedding, Statistics, collect
from ir3de.corpora import read_texts
from ir3de.engines import Engine, Files, Job, Shard, ShardCount, collect_files, count_shard, engine_for, plan
from ir3de.engines.local import InProcess, LocalEngine
from ir3de.engines.pool import Pool
from ir3de.engines.shards import BadRecords, read_chunks
from ir3de.errors import EngineError, InputError
from ir3de.statistics.counting import Recipe

TEXTS = [*tiny.sentences("law", 60), "naïve café ∑ 🙂", "x" * 3_000]
RECIPE = Recipe(window=8, subsample=2, keep_sample=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same texts in a file of every kind that is cut its own way."""
    folder = tmp_path_factory.mktemp("corpus")
    write(folder, "a.txt", "\n".join(TEXTS))
    write(folder, "b.jsonl", json_lines(as_rows(TEXTS)))
    write(folder, "c.txt.gz", gzip.compress("\n".join(TEXTS).encode()))
    write(folder, "d/e.csv", separated(TEXTS, ","))
    write_parquet(folder / "f.parquet", {"text": TEXTS, "other": TEXTS}, row_group_size=7)
    return folder


def expected(times: int = 5) -> Statistics:
    return collect(TEXTS * times, embedding=tiny.embedding(), window=8, subsample=2, keep_sample=True)


def same(one: Statistics, other: Statistics) -> bool:
    return one == other and one.sample == other.sample


def texts_of(path: Path, shard_bytes: int, **options: object) -> list[str]:
    """The texts of a file, shard by shard."""
    files = Files(path, **options)  # type: ignore[arg-type]
    job = Job(RECIPE, files.field, files.whole_files)
    shards = plan(files, shard_bytes=shard_bytes)
    assert [shard.index for shard in shards] == list(range(len(shards)))
    return [text for shard in shards for chunk in read_chunks(shard, job, BadRecords(0)) for text in chunk]


# --- shards


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.text(st.sampled_from("ab é∑🙂\r\t\u2028"), max_size=12), max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    closed=st.booleans(),
    mark=st.sampled_from(["", "\ufeff"]),
    shard_bytes=st.integers(1, 40),
)
def test_every_line_is_read_once_wherever_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, closed: bool, mark: str, shard_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    plain = write(folder, "a.txt", mark + end.join(lines) + end * closed)
    quoted = write(folder, "a.jsonl", mark + end.join(json_lines([line]).decode().strip() for line in lines))
    for path in (plain, quoted):
        whole = list(read_texts([path]))
        assert texts_of(path, shard_bytes) == whole
        assert sum(shard.bytes for shard in plan(Files(path), shard_bytes=shard_bytes)) == path.stat().st_size


@pytest.mark.parametrize("shard_bytes", [1, 300, 1 << 20])
def test_what_cannot_be_cut_is_read_whole_and_parquet_between_row_groups(corpus: Path, shard_bytes: int) -> None:
    for name in ("c.txt.gz", "d/e.csv", "f.parquet"):
        assert texts_of(corpus / name, shard_bytes) == TEXTS
        pieces = [piece for shard in plan(Files(corpus / name), shard_bytes=shard_bytes) for piece in shard.pieces]
        assert sum(piece.bytes for piece in pieces) == (corpus / name).stat().st_size
        assert len(pieces) == (9 if name == "f.parquet" and shard_bytes == 1 else len(pieces))
        assert name == "f.parquet" or len(pieces) == 1
    assert len(texts_of(corpus / "a.txt", shard_bytes, whole_files=True)) == 1
    assert texts_of(corpus / "f.parquet", shard_bytes, field="other") == TEXTS


def test_small_files_are_counted_together(tmp_path: Path) -> None:
    for number in range(50):
        write(tmp_path, f"{number:02}.txt", f"text {number}\n")
    assert [len(shard.pieces) for shard in plan(Files(tmp_path))] == [50]
    assert texts_of(tmp_path, 30) == [f"text {number}" for number in range(50)]
    sizes = [shard.bytes for shard in plan(Files(tmp_path), shard_bytes=30)]
    assert len(sizes) > 10 and all(16 <= size <= 30 for size in sizes)


def test_a_worker_hears_of_every_byte_it_reads(corpus: Path) -> None:
    heard: list[int] = []
    collect_files(
        corpus, embedding=tiny.embedding(), engine=InProcess(), shard_bytes=700, on_bytes=heard.append, recipe=RECIPE
    )
    assert sum(heard) == sum(path.stat().st_size for path in corpus.rglob("*.*"))


# --- engines


class Reversed:
    """An engine of one's own: the shards from last to first."""

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        return (count_shard(shard, job, embedding, on_bytes) for shard in reversed(shards))


@pytest.mark.parametrize(
    ("engine", "shard_bytes"),
    [(InProcess(), 1 << 20), (InProcess(), 500), (Reversed(), 333), (Pool(1), 3_000), (Pool(2), 1_000)],
    ids=lambda value: type(value).__name__ if isinstance(value, Engine) else str(value),
)
def test_every_engine_gives_the_same_bits_whatever_the_shards(corpus: Path, engine: Engine, shard_bytes: int) -> None:
    heard: list[int] = []
    counts: list[ShardCount] = []
    collected = collect_files(
        corpus,
        embedding=tiny.embedding(),
        engine=engine,
        recipe=RECIPE,
        shard_bytes=shard_bytes,
        on_bytes=heard.append,
        on_shard=counts.append,
    )
    assert same(collected.statistics, expected())
    assert (collected.records, collected.skipped, collected.resumed) == (5 * len(TEXTS), 0, 0)
    assert sorted(count.index for count in counts) == list(range(collected.shards))
    assert collected.bytes == sum(heard) == sum(count.bytes for count in counts)


@pytest.mark.parametrize("engine", [InProcess(), Reversed(), Pool(2)], ids=lambda engine: type(engine).__name__)
def test_every_engine_carries_the_sources_of_rows(tmp_path: Path, engine: Engine) -> None:
    sources = [("forum", "exam", None)[i % 3] for i in range(len(TEXTS))]
    rows = [{"source": source, "text": text} for source, text in zip(sources, TEXTS, strict=True)]
    write(tmp_path, "a.jsonl", json_lines(rows))
    write(tmp_path, "b.csv", "text,source\n" + "".join(f"{row['text']},{row['source'] or ''}\n" for row in rows))
    write_parquet(tmp_path / "c.parquet", {"source": sources, "text": TEXTS, "n": TEXTS}, row_group_size=7)
    wanted = collect(rows * 3, embedding=tiny.embedding(), window=8, subsample=2, keep_sample=True)
    found = collect_files(tmp_path, embedding=tiny.embedding(), engine=engine, recipe=RECIPE, shard_bytes=1_000)
    assert same(found.statistics, wanted)
    assert found.shards > 2 and wanted.sample is not None and wanted.sample.count_sources() == 2


def test_rare_tokens_are_told_from_the_whole_domain(corpus: Path) -> None:
    wanted = collect(TEXTS, embedding=tiny.embedding(), min_count=20, clip=1)
    for engine in (InProcess(), Pool(2)):
        collected = collect_files(
            corpus / "a.txt",
            embedding=tiny.embedding(),
            engine=engine,
            recipe=Recipe(min_count=20, clip=1),
            shard_bytes=900,
        )
        assert collected.statistics == wanted
        assert collected.records == len(TEXTS)


def test_small_jobs_and_standard_input_stay_in_this_process(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Piped("\n".join(TEXTS).encode()))
    with no_processes():
        for paths, workers in ((corpus, None), ("-", 4), (corpus / "c.txt.gz", 4)):
            collected = collect_files(paths, embedding=tiny.embedding(), workers=workers, recipe=RECIPE)
            assert same(collected.statistics, expected(5 if paths == corpus else 1))


@contextmanager
def no_processes() -> Iterator[None]:
    """Fails if a process was started meanwhile: its time is added to the children's when it has ended."""
    before = os.times().children_user
    yield
    assert os.times().children_user == before


def test_engines_are_known_by_name() -> None:
    assert isinstance(engine_for(), LocalEngine) and engine_for(pool := Pool(2)) is pool
    for wrong, said in (
        ({"engine": "spark"}, "unknown engine 'spark': use one of local, ray"),
        ({"engine": 3}, "must be one of local, ray, or an Engine"),
        ({"address": "auto"}, "an address is the engine ray's"),
        ({"workers": 0}, "workers must be a whole number, at least 1"),
    ):
        with pytest.raises(InputError, match=said):
            engine_for(**wrong)  # type: ignore[arg-type]


def test_an_engine_that_leaves_shards_out_or_counts_them_twice_is_found_out(corpus: Path) -> None:
    class Careless(Reversed):
        def __init__(self, times: int) -> None:
            self.times = times

        def count(self, shards: Sequence[Shard], *rest: object) -> Iterator[ShardCount]:  # type: ignore[override]
            return super().count([*shards, *shards[:1]] if self.times == 2 else shards[1:], *rest)  # type: ignore[arg-type]

    for times, said in ((0, "left out 1 of"), (2, "counted twice")):
        with pytest.raises((EngineError, InputError), match=said):
            collect_files(corpus, embedding=tiny.embedding(), engine=Careless(times), shard_bytes=1_000)


# --- workers that die


def children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended meanwhile
            found.update(map(int, (task / "children").read_text().split()))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_a_worker_that_is_killed_changes_nothing(corpus: Path) -> None:
    killed: list[int] = []

    def kill_one(done: ShardCount) -> None:
        if not killed and (found := children()):
            killed.append(min(found))
            os.kill(killed[0], signal.SIGKILL)

    heard: list[int] = []
    collected = collect_files(
        corpus,
        embedding=tiny.embedding(),
        engine=Pool(2),
        recipe=RECIPE,
        shard_bytes=500,
        on_shard=kill_one,
        on_bytes=heard.append,
    )
    assert killed and same(collected.statistics, expected())
    assert sum(heard) == collected.bytes  # what was read in vain is taken back
    assert not children()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_workers_that_keep_dying_end_the_job_with_word_of_what_to_do(corpus: Path) -> None:
    over = threading.Event()

    def kill_all() -> None:
        while not over.is_set():
            for child in children():
                os.kill(child, signal.SIGKILL)
            sleep(0.01)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(EngineError, match=r"died \(killed by SIGKILL\) .* use fewer workers. .* checkpoint"):
            collect_files(corpus, embedding=tiny.embedding(), engine=Pool(2), shard_bytes=1_000)
    finally:
        over.set()
        killer.join()
    assert not children()


def test_what_is_wrong_with_a_file_is_said_the_same_by_every_engine(tmp_path: Path) -> None:
    threads = threading.active_count()
    write(tmp_path, "a.jsonl", json_lines(["fine"] * 30 + [{"body": 1}]))
    cases = {engine: _said(tmp_path, engine=engine, shard_bytes=60) for engine in (InProcess(), Pool(2))}
    assert len(set(cases.values())) == 1
    assert "a.jsonl, after byte 180, line 5: found no text: the row has none of" in cases.popitem()[1]
    assert threading.active_count() <= threads and not children()


# --- records and files that are broken


def _said(path: Path, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        collect_files(path, embedding=tiny.embedding(), **options)  # type: ignore[arg-type]
    return str(caught.value)


GOOD = ["one text", "and another"]
BROKEN: dict[str, Callable[[Path], object]] = {
    ".jsonl": lambda path: path.write_bytes(json_lines(GOOD) + b'{"text": \n[1]\n"\xff"\n{"text": 3}\n'),
    ".txt": lambda path: path.write_bytes(b"\xff\none text\nand\xe9\n\xff\nand another\na\x80b"),
    ".json": lambda path: path.write_bytes(b'[1, "one text", {"text": []}, null, "and another", {}]'),
    ".csv": lambda path: path.write_bytes(b'id,text\n1,a,b\n2,one text\n3\n4,\xff\n5,and another\n6,"a\n\xff"\n'),
    ".parquet": lambda path: write_parquet(path, {"text": [1, 2, 3, 4], "good": [*GOOD, None, None]}),
}


@pytest.mark.parametrize("suffix", BROKEN)
@pytest.mark.parametrize("shard_bytes", [16, 1 << 20])
def test_broken_records_are_counted_and_skipped_up_to_a_limit(tmp_path: Path, suffix: str, shard_bytes: int) -> None:
    path = tmp_path / f"a{suffix}"
    BROKEN[suffix](path)
    options = {"embedding": tiny.embedding(), "shard_bytes": shard_bytes}
    collected = collect_files(tmp_path, skip_bad=4, **options)  # type: ignore[arg-type]
    good = [] if suffix == ".parquet" else GOOD
    assert collected.statistics == collect(good, embedding=tiny.embedding())
    assert (collected.records, collected.skipped, len(collected.examples)) == (4 + len(good), 4, 4)
    assert all(example.startswith(str(path)) for example in collected.examples)
    assert "4 records cannot be read, and no more than 3 may be skipped" in _said(
        tmp_path, skip_bad=3, shard_bytes=shard_bytes
    )
    assert _said(tmp_path, shard_bytes=shard_bytes) == collected.examples[0]


def test_what_is_broken_as_a_whole_is_never_skipped(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join(TEXTS).encode())
    for name, content, said in (
        ("a.txt.gz", packed[: len(packed) // 2], "truncated or corrupt"),
        ("a.parquet", b"PAR1", "not a valid Parquet file"),
        ("a.json", b"[1,", "not valid JSON"),
        ("a.csv", b'text\n"a', "not a valid table"),
    ):
        assert said in _said(write(tmp_path, name, content), skip_bad=1_000)


def test_no_more_than_a_few_examples_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.jsonl", b'{"text": "fine"}\n' + b"{\n" * 50)
    collected = collect_files(tmp_path, embedding=tiny.embedding(), skip_bad=50, shard_bytes=20)
    assert (collected.records, collected.skipped, len(collected.examples)) == (51, 50, 5)


@pytest.mark.parametrize("engine", [InProcess(), Pool(2)], ids=["in this process", "pool"])
def test_a_file_that_changes_during_a_run_is_refused(tmp_path: Path, engine: Engine) -> None:
    path = write(tmp_path, "a.txt", "\n".join(TEXTS * 3))
    size = path.stat().st_size

    def append(done: ShardCount) -> None:
        with path.open("a") as file:
            file.write("more\n")

    said = _said(path, engine=engine, shard_bytes=400, on_shard=append)
    assert f"a.txt: the file has changed since the job was planned: it was {size:,} bytes" in said


def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n".join(TEXTS))
    said = _said(path, engine=InProcess(), shard_bytes=400, on_shard=lambda done: path.unlink(missing_ok=True))
    assert "a.txt: cannot be read (No such file or directory)" in said


# --- addresses


def test_files_at_addresses_are_read_like_any_other(corpus: Path) -> None:
    pytest.importorskip("pyarrow")
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in corpus.rglob("*.*"):
        memory.pipe(f"/lake/{path.relative_to(corpus)}", path.read_bytes())
    memory.pipe("/lake/.hidden/g.txt", b"not this\n")
    try:
        for address in ("memory://lake", "memory://lake/**/*.*", corpus.as_uri(), f"local://{corpus}"):
            collected = collect_files(address, embedding=tiny.embedding(), recipe=RECIPE, shard_bytes=900)
            assert same(collected.statistics, expected())
        assert collected.bytes == sum(path.stat().st_size for path in corpus.rglob("*.*"))
        assert list(read_texts(["memory://lake/[ab].*"])) == TEXTS * 2
        assert "memory://lake/h.txt: cannot be read (no such file or folder)" in _said("memory://lake/h.txt")  # type: ignore[arg-type]
        assert "the pattern memory://lake/*.md holds no file" in _said("memory://lake/*.md")  # type: ignore[arg-type]
    finally:
        memory.rm("/lake", recursive=True)


@pytest.mark.nightly
def test_other_processes_read_addresses_too(corpus: Path) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("fsspec")
    collected = collect_files(
        f"local://{corpus}/*.jsonl", embedding=tiny.embedding(), engine=Pool(2), recipe=RECIPE, shard_bytes=3_000
    )
    assert same(collected.statistics, expected(1))


def test_secrets_in_addresses_are_not_told() -> None:
    pytest.importorskip("pyarrow")
    said = _said("nosuch://me:hunter2@bucket/a.txt?key=hunter2")  # type: ignore[arg-type]
    assert said.startswith("nosuch://bucket/a.txt: cannot be read") and "hunter2" not in said
