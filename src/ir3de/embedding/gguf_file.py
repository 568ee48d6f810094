"""An embedding from a GGUF file: the token matrix, dequantised, and the tokenizer rebuilt from the metadata."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.embedding.gguf_tokenizer import tokenizer_json
from ir3de.embedding.matrix import Matrix
from ir3de.embedding.parts import EmbeddingParts, combine
from ir3de.errors import ArtifactError, EmbeddingError, MissingExtraError
from ir3de.storage import files
from ir3de.storage.tensors import LARGE_FILE_BYTES

EMBEDDING_TENSOR = "token_embd.weight"


def load_gguf(path: Path, *, tokenizer: Path | None) -> EmbeddingParts:
    """The embedding of a GGUF file, whichever way it is quantised."""
    reader = _open(path)
    matrix = _matrix(reader, path)
    fields = {key: field for key, field in reader.fields.items() if key.startswith("tokenizer.")}
    definition = (
        files.read(tokenizer)
        if tokenizer is not None
        else tokenizer_json({key: field.contents() for key, field in fields.items()})
    )
    name = reader.fields["general.name"].contents() if "general.name" in reader.fields else path.stem
    return combine(definition, matrix, name=str(name))


def _open(path: Path) -> Any:
    try:
        import gguf
    except ImportError as error:
        raise MissingExtraError("gguf", "gguf", "reading a GGUF file") from error
    try:
        return gguf.GGUFReader(path)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    # the reader maps the file and follows its lengths: a cut or foreign file fails in whichever of these it meets
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise ArtifactError(
            f"{path} is truncated, damaged or not a GGUF file ({error}). Take it again from its source"
        ) from error


def _matrix(reader: Any, path: Path) -> Matrix:
    import gguf

    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if EMBEDDING_TENSOR not in tensors:
        raise EmbeddingError(
            f"{path} has no token embedding: expected the tensor '{EMBEDDING_TENSOR}', found "
            f"{', '.join(sorted(tensors)[:4]) or 'none'}. Take a GGUF file of a whole language model, not of a part"
        )
    tensor = tensors[EMBEDDING_TENSOR]
    try:
        # plain floats stay as they are; a copy, since the reader only maps the file, unless that is too much
        values: npt.NDArray[np.generic] = (
            (tensor.data if tensor.data.nbytes > LARGE_FILE_BYTES else np.array(tensor.data))
            if tensor.data.dtype in (np.float16, np.float32)
            else gguf.dequantize(tensor.data, tensor.tensor_type)
        )
    except NotImplementedError as error:
        raise EmbeddingError(
            f"the embedding in {path} is quantised as {tensor.tensor_type.name}, which the gguf package does not read. "
            "Upgrade it (pip install --upgrade gguf), or take another quantisation of the model"
        ) from error
    if values.ndim != 2:
        raise EmbeddingError(
            f"'{EMBEDDING_TENSOR}' in {path} is not a matrix: its shape is {list(values.shape)}. "
            "Take it again from its source"
        )
    return Matrix.plain(values)
