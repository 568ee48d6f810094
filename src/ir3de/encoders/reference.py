"""The reference: the forward pass of an encoder in plain numpy, text by text, in float32.

It is slow and short. `ir3de encoder install` and the tests compare what onnxruntime computes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ir3de.encoders.transformer import Floats, Layer, Linear, Transformer

_erf = np.frompyfunc(math.erf, 1, 1)


def run_reference(model: Transformer, ids: Sequence[int]) -> Floats:
    """The last hidden states (tokens, h) of one text."""
    states = _normalise(model.words[list(ids)] + model.positions[: len(ids)], model.norm, model.epsilon)
    for layer in model.layers:
        mixed = _apply(_attend(model, layer, states), layer.output)
        states = _normalise(states + mixed, layer.attention_norm, model.epsilon)
        dense = _apply(_gelu(_apply(states, layer.widen)), layer.narrow)
        states = _normalise(states + dense, layer.norm, model.epsilon)
    return states


def _attend(model: Transformer, layer: Layer, states: Floats) -> Floats:
    tokens, width = states.shape
    split = _apply(states, layer.projection).reshape(tokens, 3, model.heads, -1)
    query, key, value = split.transpose(1, 2, 0, 3)  # each (heads, tokens, h / heads)
    scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(width // model.heads))
    if model.distances is not None:
        steps = np.arange(tokens)
        scores = scores + model.distances[:, steps[None, :] - steps[:, None] + model.max_tokens - 1]
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    mixed: Floats = (weights @ value).transpose(1, 0, 2).reshape(tokens, width)
    return mixed


def _apply(states: Floats, linear: Linear) -> Floats:
    return states @ linear.weight + linear.bias


def _normalise(states: Floats, norm: Linear, epsilon: float) -> Floats:
    centred = states - states.mean(axis=1, keepdims=True)
    variance = (centred * centred).mean(axis=1, keepdims=True)
    made: Floats = centred / np.sqrt(variance + np.float32(epsilon)) * norm.weight + norm.bias
    return made


def _gelu(states: Floats) -> Floats:
    erf = _erf(states / np.float32(math.sqrt(2))).astype(np.float32)
    made: Floats = states * (1 + erf) / np.float32(2)
    return made
