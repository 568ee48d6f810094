"""Which test items belong together, as their rows say it: chunks of one document, translations of one question.

    results/{setting}/clusters.jsonl.xz   the number of each item's cluster, in the order of the outcomes

Where a row names its document, that is its cluster; where it names a language, the question without the language. Of
other rows those with the same text are one cluster. Tasks, subjects and languages are no clusters: the sets were made
of these very ones, so they count as fixed, each with items of its own.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ir3de.errors import ArtifactError
from ir3de_lab import files
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.matrix import Matrix, Places, read_lines
from ir3de_lab.experiments.provenance import this_process

KIND, VERSION = "ir3de.clusters", 1
CLUSTERS = "clusters.jsonl.xz"
FEW = 20  # clusters of a domain: with fewer, an interval is a rough one


def name_cluster(item: Item) -> str:
    """What an item belongs to.

    >>> name_cluster(Item("m/1", "m", "¿Qué?", {"id": "es/ARC/12", "lang": "es"}))
    'ARC/12'
    >>> name_cluster(Item("m/1", "m", "What  is it?", {}))
    'what is it?'
    """
    if document := item.row.get("doc"):
        return str(document)
    if language := item.row.get("lang"):
        return str(item.row.get("id", item.id)).removeprefix(f"{language}/")
    return " ".join(item.text.split()).casefold()


def find(items: Sequence[Item]) -> Places:
    """(n,)  the cluster of each item, numbered as they come; items of two domains are never together."""
    numbers: dict[tuple[str, str], int] = {}
    return np.array([numbers.setdefault((item.domain, name_cluster(item)), len(numbers)) for item in items], np.intp)


def write(items: Sequence[Item], matrix: Matrix, folder: Path) -> Path:
    """Keep the clusters beside the outcomes."""
    if tuple(item.id for item in items) != matrix.items:
        raise ArtifactError(
            f"the outcomes of '{matrix.setting}' are of other items than these texts: name the folder of texts that "
            "they were made of, or make the outcomes again"
        )
    document = {
        "kind": KIND,
        "version": VERSION,
        "setting": matrix.setting,
        "items": matrix.digest,
        "clusters": find(items).tolist(),
        "about": this_process(),
    }
    files.write(folder / CLUSTERS, lzma.compress(json.dumps(document).encode() + b"\n"))
    return folder / CLUSTERS


def read(folder: Path, matrix: Matrix) -> Places | None:
    """The clusters of a setting's items, if they are known."""
    path = folder / CLUSTERS
    if not path.is_file():
        return None
    [document, *_] = read_lines(path)
    files.check_kind(document, KIND, VERSION, path)
    found = document.get("clusters")
    if document.get("items") != matrix.digest or not isinstance(found, list) or len(found) != len(matrix.items):
        raise ArtifactError(
            f"{path} belongs to other outcomes: run `ir3de bench clusters --setting {matrix.setting}` again"
        )
    return np.array(found, np.intp)
