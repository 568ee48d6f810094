"""The real MiniLM: its vectors are those of the reference, in every batch, and they know what is alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ir3de import Decision, Router
from ir3de.corpora import examples
from ir3de.embedding import packaged_models
from ir3de.encoders import Encoder
from ir3de.encoders.installing import install
from ir3de.encoders.reference import run_reference
from ir3de.encoders.running import pool
from ir3de.encoders.settings import read_settings
from ir3de.encoders.transformer import read_transformer

pytestmark = pytest.mark.encoder

NAME = "minilm-l6"


@pytest.fixture(scope="module", autouse=True)
def minilm(tmp_path_factory: pytest.TempPathFactory) -> object:
    """MiniLM, installed in a cache of its own from where it is on this machine."""
    place = packaged_models.locate(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("IR3DE_MINILM", place)
        made = install(NAME)
        assert made.header["precision"] == "int8" and made.header["difference"] < 2e-3
        yield Encoder.load(NAME)


def test_its_vectors_are_those_of_the_reference(minilm: Encoder, texts: list[str]) -> None:
    from tokenizers import Tokenizer

    folder = Path(packaged_models.locate(NAME))
    tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), read_transformer(folder)
    tokenizer.no_padding()
    settings = read_settings(folder)
    some = texts[:: len(texts) // 10]
    wanted = np.stack([pool(run_reference(model, tokenizer.encode(text).ids), settings) for text in some])
    assert (minilm.width, minilm.max_tokens, settings.pooling) == (384, 256, "mean")
    assert (minilm.encode(some) * wanted).sum(axis=1).min() > 0.999


def test_a_vector_depends_neither_on_the_batch_nor_on_the_order(minilm: Encoder, texts: list[str]) -> None:
    some = [text[: 20 + 7 * number] for number, text in enumerate(texts[:: len(texts) // 60])]
    order = np.random.default_rng(0).permutation(len(some))
    alone = np.concatenate([minilm.encode([text]) for text in some])
    together = minilm.encode([some[place] for place in order], batch=16)
    assert alone[order].tobytes() == together.tobytes()
    assert Encoder.load(NAME, threads=3).encode(some, batch=5).tobytes() == alone.tobytes()


def test_texts_of_one_meaning_are_near(minilm: Encoder) -> None:
    vectors = minilm.encode(
        ["Can my landlord evict me?", "Is my landlord allowed to throw me out of the flat?", "Sort a list in Python."]
    )
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > 0.5 > 0.2 > far


def test_a_fetched_copy_gives_the_same_digest(minilm: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights come from where they are; a copy elsewhere is the same encoder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    install(packaged_models.locate(NAME))
    assert Encoder.load(packaged_models.locate(NAME)).digest == minilm.digest


@pytest.mark.nightly
def test_a_router_that_asks_it_is_right_more_often(minilm: Encoder) -> None:
    experts = examples.prompts()
    router = Router.fit({name: texts[:16] for name, texts in experts.items()}, encoder=minilm)
    truth = [(name, text) for name, texts in experts.items() for text in texts[60:80]]
    texts = [text for _, text in truth]

    def count_right(decisions: list[Decision]) -> int:
        return sum(one.best == name for one, (name, _) in zip(decisions, truth, strict=True))

    found = router.route_batch(texts)
    assert 0 < sum(one.consulted for one in found) < len(found) / 2
    assert count_right(found) > count_right(router.route_batch(texts, consult=False))
    assert router.opinion is not None and router.opinion.gain is not None
    assert router.opinion.gain.consulted > router.opinion.gain.table
