"""Files at addresses such as s3://bucket/folder/a.jsonl, by pyarrow or, for what it does not know, by fsspec."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ir3de.errors import InputError, MissingExtraError

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: one is a drive
_SECRETS = re.compile(r"//[^/@]*@|\?.*")  # a name and a password before the host, options after the path
_REASON = 200  # characters of what others say is wrong
_MAGIC = re.compile(r"[*\[]")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that is not this machine's, by its path in a file system that an address names."""

    root: str = field(repr=False)  # the address, which may hold secrets: never shown
    path: str

    def __str__(self) -> str:
        return f"{_scheme(self.root)}://{self.path.lstrip('/')}"

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def as_posix(self) -> str:
        return self.path

    def stat(self) -> tuple[int, float | None]:
        """Size, and the time of the last change where it is kept."""
        with _said(str(self)):
            system = _file_system(self.root)[0]
            _forget_listings(system)
            info = system.get_file_info(self.path)
            if not info.is_file:
                raise FileNotFoundError("no such file")
            return info.size, None if info.mtime is None else info.mtime.timestamp()

    def open(self) -> Any:
        """A file of bytes, to be read from anywhere."""
        with _said(str(self)):
            return _file_system(self.root)[0].open_input_file(self.path)


AnyPath = Path | Remote


def is_address(named: str) -> bool:
    """Whether a name is an address rather than a path of this machine."""
    return _ADDRESS.match(named) is not None


def local_path(named: str) -> str | None:
    """The path that a file:// address stands for; None for other addresses."""
    if _scheme(named) != "file":
        return None
    return unquote(named[len("file://") :].removeprefix("localhost"))


def files_at(named: str) -> tuple[list[Remote], str]:
    """The files of an address, which may be one file, a folder or a pattern, and which of them it is."""
    address, mark, query = named.partition("?")
    shown = _SECRETS.sub(lambda found: "//" if found[0].startswith("//") else "", named)
    magic = _MAGIC.search(address)
    root = address[: address.rindex("/", 0, magic.start())] + mark + query if magic else named
    with _said(shown):
        system, path = _file_system(root)
        _forget_listings(system)
        kind = system.get_file_info(path).type.name
        if kind == "File" and not magic:
            return [Remote(root, path)], "the file"
        if kind != "Directory" and not magic:
            raise FileNotFoundError("no such file or folder")
        pattern = address[address.rindex("/", 0, magic.start()) + 1 :] if magic else "**"
        chosen, begin = re.compile(_glob_pattern(pattern)), len(path.rstrip("/")) + 1
        names = _below(system, path, deep=pattern == "**" or "/" in pattern) if kind == "Directory" else []
        found = [
            Remote(root, name) for name in names if chosen.fullmatch(name[begin:]) and "/." not in name[begin - 1 :]
        ]
        return found, f"the {'pattern' if magic else 'folder'} {shown}"


def _below(system: Any, path: str, *, deep: bool) -> Iterator[str]:
    from pyarrow.fs import FileSelector

    return (info.path for info in system.get_file_info(FileSelector(path, recursive=deep)) if info.is_file)


def _glob_pattern(pattern: str) -> str:
    """A pattern of file names as a regular expression: * and [abc] within a name, ** across folders."""
    parts = re.split(r"(\*\*/|\*+|\[[^\]]+\])", pattern)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return "".join(
        meant.get(part) or (part.replace("[!", "[^") if part.startswith("[") else re.escape(part)) for part in parts
    )


def _scheme(address: str) -> str:
    found = _ADDRESS.match(address)
    return found[1].lower() if found else ""


@lru_cache(maxsize=64)
def _file_system(root: str) -> tuple[Any, str]:
    """The file system of an address, and the address's path in it."""
    try:
        import pyarrow
        from pyarrow import fs
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", f"Reading from {_scheme(root)}://") from None
    try:
        return fs.FileSystem.from_uri(root)  # type: ignore[no-any-return]
    except pyarrow.ArrowInvalid as error:
        unknown = error
    try:
        import fsspec

        system, path = fsspec.core.url_to_fs(root)
    except (ImportError, ValueError) as error:
        raise InputError(f"neither pyarrow ({unknown}) nor fsspec ({error}) can") from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), path


def _forget_listings(system: Any) -> None:
    """What is cached of a file system may be out of date, and files that change are to be found out."""
    handler = getattr(system, "handler", None)
    if handler is not None:
        handler.fs.invalidate_cache()


@contextmanager
def _said(name: str) -> Iterator[None]:
    """Whatever goes wrong is said of that file, in our words."""
    try:
        yield
    except MissingExtraError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are of these
        reason = getattr(error, "strerror", None) or _SECRETS.sub("", str(error)).partition("\n")[0][:_REASON]
        raise InputError(
            f"{name}: cannot be read ({reason}): check the address, and that what gives access to it is set"
        ) from error
