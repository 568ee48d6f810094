"""A router's numbers as views on its files: processes on one machine then have them in memory once.

The table is mapped as it lies. Ballots are worked out from it, and would be every process's own: whoever maps a router
first writes them to `ballots-<sha>.safetensors`, named by the table and the selector they are of. The file is derived:
no header names it, it may be deleted at any time, and one that is damaged is written anew.
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

from ir3de.errors import ArtifactError
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS, Ballots, Selector
from ir3de.storage import files
from ir3de.storage.tensors import map_tensors, to_safetensors

KIND, VERSION = "ir3de.ballots", 2  # 1 called the familiarity `usualness`


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
    """Ballots of tables that are gone; a process that still has them mapped keeps them."""
    for other in path.parent.glob("ballots-*.safetensors"):
        if other != path:
            with suppress(OSError):
                other.unlink()
