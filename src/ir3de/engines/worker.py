"""The other side of a `Pool`: a process that counts one shard after the other, on one thread.

It reads pickled objects from its standard input, first the job and the embedding, then shards, and answers with
(what, value) pairs: ("ready", None), then for each shard any number of ("bytes", n) and one ("count", ShardCount) or
("error", exception). It ends when its input does.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from typing import IO

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
    script = f"import sys; sys.path[:] = {sys.path!r}; from ir3de.engines.worker import main; main()"
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

    from ir3de.engines.jobs import count_shard

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
