"""An embedding from a Hugging Face model: a folder on disk, or an id on the hub.

Only two things are read: `tokenizer.json`, and the input embedding out of the file that holds it. Pickled weights
are not read, because reading a pickle runs whatever code is in it.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding.copies import EmbeddingParts, combine
from ir3de.embedding.matrix import BFloat16, Matrix, widen
from ir3de.embedding.packaged_models import get_title, locate
from ir3de.errors import ArtifactError, EmbeddingError, InputError, MissingExtraError
from ir3de.files import tensors as tensor_files
from ir3de.files.tensors import StoredTensor, read_header

HUB_TIMEOUT_S = 5.0  # for the first answer of the hub
WEIGHTS, INDEX, TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"

VECTORS, MAPPING, TOKEN_WEIGHTS = TENSORS = "embeddings", "mapping", "weights"
MORE_DTYPES = {"F64": "<f8", "I8": "|i1", "I32": "<i4", "I64": "<i8"}  # what model2vec writes and other models do not
NESTED_FOLDER = "0_StaticEmbedding"  # where sentence-transformers puts a static model's files

# what each family calls its input embedding, the first one present wins
WEIGHT_NAMES = (
    "model.embed_tokens.weight",  # Llama, Qwen, Mistral, Gemma, Phi
    "embed_tokens.weight",  # the same, saved without its head
    "language_model.model.embed_tokens.weight",  # the text half of models that also see
    "model.language_model.embed_tokens.weight",
    "wte.weight",  # GPT-2
    "transformer.wte.weight",
    "gpt_neox.embed_in.weight",  # GPT-NeoX, Pythia
    "embed_in.weight",
    "embeddings.word_embeddings.weight",  # BERT
    "bert.embeddings.word_embeddings.weight",
    "model.embeddings.tok_embeddings.weight",  # ModernBERT
    "embeddings.tok_embeddings.weight",
    "shared.weight",  # T5
    "model.shared.weight",  # BART
    "encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",  # OPT
    "decoder.embed_tokens.weight",
    "transformer.word_embeddings.weight",  # Falcon, BLOOM
    "word_embeddings.weight",
    VECTORS,  # static models: model2vec
    "embedding.weight",  # static models: sentence-transformers
)
WEIGHT_ENDINGS = ("embeddings.word_embeddings.weight",)  # BERT's kin: roberta., distilbert., deberta., electra.


def load_folder(folder: Path, *, tokenizer: Path | None) -> EmbeddingParts:
    """The embedding of a model saved in a folder."""
    name = folder.resolve().name
    if not _holds_weights(folder) and (folder / NESTED_FOLDER).is_dir():
        folder = folder / NESTED_FOLDER
    weights = _find_weights(folder)
    if tokenizer is None and not (folder / TOKENIZER).is_file():
        raise EmbeddingError(
            f"{folder} has no {TOKENIZER}: found {_list_names(path.name for path in folder.iterdir())}. "
            "Save the model's fast tokenizer there, or name a tokenizer.json with tokenizer="
        )
    return _from_files(weights, tokenizer or folder / TOKENIZER, name=name)


def load_hub(repo_id: str, *, tokenizer: Path | None) -> EmbeddingParts:
    """The embedding of a model on the hub, through the hub's own cache: HF_HOME and HF_HUB_OFFLINE apply."""
    definition = tokenizer or fetch_first(repo_id, (TOKENIZER, f"{NESTED_FOLDER}/{TOKENIZER}"))
    weights = fetch_first(repo_id, (WEIGHTS, INDEX, f"{NESTED_FOLDER}/{WEIGHTS}"))
    if weights.name == INDEX:
        weights = fetch_first(repo_id, (_find_shard(weights),))
    return _from_files(weights, definition, name=repo_id)


def input_embedding_name(names: Iterable[str]) -> str | None:
    """Which of a model's tensors is its input embedding. The output head, tied or not, never is."""
    present = sorted(names)
    for name in WEIGHT_NAMES:
        if name in present:
            return name
    return next((name for name in present if name.endswith(WEIGHT_ENDINGS)), None)


def _from_files(weights: Path, definition: Path, *, name: str) -> EmbeddingParts:
    tensors = list_tensors(weights)
    wanted = input_embedding_name(tensors)
    if wanted is None:
        tables = [f"{found} {list(tensor.shape)}" for found, tensor in tensors.items() if len(tensor.shape) == 2]
        raise _no_embedding(weights, tables)
    if len(tensors[wanted].shape) != 2:
        raise EmbeddingError(
            f"'{wanted}' in {weights} is not a matrix: its shape is {list(tensors[wanted].shape)}. "
            "An embedding has one row for each token; take the model again from its source"
        )
    is_static = wanted == VECTORS
    matrix = Matrix.plain(read_static(weights, tensors) if is_static else read_tensor(weights, wanted, tensors[wanted]))
    return combine(files.read(definition), matrix, name=name)


def _holds_weights(folder: Path) -> bool:
    return any(path.name == INDEX or path.suffix == ".safetensors" for path in folder.iterdir())


def _find_weights(folder: Path) -> Path:
    """The file in the folder that holds the embedding."""
    if (folder / WEIGHTS).is_file():
        return folder / WEIGHTS
    if (folder / INDEX).is_file():
        return folder / _find_shard(folder / INDEX)
    found = sorted(path.name for path in folder.iterdir())
    candidates = [name for name in found if name.endswith(".safetensors")]
    if len(candidates) == 1:
        return folder / candidates[0]
    pickled = [name for name in found if name.endswith((".bin", ".pt", ".pth"))]
    if candidates:
        do = f"Keep the one that holds the embedding, rename it {WEIGHTS}, or add {INDEX}"
    elif pickled:
        do = f"{pickled[0]} is a pickle, which can run code and is not read: save the model as safetensors"
    else:
        do = f"A model's folder holds {WEIGHTS} or {INDEX}, and {TOKENIZER}"
    raise EmbeddingError(f"no embedding in {folder}: found {_list_names(found)}. {do}")


def _find_shard(index: Path) -> str:
    """The file that, by a sharded model's index, holds the embedding."""
    try:
        shards = json.loads(files.read(index))["weight_map"]
        wanted = input_embedding_name(shards)
        shard = None if wanted is None else Path(shards[wanted])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{index} is damaged: {error!r}. Take it again from its source") from error
    if shard is None:
        raise _no_embedding(index, [name for name in shards if name.endswith("weight")])
    if shard.name != str(shard):
        raise ArtifactError(f"{index} is damaged: it points out of its folder, to {shard}. Take it again")
    return shard.name


def fetch_first(repo_id: str, names: tuple[str, ...]) -> Path:
    """The first of these files that the hub, or its cache, has."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.utils import EntryNotFoundError  # type: ignore[attr-defined]  # here in every version

    reasons = []
    for name in names:
        try:
            return fetch_file(repo_id, name)
        except EntryNotFoundError as error:  # not in the repository, or neither reachable nor cached
            reasons.append(f"{name}: {_first_sentence(error)}")
        except Exception as error:  # each version of the library has its own errors for a network that fails
            reasons.append(f"{name}: {_first_sentence(error)}")
            break
    for name in names:  # a hub that does not answer is not needed for what its cache has
        if isinstance(cached := try_to_load_from_cache(repo_id, name), str):
            return Path(cached)
    raise EmbeddingError(
        f"cannot get '{repo_id}' from the hub, nor from its cache. {'; '.join(reasons)}. "
        "Check the name, or download the model on a connected machine and pass its folder"
    )


def fetch_file(repo_id: str, name: str) -> Path:
    """A file of the hub, or of its cache. If the hub does not answer, this fails at once."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

    if not isinstance(try_to_load_from_cache(repo_id, name), str):
        # one request, because the download itself retries for half a minute if the hub does not answer
        get_hf_file_metadata(hf_hub_url(repo_id, name), timeout=HUB_TIMEOUT_S)
    return Path(hf_hub_download(repo_id, name))


def _first_sentence(error: Exception) -> str:
    message = " ".join(str(error).split()) or type(error).__name__
    return message.partition(". ")[0].rstrip(".")


def _no_embedding(path: Path, tables: list[str]) -> EmbeddingError:
    return EmbeddingError(
        f"no input embedding in {path} under any name ir3de knows ({WEIGHT_NAMES[0]}, {WEIGHT_NAMES[4]}, …): "
        f"found {_list_names(tables)}. Rename the embedding's tensor to {WEIGHT_NAMES[0]}"
    )


def _list_names(names: Iterable[str], most: int = 6) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:most] + (["…"] if len(ordered) > most else [])) or "nothing"


# what the bytes are read as; bfloat16 is the upper half of a float32
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def list_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, by name, read from its header alone."""
    try:
        with path.open("rb") as file:
            return read_header(file, path.stat().st_size)[0]
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError(
            f"{path} is damaged or not a safetensors file: {error}. Take it again from its source"
        ) from error


def read_tensor(
    path: Path, name: str, tensor: StoredTensor, more: Mapping[str, str] = MappingProxyType({})
) -> npt.NDArray[np.generic] | BFloat16:
    """The tensor's values: float16 and float32 as they are, bfloat16 as float32, which loses nothing.

    A large tensor stays in its file, mapped, and bfloat16 then becomes float32 when it is read. `more` names
    further types that the caller can handle.
    """
    known = {**_DTYPES, **more}
    if tensor.dtype not in known:
        raise EmbeddingError(
            f"'{name}' in {path} is stored as {tensor.dtype}; ir3de reads {', '.join(_DTYPES)}. "
            "Take a version of the model whose embedding is not quantised, or convert it to float16"
        )
    dtype, count = np.dtype(known[tensor.dtype]), math.prod(tensor.shape)
    if count * dtype.itemsize != tensor.length:
        raise ArtifactError(
            f"{path} is damaged: '{name}' is {tensor.dtype} {list(tensor.shape)} in {tensor.length} bytes. "
            "Take it again from its source"
        )
    if tensor.length > tensor_files.LARGE_FILE_BYTES:
        mapped: npt.NDArray[Any] = np.memmap(path, dtype, "r", tensor.begin, tensor.shape)
        return BFloat16(mapped) if tensor.dtype == "BF16" else mapped
    values = np.fromfile(path, dtype, count, offset=tensor.begin).reshape(tensor.shape)
    return widen(values) if tensor.dtype == "BF16" else values


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
            raise _damaged(path, TOKEN_WEIGHTS, f"{list(weights.shape)} for {rows.shape[0]:,} tokens")
        rows = rows.astype(np.float32) * weights.astype(np.float32)[:, None]
    # int8 is exact in half precision; float64 keeps more than a router needs
    narrow = {"int8": np.float16, "float64": np.float32}.get(rows.dtype.name)
    return rows if narrow is None else rows.astype(narrow)


def _damaged(path: Path, name: str, found: str) -> ArtifactError:
    return ArtifactError(f"{path} is damaged: its '{name}' are {found}. Take it again from its source")


USUAL_WIDTH = 256


def distil(encoder: str, *, width: int = USUAL_WIDTH, device: str | None = None) -> EmbeddingParts:
    """The static embedding of a sentence encoder: each token's vector alone, by PCA, rare tokens weighing more.

    `encoder` is a folder, a hub id or a packaged model; `device` is where torch runs it ("cpu", "cuda").
    """
    if width < 1:
        raise InputError(f"the width of an embedding must be at least 1, found {width}")
    try:
        from model2vec.distill import distill
    except ImportError as error:  # model2vec itself, or what it needs to run encoders
        raise MissingExtraError("model2vec[distill,quantization]", "distil", "Distilling a sentence encoder") from error
    source = locate(encoder)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # the caller shows its own progress
            model = distill(source, pca_dims=width, device=device, quantize_to="float32")
    except (OSError, ValueError, RuntimeError) as error:
        first = " ".join(str(error).split()).rstrip(".")
        raise EmbeddingError(
            f"'{encoder}' cannot be distilled: {first}. It must be a sentence encoder that transformers can read: a "
            "folder with its weights and tokenizer, or a hub id"
        ) from error
    with tempfile.TemporaryDirectory(prefix="ir3de-") as folder:
        model.save_pretrained(folder)
        return load_folder(Path(folder), tokenizer=None)._replace(name=f"{get_title(encoder)}, distilled")
