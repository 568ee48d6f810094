"""Static models such as potion: the folders that model2vec and sentence-transformers write.

A model2vec file has up to three tensors. `embeddings` are the vectors. Where tokens share vectors, `mapping` says which
vector each token has. Where `weights` are given, each token's vector is multiplied by its weight. Together they are one
row a token, which is all that an embedding is:

    E[t] = weights[t] · embeddings[mapping[t]]

The mean of the rows is what model2vec computes for a text. With `normalize` in its configuration, model2vec then brings
that mean to unit length. ir3de does not, because a table of scores adds up tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ir3de.embedding.rows import BFloat16
from ir3de.embedding.weights import read_tensor
from ir3de.errors import ArtifactError
from ir3de.storage.tensors import StoredTensor

VECTORS, MAPPING, WEIGHTS = TENSORS = "embeddings", "mapping", "weights"
MORE_DTYPES = {"F64": "<f8", "I8": "|i1", "I32": "<i4", "I64": "<i8"}  # what model2vec writes and other models do not
NESTED_FOLDER = "0_StaticEmbedding"  # where sentence-transformers puts a static model's files


def read_static(path: Path, tensors: Mapping[str, StoredTensor]) -> npt.NDArray[np.generic] | BFloat16:
    """E of a model2vec file, one row for each token."""
    read = {name: read_tensor(path, name, tensors[name], more=MORE_DTYPES) for name in TENSORS if name in tensors}
    rows, mapping, weights = (read.get(name) for name in TENSORS)
    assert rows is not None
    if mapping is not None:
        if mapping.dtype.kind != "i" or len(mapping.shape) != 1:
            raise _damaged(path, MAPPING, f"{mapping.dtype} {list(mapping.shape)}, expected one whole number a token")
        places = np.asarray(mapping)
        if places.size and not 0 <= places.min() <= places.max() < rows.shape[0]:
            raise _damaged(path, MAPPING, f"{places.min()} … {places.max()} for {rows.shape[0]:,} vectors")
        rows = rows[places]
    if weights is not None:
        if weights.shape != rows.shape[:1]:
            raise _damaged(path, WEIGHTS, f"{list(weights.shape)} for {rows.shape[0]:,} tokens")
        rows = rows.astype(np.float32) * weights.astype(np.float32)[:, None]
    # int8 is exact in half precision; float64 keeps more than a router needs
    narrow = {"int8": np.float16, "float64": np.float32}.get(rows.dtype.name)
    return rows if narrow is None else rows.astype(narrow)


def _damaged(path: Path, name: str, found: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: its '{name}' are {found}. Take it again from its source")
