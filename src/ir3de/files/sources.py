"""The files that a caller names, one by one, in an order that never changes: paths, folders, patterns, addresses."""

import difflib
import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ir3de.errors import InputError
from ir3de.files.formats import FORMATS
from ir3de.files.remote import AnyPath, files_at, is_address, local_path
from ir3de.files.streams import CODECS, STDIN, Source

_SUFFIXES = tuple(kind for kind in FORMATS if kind != STDIN)
_SPREADSHEETS = frozenset({".xlsx", ".xls", ".xlsm", ".ods", ".numbers"})
_NEVER_PACKED = frozenset({".parquet"})  # it is read out of order, and compresses its own columns


def expand(sources: Iterable[str | Path]) -> list[Source]:
    """List the files that the sources name, checking that each exists and can be read by its suffix."""
    if isinstance(sources, (str, Path)):  # a string would be an iterable of its letters
        sources = [sources]
    return [source for named in sources for source in _expand_one(str(named))]


def _expand_one(named: str) -> list[Source]:
    if named == STDIN:
        return [Source(None, STDIN)]
    if is_address(named):
        here = local_path(named)
        if here is None:
            found, what = files_at(named)
            return [_make_source(found[0])] if what == "the file" else _keep_supported(found, what)
        named = here
    path = Path(named)
    try:
        if path.is_dir():
            return _keep_supported(_walk_files(path), f"the folder {named}")
        if path.exists():
            return [_make_source(path)]
        if glob.has_magic(named):
            matches = map(Path, glob.iglob(named, recursive=True))  # noqa: PTH207  Path.glob takes no absolute one
            return _keep_supported([path for path in matches if path.is_file()], f"the pattern {named}")
    except OSError as error:
        raise InputError(f"{named}: cannot be read ({error.strerror}): check the name and the permissions") from error
    raise InputError(f"{named}: no such file or folder: {_suggest(path)}")


def _keep_supported(paths: Iterable[AnyPath], what: str) -> list[Source]:
    """Keep the files that can be read, sorted; raise if there are none."""
    found = sorted(paths, key=lambda path: path.as_posix())
    sources = [source for source in map(recognise, found) if source is not None]
    if not sources:
        names = ", ".join(path.name for path in found[:3]) + (", …" if len(found) > 3 else "")
        others = f"only {names}" if found else "nothing"
        raise InputError(f"{what} holds no file that can be read, found {others}: use {_list_suffixes()}")
    return sources


def _walk_files(folder: Path) -> Iterator[Path]:
    """Walk a folder without hidden files; links to folders are not followed, because they may loop."""

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _make_source(path: AnyPath) -> Source:
    source = recognise(path)
    if source is None:
        found = "".join(Path(path.name).suffixes[-2:]) or "no suffix"
        if Path(path.name).suffix.lower() in _SPREADSHEETS:
            raise InputError(f"{path}: spreadsheets are not read: save the sheet as CSV in UTF-8, and name that file")
        raise InputError(f"{path}: unknown format, found {found}: use {_list_suffixes()}")
    return source


def recognise(path: AnyPath) -> Source | None:
    """How a file is read, by its suffixes; None for one that cannot be read as texts."""
    name = path.name.lower()
    codec = next((suffix for suffix in CODECS if name.endswith(suffix)), "")
    kind = Path(name.removesuffix(codec)).suffix
    if kind not in _SUFFIXES or (codec and kind in _NEVER_PACKED):
        return None
    return Source(path, kind, codec)


def _list_suffixes() -> str:
    return f"{', '.join(_SUFFIXES)}, plain or (all but .parquet) with one of {', '.join(CODECS)} after it"


def _suggest(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either, check the path"
    close = difflib.get_close_matches(path.name, sorted(os.listdir(path.parent)))  # noqa: PTH208  names only
    return f"did you mean {' or '.join(close)}?" if close else "check the name"
