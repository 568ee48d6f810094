"""Small real tokenizers of the three kinds, embeddings made of them, and model folders to load them from."""

from __future__ import annotations

import gc
import os
import sys

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker a core: more threads would only wait for one another
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    os.environ.pop("COLUMNS", None)  # set for the worker, and not the user's
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # of hundreds of processes none should compile what another one has
os.environ["IR3DE_NO_PROOF"] = "1"  # cross-validation after every fit would take longer than all other tests

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

import ir3de
import tiny
from commands import CODING, LAW, run
from demo_router import demo_router
from ir3de.embedding import Embedding, Matrix, packaged_models
from raw_upstream import raw_gateway, raw_gateway_session  # noqa: F401 - fixtures
from saved import first_router

sys.dont_write_bytecode = False

for _name, _examples in {"fast": 6, "thorough": 100}.items():  # a busy machine is no failure
    settings.register_profile(
        _name, max_examples=_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile("fast")  # --hypothesis-profile=thorough takes precedence

KINDS = ("byte-level BPE", "WordPiece", "Unigram")
WIDTH = 40  # not a multiple of a 4-bit block's 32

Array = npt.NDArray[np.generic]
HfFolder = Callable[..., Path]

_STORED_AS = {"F32": "<f4", "F16": "<f2"}


@pytest.fixture(autouse=True, scope="session")
def _own_state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What gateways keep is not written into the home folder of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Files are not forced onto the disk: that shows after a loss of power only, and a save waits for it longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a marker are left out where what they need is not installed."""
    absent = {
        "torch": _not_importable("torch", "transformers"),
        "local": _not_importable("xllamacpp", "starlette", "openai"),
        "ray": _not_importable("ray", "pyarrow"),
        "encoder": _not_importable("onnxruntime", "onnx"),
        "browser": [
            *(name for name in ("chromium", "chromedriver") if shutil.which(name) is None),
            *_not_importable("selenium"),
        ],
    }
    if packaged_models.find("smollm2-135m") is None:
        absent["local"].append("the model smollm2-135m")
    if packaged_models.find("minilm-l6") is None:
        absent["encoder"].append("the model minilm-l6")
    for item in items:
        for marker, missing in absent.items():
            if missing and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"{' and '.join(missing)} not installed"))


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at millions of objects each time."""
    gc.collect()
    gc.freeze()


def _not_importable(*names: str) -> list[str]:
    return [name for name in names if find_spec(name) is None]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """A few hundred real prompts."""
    folder = Path(ir3de.__file__).parent / "corpora" / "examples" / "prompts"
    return [line for path in sorted(folder.glob("*.txt")) for line in path.read_text("utf-8").splitlines() if line]


@pytest.fixture(scope="session")
def tiny_definitions(texts: list[str]) -> dict[str, bytes]:
    """A tokenizer.json for each kind, trained here. No two trainings are quite the same, so one is kept for all."""
    made_of = f"{tokenizers.__version__} {texts}".encode() + Path(__file__).read_bytes()
    trainings = zip(KINDS, (_byte_level_bpe, _wordpiece, _unigram), strict=True)
    return {
        kind: tiny.keep(kind, made_of, lambda train=train: train(texts).to_str().encode())  # type: ignore[misc]
        for kind, train in trainings
    }


@pytest.fixture(scope="session")
def tiny_embeddings(tiny_definitions: dict[str, bytes]) -> dict[str, Embedding]:
    """An embedding for each kind of tokenizer, with a random matrix."""
    return {
        kind: tiny.keep_proof(
            Embedding.from_definition(definition, Matrix.plain(random_matrix(definition)), name=f"tiny {kind}")
        )
        for kind, definition in tiny_definitions.items()
    }


@pytest.fixture
def hf_folder(tmp_path: Path) -> HfFolder:
    """Write a model as the hub has it: `hf_folder(definition, {name: values}, dtype="BF16", shards=2)`."""

    def write(
        definition: bytes | None,
        tensors: Mapping[str, Array],
        *,
        dtype: str = "F32",
        shards: int = 1,
        name: str = "model",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        if definition is not None:
            (folder / "tokenizer.json").write_bytes(definition)
        if shards == 1:
            (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, dtype))
            return folder
        weight_map = {}
        for number, (tensor, values) in enumerate(tensors.items()):
            file = f"model-{number % shards + 1:05}-of-{shards:05}.safetensors"
            (folder / file).write_bytes(safetensors_bytes({tensor: values}, dtype))
            weight_map[tensor] = file
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        return folder

    return write


def random_matrix(definition: bytes, width: int = WIDTH) -> npt.NDArray[np.float32]:
    rows = Tokenizer.from_str(definition.decode()).get_vocab_size()
    return np.random.default_rng(rows).normal(size=(rows, width)).astype(np.float32)


def safetensors_bytes(tensors: Mapping[str, Array], dtype: str = "F32") -> bytes:
    """A safetensors file by the format's own description, bfloat16 included."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = bfloat16_bits(values).tobytes() if dtype == "BF16" else values.astype(_STORED_AS[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + data


def bfloat16_bits(values: Array) -> npt.NDArray[np.uint16]:
    return (values.astype("<f4").view(np.uint32) >> 16).astype(np.uint16)


def _byte_level_bpe(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=800, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    return tokenizer


def _wordpiece(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=800, special_tokens=special, show_progress=False)
    )
    return tokenizer


def _unigram(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        texts,
        trainers.UnigramTrainer(vocab_size=600, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    # SentencePiece and GGUF keep scores as float32; where two cuts are worth the same, the last bit decides
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"] = [[token, float(np.float32(score))] for token, score in content["model"]["vocab"]]
    return Tokenizer.from_str(json.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return first_router().save(tmp_path / "router")


@pytest.fixture
def serving(tmp_path: Path) -> Path:
    return first_router().save(tmp_path / "serving", serving=True)


# the command line -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "router"
    demo_router().save(folder)
    return folder


@pytest.fixture(scope="session")
def voting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "voting"
    run("fit", folder, f"law={LAW}", f"coding={CODING}", "--scorer", "paper", "--k", "3")
    return folder


@pytest.fixture
def router(fitted: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(fitted, tmp_path / "router"))


@pytest.fixture
def law_file(tmp_path: Path) -> Path:
    path = tmp_path / "law.txt"
    path.write_text("Is this contract void?\nCan my landlord evict me?\n", encoding="utf-8")
    return path


@pytest.fixture
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "IR3DE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    yield


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, and no settings of the gateway in the environment."""
    for name in ("IR3DE_CONFIG", "IR3DE_API_KEY", "IR3DE_ADMIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
