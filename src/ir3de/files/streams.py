"""The bytes of a file or a stretch of it: opened, decompressed, counted, decoded with errors that name the place."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.files.remote import Remote

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STDIN = "-"
OnBytes = Callable[[int], None] | None

_BUFFER_BYTES = 1 << 20  # large reads keep the cost of a line low, and set how often `on_bytes` is called
_SCAN_BYTES = 1 << 13  # searched at a time for the end of a line
# Compressed bytes decompressed at once. Small, because the result is held in memory: text grows threefold to tenfold,
# a run of equal bytes far more. With a limit they are fewer: a piece must not expand to far more than the limit.
_PACKED_BYTES = 1 << 14
_LIMITED_PACKED_BYTES = 1 << 10
_GZIP_WINDOW = 31  # zlib's code for a window of 32 kB with gzip's header and checksum
MAX_UNPACKED_BYTES = 500_000_000  # of `unpack_gzip`: the definitions of the largest tokenizers have about 40 MB
_BOM = b"\xef\xbb\xbf"
_OTHER_FILES = {  # by their first bytes; UTF-32 comes before UTF-16, which begins alike
    b"PK\x03\x04": "a ZIP archive, as spreadsheets are, not text: save the sheet as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet, not text: save the sheet as CSV in UTF-8",
    b"\xff\xfe\x00\x00": "UTF-32: save it as UTF-8, or convert it with `iconv -f UTF-32 -t UTF-8`",
    b"\xff\xfe": "UTF-16: save it as UTF-8, or convert it with `iconv -f UTF-16 -t UTF-8`",
    b"\xfe\xff": "UTF-16: save it as UTF-8, or convert it with `iconv -f UTF-16 -t UTF-8`",
}

_max_expanded_bytes: ContextVar[int | None] = ContextVar("max_expanded_bytes", default=None)


@contextmanager
def limit_expansion(max_bytes: int) -> Iterator[None]:
    """Reject compressed files that expand to more bytes than that: for files from untrusted people."""
    before = _max_expanded_bytes.set(max_bytes)
    try:
        yield
    finally:
        _max_expanded_bytes.reset(before)


def unpack_gzip(packed: bytes, name: str) -> bytes:
    """Decompress bytes that may come from anyone, up to a limit; `name` is for messages."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = stream.decompress(packed, MAX_UNPACKED_BYTES + 1)  # takes memory only as it needs it
    except zlib.error as error:
        raise ArtifactError(f"{name} is damaged: {error}. Copy it again from where it came from") from error
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise ArtifactError(
            f"{name} unpacks to more than {MAX_UNPACKED_BYTES:,} bytes, which no tokenizer needs: do not use it"
        )
    if not stream.eof:
        raise ArtifactError(f"{name} is damaged: it ends too early. Copy it again from where it came from")
    return unpacked


class Decompressor(Protocol):
    """What the decompressors of every compression module have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Codec:
    """How one compression is undone, and the error that broken data raise."""

    new: Callable[[], Decompressor]
    error: type[Exception]


def _zstd() -> Codec:
    # Corpora are often packed with `zstd --long=31`, which needs a window above the default limit.
    try:
        from compression import zstd  # Python 3.14 and later
    except ImportError:
        pass
    else:
        options = {zstd.DecompressionParameter.window_log_max: 31}
        return Codec(lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError)
    try:
        import zstandard
    except ImportError:
        raise MissingExtraError("zstandard", "zstd", "Reading a .zst file") from None
    # Its `stream_reader` takes a truncated file for a complete one; `decompressobj` does not.
    unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    return Codec(lambda: unpacker.decompressobj(), zstandard.ZstdError)


CODECS: dict[str, Callable[[], Codec]] = {
    ".gz": lambda: Codec(lambda: zlib.decompressobj(wbits=_GZIP_WINDOW), zlib.error),
    ".bz2": lambda: Codec(bz2.BZ2Decompressor, OSError),
    ".xz": lambda: Codec(lzma.LZMADecompressor, lzma.LZMAError),
    ".zst": _zstd,
}


class DecompressingReader(io.RawIOBase):
    """The bytes inside a compressed stream of one or more members; truncated or corrupt data raise.

    Data that expand to more than the limit of `limit_expansion` raise, too.
    """

    def __init__(self, packed: io.BufferedReader, codec: Codec, name: str, suffix: str) -> None:
        self._packed, self._codec, self._name, self._suffix = packed, codec, name, suffix
        self._max_bytes, self._expanded_bytes = _max_expanded_bytes.get(), 0
        self._piece_bytes = _PACKED_BYTES if self._max_bytes is None else _LIMITED_PACKED_BYTES
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
                f"{self._name}: the {self._suffix} data are truncated or corrupt ({error}): "
                "download the file, or compress it, again"
            ) from error
        target = memoryview(buffer)
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _refill(self) -> bool:
        """Decompress one more piece; False at the end of the file."""
        piece, self._unused = self._unused or self._packed.read(self._piece_bytes), b""
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
        self._expanded_bytes += len(self._ready)
        if self._max_bytes is not None and self._expanded_bytes > self._max_bytes:
            raise InputError(
                f"{self._name}: expands to more than {self._max_bytes / 1e6:,.6g} MB, which is the limit here: "
                "split it into several files"
            )
        if self._decompressor.eof:
            self._unused, self._decompressor = self._decompressor.unused_data, None
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader does besides giving rows."""

    whole_files: bool = False
    columns: Callable[[list[str]], list[str]] | None = None  # those needed, for formats that can skip others
    on_bytes: OnBytes = None
    on_damage: Callable[[InputError], None] | None = None  # is called for broken records, which are then skipped

    def report_damage(self, error: InputError) -> None:
        """Pass a broken record to `on_damage`, or raise its error if there is no `on_damage`."""
        if self.on_damage is None:
            raise error
        self.on_damage(error)


@dataclass(frozen=True, slots=True)
class State:
    """Distinguishes one content of a file from another without reading it."""

    size: int
    modified: float | None  # None where the file system does not record it


@dataclass(frozen=True, slots=True)
class Source:
    """One file, a stretch of one, or standard input, with the suffixes that determine how it is read.

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
        """The name of a line in messages; those of a stretch are counted from where it begins."""
        return f"{self.name}, after byte {self.begin:,}, line {line:,}" if self.begin else f"{self.name}:{line}"

    def state(self) -> State:
        """Size and time of the last change; neither is known of standard input."""
        if self.path is None:
            return State(0, None)
        if isinstance(self.path, Remote):
            return State(*self.path.stat())
        try:
            found = self.path.stat()
        except OSError as error:
            raise _read_error(self.name, error) from error
        return State(found.st_size, found.st_mtime)

    def open(self, on_bytes: OnBytes = None) -> io.BufferedReader:
        """Open the decompressed bytes; `on_bytes` is called with the number of bytes read from disk."""
        codec = CODECS[self.codec]() if self.codec else None  # a missing package is reported before opening
        raw = _open_stdin(on_bytes) if self.path is None else _open_file(self, on_bytes)
        stream: io.BufferedReader = io.BufferedReader(raw, _BUFFER_BYTES)
        if codec is not None:
            stream = io.BufferedReader(DecompressingReader(stream, codec, self.name, self.codec), _BUFFER_BYTES)
        return stream


class _CountingReader(io.RawIOBase):
    """Raw bytes; `on_bytes` is called at every read."""

    def __init__(
        self,
        read_into: Callable[[WriteableBuffer], int | None],
        close: Callable[[], None],
        on_bytes: OnBytes,
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


def _open_file(source: Source, on_bytes: OnBytes) -> _CountingReader:
    assert source.path is not None
    try:
        file = source.path.open() if isinstance(source.path, Remote) else source.path.open("rb", buffering=0)
    except OSError as error:
        raise _read_error(source.name, error) from error
    try:
        is_whole = source.begin == 0 and source.end is None
        read_into = file.readinto if is_whole else _read_whole_lines(file, source.begin, source.end)
    except BaseException:
        file.close()
        raise
    return _CountingReader(read_into, file.close, on_bytes, source.name)


def _read_whole_lines(file: io.RawIOBase, begin: int, end: int | None) -> Callable[[WriteableBuffer], int | None]:
    """A `readinto` that gives the lines whose first byte lies in a stretch, and nothing else."""
    first = _find_line(file, begin, end)
    last = None if end is None else first if first >= end else _find_line(file, end)
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


def _find_line(file: io.RawIOBase, offset: int, end: int | None = None) -> int:
    """Where the first line that begins at `offset` or later begins; not exact from `end` on."""
    if offset == 0:
        return 0
    position = offset - 1  # a line begins after a line end, which may be the byte before
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


def _open_stdin(on_bytes: OnBytes) -> _CountingReader:
    stdin = getattr(sys.stdin, "buffer", None)
    if stdin is None:
        raise InputError("'-' stands for standard input, but there is none: name a file instead")
    # `readinto1` returns what has arrived, so that a line typed or piped is seen at once.
    return _CountingReader(stdin.readinto1, lambda: None, on_bytes, "<stdin>")


def lines_of(stream: io.BufferedReader, source: Source) -> Iterator[bytes]:
    """Iterate over the lines with their ends, split at `\\n` only, without the byte-order mark."""
    return iter(stream) if source.begin else chain([stream.readline().removeprefix(_BOM)], stream)


def decode_utf8(raw: bytes, source: Source, *, first_line: int = 1) -> str:
    """Decode UTF-8, or raise an error that names the line of the first wrong byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        refuse_other_file(raw if first_line == 1 and not source.begin else b"", source.name)
        line = first_line + raw.count(b"\n", 0, error.start)
        raise utf8_error(source.place(line), raw[error.start]) from None


def refuse_other_file(head: bytes, name: str) -> None:
    """Reject what begins as a spreadsheet or as text in another encoding does, by its name."""
    for mark, kind in _OTHER_FILES.items():
        if head.startswith(mark):
            raise InputError(f"{name}: this is {kind}")


def utf8_error(place: str, byte: int) -> InputError:
    return InputError(
        f"{place}: not valid UTF-8 (found the byte 0x{byte:02x}): convert the file to UTF-8, for instance with "
        "`iconv -f CP1252 -t UTF-8` if it comes from Windows"
    )
