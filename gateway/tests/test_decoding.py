"""Answers that come compressed though nobody asked for it."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable

import pytest

from ir3de_gateway.transport import ConnectionClosedError, InvalidResponseError
from ir3de_gateway.transport.decoding import MAX_STEP_BYTES, EncodingError, create_decoder

CONTENT = b"".join(b"data: %d\n\n" % n for n in range(3_000))


def compress_zstd(content: bytes) -> bytes:
    return pytest.importorskip("zstandard").ZstdCompressor(level=3).compress(content)  # type: ignore[no-any-return]


def compress_brotli(content: bytes) -> bytes:
    return pytest.importorskip("brotli", "1.2").compress(content)  # type: ignore[no-any-return]


def compress_raw(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "gzip of several members": ("gzip", lambda content: gzip.compress(content[:99]) + gzip.compress(content[99:])),
    "gzip of empty members": ("gzip", lambda content: gzip.compress(b"") + gzip.compress(content) + gzip.compress(b"")),
    "gzip with padding": ("gzip", lambda content: gzip.compress(content[:99]) + bytes(9) + gzip.compress(content[99:])),
    "deflate": ("deflate", zlib.compress),
    "bare deflate": ("deflate", compress_raw),
    "zstd": ("zstd", compress_zstd),
    "zstd of several frames": ("zstd", lambda content: compress_zstd(content[:99]) + compress_zstd(content[99:])),
    "br": ("br", compress_brotli),
}


def decode(encoding: str, data: bytes, step: int) -> tuple[bytes, int]:
    """The content, and the size of the largest piece."""
    decoder = create_decoder(encoding)
    assert decoder is not None
    pieces = []
    for start in range(0, len(data), step):
        pieces.append(decoder.decode(data[start : start + step]))
        while decoder.has_more:
            pieces.append(decoder.decode(b""))
    decoder.check_complete()
    return b"".join(pieces), max(map(len, pieces))


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_content_is_the_same_however_it_arrives(name: str, step: int) -> None:
    encoding, compress = ENCODINGS[name]
    assert decode(encoding, compress(CONTENT), step)[0] == CONTENT


@pytest.mark.parametrize("name", ENCODINGS)
def test_small_answers_do_not_become_large_ones_at_once(name: str) -> None:
    encoding, compress = ENCODINGS[name]
    large = bytes(8 << 20)
    content, largest = decode(encoding, compress(large), 1 << 20)
    assert content == large
    assert largest <= 4 * MAX_STEP_BYTES


@pytest.mark.parametrize("name", ENCODINGS)
def test_content_that_is_cut_off_is_noticed(name: str) -> None:
    encoding, compress = ENCODINGS[name]
    with pytest.raises(ConnectionClosedError, match="incomplete"):
        decode(encoding, compress(CONTENT)[:-3], 100)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br"])
def test_what_is_no_such_content_is_an_error(encoding: str) -> None:
    if encoding == "br":
        pytest.importorskip("brotli", "1.2")
    with pytest.raises(InvalidResponseError):
        decode(encoding, b"\xff\xff{}" * 10, 100)


@pytest.mark.parametrize(
    ("encoding", "modules", "package"),
    [("br", ["brotli"], "brotli>=1.2"), ("zstd", ["compression.zstd", "backports.zstd", "zstandard"], "zstandard")],
)
def test_an_encoding_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, encoding: str, modules: list[str], package: str
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EncodingError, match=rf"in the encoding {encoding}.*pip install '{package}'"):
        create_decoder(encoding)


def test_encodings_that_nobody_knows() -> None:
    assert create_decoder("") is None
    assert create_decoder("identity") is None
    with pytest.raises(EncodingError, match="'gzip, br'"):
        create_decoder("gzip, br")
