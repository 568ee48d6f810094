"""The transformers that can be run: BERT and its kin, read from safetensors into one form.

The graph that onnxruntime runs and the reference in numpy are both made from this form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import files
from ir3de.embedding.huggingface import INDEX, WEIGHTS, list_tensors, read_tensor
from ir3de.embedding.matrix import BFloat16
from ir3de.errors import ArtifactError, EmbeddingError

Floats = npt.NDArray[np.float32]
Pick = Callable[[str], Floats]  # a tensor by its name

WORDS = "embeddings.word_embeddings.weight"
MAX_DISTANCE_TOKENS = 128  # of MPNet's relative positions: farther tokens share a bucket
SUPPORTED = "bert, roberta, xlm-roberta, mpnet"

# what each family calls the parts of a layer: query, key, value, output, norm of the attention
_BERT_PARTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "attention.output.LayerNorm"),
)
_MPNET_PARTS = (
    *("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    *("attention.attn.o", "attention.LayerNorm"),
)
_PARTS = {"bert": _BERT_PARTS, "roberta": _BERT_PARTS, "xlm-roberta": _BERT_PARTS, "mpnet": _MPNET_PARTS}


@dataclass(frozen=True, eq=False)
class Linear:
    """y = x W + b; also the scale W and the shift b of a layer norm."""

    weight: Floats  # (in, out), or (h,) of a layer norm
    bias: Floats


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: attention, its norm, two dense layers, their norm."""

    projection: Linear  # query, key and value side by side (h, 3 h)
    output: Linear
    attention_norm: Linear
    widen: Linear
    narrow: Linear
    norm: Linear


@dataclass(frozen=True, eq=False)
class Transformer:
    """The weights of an encoder. `distances` has MPNet's bias of each head for each distance −(P−1) … P−1."""

    words: Floats  # (V, h)
    positions: Floats  # (P, h), from the first token of a text on; the token type is added
    norm: Linear
    layers: tuple[Layer, ...]
    heads: int
    epsilon: float
    distances: Floats | None = None  # (heads, 2 P − 1)

    @property
    def width(self) -> int:
        return int(self.words.shape[1])

    @property
    def max_tokens(self) -> int:
        return int(self.positions.shape[0])


def read_transformer(folder: Path) -> Transformer:
    """The transformer in a folder with config.json and safetensors; rejects an architecture that is not known."""
    config = read_config(folder)
    family = config.get("model_type")
    if family not in _PARTS:
        raise EmbeddingError(
            f"{folder} has a model of type {family!r}, which ir3de cannot run; it runs {SUPPORTED}. Use an encoder of "
            "one of these types, or a folder that has onnx/model.onnx"
        )
    if config.get("hidden_act", "gelu") != "gelu" or config.get("position_embedding_type", "absolute") != "absolute":
        raise EmbeddingError(
            f"{folder} has the activation {config.get('hidden_act')!r} and positions of the kind "
            f"{config.get('position_embedding_type', 'absolute')!r}; ir3de runs 'gelu' and 'absolute' alone. Use a "
            "folder that has onnx/model.onnx"
        )
    return build_transformer(_read_tensors(folder), config, str(folder))


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model."""
    return read_object(folder / "config.json")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of someone else's making."""
    try:
        found = json.loads(files.read(path))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is damaged: it is not JSON ({error}). Take it again from its source") from error
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} is damaged: it is not a JSON object. Take it again from its source")
    return found


def build_transformer(tensors: Mapping[str, Floats], config: Mapping[str, Any], place: str) -> Transformer:
    """The transformer of named tensors; `place` is where they came from, for messages."""
    ending = next((name for name in tensors if name.endswith(WORDS)), WORDS)
    prefix = ending.removesuffix(WORDS)

    def pick(name: str) -> Floats:
        try:
            return tensors[prefix + name]
        except KeyError:
            raise ArtifactError(
                f"{place} has no tensor '{prefix + name}', which its config.json promises: take the model again "
                "from its source"
            ) from None

    try:
        made = _build(pick, config)
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"the weights in {place} do not fit its config.json ({error!r}): take the model again from its source"
        ) from error
    _check(made, place)
    return made


def _build(pick: Pick, config: Mapping[str, Any]) -> Transformer:
    family = config["model_type"]
    words, positions = pick(WORDS), pick("embeddings.position_embeddings.weight")
    if family != "bert":  # the first positions are never used: they stand for padding
        positions = positions[int(config.get("pad_token_id", 1)) + 1 :]
    if family != "mpnet":
        positions = positions + pick("embeddings.token_type_embeddings.weight")[0]
    heads = int(config["num_attention_heads"])
    layers = tuple(
        _build_layer(pick, f"encoder.layer.{number}", _PARTS[family]) for number in range(config["num_hidden_layers"])
    )
    distances = None
    if family == "mpnet":
        distances = spread_buckets(pick("encoder.relative_attention_bias.weight"), len(positions))
    norm = Linear(pick("embeddings.LayerNorm.weight"), pick("embeddings.LayerNorm.bias"))
    return Transformer(words, positions, norm, layers, heads, float(config.get("layer_norm_eps", 1e-12)), distances)


def _build_layer(pick: Pick, name: str, parts: tuple[str, ...]) -> Layer:
    def take(part: str) -> Linear:
        weight = pick(f"{name}.{part}.weight")
        return Linear(np.ascontiguousarray(weight.T), pick(f"{name}.{part}.bias"))

    query, key, value, output, norm = map(take, parts)
    projection = Linear(
        np.concatenate([query.weight, key.weight, value.weight], axis=1),
        np.concatenate([query.bias, key.bias, value.bias]),
    )
    return Layer(projection, output, norm, take("intermediate.dense"), take("output.dense"), take("output.LayerNorm"))


def spread_buckets(bias: Floats, positions: int) -> Floats:
    """The bias (heads, 2 P − 1) of each distance −(P−1) … P−1, from one row a bucket, as MPNet assigns them.

    Half of the buckets are for tokens before, half for those behind. Half of each are exact distances, and the rest
    grow with the logarithm.
    """
    distance = np.arange(-(positions - 1), positions)
    half = bias.shape[0] // 2
    exact, size = half // 2, np.abs(distance)
    growth = np.log(np.maximum(size, 1) / exact) / math.log(MAX_DISTANCE_TOKENS / exact)
    # at powers of two the logarithm is a whole number but for its last bits, which must not decide
    large = np.minimum(exact + np.floor(growth * (half - exact) + 1e-6).astype(np.int64), half - 1)
    bucket = np.where(size < exact, size, large) + np.where(distance > 0, half, 0)
    return np.ascontiguousarray(bias[bucket].T)


def _check(made: Transformer, place: str) -> None:
    width = made.width
    if width % made.heads:
        raise ArtifactError(f"{place} has {made.heads} heads for a width of {width}, which they do not divide")
    for number, layer in enumerate(made.layers):
        inner = layer.widen.weight.shape[1]
        expected = (
            ("projection", layer.projection, (width, 3 * width)),
            ("output", layer.output, (width, width)),
            ("first dense layer", layer.widen, (width, inner)),
            ("second dense layer", layer.narrow, (inner, width)),
        )
        for name, linear, shape in expected:
            if linear.weight.shape != shape or linear.bias.shape != shape[1:]:
                raise ArtifactError(
                    f"the {name} of layer {number} in {place} has the shape {linear.weight.shape}, expected {shape}: "
                    "take the model again from its source"
                )


def find_weights(folder: Path) -> list[Path]:
    """The safetensors files of a folder; rejects a folder without them."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        shards = read_object(folder / INDEX).get("weight_map")
        names = sorted(set(shards.values())) if isinstance(shards, dict) else []
        if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
            raise ArtifactError(f"{folder / INDEX} is damaged: it names no files of its folder. Take it again")
        return [folder / name for name in names]
    found = sorted(path.name for path in folder.iterdir())
    pickled = [name for name in found if name.endswith((".bin", ".pt", ".pth"))]
    advice = (
        f"{pickled[0]} is a pickle, which can run code and is not read: save the model as safetensors"
        if pickled
        else f"The folder of an encoder has {WEIGHTS} or onnx/model.onnx"
    )
    raise EmbeddingError(f"no weights in {folder}: found {', '.join(found[:8]) or 'nothing'}. {advice}")


def _read_tensors(folder: Path) -> dict[str, Floats]:
    read: dict[str, Floats] = {}
    for path in find_weights(folder):
        for name, tensor in list_tensors(path).items():
            if tensor.dtype.startswith("F") or tensor.dtype == "BF16":  # whole numbers are positions, which are known
                values = read_tensor(path, name, tensor)
                values = values[:] if isinstance(values, BFloat16) else values
                read[name] = np.asarray(values, np.float32)
    return read
