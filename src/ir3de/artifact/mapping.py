"""A router's numbers as views on files: processes on one machine then have them in memory once.

The table is mapped as it lies, or as a copy in a folder that nobody else writes to: a process dies by SIGBUS if a file
that it has mapped is truncated, as `cp` does. Ballots are worked out from the table, and would be every process's own:
whoever maps a router first writes them to `ballots-<sha>.safetensors`, named by the table and the selector they are of.
Copies and ballots are derived: no header names them, they may be deleted at any time, and damaged ones are made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.artifact.part_files import checked_path, read_part
from ir3de.errors import ArtifactError
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS, Ballots, Selector
from ir3de.storage import files
from ir3de.storage.tensors import Tensors, from_safetensors, map_tensors, to_safetensors

KIND, VERSION = "ir3de.ballots", 2  # 1 called the familiarity `usualness`


def map_table(folder: Path, part: Mapping[str, str], derived: Path) -> Tensors:
    """The table's tensors, mapped: from the router's own folder if `derived` is that, else from a copy in `derived`.

    Where no copy can be made, the table is read into memory.
    """
    sha256 = part["sha256"]
    if derived == folder:
        return map_tensors(checked_path(folder, part), sha256=sha256)[0]
    copy = derived / f"table-{sha256[:16]}.safetensors"
    with suppress(ArtifactError):
        return map_tensors(copy, sha256=sha256)[0]
    with suppress(ArtifactError), files.lock_folder(derived):  # of processes that start together, one copies
        with suppress(ArtifactError):
            return map_tensors(copy, sha256=sha256)[0]
        files.copy(checked_path(folder, part), copy, sha256=sha256)
        _drop_others(copy)
        return map_tensors(copy, sha256=sha256)[0]
    return from_safetensors(read_part(folder, part), folder / part["name"])[0]


def map_ballots(folder: Path, table_sha256: str, table: Table, selector: Selector) -> Ballots:
    """The selector's ballots, mapped from a folder where they are written first; where that cannot be, as arrays."""
    of = _key(table_sha256, selector)
    path = folder / f"ballots-{of[:16]}.safetensors"
    with suppress(ArtifactError):
        return _mapped(path, of)
    made = None
    with suppress(ArtifactError), files.lock_folder(folder):  # of processes that start together, one writes
        with suppress(ArtifactError):
            return _mapped(path, of)
        made = selector.ballots(table)
        _write(path, made, of)
        return _mapped(path, of)
    # a folder that cannot be written to: then every process has its own
    return made or selector.ballots(table)


def _write(path: Path, made: Ballots, of: str) -> None:
    tensors = _tensors(made)
    header = {"kind": KIND, "version": VERSION, "of": of, "most": made.limit, "digest": _digest(tensors)}
    files.write(path, to_safetensors(tensors, header))
    _drop_others(path)


def _mapped(path: Path, of: str) -> Ballots:
    tensors, header = map_tensors(path)
    files.check_kind(header, KIND, VERSION, path)
    if header.get("of") != of or header.get("digest") != _digest(tensors):
        raise ArtifactError(f"{path} is damaged: its content is not what its header says")
    return Ballots(limit=header["most"], **tensors)


def _key(table_sha256: str, selector: Selector) -> str:
    """All that ballots depend on."""
    described = json.dumps(SELECTORS.describe(selector), sort_keys=True)
    return hashlib.sha256(f"{VERSION} {table_sha256} {described}".encode()).hexdigest()


def _tensors(ballots: Ballots) -> dict[str, npt.NDArray[Any]]:
    found = {field.name: getattr(ballots, field.name) for field in fields(ballots) if field.name != "limit"}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _digest(tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape} ".encode())
        sha.update(np.ascontiguousarray(tensors[name]).data)
    return sha.hexdigest()


def _drop_others(path: Path) -> None:
    """Tables that are gone, and their ballots; a process that has them mapped keeps them. And what a crash left."""
    stem = path.name.partition("-")[0]
    for other in (*path.parent.glob(f"{stem}-*.safetensors"), *path.parent.glob(f".{stem}-*.part")):
        if other != path:
            with suppress(OSError):
                other.unlink()
