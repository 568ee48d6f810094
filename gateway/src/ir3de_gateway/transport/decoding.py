"""Decompresses answers. The gateway requests uncompressed ones, but some servers compress all the same.

A decoder returns at most `MAX_STEP_BYTES` at a time, so that a small answer cannot become a large one at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ir3de_gateway.transport import ConnectionClosedError, InvalidResponseError

MAX_STEP_BYTES = 1 << 20
_SMALL_STEP_BYTES = 64  # of input, for a decoder whose output cannot be limited: a frame of 4 bytes may hold 128 kB
_PACKAGES = {"br": "brotli>=1.2", "zstd": "zstandard"}


class EncodingError(InvalidResponseError):
    """An answer in an encoding that cannot be decoded here; the message is for the client."""


class Decoder:
    """Decodes streams of members, each with an end: gzip's members, zstandard's frames.

    `create` makes the decoder of one member, with the interface of `zlib.decompressobj` or `compression.zstd`.
    """

    def __init__(self, create: Callable[[], Any], error: type[Exception]) -> None:
        self._create, self._error = create, error
        self._member, self._rest = create(), b""
        self._has_begun = False

    @property
    def has_more(self) -> bool:
        """Whether `decode(b"")` would return more."""
        return bool(self._rest) or not getattr(self._member, "needs_input", True)

    def decode(self, data: bytes) -> bytes:
        """The content of compressed bytes."""
        data, self._rest = self._rest + data, b""
        if self._member.eof:
            data = data.lstrip(b"\0")  # padding between members
            if not data:
                return b""
            self._member = self._create()
        self._has_begun = self._has_begun or bool(data)
        try:
            content: bytes = self._member.decompress(data, MAX_STEP_BYTES)
        except self._error as error:
            raise InvalidResponseError(str(error)) from error
        self._rest = self._member.unused_data if self._member.eof else getattr(self._member, "unconsumed_tail", b"")
        return content

    def check_complete(self) -> None:
        """Raise `ConnectionClosedError` if the content cannot end here."""
        if self._has_begun and not self._member.eof:
            raise ConnectionClosedError("the compressed answer is incomplete")


class _Deflate(Decoder):
    """ "deflate" means zlib's format; some servers send the bare one."""

    def __init__(self) -> None:
        super().__init__(zlib.decompressobj, zlib.error)

    def decode(self, data: bytes) -> bytes:
        if not self._has_begun and data and data[0] & 0x0F != 8:
            self._member = zlib.decompressobj(-15)
        return super().decode(data)


class _BrotliMember:
    """Brotli, with the package `brotli` from 1.2 on, which can limit its output."""

    unused_data = b""

    def __init__(self) -> None:
        self._inner = import_module("brotli").Decompressor()
        self.unconsumed_tail, self.needs_input = b"", True
        if not hasattr(self._inner, "can_accept_more_data"):
            raise ImportError("brotli is older than 1.2")

    @property
    def eof(self) -> bool:
        return bool(self._inner.is_finished())

    def decompress(self, data: bytes, limit: int) -> bytes:
        self.unconsumed_tail = b"" if self._inner.can_accept_more_data() else data
        content: bytes = self._inner.process(b"" if self.unconsumed_tail else data, output_buffer_limit=limit)
        self.needs_input = self._inner.can_accept_more_data() and len(content) < limit
        return content


class _ZstandardMember:
    """The package `zstandard`, which cannot limit its output: it gets little input at a time."""

    def __init__(self) -> None:
        self._inner = import_module("zstandard").ZstdDecompressor().decompressobj()
        self.eof, self.unused_data, self.unconsumed_tail = False, b"", b""

    def decompress(self, data: bytes, limit: int) -> bytes:
        pieces, size = [], 0
        while data and size < limit and not self._inner.eof:
            step, data = data[:_SMALL_STEP_BYTES], data[_SMALL_STEP_BYTES:]
            pieces.append(self._inner.decompress(step))
            size += len(pieces[-1])
        self.eof, self.unconsumed_tail = self._inner.eof, data
        self.unused_data = self._inner.unused_data + data if self.eof else b""
        return b"".join(pieces)


def _create_zstd() -> Decoder:
    for name in ("compression.zstd", "backports.zstd"):  # the former comes with Python 3.14
        try:
            module = import_module(name)
        except ImportError:
            continue
        return Decoder(module.ZstdDecompressor, module.ZstdError)
    return Decoder(_ZstandardMember, import_module("zstandard").ZstdError)


def _create_gzip() -> Decoder:
    return Decoder(lambda: zlib.decompressobj(31), zlib.error)


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": _create_gzip,
    "x-gzip": _create_gzip,
    "deflate": _Deflate,
    "br": lambda: Decoder(_BrotliMember, import_module("brotli").error),
    "zstd": _create_zstd,
}


def create_decoder(encoding: str) -> Decoder | None:
    """The decoder of a content-encoding; None for identity."""
    if encoding in ("", "identity"):
        return None
    if encoding not in _DECODERS:
        raise EncodingError(f"in the unknown encoding {encoding[:50]!r}, though none was requested")
    try:
        return _DECODERS[encoding]()
    except ImportError:
        hint = f"to decode it: pip install '{_PACKAGES[encoding]}'"
        raise EncodingError(f"in the encoding {encoding}, though none was requested; {hint}") from None
