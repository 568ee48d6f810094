"""Compressed bytes: how each compression is undone, and what is said of broken data."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ir3de.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Compressed bytes handed over at once. Small, because all they decompress to is held in memory: text grows
# threefold to tenfold, a run of equal bytes far more.
_PIECE_BYTES = 1 << 14
_LIMITED_PIECE_BYTES = 1 << 10  # where there is a limit: a piece must not expand to far more than that


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


class DecompressingReader(io.RawIOBase):
    """The bytes inside a compressed stream of one or more members; truncated or corrupt data raise.

    Data that expand to more than `max_bytes` raise, too.
    """

    def __init__(
        self, packed: io.BufferedReader, codec: Codec, name: str, suffix: str, *, max_bytes: int | None = None
    ) -> None:
        self._packed, self._codec, self._name, self._suffix = packed, codec, name, suffix
        self._max_bytes, self._expanded_bytes = max_bytes, 0
        self._piece_bytes = _PIECE_BYTES if max_bytes is None else _LIMITED_PIECE_BYTES
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
