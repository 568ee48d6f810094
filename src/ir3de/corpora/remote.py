"""Files at addresses such as s3://bucket/folder/a.jsonl: which there are, and their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ir3de.errors import InputError, MissingExtraError
from ir3de.storage.remote import drop_cached_listings, get_scheme, hide_secrets, hide_user, open_arrow

MAX_REASON_CHARACTERS = 200  # of another library's message
_MAGIC = re.compile(r"[*\[]")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file that is not this machine's, by its path in a file system that an address names."""

    root: str = field(repr=False)  # the address, which may hold secrets: never shown
    path: str

    def __str__(self) -> str:
        return hide_user(f"{get_scheme(self.root)}://{self.path.lstrip('/')}", self.root)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def as_posix(self) -> str:
        return self.path

    def stat(self) -> tuple[int, float | None]:
        """Size, and the time of the last change where it is kept."""
        with _named_errors(str(self), self.root):
            system = open_arrow(self.root)[0]
            drop_cached_listings(system)
            info = system.get_file_info(self.path)
            if not info.is_file:
                raise FileNotFoundError("no such file")
            return info.size, None if info.mtime is None else info.mtime.timestamp()

    def open(self) -> Any:
        """A file of bytes, to be read from anywhere."""
        with _named_errors(str(self), self.root):
            return open_arrow(self.root)[0].open_input_file(self.path)


AnyPath = Path | Remote


def is_address(named: str) -> bool:
    """Whether a name is an address rather than a path of this machine."""
    return get_scheme(named) != ""


def local_path(named: str) -> str | None:
    """The path that a file:// address stands for; None for other addresses."""
    if get_scheme(named) != "file":
        return None
    return unquote(named[len("file://") :].removeprefix("localhost"))


def files_at(named: str) -> tuple[list[Remote], str]:
    """The files of an address, which may be one file, a folder or a pattern, and which of them it is."""
    address, mark, query = named.partition("?")
    shown = hide_secrets(named)
    magic = _MAGIC.search(address)
    root = address[: address.rindex("/", 0, magic.start())] + mark + query if magic else named
    with _named_errors(shown, named):
        system, path = open_arrow(root)
        from pyarrow.fs import FileSelector  # which `open_arrow` has found

        drop_cached_listings(system)
        kind = system.get_file_info(path).type.name
        if kind == "File" and not magic:
            return [Remote(root, path)], "the file"
        if kind != "Directory" and not magic:
            raise FileNotFoundError("no such file or folder")
        pattern = address[address.rindex("/", 0, magic.start()) + 1 :] if magic else "**"
        chosen, begin = re.compile(_glob_pattern(pattern)), len(path.rstrip("/")) + 1
        is_deep = pattern == "**" or "/" in pattern
        infos = system.get_file_info(FileSelector(path, recursive=is_deep)) if kind == "Directory" else []
        names = (info.path for info in infos if info.is_file)
        found = [
            Remote(root, name) for name in names if chosen.fullmatch(name[begin:]) and "/." not in name[begin - 1 :]
        ]
        return found, f"the {'pattern' if magic else 'folder'} {shown}"


def _glob_pattern(pattern: str) -> str:
    """A pattern of file names as a regular expression: * and [abc] within a name, ** across folders."""
    parts = re.split(r"(\*\*/|\*+|\[[^\]]+\])", pattern)
    meant = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return "".join(
        meant.get(part) or (part.replace("[!", "[^") if part.startswith("[") else re.escape(part)) for part in parts
    )


@contextmanager
def _named_errors(name: str, address: str) -> Iterator[None]:
    """Turn the errors of other libraries into an `InputError` that names the file."""
    try:
        yield
    except MissingExtraError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:  # pyarrow's own errors are of these
        reason = (
            getattr(error, "strerror", None)
            or hide_secrets(str(error), address).partition("\n")[0][:MAX_REASON_CHARACTERS]
        )
        raise InputError(
            f"{name}: cannot be read ({reason}): check the address, and that what gives access to it is set"
        ) from error
