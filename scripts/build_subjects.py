"""Build the subject rows of the bundled embedding: what each token is about, in 32 small whole numbers.

They are the distilled columns of version 3, projected on the directions in which prompts differ most. The mean over a
prompt's tokens tells how near it is to the prompts that a router was fitted on. Usage:

    python scripts/build_subjects.py prompts/

`prompts/` holds the files of prompts that `build_distilled_columns.py` was trained on: JSON lines with a `text`.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import numpy as np

from ir3de import Embedding
from ir3de.embedding import readers
from ir3de.embedding.subjects import SUBJECTS_FILE
from ir3de.files.tensors import to_safetensors

VERSION, FIRST_COLUMN = 3, 576  # the distilled columns lie behind those of version 1
SUBJECTS = 32
EVERY, MOST_PROMPTS = 7, 6_000  # of each file
MAX_TOKENS = 256  # of a prompt
LARGEST = 127
CLIPPED = 1e-4  # the share of numbers beyond the largest


def read_prompts(folder: Path) -> list[str]:
    """Some prompts of every file."""
    texts: list[str] = []
    for path in sorted(folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            own = [json.loads(line)["text"] for number, line in enumerate(file) if number % EVERY == 0]
        texts += own[:MOST_PROMPTS]
    return texts


def main(folder: Path) -> None:
    embedding = Embedding.default(VERSION)
    columns = np.asarray(embedding.rows[:, FIRST_COLUMN:], np.float64)
    flat, lengths = embedding.tokenizer.encode_batch(read_prompts(folder), MAX_TOKENS)
    lengths = lengths[lengths > 0].astype(np.int64)
    means = np.add.reduceat(columns[flat], np.cumsum(lengths) - lengths, axis=0) / lengths[:, None]
    centre = means.mean(axis=0)
    directions = (means - centre) / np.linalg.norm(means - centre, axis=1, keepdims=True)
    # the eigenvectors of the largest eigenvalues: prompts differ most along them
    _, vectors = np.linalg.eigh(directions.T @ directions)
    P = vectors[:, : -SUBJECTS - 1 : -1]
    rows = columns @ P
    scale = LARGEST / np.quantile(np.abs(rows), 1 - CLIPPED)
    tensors = {
        "rows": np.clip(np.rint(rows * scale), -LARGEST, LARGEST).astype(np.int8),
        "centre": (centre @ P * scale).astype(np.float32),
    }
    path = readers.get_default(VERSION).folder / SUBJECTS_FILE
    path.write_bytes(to_safetensors(tensors, {"kind": "ir3de.subjects", "version": 1}))
    print(f"{path}: {path.stat().st_size:,} bytes, from {len(lengths):,} prompts")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
