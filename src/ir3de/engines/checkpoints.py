"""How far a job has come, in one file: the sum so far, and which shards are in it.

Both are replaced in one step, so a shard is in the sum if and only if it is in the list: whenever a job is killed,
none is lost that was written down and none is counted twice. The file does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ir3de import files
from ir3de.embedding import Embedding
from ir3de.engines.shards import Job, Shard, ShardCount
from ir3de.errors import ArtifactError, InputError, VersionError
from ir3de.files.tensors import from_safetensors, to_safetensors
from ir3de.statistics.domain import Statistics
from ir3de.statistics.files import encode_statistics, read_statistics

KIND, VERSION = "ir3de.checkpoint", 1
SUFFIX = ".checkpoint"
MAX_SOURCES = 1_000  # listed by name, so that errors can name those that changed; the digest is of all


@dataclass
class Progress:
    """What has been counted so far."""

    total: Statistics
    done: set[int] = field(default_factory=set)
    records: int = 0
    bytes: int = 0
    skipped: int = 0
    examples: tuple[str, ...] = ()

    def add(self, count: ShardCount) -> None:
        if count.index in self.done:
            raise InputError(f"shard {count.index} was counted twice: the engine must count each shard once")
        self.total += count.statistics
        self.done.add(count.index)
        self.records += count.records
        self.bytes += count.bytes


class Checkpoint:
    """The file of one domain's job."""

    def __init__(self, folder: str | Path, name: str, job: Job, embedding: Embedding, shards: Sequence[Shard]) -> None:
        if any(shard.is_stdin for shard in shards):
            raise InputError(
                "a job that reads standard input cannot be resumed: name a file, or leave the checkpoint out"
            )
        second = " (second reading)" if job.recipe.left_out else ""  # which begins when the first is complete
        self.path = Path(folder).expanduser() / _file_name(name + second)
        self._job = _identity(job, embedding, shards)

    def load(self) -> Progress | None:
        """The saved progress, or None; rejects the checkpoint of another job."""
        if not self.path.exists():
            files.make_folder(self.path.parent)
            return None
        try:
            header, total = _read(self.path)
            progress = Progress(
                total,
                {number for first, last in header["done"] for number in range(first, last + 1)},
                header["records"],
                header["bytes"],
                header["skipped"],
                tuple(header["examples"]),
            )
        except VersionError:
            raise
        except (ArtifactError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"the checkpoint {self.path} cannot be used ({error}): delete it to begin again from the beginning"
            ) from error
        if different := _differences(header["job"], self._job):
            raise InputError(
                f"the checkpoint {self.path} is another job's: {'; '.join(different)}. Go on with what it was begun "
                "with, or delete it to begin again from the beginning"
            )
        return progress

    def save(self, progress: Progress) -> None:
        """Save the progress; if that fails, the last checkpoint stays."""
        content = encode_statistics(progress.total)
        header = {
            "kind": KIND,
            "version": VERSION,
            "job": self._job,
            "done": list(_ranges(progress.done)),
            "records": progress.records,
            "bytes": progress.bytes,
            "skipped": progress.skipped,
            "examples": list(progress.examples),
            "statistics": hashlib.sha256(content).hexdigest(),
        }
        tensors = {"statistics": np.frombuffer(content, np.uint8)}
        files.write(self.path, to_safetensors(tensors, files.seal(header)))

    def discard(self) -> None:
        """Remove the file, and what writing it may have left when it was killed."""
        with suppress(OSError):
            for path in [self.path, *self.path.parent.glob(f".{self.path.name}.*.part")]:
                path.unlink(missing_ok=True)


def _read(path: Path) -> tuple[files.Header, Statistics]:
    tensors, header = from_safetensors(files.read(path), path)
    files.check_kind(header, KIND, VERSION, path)
    files.check_seal(header, path)
    content = tensors["statistics"].tobytes()
    if hashlib.sha256(content).hexdigest() != header["statistics"]:
        raise ArtifactError("its sum does not match its hash")
    return header, read_statistics(content, path)[0]


def _identity(job: Job, embedding: Embedding, shards: Sequence[Shard]) -> dict[str, Any]:
    """What two jobs must have in common for one to go on where the other ended; which engine runs them is free."""
    pieces = [piece for shard in shards for piece in shard.pieces]
    states = {piece.source.name: [piece.state.size, piece.state.modified] for piece in pieces}
    cuts = hashlib.sha256()
    for shard in shards:
        for piece in shard.pieces:
            source, state = piece.source, piece.state
            known = (shard.index, source.name, source.begin, source.end, state.size, state.modified)
            cuts.update(repr(known).encode("utf-8", "surrogateescape"))
    recipe = asdict(job.recipe)
    return {
        "recipe": {**recipe, "left_out": hashlib.sha256(recipe["left_out"]).hexdigest()},
        "field": job.field,
        "whole_files": job.whole_files,
        "embedding": embedding.fingerprint,
        "files": len(states),
        "shards": len(shards),
        "sources": dict(list(states.items())[:MAX_SOURCES]),
        "plan": cuts.hexdigest(),
    }


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What is not the same, in words; empty for one and the same job."""
    before = {"subsample" if name == "sample" else name: value for name, value in old["recipe"].items()}  # 0.1's name
    given = {**old, **before}, {**new, **new["recipe"]}
    names = [name for name in (given[0] | given[1]) if name not in ("recipe", "sources", "plan", "shards", "files")]
    found = [
        f"{name} was {_short(given[0].get(name))}, now it is {_short(given[1].get(name))}"
        for name in names
        if given[0].get(name) != given[1].get(name)
    ]
    was, now = old["sources"], new["sources"]
    changed = [f"{name} has changed" for name in was if name in now and was[name] != now[name]]
    changed += [f"{name} is missing now" for name in was if name not in now]
    changed += [f"{name} was not there" for name in now if name not in was]
    if len(changed) > 3:
        changed[3:] = [f"and {len(changed) - 3:,} files more"]
    found += changed
    if not found and old["plan"] != new["plan"]:
        found.append(f"{old['files']:,} files were cut into {old['shards']:,} shards, now {new['files']:,} into "
                     f"{new['shards']:,}, or some of them have changed")  # fmt: skip
    return found


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 60 else str(value)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The numbers as stretches (first, last): few, for shards are begun in order."""
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda placed: placed[1] - placed[0]):
        stretch = [number for _, number in run]
        yield stretch[0], stretch[-1]


def _file_name(name: str) -> str:
    """A domain's name as the name of a file; two names never share one."""
    plain = re.sub(r"[^\w-]+", "_", name)[:80]
    return (plain if plain == name else f"{plain}-{zlib.crc32(name.encode('utf-8', 'replace')):08x}") + SUFFIX
