"""The bytes of one source: opened, decompressed, counted, and decoded with errors that name the place."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ir3de.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = "-"

_BUFFER = 1 << 20  # large reads keep the cost of a line low, and set how often `on_bytes` is called
# Compressed bytes handed over at once. Small, because all they decompress to is held in memory: text grows
# threefold to tenfold, a run of equal bytes far more.
_PIECE = 1 << 14
_SCAN = 1 << 13  # bytes looked through at a time for the end of a line
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader may be asked for besides the rows themselves."""

    whole_files: bool = False
    columns: Callable[[list[str]], list[str]] | None = None  # those needed, for formats that can skip others
    on_bytes: Callable[[int], None] | None = None
    on_damage: Callable[[InputError], None] | None = None  # hears of broken records, which are then passed over

    def damaged(self, error: InputError) -> None:
        """A record is broken: it is told of and passed over, or the end of reading."""
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

    path: Path | None  # None for standard input
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
        try:
            found = self.path.stat()
        except OSError as error:
            raise _unreadable(self.name, error) from error
        return State(found.st_size, found.st_mtime)

    def open(self, on_bytes: Callable[[int], None] | None = None) -> io.BufferedReader:
        """Open the decompressed bytes, telling `on_bytes` of the bytes on disk."""
        codec = CODECS[self.codec]() if self.codec else None  # a missing package is said before opening
        raw = _counted_stdin(on_bytes) if self.path is None else _counted_file(self, on_bytes)
        stream: io.BufferedReader = io.BufferedReader(raw, _BUFFER)
        if codec is not None:
            stream = io.BufferedReader(_Decompressed(stream, codec, self), _BUFFER)
        return stream


class Decompressor(Protocol):
    """What the decompressors of every compression module have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Codec:
    """How one compression is undone, and the error that says the data are broken."""

    new: Callable[[], Decompressor]
    error: type[Exception]


def _zstd() -> Codec:
    # Corpora are often packed with `zstd --long=31`, which needs a window above the default limit.
    try:
        from compression import zstd  # Python 3.14 and later
    except ImportError:
        return _zstandard()
    options = {zstd.DecompressionParameter.window_log_max: 31}
    return Codec(lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)


def _zstandard() -> Codec:
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("zstandard", "zstd", "Reading a .zst file") from None
    # Its `stream_reader` takes a truncated file for a complete one; the object below tells them apart.
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    return Codec(lambda: unpacker.decompressobj(), zstandard.ZstdError)


CODECS: dict[str, Callable[[], Codec]] = {
    ".gz": lambda: Codec(lambda: zlib.decompressobj(wbits=31), zlib.error),  # 31: a gzip header, checksummed
    ".bz2": lambda: Codec(bz2.BZ2Decompressor, OSError),
    ".xz": lambda: Codec(lzma.LZMADecompressor, lzma.LZMAError),
    ".zst": _zstd,
}


class _Counted(io.RawIOBase):
    """Raw bytes whose every read is told to `on_bytes`."""

    def __init__(
        self,
        read_into: Callable[[WriteableBuffer], int | None],
        close: Callable[[], None],
        on_bytes: Callable[[int], None] | None,
    ) -> None:
        self._read_into, self._close, self._on_bytes = read_into, close, on_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = self._read_into(buffer) or 0
        if count and self._on_bytes is not None:
            self._on_bytes(count)
        return count

    def close(self) -> None:
        if not self.closed:
            self._close()
        super().close()


class _Decompressed(io.RawIOBase):
    """The bytes inside a compressed stream of one or more members; truncated or corrupt data raise."""

    def __init__(self, packed: io.BufferedReader, codec: Codec, source: Source) -> None:
        self._packed, self._codec, self._source = packed, codec, source
        self._decompressor: Decompressor | None = codec.new()  # None between members
        self._unused = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        try:
            while not self._ready and self._refill():
                pass
        except (self._codec.error, EOFError) as error:
            raise InputError(
                f"{self._source.name}: the {self._source.codec} data are truncated or corrupt ({error}): "
                "download the file, or compress it, again"
            ) from error
        target = memoryview(buffer)
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _refill(self) -> bool:
        """Decompress one more piece; False at the end of the file."""
        piece, self._unused = self._unused or self._packed.read(_PIECE), b""
        if not piece:
            if self._decompressor is not None:
                raise EOFError("the file ends too early")
            return False
        if self._decompressor is None:
            piece = piece.lstrip(b"\0")  # members may be padded with zeros, and no member begins with one
            if not piece:
                return True
            self._decompressor = self._codec.new()
        self._ready = memoryview(self._decompressor.decompress(piece))
        if self._decompressor.eof:
            self._unused, self._decompressor = self._decompressor.unused_data, None
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()


def _counted_file(source: Source, on_bytes: Callable[[int], None] | None) -> _Counted:
    assert source.path is not None
    try:
        file = source.path.open("rb", buffering=0)
    except OSError as error:
        raise _unreadable(source.name, error) from error
    if source.begin == 0 and source.end is None:
        return _Counted(file.readinto, file.close, on_bytes)
    try:
        return _Counted(_whole_lines(file, source.begin, source.end), file.close, on_bytes)
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
        piece = file.read(_SCAN)
        if not piece:
            break
        found = piece.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += len(piece)
    return position


def _unreadable(name: str, error: OSError) -> InputError:
    return InputError(
        f"{name}: cannot be read ({error.strerror or error}): check that the file is there and may be read"
    )


def _counted_stdin(on_bytes: Callable[[int], None] | None) -> _Counted:
    stdin = getattr(sys.stdin, "buffer", None)
    if stdin is None:
        raise InputError("standard input was asked for with '-', but there is none: name a file instead")
    # `readinto1` hands over what has arrived, so that a line typed or piped is seen at once.
    return _Counted(stdin.readinto1, lambda: None, on_bytes)


def lines_of(stream: io.BufferedReader, source: Source) -> Iterator[bytes]:
    """Iterate over the lines with their ends, split at `\\n` only, without the byte-order mark."""
    return iter(stream) if source.begin else chain([stream.readline().removeprefix(_BOM)], stream)


def decoded(raw: bytes, source: Source, *, first_line: int = 1) -> str:
    """Decode UTF-8, or say on which line the first wrong byte stands."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = first_line + raw.count(b"\n", 0, error.start)
        raise InputError(
            f"{source.place(line)}: not valid UTF-8 (found the byte 0x{raw[error.start]:02x}): "
            "convert the file to UTF-8, for instance with iconv"
        ) from None
