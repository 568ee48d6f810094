"""`Pool`: shards counted by several processes of this machine, each on one thread; and what both sides send.

A `ThreadPoolExecutor` has a thread for each process. The processes are started as commands of their own, not by
`ProcessPoolExecutor`: so a script needs no guard around its main part, each process has its own environment, and when
one dies it is known which shard it had, and only that shard is counted again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.matrix import FixedPointRows, Floats
from ir3de.engines.shards import Job, Shard, ShardCount, count_shard
from ir3de.errors import ArtifactError, EngineError

MAX_ATTEMPTS = 2  # to count a shard: a worker may be killed by accident once
PROGRESS_S = 0.2  # between two calls of `on_bytes`
FIXED_POINT = "fixed_point.npy"
ROWS_AT_ONCE = 4_096  # written at a time
_WARM_UP_TEXTS = 64  # texts that the fast engine would share out among threads

# numpy and the tokenizers read these when they are imported
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class Pool:
    """So many processes, each with one thread; a shard whose process dies is given to a new one, once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        with _share_matrix(PortableEmbedding.of(embedding, prompt_sums=job.recipe.prompt_sums)) as parts:
            workers = _Workers(pickle.dumps((job, parts), pickle.HIGHEST_PROTOCOL))
            executor = ThreadPoolExecutor(self.workers, thread_name_prefix="ir3de-worker")
            try:
                left = iter(shards)
                # twice as many as are counted at a time: a process need not wait, and few results are in memory
                pending = {executor.submit(workers.count, shard) for shard in islice(left, 2 * self.workers)}
                while pending:
                    done, pending = wait(pending, PROGRESS_S, FIRST_COMPLETED)
                    if on_bytes is not None and (read := workers.take_read_bytes()):
                        on_bytes(read)
                    for future in done:
                        if (shard := next(left, None)) is not None:
                            pending.add(executor.submit(workers.count, shard))
                        yield future.result()
            finally:
                workers.stop()
                executor.shutdown(cancel_futures=True)


class _Workers:
    """The processes, one for each thread that calls `count`."""

    def __init__(self, first_message: bytes) -> None:
        self._first_message = first_message
        self._own = threading.local()
        self._lock = threading.Lock()
        self._started: list[_Worker] = []
        self._stopped = False
        self._read_bytes = 0

    def count(self, shard: Shard) -> ShardCount:
        """Have this thread's process count a shard; a process that dies is replaced."""
        died = ""
        for _ in range(MAX_ATTEMPTS):
            worker = self._own.__dict__.get("worker") or self._start()
            read_bytes = 0
            for kind, value in worker.ask(shard):
                if kind == "count":
                    counted: ShardCount = value
                    return counted
                if kind == "error":
                    raise value
                read_bytes += value
                self._add_read(value)
            self._add_read(-read_bytes)  # they will be read again
            died, self._own.worker = worker.end(), None
        raise _worker_error(shard, died)

    def _start(self) -> _Worker:
        with self._lock:
            if self._stopped:
                raise EngineError("the job was stopped")
            worker = self._own.worker = _Worker(self._first_message)
            self._started.append(worker)
        return worker

    def _add_read(self, count: int) -> None:
        with self._lock:
            self._read_bytes += count

    def take_read_bytes(self) -> int:
        """The bytes that were read since the last call."""
        with self._lock:
            read, self._read_bytes = self._read_bytes, 0
        return read

    def stop(self) -> None:
        """End every process, whatever it does; the threads then end by themselves."""
        with self._lock:
            self._stopped = True
        for worker in self._started:
            worker.end()


class _Worker:
    """One process, seen from here."""

    def __init__(self, first_message: bytes) -> None:
        script = f"import sys; sys.path[:] = {sys.path!r}; from ir3de.engines.pool import main; main()"
        command = [sys.executable, "-P", "-c", script]  # -P: nothing is imported from the current folder
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD}
            )
        except OSError as error:
            raise EngineError(f"a worker cannot be started ({error.strerror or error}): use fewer workers") from error
        with suppress(OSError):  # it died at once, and will not answer
            self._send(first_message)

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def ask(self, shard: Shard) -> Iterator[tuple[str, Any]]:
        """Its answers, as `main` sends them; they end early when it dies."""
        assert self._process.stdout is not None
        with suppress(EOFError, OSError, ValueError, pickle.UnpicklingError):  # half an answer, none, or a closed pipe
            self._send(pickle.dumps(shard, pickle.HIGHEST_PROTOCOL))
            while True:
                yield pickle.load(self._process.stdout)

    def end(self) -> str:
        """End the process, if it runs; how it ended."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with status {code}"


def _worker_error(shard: Shard, died: str) -> EngineError:
    names = [piece.source.name for piece in shard.pieces]
    what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} files more"
    return EngineError(
        f"a worker died ({died}) while it counted shard {shard.index} ({what}), and so did the one after it: the "
        "machine may be out of memory, so use fewer workers. Shards that are in a checkpoint stay there: run the same "
        "again to go on"
    )


def main() -> None:
    """Run a worker: count one shard after the other for the process that started this one, until it is gone.

    It reads pickled objects from standard input, first the job and the embedding, then shards. For each shard it
    answers with any number of ("bytes", n) and one ("count", ShardCount) or ("error", exception).
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C ends the process that started this one, which ends this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is not an answer
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # the other process has ended; the buffers cannot be flushed


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    def answer(kind: str, value: object) -> None:
        pickle.dump((kind, value), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()

    job, parts = pickle.load(questions)
    embedding = parts.embedding()
    while True:
        shard = pickle.load(questions)
        try:
            counted = count_shard(shard, job, embedding, lambda read: answer("bytes", read))
        except BrokenPipeError:
            raise
        except Exception as error:
            error.add_note("in a worker:\n" + "".join(traceback.format_exception(error)))
            answer("error", error)
        else:
            answer("count", counted)


@dataclass(frozen=True, eq=False)
class PortableEmbedding:
    """What counting needs of an embedding, in a form that travels to other processes and machines.

    The matrix travels in fixed point, as it is looked up: as an array, which Ray keeps once per machine, or as the name
    of a file that the processes of one machine map. Without prompt sums the matrix is not needed.
    """

    name: str
    fingerprint: str
    definition: bytes
    proof: Proof | None
    fast_cache: bytes | None
    vocabulary: int
    width: int
    unit: float
    fixed_point: Floats | FixedPointRows | str | None  # the matrix, or the file that has it

    @classmethod
    def of(cls, embedding: Embedding, *, prompt_sums: bool = True) -> PortableEmbedding:
        tokenizer, stored = embedding.tokenizer, embedding.stored
        return cls(
            embedding.name,
            embedding.fingerprint,
            tokenizer.definition,
            None if tokenizer.proof is None else replace(tokenizer.proof),  # without its cached functions
            tokenizer.fast_cache,
            embedding.vocabulary_size,
            embedding.width,
            stored.unit if prompt_sums else 1.0,
            stored.fixed_point if prompt_sums else None,
        )

    def in_file(self, folder: Path) -> PortableEmbedding:
        """The same with its matrix in a file of that folder."""
        if self.fixed_point is None or isinstance(self.fixed_point, str):
            return self
        path = folder / FIXED_POINT
        try:
            _write_matrix(self.fixed_point, path)
        except OSError as error:
            raise ArtifactError(
                f"cannot write {path}: {error.strerror or error}. The folder for temporary files must have room for "
                f"{4 * self.vocabulary * self.width:,} bytes: name another in TMPDIR, or use one process (workers=1)"
            ) from error
        return replace(self, fixed_point=str(path))

    def embedding(self) -> Embedding:
        """The embedding as far as counting on one thread needs it; its matrix is in fixed point only."""
        fixed_point = self.fixed_point
        if isinstance(fixed_point, str):
            fixed_point = np.load(fixed_point, mmap_mode="r")
        elif fixed_point is None:
            fixed_point = np.broadcast_to(np.float32(0), (self.vocabulary, self.width))
        stored = Matrix({"values": fixed_point}, self.width)  # type: ignore[dict-item]
        tokenizer = Tokenizer(self.definition, proof=self.proof, fast_cache=self.fast_cache)
        made = Embedding(tokenizer, stored, name=self.name)
        # these would be computed from the matrix, and wrongly from this one
        vars(stored).update(fixed_point=fixed_point, unit=self.unit)
        vars(made).update(fingerprint=self.fingerprint)
        with _on_one_core():
            tokenizer.encode_batch([self.name] * _WARM_UP_TEXTS)
        return made


@contextmanager
def _share_matrix(parts: PortableEmbedding) -> Iterator[PortableEmbedding]:
    """The same with its matrix in a file that workers map.

    On Linux the file is unlinked at once: workers open it through this process, and it disappears with the process.
    """
    with tempfile.TemporaryDirectory(prefix="ir3de-", ignore_cleanup_errors=True) as folder:
        stored = parts.in_file(Path(folder))
        if not isinstance(stored.fixed_point, str) or not Path("/proc/self/fd").is_dir():
            yield stored
            return
        path = Path(stored.fixed_point)
        with path.open("rb") as file:
            path.unlink()
            path.parent.rmdir()
            yield replace(stored, fixed_point=f"/proc/{os.getpid()}/fd/{file.fileno()}")


def _write_matrix(fixed_point: Floats | FixedPointRows, path: Path) -> None:
    """Write the matrix as an .npy file, some rows at a time, for it may be larger than the memory."""
    with path.open("wb") as file:
        shape = fixed_point.shape
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for begin in range(0, shape[0], ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + ROWS_AT_ONCE, shape[0]))
            some = np.empty((len(rows), shape[1]), "<f4")
            file.write(fixed_point.take(rows, axis=0, out=some, mode="clip").data)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Restrict this process to one core: the fast engine reads the number of cores when it is first used."""
    if not hasattr(os, "sched_setaffinity"):  # not on Linux: its threads then compete for the cores
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
