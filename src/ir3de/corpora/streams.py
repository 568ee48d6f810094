"""The bytes of one source or a stretch of it: opened, counted, and decoded with errors that name the place."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ir3de.corpora.packing import CODECS, DecompressingReader
from ir3de.corpora.remote import Remote
from ir3de.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = "-"

_BUFFER_BYTES = 1 << 20  # large reads keep the cost of a line low, and set how often `on_bytes` is called
_SCAN_BYTES = 1 << 13  # bytes looked through at a time for the end of a line
_BOM = b"\xef\xbb\xbf"
_OTHER_FILES = {  # by their first bytes; UTF-32 comes before UTF-16, which begins alike
    b"PK\x03\x04": "no text but a ZIP archive, as spreadsheets are: save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "no text but an old spreadsheet: save the sheet as CSV in UTF-8",
    b"\xff\xfe\x00\x00": "UTF-32: save it as UTF-8, or convert it with `iconv -f UTF-32 -t UTF-8`",
    b"\xff\xfe": "UTF-16: save it as UTF-8, or convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "UTF-16: save it as UTF-8, or convert it with `iconv -f UTF-16 -t UTF-8`",
}

_max_expanded_bytes: ContextVar[int | None] = ContextVar("max_expanded_bytes", default=None)


@contextmanager
def limit_expansion(max_bytes: int) -> Iterator[None]:
    """Refuse compressed files that expand to more bytes than that: for files of people who are not trusted."""
    before = _max_expanded_bytes.set(max_bytes)
    try:
        yield
    finally:
        _max_expanded_bytes.reset(before)


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader may be asked for besides the rows themselves."""

    whole_files: bool = False
    columns: Callable[[list[str]], list[str]] | None = None  # those needed, for formats that can skip others
    on_bytes: Callable[[int], None] | None = None
    on_damage: Callable[[InputError], None] | None = None  # is called for broken records, which are then skipped

    def report_damage(self, error: InputError) -> None:
        """Pass a broken record to `on_damage`, or raise its error if there is no `on_damage`."""
        if self.on_damage is None:
            raise error
        self.on_damage(error)


@dataclass(frozen=True, slots=True)
class State:
    """What tells one content of a file from another without reading it."""

    size: int
    modified: float | None  # None where nobody keeps it


@dataclass(frozen=True, slots=True)
class Source:
    """One file, a stretch of one, or standard input, with the suffixes that say how to read it.

    A stretch is bytes `begin` to `end` of a file of lines, and has the lines whose first byte lies there; of a Parquet
    file it is row groups. `end` is None for all the rest.
    """

    path: Path | Remote | None  # None for standard input
    kind: str
    codec: str = ""
    begin: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        return "<stdin>" if self.path is None else str(self.path)

    def place(self, line: int) -> str:
        """Where a line stands; those of a stretch are counted from where it begins."""
        return f"{self.name}, after byte {self.begin:,}, line {line:,}" if self.begin else f"{self.name}:{line}"

    def state(self) -> State:
        """Size and time of the last change; of standard input nothing is known."""
        if self.path is None:
            return State(0, None)
        if isinstance(self.path, Remote):
            return State(*self.path.stat())
        try:
            found = self.path.stat()
        except OSError as error:
            raise _read_error(self.name, error) from error
        return State(found.st_size, found.st_mtime)

    def open(self, on_bytes: Callable[[int], None] | None = None) -> io.BufferedReader:
        """Open the decompressed bytes, telling `on_bytes` of the bytes on disk."""
        codec = CODECS[self.codec]() if self.codec else None  # a missing package is said before opening
        raw = _open_stdin(on_bytes) if self.path is None else _open_file(self, on_bytes)
        stream: io.BufferedReader = io.BufferedReader(raw, _BUFFER_BYTES)
        if codec is not None:
            reader = DecompressingReader(stream, codec, self.name, self.codec, max_bytes=_max_expanded_bytes.get())
            stream = io.BufferedReader(reader, _BUFFER_BYTES)
        return stream


class _CountingReader(io.RawIOBase):
    """Raw bytes whose every read is told to `on_bytes`."""

    def __init__(
        self,
        read_into: Callable[[WriteableBuffer], int | None],
        close: Callable[[], None],
        on_bytes: Callable[[int], None] | None,
        name: str,
    ) -> None:
        self._read_into, self._close, self._on_bytes, self._name = read_into, close, on_bytes, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        try:
            count = self._read_into(buffer) or 0
        except OSError as error:
            raise _read_error(self._name, error) from error
        if count and self._on_bytes is not None:
            self._on_bytes(count)
        return count

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


def _open_file(source: Source, on_bytes: Callable[[int], None] | None) -> _CountingReader:
    assert source.path is not None
    try:
        file = source.path.open() if isinstance(source.path, Remote) else source.path.open("rb", buffering=0)
    except OSError as error:
        raise _read_error(source.name, error) from error
    if source.begin == 0 and source.end is None:
        return _CountingReader(file.readinto, file.close, on_bytes, source.name)
    try:
        return _CountingReader(_whole_lines(file, source.begin, source.end), file.close, on_bytes, source.name)
    except BaseException:
        file.close()
        raise


def _whole_lines(file: io.RawIOBase, begin: int, end: int | None) -> Callable[[WriteableBuffer], int | None]:
    """Read the lines whose first byte lies in a stretch, and nothing else."""
    first = _line_from(file, begin, end)
    last = None if end is None else first if first >= end else _line_from(file, end)
    file.seek(first)
    left = None if last is None else last - first

    def read_into(buffer: WriteableBuffer) -> int | None:
        nonlocal left
        if left is None:
            return file.readinto(buffer)
        count = file.readinto(memoryview(buffer)[:left]) or 0
        left -= count
        return count

    return read_into


def _line_from(file: io.RawIOBase, offset: int, end: int | None = None) -> int:
    """Where the first line that begins at `offset` or later begins; nobody asks exactly from `end` on."""
    if offset == 0:
        return 0
    position = offset - 1  # a line begins after a line end, and that may be the byte before
    file.seek(position)
    while end is None or position < end:
        piece = file.read(_SCAN_BYTES)
        if not piece:
            break
        found = piece.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(piece)
    return position


def _read_error(name: str, error: OSError) -> InputError:
    return InputError(
        f"{name}: cannot be read ({error.strerror or error}): check that the file is there and may be read"
    )


def _open_stdin(on_bytes: Callable[[int], None] | None) -> _CountingReader:
    stdin = getattr(sys.stdin, "buffer", None)
    if stdin is None:
        raise InputError("standard input was asked for with '-', but there is none: name a file instead")
    # `readinto1` hands over what has arrived, so that a line typed or piped is seen at once.
    return _CountingReader(stdin.readinto1, lambda: None, on_bytes, "<stdin>")


def lines_of(stream: io.BufferedReader, source: Source) -> Iterator[bytes]:
    """Iterate over the lines with their ends, split at `\\n` only, without the byte-order mark."""
    return iter(stream) if source.begin else chain([stream.readline().removeprefix(_BOM)], stream)


def decode_utf8(raw: bytes, source: Source, *, first_line: int = 1) -> str:
    """Decode UTF-8, or say on which line the first wrong byte stands."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        refuse_other_file(raw if first_line == 1 and not source.begin else b"", source.name)
        line = first_line + raw.count(b"\n", 0, error.start)
        raise utf8_error(source.place(line), raw[error.start]) from None


def refuse_other_file(head: bytes, name: str) -> None:
    """Refuse what begins as a spreadsheet or as text in another encoding does, by its name."""
    for mark, kind in _OTHER_FILES.items():
        if head.startswith(mark):
            raise InputError(f"{name}: this is {kind}")


def utf8_error(place: str, byte: int) -> InputError:
    return InputError(
        f"{place}: not valid UTF-8 (found the byte 0x{byte:02x}): convert the file to UTF-8, for instance with "
        "`iconv -f CP1252 -t UTF-8` if it comes from Windows"
    )
