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
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ir3de.embedding import Embedding
from ir3de.engines.jobs import Job, ShardCount
from ir3de.engines.portable_embedding import PortableEmbedding
from ir3de.engines.shards import Shard
from ir3de.engines.worker import ONE_THREAD, command
from ir3de.errors import EngineError

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
