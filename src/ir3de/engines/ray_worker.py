"""What IR3DE does on a worker of a Ray cluster: it counts a shard or a block of rows."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ir3de.corpora.rows import columns_with_text, text_in
from ir3de.embedding import Embedding
from ir3de.engines.pool import ONE_THREAD, PortableEmbedding
from ir3de.engines.shards import Job, ShardCount, count_shard
from ir3de.errors import EngineError, IR3DEError, MissingExtraError
from ir3de.statistics.counting import count, split_chunks
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:
    import pyarrow

Packed = tuple[bytes, list[npt.NDArray[np.uint8]]]

PROBE = ("Does this worker count as the others do?", "√2, naïve, 字, 🙂: tokenizer, matrix and arithmetic at once.")
MAX_ATTEMPTS = 6  # Ray would repeat the task of a dead worker for ever, and the shard may be what kills it
ROWS_AT_ONCE = 256  # turned into Python objects at a time: few, because a row may be a whole book


@dataclass(frozen=True, eq=False)
class Setup:
    """What all tasks of a job have in common: Ray keeps it once a machine, and the matrix is used where it lies."""

    job: Job
    parts: PortableEmbedding
    digest: str  # of the statistics of `PROBE`

    @classmethod
    def of(cls, job: Job, embedding: Embedding) -> Setup:
        parts = PortableEmbedding.of(embedding, prompt_sums=job.recipe.prompt_sums)
        return cls(job, parts, count(PROBE, embedding, job.recipe).digest)

    def packed(self) -> Packed:
        """A form that is unpacked without IR3DE, as where it only passes through, and whose arrays are not copied."""
        arrays: list[pickle.PickleBuffer] = []
        content = pickle.dumps(self, protocol=5, buffer_callback=arrays.append)
        return content, [np.frombuffer(array.raw(), np.uint8) for array in arrays]


def run_task(function: str, item: Any, setup: Any, node: str) -> bytes:
    """Count a shard or a batch of rows; its outcome: ("result", it, node), or ("error", (class, message), node).

    An error is returned, not raised: Ray would try it again, and then raise it with pages of its own text.
    """
    try:
        _check_attempts()
        return pickle.dumps(("result", _FUNCTIONS[function](item, *_prepare(setup)), node), protocol=5)
    except IR3DEError as error:
        message = str(error)
        if isinstance(error.__cause__, OSError):
            message += (
                f" (on the node {node}: files must be where every node can read them, on a shared disk or at an "
                "address such as s3://bucket/file)"
            )
        elif isinstance(error, (EngineError, MissingExtraError)):
            message += f" (on the node {node})"
        return pickle.dumps(("error", (type(error), message), node))
    except Exception as error:
        message = f"the worker on the node {node} failed: {type(error).__name__}: {error}"
        return pickle.dumps(("error", (EngineError, message), node))


def _check_attempts() -> None:
    from ray._private.worker import global_worker  # Ray has it nowhere else

    attempts = getattr(global_worker.core_worker, "get_current_task_attempt_number", lambda: 0)()
    if attempts >= MAX_ATTEMPTS:
        raise EngineError(
            f"a task was begun {attempts:,} times, and each time its worker died: see Ray's logs for why, for instance "
            "too little memory for one worker a core (then fewer workers help)"
        )


@lru_cache(maxsize=1)  # a worker lives for many tasks
def _prepare(setup: Any) -> tuple[Job, Embedding]:
    import ray

    for name, value in ONE_THREAD.items():  # Ray starts a worker a core; tokenizers look when they are first used
        os.environ.setdefault(name, value)
    content, arrays = ray.get(setup)
    found: Setup = pickle.loads(content, buffers=arrays)
    embedding = found.parts.embedding()
    if count(PROBE, embedding, found.job.recipe).digest != found.digest:
        raise EngineError(
            "a worker counts a line of text otherwise than this machine: install the same IR3DE, and the same versions "
            "of numpy, tokenizers and tokie, on both"
        )
    return found.job, embedding


def _shard(pickled: bytes, job: Job, embedding: Embedding) -> ShardCount:
    return count_shard(pickle.loads(pickled), job, embedding)


def _rows(batch: pyarrow.Table, job: Job, embedding: Embedding) -> Statistics:
    total = count([], embedding, job.recipe)
    for chunk in split_chunks(_texts(batch.select(columns_with_text(batch.column_names, job.field)), job.field)):
        total += count(chunk, embedding, job.recipe)
    return total


def _texts(table: pyarrow.Table, field: str | None) -> Iterator[str]:
    for begin in range(0, table.num_rows, ROWS_AT_ONCE):
        for row in table.slice(begin, ROWS_AT_ONCE).to_pylist():
            text = text_in(row, field)
            if text and not text.isspace():
                yield text


_FUNCTIONS: dict[str, Callable[[Any, Job, Embedding], object]] = {"shard": _shard, "rows": _rows}
