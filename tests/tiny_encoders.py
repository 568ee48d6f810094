"""Small sentence encoders with random weights, in the layout of sentence-transformers."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

Floats = npt.NDArray[np.float32]

WIDTH, HEADS, LAYERS, INNER, POSITIONS = 40, 4, 2, 72, 30  # 40 is not a multiple of what a processor adds at once
FAMILIES = ("bert", "xlm-roberta", "mpnet")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("the", "contract", "is", "void", "prove", "that", "two", "prime", "sort", "list", "why", "?")
TEXTS = (
    "the contract is void",
    "prove that two is prime",
    "why?",
    "sort the list",
    "why is the list void?",
    "x",
    "prove that the contract is void, prove that the list is prime",
    "a b c",
)


def define_tokenizer() -> bytes:
    letters = string.ascii_lowercase + string.digits + string.punctuation
    pieces = dict.fromkeys([*SPECIAL, *WORDS, *letters, *(f"##{letter}" for letter in letters)])
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    content: str = made.to_str()
    return content.encode()


def make_config(family: str = "bert") -> dict[str, Any]:
    vocabulary = len(json.loads(define_tokenizer())["model"]["vocab"])
    return {
        "model_type": family,
        "hidden_act": "gelu",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS if family == "bert" else POSITIONS + 2,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "pad_token_id": 0 if family == "bert" else 1,
        "relative_attention_num_buckets": 32,
        "type_vocab_size": 2 if family == "bert" else 1,
        "vocab_size": vocabulary,
    }


def make_tensors(family: str = "bert", prefix: str = "") -> dict[str, Floats]:
    """Weights by the names that transformers gives them."""
    config, rng = make_config(family), np.random.default_rng(7)
    made: dict[str, Floats] = {}

    def add(name: str, *shape: int) -> None:
        made[f"{prefix}{name}"] = rng.normal(0, 0.15, shape).astype(np.float32)

    def add_norm(name: str) -> None:
        made[f"{prefix}{name}.weight"] = rng.normal(1, 0.1, WIDTH).astype(np.float32)
        add(f"{name}.bias", WIDTH)

    add("embeddings.word_embeddings.weight", config["vocab_size"], WIDTH)
    add("embeddings.position_embeddings.weight", config["max_position_embeddings"], WIDTH)
    if family != "mpnet":
        add("embeddings.token_type_embeddings.weight", config["type_vocab_size"], WIDTH)
    else:
        add("encoder.relative_attention_bias.weight", 32, HEADS)
    add_norm("embeddings.LayerNorm")
    attention = (
        ("attn.q", "attn.k", "attn.v", "attn.o") if family == "mpnet" else ("self.query", "self.key", "self.value")
    )
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        parts = [(f"attention.{part}", WIDTH, WIDTH) for part in attention]
        parts += [] if family == "mpnet" else [("attention.output.dense", WIDTH, WIDTH)]
        parts += [("intermediate.dense", INNER, WIDTH), ("output.dense", WIDTH, INNER)]
        for part, outputs, inputs in parts:
            add(f"{layer}.{part}.weight", outputs, inputs)
            add(f"{layer}.{part}.bias", outputs)
        add_norm(f"{layer}.attention.LayerNorm" if family == "mpnet" else f"{layer}.attention.output.LayerNorm")
        add_norm(f"{layer}.output.LayerNorm")
    return made


def write_encoder(folder: Path, family: str = "bert", *, pooling: str = "mean_tokens", prefix: str = "") -> Path:
    """The folder of an encoder, with its weights."""
    (folder / "1_Pooling").mkdir(parents=True)
    save_file(make_tensors(family, prefix), folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(define_tokenizer())
    write_json(folder / "config.json", make_config(family))
    write_json(
        folder / "1_Pooling" / "config.json", {f"pooling_mode_{pooling}": True, "pooling_mode_max_tokens": False}
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": False})
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in paths.items()]
    write_json(folder / "modules.json", modules)
    return folder


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """Nothing is installed or loaded at first, and what is installed lies in this folder."""
    from ir3de.encoders import shared

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setattr(shared, "_encoders", {})
        patch.setattr(shared, "_missing", set())
        yield
