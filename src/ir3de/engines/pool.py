"""`Pool`: shards counted by several processes of this machine, each on one thread.

The processes are started as commands of their own, not forked and not by `multiprocessing`: so a script needs no
guard around its main part, each process has its own environment, and when one dies it is known which shard it had.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import numpy as np

from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.matrix import FixedPointRows, Floats
from ir3de.engines.shards import Job, Shard, ShardCount
from ir3de.errors import ArtifactError, EngineError

FIXED_POINT = "fixed_point.npy"

ROWS_AT_ONCE = 4_096  # written at a time
_WARM_UP_TEXTS = 64  # texts that the fast engine would share out among threads


@dataclass(frozen=True, eq=False)
class PortableEmbedding:
    """An embedding on its way; small without prompt sums, for which alone the matrix is needed."""

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
            None if tokenizer.proof is None else replace(tokenizer.proof),  # without what it has made of itself
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
        # what would be computed from the matrix is known, and of this matrix it would be wrong
        vars(stored).update(fixed_point=fixed_point, unit=self.unit)
        vars(made).update(fingerprint=self.fingerprint)
        with _on_one_core():
            tokenizer.encode_batch([self.name] * _WARM_UP_TEXTS)
        return made


def _write_matrix(fixed_point: Floats | FixedPointRows, path: Path) -> None:
    """The matrix as an .npy file, some rows at a time, for it may be larger than the memory."""
    with path.open("wb") as file:
        shape = fixed_point.shape
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for begin in range(0, shape[0], ROWS_AT_ONCE):
            rows = np.arange(begin, min(begin + ROWS_AT_ONCE, shape[0]))
            some = np.empty((len(rows), shape[1]), "<f4")
            file.write(fixed_point.take(rows, axis=0, out=some, mode="clip").data)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Have the fast engine believe that there is one core: it looks when it is first used, and cannot be told."""
    if not hasattr(os, "sched_setaffinity"):  # not on Linux: then its threads are in each other's way, no more
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


MAX_ATTEMPTS = 2  # of a shard: a worker may be killed by accident once


class Pool:
    """So many processes, each with one thread; a shard whose process dies is given to a fresh one, once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.start_up = 0.0  # seconds until the last of the first workers was ready

    def count(
        self, shards: Sequence[Shard], job: Job, embedding: Embedding, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[ShardCount]:
        begun = perf_counter()
        with _share_matrix(PortableEmbedding.of(embedding, prompt_sums=job.recipe.prompt_sums)) as parts:
            workers = _Workers(shards, pickle.dumps((job, parts), pickle.HIGHEST_PROTOCOL), self.workers)
            try:
                for what, value in workers.answers():
                    if what == "count":
                        yield value
                    elif what == "ready":
                        self.start_up = perf_counter() - begun
                    elif on_bytes is not None:
                        on_bytes(value)
            finally:
                workers.stop()


@contextmanager
def _share_matrix(parts: PortableEmbedding) -> Iterator[PortableEmbedding]:
    """The same with its matrix in a file that workers map.

    On Linux the file has no name any more: workers find it by this process, and it goes with it however that ends.
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


class _Workers:
    """Threads, each with a process of its own that it gives shards to."""

    def __init__(self, shards: Sequence[Shard], first_message: bytes, workers: int) -> None:
        self._first_message = first_message
        self._waiting: queue.SimpleQueue[Shard] = queue.SimpleQueue()
        for shard in shards:
            self._waiting.put(shard)
        self._answers: queue.Queue[tuple[str, Any]] = queue.Queue(2 * workers)  # no more than can be taken in
        self._stopped = False
        self._workers: set[_Worker] = set()
        self._threads = [threading.Thread(target=self._run_worker, name=f"ir3de-worker-{i}") for i in range(workers)]
        for thread in self._threads:
            thread.start()

    def answers(self) -> Iterator[tuple[str, Any]]:
        """What the workers say, until all is done; what went wrong for one of them is raised here."""
        left = len(self._threads)
        while left:
            what, value = self._answers.get()
            if what == "error":
                raise value
            if what == "done":
                left -= 1
            else:
                yield what, value

    def stop(self) -> None:
        """End every process and every thread, wherever they are."""
        self._stopped = True
        while any(thread.is_alive() for thread in self._threads):
            for worker in list(self._workers):
                worker.end()
            with suppress(queue.Empty):
                self._answers.get(timeout=0.02)  # a thread may be waiting for room

    def _run_worker(self) -> None:
        worker: _Worker | None = None
        try:
            while not self._stopped:
                shard = self._waiting.get_nowait()
                for tried in range(1, MAX_ATTEMPTS + 1):
                    if worker is None:
                        worker = _Worker(self._first_message)
                        self._workers.add(worker)
                    if self._count_shard(worker, shard):
                        break
                    died, worker = worker.end(), None
                    if self._stopped:
                        return
                    if tried == MAX_ATTEMPTS:
                        raise _worker_error(shard, died)
        except queue.Empty:
            pass
        except BaseException as error:  # whatever it is, it is raised where the answers are taken
            self._answers.put(("error", error))
        finally:
            if worker is not None:
                worker.end()
            self._answers.put(("done", None))

    def _count_shard(self, worker: _Worker, shard: Shard) -> bool:
        """Have a worker count a shard; False when the worker dies."""
        read_bytes = 0
        for what, value in worker.ask(shard):
            read_bytes += value if what == "bytes" else 0
            self._answers.put((what, value))
            if what in ("count", "error"):
                return True
        self._answers.put(("bytes", -read_bytes))  # it will be read again
        self._workers.discard(worker)
        return False


class _Worker:
    """One process, seen from here."""

    def __init__(self, first_message: bytes) -> None:
        try:
            self._process = subprocess.Popen(
                command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **ONE_THREAD}
            )
        except OSError as error:
            raise EngineError(f"a worker cannot be started ({error.strerror or error}): use fewer workers") from error
        with suppress(OSError):  # it died at once, which is seen when it does not answer
            self._send(first_message)

    def _send(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def ask(self, shard: Shard) -> Iterator[tuple[str, Any]]:
        """Its answers, which end early when it dies."""
        assert self._process.stdout is not None
        with suppress(EOFError, OSError, pickle.UnpicklingError):  # all of them: half an answer, or none
            self._send(pickle.dumps(shard, pickle.HIGHEST_PROTOCOL))
            while True:
                yield pickle.load(self._process.stdout)

    def end(self) -> str:
        """End the process, if it has not ended; how it did."""
        self._process.kill()
        code = self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"it ended with status {code}"


def _worker_error(shard: Shard, died: str) -> EngineError:
    names = [piece.source.name for piece in shard.pieces]
    what = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} files more"
    return EngineError(
        f"a worker died ({died}) while it counted shard {shard.index} ({what}), and so did the one after it: the "
        "machine may be out of memory, so use fewer workers. Shards that are in a checkpoint stay there: run the same "
        "again to go on"
    )


# numpy and the tokenizers must be told before they are imported
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def command() -> list[str]:
    """What starts a worker that finds the packages of this process, whatever its main script is."""
    script = f"import sys; sys.path[:] = {sys.path!r}; from ir3de.engines.pool import main; main()"
    return [sys.executable, "-P", "-c", script]  # -P: nothing is imported from the current folder


def main() -> None:
    """Serve the process that started this one, until it has no more shards or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that started this one to say when to end
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is not an answer
    try:
        _serve(sys.stdin.buffer, answers)
    except (EOFError, BrokenPipeError):
        os._exit(0)  # nobody is there to hear of it; not even the buffers can be flushed


def _serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    def answer(what: str, value: object) -> None:
        pickle.dump((what, value), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()

    from ir3de.engines.shards import count_shard

    job, parts = pickle.load(questions)
    embedding = parts.embedding()
    answer("ready", None)
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
