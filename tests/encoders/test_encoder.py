"""Encoders give the vectors of the reference, whatever the batch, the order and the threads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ir3de.encoders import Encoder
from ir3de.encoders.graph import Precision, build_graph
from ir3de.encoders.installing import install
from ir3de.encoders.reference import run_reference
from ir3de.encoders.running import pool
from ir3de.encoders.settings import read_settings
from ir3de.encoders.transformer import read_transformer, spread_buckets
from ir3de.errors import InputError
from tiny_encoders import FAMILIES, POSITIONS, TEXTS, WIDTH, write_encoder, write_json

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = write_encoder(tmp_path_factory.mktemp("encoders") / "tiny")
    install(str(folder))
    return Encoder.load(str(folder), threads=1)


def refer(folder: Path, texts: tuple[str, ...] = TEXTS) -> np.ndarray:
    """The vectors of the reference."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model, known = read_transformer(folder), read_settings(folder)
    return np.stack([pool(run_reference(model, tokenizer.encode(known.prefix + text).ids), known) for text in texts])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token"])
@pytest.mark.parametrize(("precision", "most"), [("float32", 1e-6), ("int8", 1e-3)])
def test_vectors_are_those_of_the_reference(
    tmp_path: Path, family: str, pooling: str, precision: Precision, most: float
) -> None:
    folder = write_encoder(tmp_path / "tiny", family, pooling=pooling, prefix="model.")
    made = install(str(folder), precision=precision)
    found = Encoder.load(str(folder)).encode(TEXTS)
    assert found.dtype == np.float32 and found.shape == (len(TEXTS), WIDTH)
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6
    difference = 1 - (found * refer(folder)).sum(axis=1).min()
    assert difference < most and made.header["difference"] < most
    assert precision == "float32" or difference > 1e-7  # 8 bits were used


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(len(TEXTS))), st.integers(1, 9), st.integers(1, 3))
def test_a_vector_depends_neither_on_the_batch_nor_on_the_order(
    encoder: Encoder, order: list[int], batch: int, copies: int
) -> None:
    alone = np.concatenate([encoder.encode([TEXTS[place]]) for place in order] * copies)
    together = encoder.encode([TEXTS[place] for place in order] * copies, batch=batch)
    assert alone.tobytes() == together.tobytes()


def test_a_vector_does_not_depend_on_the_threads(encoder: Encoder) -> None:
    texts = [f"{text} {word}" for text in TEXTS for word in ("void", "prime list", "sort sort why?")] * 5
    threaded = Encoder.load(encoder.name, threads=3)
    assert threaded.encode(texts, batch=2).tobytes() == encoder.encode(texts, batch=64).tobytes()


def test_equal_weights_give_equal_bytes_and_digests(tmp_path: Path) -> None:
    one, other = write_encoder(tmp_path / "one"), write_encoder(tmp_path / "other")
    model = read_transformer(one)
    assert build_graph(model, "int8") == build_graph(read_transformer(other), "int8")
    digests = {}
    for name, folder in (("one", one), ("other", other), ("mpnet", write_encoder(tmp_path / "mpnet", "mpnet"))):
        install(str(folder))
        digests[name] = Encoder.load(str(folder)).digest
    install(str(one), precision="float32")
    digests["float32"] = Encoder.load(str(one)).digest
    assert digests["one"] == digests["other"] and len({*digests.values()}) == 3


def test_what_an_encoder_reports(encoder: Encoder) -> None:
    assert (encoder.width, encoder.max_tokens) == (WIDTH, 24)
    assert encoder.name.endswith("tiny") and len(encoder.digest) == 64
    assert encoder.encode([]).shape == (0, WIDTH)


def test_a_long_text_is_cut_at_the_most_tokens(encoder: Encoder) -> None:
    words = ["why"] * 22  # and the two that begin and end a text
    cut, longer = encoder.encode([" ".join(words), " ".join([*words, "void", "list"])])
    assert cut.tobytes() == longer.tobytes()
    shorter = encoder.encode([" ".join(words[:-1])])[0]
    assert shorter.tobytes() != cut.tobytes()
    huge = encoder.encode(["why " * 2_000_000])[0]
    assert huge.tobytes() == cut.tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_length_the_positions_bound_it(tmp_path: Path, family: str) -> None:
    folder = write_encoder(tmp_path / "tiny", family)
    (folder / "sentence_bert_config.json").unlink()
    install(str(folder))
    found = Encoder.load(str(folder))
    assert found.max_tokens == POSITIONS
    assert np.isfinite(found.encode(["why " * 100])).all()


def test_prompts_are_written_before_the_text(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "tiny")
    prompts = {"prompts": {"query": "why: ", "passage": "list: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    install(str(folder))
    by_default, without = Encoder.load(str(folder)), Encoder.load(str(folder), prompt="")
    passage = Encoder.load(str(folder), prompt="passage")
    assert by_default.encode(["void"]).tobytes() == without.encode(["why: void"]).tobytes()
    assert passage.encode(["void"]).tobytes() == without.encode(["list: void"]).tobytes()
    assert len({by_default.digest, without.digest, passage.digest}) == 3
    with pytest.raises(InputError, match="has no prompt 'question'; its prompts are: query, passage"):
        Encoder.load(str(folder), prompt="question")


def test_letters_become_small_if_the_encoder_asks_for_it(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "tiny")
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    definition["normalizer"]["lowercase"] = False
    write_json(folder / "tokenizer.json", definition)
    install(str(folder))
    kept = Encoder.load(str(folder)).encode(["VOID", "void"])
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 24, "do_lower_case": True})
    install(str(folder))
    lowered = Encoder.load(str(folder)).encode(["VOID", "void"])
    assert kept[0].tobytes() != kept[1].tobytes() and lowered[0].tobytes() == lowered[1].tobytes()


@pytest.mark.parametrize("place", ["onnx/model.onnx", "model.onnx"])
def test_the_onnx_file_of_a_folder_is_used(tmp_path: Path, place: str) -> None:
    folder = write_encoder(tmp_path / "tiny")
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_bytes(build_graph(read_transformer(folder), "float32"))
    (folder / "model.safetensors").unlink()
    found = Encoder.load(str(folder))
    vectors = found.encode(TEXTS, batch=4)
    assert np.abs(vectors - refer_without_weights(tmp_path, folder)).max() < 1e-5
    assert vectors.tobytes() == np.concatenate([found.encode([text]) for text in TEXTS]).tobytes()


def refer_without_weights(tmp_path: Path, folder: Path) -> np.ndarray:
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    shutil.copy(write_encoder(tmp_path / "again") / "model.safetensors", whole)
    return refer(whole)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("why?", "takes a list of texts, found a single text"),
        (["why?", ""], "text 1 is empty"),
        ([" \n\t"], "text 0 is empty"),
        (["why?", None], "text 1 is not a string but NoneType"),
        ([b"why?"], "text 0 is not a string but bytes"),
    ],
)
def test_what_is_no_text_is_refused(encoder: Encoder, texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder.encode(texts)


def test_half_a_surrogate_pair_is_a_replacement_character(encoder: Encoder) -> None:
    half, replaced = encoder.encode(["why \ud83d?", "why �?"])
    assert half.tobytes() == replaced.tobytes()


@pytest.mark.parametrize(("batch", "threads"), [(0, 1), (1, 0)])
def test_batches_and_threads_are_at_least_one(encoder: Encoder, batch: int, threads: int) -> None:
    with pytest.raises(InputError, match="at least one"):
        Encoder.load(encoder.name, threads=threads).encode(["why?"], batch=batch)


def test_distances_share_buckets_as_in_mpnet() -> None:
    """Bucket b has the bias b: exact up to 7, then two for each factor of the square root of two, 16 more behind."""
    found = dict(zip(range(-511, 512), spread_buckets(np.arange(32, dtype=np.float32)[:, None], 512)[0], strict=True))
    assert [found[-size] for size in (0, 1, 7, 8, 11, 12, 16, 32, 64, 90, 91, 128, 511)] == [
        0, 1, 7, 8, 8, 9, 10, 12, 14, 14, 15, 15, 15,
    ]  # fmt: skip
    assert all(found[size] == found[-size] + 16 for size in range(1, 512))


@pytest.mark.torch
@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel

    folder = write_encoder(tmp_path / "tiny", family)
    install(str(folder), precision="float32")
    found = Encoder.load(str(folder)).encode(TEXTS)
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            states = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].mean(0)
        assert 1 - float((states / states.norm()).numpy() @ vector) < 1e-6
