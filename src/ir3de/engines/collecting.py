"""`collect_files`: a domain's files to its statistics, by any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Unpack

from ir3de.embedding import Embedding
from ir3de.engines.checkpoints import Checkpoint, Progress
from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting, Engine, check_counting, engine_for
from ir3de.engines.jobs import BadRecords, Job, ShardCount
from ir3de.engines.shards import SHARD_BYTES, Shard, plan
from ir3de.errors import ArtifactError, EngineError, InputError
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.domain import Statistics

CHECKPOINT_SECONDS = 5.0  # between two writings


@dataclass(frozen=True)
class Collected:
    """A domain's statistics, and what it took to get them."""

    statistics: Statistics
    records: int  # that were read, the skipped among them; blank ones are none
    skipped: int  # records that could not be read
    examples: tuple[str, ...]  # what was wrong with the first few of those
    shards: int
    resumed: int  # shards that a checkpoint had already
    bytes: int  # on disk
    checkpoints: tuple[Checkpoint, ...] = field(default=(), repr=False)

    def discard_checkpoints(self) -> None:
        """Remove what was written down to go on from: for when the result is safe."""
        for checkpoint in self.checkpoints:
            checkpoint.discard()


def collect_files(
    files: Files | str | Path | Iterable[str | Path],
    *,
    embedding: Embedding | None = None,
    recipe: Recipe | None = None,
    name: str = "texts",
    shard_bytes: int = SHARD_BYTES,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    on_bytes: Callable[[int], None] | None = None,
    on_shard: Callable[[ShardCount], None] | None = None,
    **counting: Unpack[Counting],
) -> Collected:
    """Count a domain's files: the same bits from every engine, with any number of workers, in shards of any size.

    `engine` is "local" (this process for small jobs, else `workers` processes, as many as there are cores unless
    said), "ray" (the cluster at `address`, or one started here), or an `Engine` of one's own. In the folder
    `checkpoint` it is written down every few seconds, under the domain's `name`, how far the job is: the same call
    goes on from there. `skip_bad` records of the domain may be broken: they are skipped and told of in the result.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"text": "What is 2 + 2?"}\\n{"text": \\n"Solve x² = 9."\\n')
    ...     collected = collect_files(folder, skip_bad=1)
    >>> collected.statistics, collected.records, collected.skipped
    (Statistics(2 prompts, 16 tokens, 2 windows, embedding 0a049b450d48), 3, 1)
    """
    check_counting(counting)
    files = files if isinstance(files, Files) else Files(files)
    embedding, recipe = embedding or Embedding.default(), recipe or Recipe()
    engine = engine_for(
        counting.get("engine", "local"), workers=counting.get("workers"), address=counting.get("address")
    )
    shards = plan(files, shard_bytes=shard_bytes)
    if recipe.passes > 1 and any(shard.is_stdin for shard in shards):
        raise InputError("min_count reads the texts twice, and standard input can be read once: name a file")
    runs: list[Collected] = []

    def run(recipe: Recipe) -> Statistics:
        job = Job(recipe, files.field, files.whole_files, counting.get("skip_bad", 0))
        folder = counting.get("checkpoint")
        kept = None if folder is None else Checkpoint(folder, name, job, embedding, shards)
        notes = _Notes(kept, checkpoint_seconds)
        runs.append(_collected(engine, shards, job, embedding, notes, on_bytes, on_shard))
        return runs[-1].statistics

    statistics = count_without_rare_tokens(run, recipe)
    return replace(runs[-1], statistics=statistics, checkpoints=tuple(kept for run in runs for kept in run.checkpoints))


def _collected(
    engine: Engine,
    shards: Sequence[Shard],
    job: Job,
    embedding: Embedding,
    notes: _Notes,
    on_bytes: Callable[[int], None] | None,
    on_shard: Callable[[ShardCount], None] | None,
) -> Collected:
    """One pass over all shards but those that are written down already."""
    progress = notes.begin() or Progress(count([], embedding, job.recipe))
    resumed = len(progress.done)
    if not resumed:
        notes.write(progress)  # a folder that cannot be written to is found before hours are spent
    elif on_bytes is not None:
        on_bytes(progress.bytes)
    left = [shard for shard in shards if shard.index not in progress.done]
    if left:
        _run(engine, left, job, embedding, progress, notes, on_bytes, on_shard)
    said = progress.records, progress.skipped, progress.examples
    return Collected(progress.total, *said, len(shards), resumed, progress.bytes, notes.checkpoints)


class _Notes:
    """Writes down how far a job is, every few seconds."""

    def __init__(self, checkpoint: Checkpoint | None, seconds: float) -> None:
        self._checkpoint, self._seconds = checkpoint, seconds
        self._written = monotonic()
        self._behind = True

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return () if self._checkpoint is None else (self._checkpoint,)

    def begin(self) -> Progress | None:
        """What was written down by a run before this one."""
        return None if self._checkpoint is None else self._checkpoint.load()

    def take(self, progress: Progress) -> None:
        self._behind = True
        if monotonic() - self._written >= self._seconds:
            self.write(progress)

    def write(self, progress: Progress) -> None:
        if self._checkpoint is not None and self._behind:
            self._checkpoint.save(progress)
        self._written, self._behind = monotonic(), False


def _run(
    engine: Engine,
    shards: Sequence[Shard],
    job: Job,
    embedding: Embedding,
    progress: Progress,
    notes: _Notes,
    on_bytes: Callable[[int], None] | None,
    on_shard: Callable[[ShardCount], None] | None,
) -> None:
    """Have the shards counted and added up; whatever ends it early, what is counted by then is written down."""
    bad = BadRecords(job.skip_bad, progress.skipped, progress.examples)
    counts = engine.count(shards, job, embedding, on_bytes)
    left = {shard.index for shard in shards}
    try:
        for done in counts:
            bad.add(done.skipped, done.examples)  # before it is in the sum: too many, and it is not
            progress.add(done)
            progress.skipped, progress.examples = bad.skipped, tuple(bad.examples)
            left.discard(done.index)
            notes.take(progress)
            if on_shard is not None:
                on_shard(done)
        if left:
            raise EngineError(f"the engine left out {len(left):,} of {len(shards):,} shards, the first is {min(left)}")
    except BaseException:
        with suppress(ArtifactError):  # what went wrong first is what is said
            notes.write(progress)
        raise
    finally:
        close = getattr(counts, "close", None)
        if close is not None:
            close()  # ends the engine's workers at once
    notes.write(progress)
