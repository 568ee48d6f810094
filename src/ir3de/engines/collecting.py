"""`collect_files`: a domain's files to its statistics, by any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Unpack

from ir3de.embedding import Embedding
from ir3de.engines.checkpoints import Checkpoint, Progress
from ir3de.engines.engine import Counting, Engine, check_counting, engine_for
from ir3de.engines.shards import SHARD_BYTES, BadRecords, Files, Job, Shard, ShardCount, plan
from ir3de.errors import ArtifactError, EngineError, InputError
from ir3de.statistics.counting import Recipe, count, count_without_rare_tokens
from ir3de.statistics.domain import Statistics

CHECKPOINT_SECONDS = 5.0  # between two saves


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
        """Delete the checkpoints, once the result is saved."""
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

    `engine` is "local" (this process for small jobs, else `workers` processes, by default one per
    core), "ray" (the cluster at `address`, or one started here), or an `Engine` of one's own. Every few seconds the
    state of the job is saved in the folder `checkpoint`, under the domain's `name`: the same call resumes from there.
    Up to `skip_bad` broken records of the domain are skipped; the result has their number and the first few.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"text": "What is 2 + 2?"}\\n{"text": \\n"Solve x² = 9."\\n')
    ...     collected = collect_files(folder, skip_bad=1)
    >>> collected.statistics, collected.records, collected.skipped
    (Statistics(2 prompts, 16 tokens, 2 windows, embedding e11eb7e3cada), 3, 1)
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
    runs: list[_Run] = []

    def run(recipe: Recipe) -> Statistics:
        job = Job(recipe, files.field, files.whole_files, counting.get("skip_bad", 0))
        folder = counting.get("checkpoint")
        checkpoint = None if folder is None else Checkpoint(folder, name, job, embedding, shards)
        runs.append(_Run(shards, job, embedding, checkpoint, checkpoint_seconds))
        return runs[-1].count(engine, on_bytes, on_shard)

    statistics = count_without_rare_tokens(run, recipe)
    last = runs[-1].progress
    return Collected(
        statistics,
        last.records,
        last.skipped,
        last.examples,
        len(shards),
        runs[-1].resumed,
        last.bytes,
        tuple(run.checkpoint for run in runs if run.checkpoint is not None),
    )


class _Run:
    """One pass over all shards but those that are in the checkpoint already."""

    def __init__(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, checkpoint: Checkpoint | None, seconds: float
    ) -> None:
        self._shards, self._job, self._embedding, self._seconds = shards, job, embedding, seconds
        self.checkpoint = checkpoint
        self.progress = (checkpoint and checkpoint.load()) or Progress(count([], embedding, job.recipe))
        self.resumed = len(self.progress.done)
        self._is_saved = False
        if not self.resumed:
            self._save()  # a folder that cannot be written to is found before hours are spent
        self._saved_at = monotonic()

    def count(
        self,
        engine: Engine,
        on_bytes: Callable[[int], None] | None,
        on_shard: Callable[[ShardCount], None] | None,
    ) -> Statistics:
        """Count the shards that are left. Whatever ends it early, what is counted by then is saved."""
        progress = self.progress
        if self.resumed and on_bytes is not None:
            on_bytes(progress.bytes)
        left = {shard.index: shard for shard in self._shards if shard.index not in progress.done}
        if not left:
            return progress.total
        bad = BadRecords(self._job.skip_bad, progress.skipped, progress.examples)
        counts = engine.count(list(left.values()), self._job, self._embedding, on_bytes)
        try:
            for done in counts:
                bad.add(done.skipped, done.examples)  # raises before the shard is in the sum
                progress.add(done)
                progress.skipped, progress.examples = bad.skipped, tuple(bad.examples)
                left.pop(done.index, None)
                self._is_saved = False
                if monotonic() - self._saved_at >= self._seconds:
                    self._save()
                if on_shard is not None:
                    on_shard(done)
            if left:
                raise EngineError(
                    f"the engine left out {len(left):,} of {len(self._shards):,} shards, the first is {min(left)}"
                )
        except BaseException:
            with suppress(ArtifactError):  # the first error is the one to report
                self._save()
            raise
        finally:
            close = getattr(counts, "close", None)
            if close is not None:
                close()  # ends the engine's workers at once
        self._save()
        return progress.total

    def _save(self) -> None:
        if self.checkpoint is not None and not self._is_saved:
            self.checkpoint.save(self.progress)
        self._saved_at, self._is_saved = monotonic(), True
