"""Packed bytes of a file that may come from anybody: damage is named, and what they unpack to is bounded."""

import gzip
import io
import zlib

from ir3de.errors import ArtifactError

MAX_UNPACKED_BYTES = 500_000_000  # the definitions of the largest tokenizers have about 40 MB


def unpack_gzip(packed: bytes, name: str) -> bytes:
    """The bytes that were packed; `name` says in messages what they are."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        try:
            unpacked = stream.read(MAX_UNPACKED_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ArtifactError(f"{name} is damaged: {error}. Copy it again from where it came from") from error
    if len(unpacked) > MAX_UNPACKED_BYTES:
        raise ArtifactError(
            f"{name} unpacks to more than {MAX_UNPACKED_BYTES:,} bytes, which no tokenizer needs: do not use it"
        )
    return unpacked
