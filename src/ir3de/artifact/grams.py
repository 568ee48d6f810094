"""Experts' Gram matrices beside their statistics, so that a change in another process computes only what changed.

They are derived: a file that is missing, damaged or of other statistics is as if it had never been there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ir3de.artifact.part_files import Parts, checked_path
from ir3de.errors import ArtifactError
from ir3de.scorers.ridge import Gram, needs_remembered_grams, recall, remember
from ir3de.statistics.domain import Statistics
from ir3de.storage import files
from ir3de.storage.tensors import make_tensor_file, map_tensors

KIND, VERSION = "ir3de.gram", 1


def describe_grams(
    experts: Sequence[dict[str, Any]], statistics: Mapping[str, Statistics], scorer: object, width: int, parts: Parts
) -> None:
    """Take the Gram matrices that the fit was made from into a save, and name them in `experts`."""
    if not needs_remembered_grams(scorer, list(statistics.values()), width):
        return
    for expert in experts:
        owned = statistics[expert["name"]]
        if (gram := recall(owned)) is not None:
            header = {"kind": KIND, "version": VERSION, "of": owned.digest, "made_by": gram.made_by}
            expert["gram"] = parts.add("gram", ".safetensors", make_tensor_file({"packed": gram.packed}, header))


def attach_gram(folder: Path, expert: Mapping[str, Any], statistics: Statistics) -> None:
    """Let statistics that were read know of the Gram matrix beside them; it is read when a fit asks for it."""
    if "gram" in expert:
        remember(statistics, partial(_read, folder, expert["gram"], statistics.digest))


def _read(folder: Path, part: Mapping[str, str], digest: str) -> Gram | None:
    with suppress(ArtifactError, KeyError, TypeError):
        tensors, header = map_tensors(checked_path(folder, part), sha256=part["sha256"])
        files.check_kind(header, KIND, VERSION, folder / part["name"])
        if header["of"] == digest:
            return Gram(tensors["packed"], header["made_by"])
    return None
