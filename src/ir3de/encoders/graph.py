"""The graph that onnxruntime runs, built from an encoder's weights with the package onnx.

Its input are token ids (texts, tokens), all texts of one length, so that nothing is padded. Its output are the last
hidden states (texts, tokens, h).

With 8 bits, a weight is a level −127 … 127 times the scale of its group: 64 weights of a column in a matrix, a row of
the word embedding. onnxruntime multiplies the matrices out once, when it loads the file, and computes in float32.
Inputs of matrices are not rounded: a scale for a whole batch would make vectors depend on the batch, and rounding with
a scale for each token would turn the last bit, in which processors differ, into a thousandth.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ir3de.encoders.transformer import Floats, Layer, Linear, Transformer
from ir3de.errors import MissingExtraError

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Precision = Literal["int8", "float32"]

OPSET, IR_VERSION = 17, 8  # LayerNormalization is in this opset; onnxruntime 1.14 and later read both
INPUT, OUTPUT = "input_ids", "last_hidden_state"
MAX_LEVEL = 127
GROUP_WEIGHTS = 64  # of a matrix that have one scale


def build_graph(model: Transformer, precision: Precision) -> bytes:
    """The ONNX file of an encoder; equal weights give equal bytes."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("onnx", "encoder", "Installing a sentence encoder") from error
    graph = _Graph(onnx, precision)
    graph.build(model)
    helper, kinds = onnx.helper, onnx.TensorProto
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "encoder",
            [helper.make_tensor_value_info(INPUT, kinds.INT64, ["texts", "tokens"])],
            [helper.make_tensor_value_info(OUTPUT, kinds.FLOAT, ["texts", "tokens", model.width])],
            graph.constants,
        ),
        producer_name="ir3de",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    content: bytes = made.SerializeToString(deterministic=True)
    return content


class _Graph:
    """Collects nodes and constants. Each method adds nodes and returns the name of their result."""

    def __init__(self, onnx: Any, precision: Precision) -> None:
        self._onnx, self._precision = onnx, precision
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self._named: set[str] = set()

    def build(self, model: Transformer) -> None:
        self._heads, self._width, self._epsilon = model.heads, model.width, model.epsilon
        states = self._normalise(self._embed(model), model.norm, "embeddings.norm")
        bias = self._bias_of_distances(model)
        for number, layer in enumerate(model.layers):
            states = self._add_layer(states, layer, bias, f"layer.{number}")
        self.nodes[-1].output[0] = OUTPUT

    def _embed(self, model: Transformer) -> str:
        if self._precision == "int8":
            levels, scale = quantise(model.words)
            rows = self._cast(self._add("Gather", self._keep("words", levels), INPUT), np.float32)
            words = self._add("Mul", rows, self._add("Gather", self._keep("words.scale", scale), INPUT))
        else:
            words = self._add("Gather", self._keep("words", model.words), INPUT)
        shape = self._add("Shape", INPUT)
        self._tokens = self._add("Slice", shape, self._whole("one", [1]), self._whole("two", [2]))
        starts = self._whole("zero", [0])
        positions = self._add("Slice", self._keep("positions", model.positions), starts, self._tokens, starts)
        return self._add("Add", words, positions)

    def _bias_of_distances(self, model: Transformer) -> str:
        """MPNet's bias (heads, tokens, tokens), or "" where there is none."""
        if model.distances is None:
            return ""
        tokens = self._add("Squeeze", self._tokens)
        zero, one = self._keep("first", np.array(0, np.int64)), self._keep("step", np.array(1, np.int64))
        steps = self._add("Range", zero, tokens, one)
        columns = self._add("Unsqueeze", steps, self._whole("zero", [0]))
        rows = self._add("Unsqueeze", steps, self._whole("one", [1]))
        shift = self._whole("farthest", [model.max_tokens - 1])
        places = self._add("Add", self._add("Sub", columns, rows), shift)
        return self._add("Gather", self._keep("distances", model.distances), places, axis=1)

    def _add_layer(self, states: str, layer: Layer, bias: str, name: str) -> str:
        mixed = self._apply(self._attend(states, layer, bias, name), layer.output, f"{name}.output")
        states = self._normalise(self._add("Add", states, mixed), layer.attention_norm, f"{name}.attention_norm")
        wide = self._gelu(self._apply(states, layer.widen, f"{name}.widen"))
        dense = self._apply(wide, layer.narrow, f"{name}.narrow")
        return self._normalise(self._add("Add", states, dense), layer.norm, f"{name}.norm")

    def _attend(self, states: str, layer: Layer, bias: str, name: str) -> str:
        each = self._width // self._heads
        all_three = self._apply(states, layer.projection, f"{name}.projection")
        thirds = self._whole("thirds", [self._width] * 3)
        query, key, value = self._add_many("Split", 3, all_three, thirds, axis=2)
        shape = self._whole("split", [0, 0, self._heads, each])
        query, value = (self._transpose(self._add("Reshape", part, shape), 0, 2, 1, 3) for part in (query, value))
        key = self._transpose(self._add("Reshape", key, shape), 0, 2, 3, 1)
        scale = self._number("attention.scale", 1 / math.sqrt(each))
        scores = self._add("Mul", self._add("MatMul", query, key), scale)
        if bias:
            scores = self._add("Add", scores, bias)
        mixed = self._add("MatMul", self._add("Softmax", scores, axis=-1), value)
        return self._add("Reshape", self._transpose(mixed, 0, 2, 1, 3), self._whole("join", [0, 0, self._width]))

    def _apply(self, states: str, linear: Linear, name: str) -> str:
        product = self._add("MatMul", states, self._keep_matrix(linear.weight, name))
        return self._add("Add", product, self._keep(f"{name}.bias", linear.bias))

    def _keep_matrix(self, weight: Floats, name: str) -> str:
        if self._precision == "float32":
            return self._keep(name, weight)
        rows, columns = weight.shape
        group = math.gcd(rows, GROUP_WEIGHTS)
        levels, scale = quantise(weight.reshape(rows // group, group, columns))
        wide = self._cast(self._keep(f"{name}.levels", levels), np.float32)
        product = self._add("Mul", wide, self._keep(f"{name}.scale", scale))
        return self._add("Reshape", product, self._whole(f"{name}.shape", [rows, columns]))

    def _normalise(self, states: str, norm: Linear, name: str) -> str:
        scale, shift = self._keep(name, norm.weight), self._keep(f"{name}.bias", norm.bias)
        return self._add("LayerNormalization", states, scale, shift, axis=-1, epsilon=self._epsilon)

    def _gelu(self, states: str) -> str:
        root = self._number("root", math.sqrt(2))
        erf = self._add("Erf", self._add("Div", states, root))
        more = self._add("Add", erf, self._number("unit", 1))
        return self._add("Mul", self._add("Mul", states, more), self._number("half", 0.5))

    def _transpose(self, name: str, *order: int) -> str:
        return self._add("Transpose", name, perm=list(order))

    def _cast(self, name: str, kind: Any) -> str:
        return self._add("Cast", name, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def _add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self._add_many(kind, 1, *inputs, **attributes)[0]

    def _add_many(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        names = [f"{kind}.{len(self.nodes)}.{number}" for number in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def _whole(self, name: str, values: list[int]) -> str:
        return self._keep(name, np.array(values, np.int64))

    def _number(self, name: str, value: float) -> str:
        return self._keep(name, np.array(value, np.float32))

    def _keep(self, name: str, values: npt.NDArray[Any]) -> str:
        """A constant; one that has been kept under this name already is used again."""
        if name not in self._named:
            self._named.add(name)
            self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def quantise(values: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Levels −127 … 127 and one scale for each group, a group being along the second axis: values ≈ levels · scale."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    scale = (np.where(largest > 0, largest, 1) / np.float32(MAX_LEVEL)).astype(np.float32)
    return np.rint(values / scale).astype(np.int8), scale
