"""Encoders that routers of this process share: each is loaded once, when it is first needed."""

from __future__ import annotations

import threading
import warnings

from ir3de.encoders.encoder import Encoder
from ir3de.errors import IR3DEError, MismatchError

_encoders: dict[str, Encoder] = {}  # by digest
_missing: set[str] = set()  # digests of encoders that could not be loaded: they are not tried again
_lock = threading.Lock()


def share_encoder(encoder: Encoder) -> Encoder:
    """Let routers of this process use an encoder that is loaded already."""
    with _lock:
        _missing.discard(encoder.digest)
        return _encoders.setdefault(encoder.digest, encoder)


def load_shared(name: str, digest: str, width: int) -> Encoder:
    """The encoder of that name; an error unless it is the one with that digest."""
    if (found := _encoders.get(digest)) is not None:
        return found
    with _lock:
        if (found := _encoders.get(digest)) is None:
            found = Encoder.load(name)
            if (found.digest, found.width) != (digest, width):
                raise MismatchError(
                    f"the encoder '{name}' is another one than the router was fitted with: its digest is "
                    f"{found.digest[:12]} and its width {found.width}, the router needs {digest[:12]} and {width}. "
                    "Install the same version, or fit the router again"
                )
            _encoders[digest] = found
    return found


def find_shared(name: str, digest: str, width: int) -> Encoder | None:
    """The same, or None where it cannot be loaded. One warning names the reason."""
    if digest in _missing:
        return None
    try:
        return load_shared(name, digest, width)
    except IR3DEError as error:
        with _lock:
            is_first = digest not in _missing
            _missing.add(digest)
        if is_first:
            message = f"routing goes on by the table alone, without the encoder '{name}': {error}"
            warnings.warn(message, stacklevel=3)
        return None
