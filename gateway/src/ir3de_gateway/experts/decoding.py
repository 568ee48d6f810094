"""Decompresses answers. The gateway asks for none that are compressed, but some servers compress all the same.

Each decoder gives at most `MAX_STEP_BYTES` at a time, so that a small answer cannot become a large one at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from ir3de_gateway.experts.transport import ConnectionClosedError, InvalidResponseError

MAX_STEP_BYTES = 1 << 20
_SMALL_STEP_BYTES = 64  # of input, for a decoder whose output cannot be limited: a frame of 4 bytes may hold 128 kB


class Decoder(Protocol):
    """Takes compressed bytes and gives content."""

    @property
    def has_more(self) -> bool:
        """Whether `decode(b"")` would give more of what it has."""

    @property
    def is_complete(self) -> bool:
        """Whether the content may end here."""

    def decode(self, data: bytes) -> bytes: ...


class MemberDecoder:
    """Streams that consist of members, each with an end: gzip's, zstandard's frames.

    `create` makes what decodes one member: an object of `zlib` or `compression.zstd`.
    """

    def __init__(self, create: Callable[[], Any], errors: type[Exception]) -> None:
        self._create, self._errors = create, errors
        self._member, self._rest = create(), b""
        self._has_begun = False

    @property
    def has_more(self) -> bool:
        return bool(self._rest) or not getattr(self._member, "needs_input", True)

    @property
    def is_complete(self) -> bool:
        return bool(self._member.eof) or not self._has_begun

    def decode(self, data: bytes) -> bytes:
        data, self._rest = self._rest + data, b""
        if self._member.eof:
            data = data.lstrip(b"\\0")  # padding between members
            if not data:
                return b""
            self._member = self._create()
        self._has_begun = self._has_begun or bool(data)
        try:
            content: bytes = self._member.decompress(data, MAX_STEP_BYTES)
        except self._errors as error:
            raise InvalidResponseError(str(error)) from error
        self._rest = self._member.unused_data if self._member.eof else getattr(self._member, "unconsumed_tail", b"")
        return content


class SmallStepDecoder(MemberDecoder):
    """The same for decoders that cannot limit their output: they get little at a time."""

    def decode(self, data: bytes) -> bytes:
        data, self._rest = self._rest + data, b""
        pieces, size = [], 0
        while data and size < MAX_STEP_BYTES:
            step, data = data[:_SMALL_STEP_BYTES], data[_SMALL_STEP_BYTES:]
            if self._member.eof:
                self._member = self._create()
            self._has_begun = True
            try:
                pieces.append(self._member.decompress(step))
            except self._errors as error:
                raise InvalidResponseError(str(error)) from error
            size += len(pieces[-1])
            if self._member.eof:
                data = self._member.unused_data + data
        self._rest = data
        return b"".join(pieces)


class DeflateDecoder(MemberDecoder):
    """ "deflate" should be zlib's format; some servers send the bare one."""

    def __init__(self) -> None:
        super().__init__(zlib.decompressobj, zlib.error)

    def decode(self, data: bytes) -> bytes:
        if not self._has_begun and data and data[0] & 0x0F != 8:
            self._member = zlib.decompressobj(-15)
        return super().decode(data)


class BrotliDecoder:
    """Brotli, with the package `brotli` from 1.2 on, which can limit its output."""

    def __init__(self) -> None:
        brotli = import_module("brotli")
        self._decoder, self._errors = brotli.Decompressor(), brotli.error
        self._rest, self._has_begun, self._is_full = b"", False, False
        if not hasattr(self._decoder, "can_accept_more_data"):
            raise ImportError("brotli is older than 1.2")

    @property
    def has_more(self) -> bool:
        return bool(self._rest) or self._is_full or not self._decoder.can_accept_more_data()

    @property
    def is_complete(self) -> bool:
        return not self._has_begun or bool(self._decoder.is_finished())

    def decode(self, data: bytes) -> bytes:
        self._has_begun = self._has_begun or bool(data)
        self._rest += data
        try:
            if not self._decoder.can_accept_more_data():
                content: bytes = self._decoder.process(b"", output_buffer_limit=MAX_STEP_BYTES)
            else:
                given, self._rest = self._rest, b""
                content = self._decoder.process(given, output_buffer_limit=MAX_STEP_BYTES)
        except self._errors as error:
            raise InvalidResponseError(str(error)) from error
        self._is_full = len(content) >= MAX_STEP_BYTES
        return content


def _create_zstd() -> Decoder:
    for name in ("compression.zstd", "backports.zstd"):  # the former comes with Python 3.14
        try:
            module = import_module(name)
        except ImportError:
            continue
        return MemberDecoder(module.ZstdDecompressor, module.ZstdError)
    module = import_module("zstandard")
    return SmallStepDecoder(lambda: module.ZstdDecompressor().decompressobj(), module.ZstdError)


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": lambda: MemberDecoder(lambda: zlib.decompressobj(31), zlib.error),
    "x-gzip": lambda: MemberDecoder(lambda: zlib.decompressobj(31), zlib.error),
    "deflate": DeflateDecoder,
    "br": BrotliDecoder,
    "zstd": _create_zstd,
}
_PACKAGES = {"br": "brotli>=1.2", "zstd": "zstandard"}


class EncodingError(InvalidResponseError):
    """An answer in an encoding that cannot be decoded here; the message is for the client."""


def create_decoder(encoding: str) -> Decoder | None:
    """What decodes a content-encoding; None for identity."""
    if encoding in ("", "identity"):
        return None
    if encoding not in _DECODERS:
        raise EncodingError(f"in the unknown encoding {encoding[:50]!r}, asked for none")
    try:
        return _DECODERS[encoding]()
    except ImportError:
        message = f"in the encoding {encoding}, asked for none; to decode it: pip install '{_PACKAGES[encoding]}'"
        raise EncodingError(message) from None


def check_complete(decoder: Decoder) -> None:
    """At the end of an answer: its content must end there too."""
    if not decoder.is_complete:
        raise ConnectionClosedError("the compressed answer is incomplete")
