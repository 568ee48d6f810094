"""Embeddings from Hugging Face folders and from the hub's cache, and what is refused."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import HfFolder, random_matrix, safetensors_bytes
from safetensors.numpy import save as save_safetensors

from hub_cache import hub_cache, load_offline
from ir3de.embedding import Embedding
from ir3de.embedding.huggingface import WEIGHT_NAMES, load_hub
from ir3de.errors import ArtifactError, EmbeddingError

NAMES = (
    *WEIGHT_NAMES,
    "roberta.embeddings.word_embeddings.weight",
    "distilbert.embeddings.word_embeddings.weight",
    "deberta.embeddings.word_embeddings.weight",
)
EMBED, HEAD = WEIGHT_NAMES[0], "lm_head.weight"


@pytest.fixture(scope="session")
def definition(tiny_definitions: dict[str, bytes]) -> bytes:
    return tiny_definitions["byte-level BPE"]


@pytest.fixture(scope="session")
def matrix(definition: bytes) -> np.ndarray:
    return random_matrix(definition)


def other_weights(matrix: np.ndarray) -> dict[str, np.ndarray]:
    return {"a.norm.weight": matrix[0], "layers.0.mlp.weight": matrix[:7], HEAD: matrix[::-1]}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shards", [1, 2])
def test_every_family_is_read(
    name: str, shards: int, hf_folder: HfFolder, definition: bytes, matrix: np.ndarray
) -> None:
    folder = hf_folder(definition, {**other_weights(matrix), name: matrix}, shards=shards)
    embedding = Embedding.load(folder)
    np.testing.assert_array_equal(embedding.matrix, matrix)
    assert embedding.name == "model"
    assert embedding.tokenizer.vocabulary_size == 800


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("dtype", "kept_as"), [("F32", "float32"), ("F16", "float16"), ("BF16", "float32")])
@pytest.mark.parametrize("tied", [True, False])
def test_every_float_is_read_tied_or_not(
    dtype: str, kept_as: str, shards: int, tied: bool, hf_folder: HfFolder, definition: bytes, matrix: np.ndarray
) -> None:
    weights = {"a.norm.weight": matrix[0], EMBED: matrix}
    folder = hf_folder(definition, weights if tied else {HEAD: matrix[::-1], **weights}, dtype=dtype, shards=shards)
    embedding = Embedding.load(folder)
    assert embedding.stored.encoding == kept_as
    rounding = {"F32": 0.0, "F16": 2**-11, "BF16": 2**-7}[dtype]
    np.testing.assert_allclose(embedding.matrix, matrix, rtol=rounding, atol=1e-7)


def test_a_file_of_the_format_s_own_writer_is_read(tmp_path: Path, definition: bytes, matrix: np.ndarray) -> None:
    (tmp_path / "tokenizer.json").write_bytes(definition)
    content = save_safetensors({**other_weights(matrix), EMBED: matrix}, metadata={"format": "pt"})
    (tmp_path / "weights.safetensors").write_bytes(content)
    np.testing.assert_array_equal(Embedding.load(tmp_path).matrix, matrix)


def test_only_the_shard_with_the_embedding_is_opened(
    hf_folder: HfFolder, definition: bytes, matrix: np.ndarray
) -> None:
    folder = hf_folder(definition, {EMBED: matrix, HEAD: matrix}, shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    np.testing.assert_array_equal(Embedding.load(folder).matrix, matrix)


def test_a_matrix_may_have_more_rows_than_the_tokenizer(
    hf_folder: HfFolder, definition: bytes, matrix: np.ndarray
) -> None:
    padded = np.vstack([matrix, matrix[:24]])
    assert Embedding.load(hf_folder(definition, {EMBED: padded})).vocabulary_size == 824


def test_another_tokenizer_can_be_named(
    hf_folder: HfFolder, tiny_definitions: dict[str, bytes], matrix: np.ndarray, tmp_path: Path
) -> None:
    (tmp_path / "named.json").write_bytes(tiny_definitions["WordPiece"])
    embedding = Embedding.load(hf_folder(None, {EMBED: matrix}), tokenizer=tmp_path / "named.json")
    assert json.loads(embedding.tokenizer.definition)["model"]["type"] == "WordPiece"


# --- what is refused ---


def test_a_folder_without_a_tokenizer_is_refused(hf_folder: HfFolder, matrix: np.ndarray) -> None:
    with pytest.raises(EmbeddingError, match=r"no tokenizer\.json: found model\.safetensors.*tokenizer="):
        Embedding.load(hf_folder(None, {EMBED: matrix}))


def test_weights_without_an_embedding_are_refused(hf_folder: HfFolder, definition: bytes, matrix: np.ndarray) -> None:
    with pytest.raises(EmbeddingError, match=r"found layers\.0\.mlp\.weight \[7, 40\], lm_head\.weight \[800, 40\]"):
        Embedding.load(hf_folder(definition, other_weights(matrix)))
    with pytest.raises(EmbeddingError, match=r"index\.json under any name ir3de knows.*found a\.norm\.weight"):
        Embedding.load(hf_folder(definition, other_weights(matrix), shards=2, name="sharded"))


def test_a_tensor_that_is_no_matrix_is_refused(hf_folder: HfFolder, definition: bytes, matrix: np.ndarray) -> None:
    with pytest.raises(EmbeddingError, match=r"is not a matrix: its shape is \[40\]"):
        Embedding.load(hf_folder(definition, {EMBED: matrix[0]}))


def test_a_matrix_with_too_few_rows_is_refused(hf_folder: HfFolder, definition: bytes, matrix: np.ndarray) -> None:
    with pytest.raises(EmbeddingError, match="they do not belong together"):
        Embedding.load(hf_folder(definition, {EMBED: matrix[:-1]}))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "found nothing"),
        (("pytorch_model.bin",), "pytorch_model.bin is a pickle, which can run code and is not read"),
        (("a.safetensors", "b.safetensors"), "found a.safetensors, b.safetensors"),
    ],
)
def test_a_folder_without_weights_is_refused(files: tuple[str, ...], said: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(EmbeddingError, match=said):
        Embedding.load(tmp_path)


def with_header(header: object) -> bytes:
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + bytes(16)


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", ArtifactError, "not a safetensors file"),
        (b"\xff" * 20, ArtifactError, "not a safetensors file"),
        ((4).to_bytes(8, "little") + b"{{{{", ArtifactError, "not a safetensors file"),
        (with_header([1]), ArtifactError, "not a safetensors file"),
        (with_header({EMBED: {"dtype": "F32", "shape": [2, 2]}}), ArtifactError, "data_offsets"),
        (with_header({EMBED: {"dtype": "F32", "shape": [2, -2], "data_offsets": [0, 16]}}), ArtifactError, "whole"),
        (with_header({EMBED: {"dtype": "F32", "shape": [2, 2], "data_offsets": [16, 0]}}), ArtifactError, "16 … 0"),
        (
            with_header({EMBED: {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 16]}}),
            ArtifactError,
            "in 16 bytes",
        ),
        (with_header({EMBED: {"dtype": "F32", "shape": [9, 9], "data_offsets": [0, 324]}}), ArtifactError, "truncated"),
        (with_header({EMBED: {"dtype": "I8", "shape": [4, 4], "data_offsets": [0, 16]}}), EmbeddingError, "as I8"),
    ],
)
def test_damaged_weights_are_refused(
    content: bytes, error: type[Exception], said: str, tmp_path: Path, definition: bytes
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(definition)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(error, match=said):
        Embedding.load(tmp_path)


@pytest.mark.parametrize("index", ["{", "[]", "{}", json.dumps({"weight_map": {EMBED: "../elsewhere.safetensors"}})])
def test_a_damaged_index_is_refused(index: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ArtifactError, match="is damaged"):
        Embedding.load(tmp_path)


def test_a_missing_shard_is_refused(hf_folder: HfFolder, definition: bytes, matrix: np.ndarray) -> None:
    folder = hf_folder(definition, {EMBED: matrix, HEAD: matrix}, shards=2)
    (folder / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"cannot read .*00001-of-00002"):
        Embedding.load(folder)


# --- the hub ---


@pytest.mark.parametrize("shards", [1, 2])
def test_the_hub_s_cache_is_read_offline(
    shards: int, hf_folder: HfFolder, definition: bytes, matrix: np.ndarray, tmp_path: Path
) -> None:
    folder = hf_folder(definition, {EMBED: matrix, HEAD: matrix}, dtype="BF16", shards=shards)
    (folder / "model-00002-of-00002.safetensors").unlink(missing_ok=True)  # the shard that is not needed
    hub_cache(tmp_path / "home", "owner/name", folder)
    assert load_offline(tmp_path / "home", "owner/name") == f"owner/name {Embedding.load(folder).fingerprint}"


def test_offline_and_not_cached_says_what_to_do(tmp_path: Path) -> None:
    said = load_offline(tmp_path, "owner/absent")
    assert said.startswith(
        "EmbeddingError cannot get 'owner/absent' from the hub, nor from its cache. tokenizer.json: "
    )
    assert said.endswith("download the model on a connected machine and pass its folder")


def test_a_hub_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, definition: bytes) -> None:
    import huggingface_hub

    def fail(url: str, timeout: float) -> None:
        raise TimeoutError("The read timed out. Try later.")

    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", fail)
    (tmp_path / "named.json").write_bytes(definition)
    with pytest.raises(EmbeddingError, match=r"owner/name.*model\.safetensors: The read timed out\. Check the name"):
        load_hub("owner/name", tokenizer=tmp_path / "named.json")


def test_the_test_s_own_writer_agrees_with_the_format_s(matrix: np.ndarray) -> None:
    from safetensors.numpy import load

    np.testing.assert_array_equal(load(safetensors_bytes({"x": matrix}))["x"], matrix)


def test_a_hub_that_does_not_answer_is_not_asked_again_and_again(tmp_path: Path) -> None:
    """The hub's own library would ask again and again, for half a minute."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the test is over
                    return
                asked.append(connection.getsockname())
                connection.close()

        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        said = load_offline(tmp_path, "nobody/nothing", HF_HUB_OFFLINE="0", HF_ENDPOINT=address, NO_PROXY="127.0.0.1")
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(20)
    assert said.startswith("EmbeddingError cannot get 'nobody/nothing' from the hub, nor from its cache.")
    assert len(asked) <= 2  # one request, which the HTTP library sends anew if the connection is closed under it
