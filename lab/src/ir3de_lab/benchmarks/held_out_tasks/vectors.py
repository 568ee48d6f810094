"""Vectors of MiniLM-L6, kept in a folder between runs where one is named: encoding is what takes long."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ir3de.encoders import Encoder
from ir3de_lab.benchmarks.held_out_tasks.expecting import Encode, Say
from ir3de_lab.benchmarks.held_out_tasks.heads import Vectors
from ir3de_lab.rivals.vector_store import Maker, VectorStore

ENCODER = "minilm-l6"
MARK = "Is this contract void?"  # its vectors tell one encoder from another
AT_ONCE = 512  # texts between two writes


def open_encoder(folder: Path | None, say: Say) -> tuple[Encode, str]:
    """What encodes texts, and the digest of the encoder."""
    encoder = Encoder.load(ENCODER)
    store = None if folder is None else VectorStore(folder)
    maker = Maker(encoder.encode([MARK]), encoder.max_tokens)

    def encode(texts: tuple[str, ...]) -> Vectors:
        found = {} if store is None else store.find(texts, maker)
        new = sorted({text for text in texts if text not in found}, key=lambda text: (len(text), text))
        for begin in range(0, len(new), AT_ONCE):
            some = new[begin : begin + AT_ONCE]
            say(f"encoding {begin:,} of {len(new):,} texts")
            vectors = encoder.encode(some)
            found.update(zip(some, vectors, strict=True))
            if store is not None:
                store.add(some, vectors, maker)
        return np.stack([found[text] for text in texts])

    return encode, encoder.digest
