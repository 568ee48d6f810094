"""Packed bytes of a file that may come from anybody: damage is named, and what they unpack to is bounded."""

import zlib

from ir3de.errors import ArtifactError

MAX_UNPACKED_BYTES = 500_000_000  # the definitions of the largest tokenizers have about 40 MB
GZIP_WINDOW = 31  # what zlib calls a window of 32 kB with gzip's header


def unpack_gzip(packed: bytes, name: str) -> bytes:
    """The bytes that were packed; `name` says in messages what they are."""
    stream = zlib.decompressobj(GZIP_WINDOW)
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
