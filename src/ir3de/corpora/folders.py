"""A folder of experts: each sub-folder, and each file directly in it, is named like its expert."""

from __future__ import annotations

from pathlib import Path

from ir3de.corpora.labels import order_labels
from ir3de.corpora.sources import expand, recognise
from ir3de.errors import InputError

STATISTICS_SUFFIX = ".stats"
# files that say something about the folder, and parts that a labelled data set is often split into: no experts
_NOTES = frozenset({"readme", "license", "licence", "copying", "changelog"})
_SPLITS = frozenset({"train", "training", "test", "dev", "val", "valid", "validation", "eval", "data", "all"})


def find_experts(folder: str | Path, *, with_statistics: bool = False) -> dict[str, list[str]]:
    """The experts of a folder with the paths of their texts.

    `law/` and `law.txt` (or law.jsonl, law.csv.gz, …) are paths of the expert `law`. Hidden files, notes such as
    README.md and files that cannot be read as texts are left out; `with_statistics` takes .stats files, too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "law.txt").write_text("Is it void?\\n")
    ...     _ = Path(folder, "code.jsonl.gz").write_bytes(b"")
    ...     list(find_experts(folder))
    ['code', 'law']
    """
    found: dict[str, list[str]] = {}
    for path in sorted(Path(folder).expanduser().iterdir()):
        name = _name_expert(path, with_statistics=with_statistics)
        if name is not None:
            found.setdefault(name, []).append(str(path))
    if len(found) < 2 or all(name.lower() in _SPLITS for name in found):
        names = ", ".join(Path(path).name for paths in found.values() for path in paths) or "nothing that can be read"
        raise InputError(
            f"{folder}: a folder of experts has a file or a sub-folder for each expert, such as law.txt or law/, and "
            f"at least two; found {names}: name the column of the expert if there is one (label=…, on the command line "
            "--label), or name the expert itself (name=path)"
        )
    return {name: found[name] for name in order_labels(found)}


def _name_expert(path: Path, *, with_statistics: bool) -> str | None:
    if path.name.startswith("."):
        return None
    if path.is_dir():
        expand([path])  # refuses a folder without any text
        return path.name
    if with_statistics and path.suffix == STATISTICS_SUFFIX:
        return path.stem
    source = recognise(path)
    if source is None:
        return None
    stem = path.name[: -len(source.kind + source.codec)]
    return None if stem.lower() in _NOTES else stem
