"""`Files`: a domain by the names of its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ir3de.errors import InputError


@dataclass(frozen=True)
class Files:
    """A domain's texts by where they lie: files, folders, patterns, addresses such as s3://bucket/folder, or `-`.

    `field` names the field (or `a.b` path) that holds the text; `whole_files` makes each plain-text file one text.

    >>> Files("cases/*.jsonl", field="body").paths
    ('cases/*.jsonl',)
    >>> Files(["cases/", "statutes.parquet"]).paths
    ('cases/', 'statutes.parquet')
    """

    paths: tuple[str, ...]
    field: str | None = None
    whole_files: bool = False

    def __init__(
        self, paths: str | Path | Iterable[str | Path], field: str | None = None, whole_files: bool = False
    ) -> None:
        named = (paths,) if isinstance(paths, (str, Path)) else tuple(paths)
        if not named or not all(isinstance(path, (str, Path)) for path in named):
            raise InputError(f"Files takes the names of files, at least one, found {paths!r:.60}")
        object.__setattr__(self, "paths", tuple(map(str, named)))
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "whole_files", whole_files)
