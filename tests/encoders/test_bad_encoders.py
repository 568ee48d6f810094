"""What is not an encoder, or a damaged one, is refused with a message that names what to do."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import ir3de
from commands import complaint, run_json
from hub_cache import hub_cache
from ir3de.encoders import Encoder
from ir3de.encoders.installed import list_installed
from ir3de.encoders.installing import install
from ir3de.encoders.sources import encoders_folder, find_source
from ir3de.errors import ArtifactError, EmbeddingError, InputError, IR3DEError, MissingExtraError
from tiny_encoders import TEXTS, make_config, write_encoder, write_json

pytest.importorskip("onnxruntime")

Change = Callable[[Path], object]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_encoder(tmp_path / "tiny")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def drop_tensor(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["encoder.layer.1.output.dense.bias"]
    save_file(tensors, path)


def turn_tensor(folder: Path) -> None:
    path, name = folder / "model.safetensors", "encoder.layer.1.output.dense.weight"
    tensors = load_file(path)
    save_file({**tensors, name: np.ascontiguousarray(tensors[name].T)}, path)


def spoil_tensor(folder: Path) -> None:
    path, name = folder / "model.safetensors", "encoder.layer.1.output.dense.bias"
    tensors = load_file(path)
    save_file({**tensors, name: np.full_like(tensors[name], np.nan)}, path)


def pickle_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def change_config(**changes: object) -> Change:
    return lambda folder: write_json(folder / "config.json", {**make_config(), **changes})


def write_pooling(**modes: object) -> Change:
    return lambda folder: write_json(folder / "1_Pooling" / "config.json", modes)


def write_modules(*kinds: str) -> Change:
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": kind} for kind in kinds]
    return lambda folder: write_json(folder / "modules.json", modules)


def limit_tokens(folder: Path) -> None:
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 1})


def add_tokens(folder: Path) -> None:
    definition = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = definition["model"]["vocab"]
    vocabulary |= {f"more{number}": len(vocabulary) + number for number in range(9)}
    write_json(folder / "tokenizer.json", definition)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json: found .*Save the model's fast"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json: found "),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights in .*: found .*has model.safetensors or"),
        (pickle_weights, "pytorch_model.bin is a pickle, which can run code and is not read"),
        (lambda folder: cut(folder / "model.safetensors"), "is truncated: its header promises"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b""), "is damaged or not a safetensors file"),
        (drop_tensor, "has no tensor 'encoder.layer.1.output.dense.bias', which its config.json promises"),
        (turn_tensor, r"second dense layer of layer 1 in .* has the shape \(40, 72\), expected \(72, 40\)"),
        (spoil_tensor, "a vector of length nan: its weights are damaged"),
        (change_config(model_type="t5"), "a model of type 't5', which ir3de cannot run; it runs bert, roberta"),
        (change_config(hidden_act="relu"), "the activation 'relu'.*ir3de runs 'gelu'"),
        (change_config(num_attention_heads=7), "7 heads for a width of 40"),
        (change_config(num_attention_heads="many"), "do not fit its config.json"),
        (change_config(max_position_embeddings=None), "names no number of positions"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged: it is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "config.json is damaged: it is not a JSON object"),
        (lambda folder: (folder / "1_Pooling" / "config.json").unlink(), "it is not a sentence encoder in the layout"),
        (write_pooling(pooling_mode_max_tokens=True), r"asks for \['max_tokens'\] pooling; ir3de knows mean_tokens"),
        (write_pooling(pooling_mode_cls_token=True, pooling_mode_mean_tokens=True), "asks for .* pooling"),
        (write_modules("Transformer", "Pooling", "Dense"), "has the module Dense; ir3de knows Transformer"),
        (lambda folder: (folder / "modules.json").write_text("7"), "modules.json is damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json of .* cannot be read"),
        (add_tokens, "they belong to different models"),
        (limit_tokens, "at least 3 are needed"),
    ],
)  # fmt: skip
def test_a_folder_that_is_no_encoder_is_refused_and_nothing_is_installed(
    tiny: Path, change: Change, message: str
) -> None:
    change(tiny)
    with pytest.raises(IR3DEError, match=message):
        install(str(tiny))
    assert not encoders_folder().exists() or list(encoders_folder().iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minilm", "no folder is at 'minilm': name minilm-l6, all-mpnet-base-v2, multilingual-e5-small, the folder"),
        ("", "an encoder is named by a text, found ''"),
        ("smollm2-135m", "the packaged model 'smollm2-135m' is not a sentence encoder"),
        (__file__, "is a file: name minilm-l6"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Encoder.load(name)


def test_an_encoder_that_is_not_installed_names_the_command(tiny: Path) -> None:
    with pytest.raises(ArtifactError, match=f"is not installed. .*: ir3de encoder install {tiny}"):
        Encoder.load(str(tiny))
    with pytest.raises(ArtifactError, match="'minilm-l6' is not installed: ir3de encoder install minilm-l6"):
        Encoder.load("minilm-l6")
    assert "is not installed: ir3de encoder install" in complaint("encoder", "show", tiny)
    (tiny / "model.safetensors").unlink()
    with pytest.raises(EmbeddingError, match="no weights in"):
        Encoder.load(str(tiny))


@pytest.mark.parametrize(
    ("file", "message"),
    [("model.onnx", "its SHA-256 is"), ("tokenizer.json", "its SHA-256 is"), ("encoder.json", "JSON")],
)
def test_an_installed_encoder_that_was_changed_is_refused(tiny: Path, file: str, message: str) -> None:
    path = install(str(tiny)).folder / file
    cut(path)
    with pytest.raises(ArtifactError, match=f"{message}.* To make it again: ir3de encoder install"):
        Encoder.load(str(tiny))
    path.unlink()
    with pytest.raises(ArtifactError, match=r"cannot read .* To make it again: ir3de encoder install"):
        Encoder.load(str(tiny))
    install(str(tiny))
    assert Encoder.load(str(tiny)).width


def test_an_edited_header_is_refused(tiny: Path) -> None:
    path = install(str(tiny)).folder / "encoder.json"
    path.write_text(path.read_text("utf-8").replace('"mean"', '"cls"'), encoding="utf-8")
    with pytest.raises(ArtifactError, match="was edited"):
        Encoder.load(str(tiny))


def test_weights_that_changed_after_the_installation_are_refused(tiny: Path) -> None:
    install(str(tiny))
    weights = tiny / "model.safetensors"
    os.utime(weights, ns=(1, 1))  # a copy has another time and the same content
    before = Encoder.load(str(tiny))
    tensors = load_file(weights)
    save_file({name: values + np.float32(0.01) for name, values in tensors.items()}, weights)
    with pytest.raises(ArtifactError, match=r"have changed since .* was installed. To make it again: ir3de encoder"):
        Encoder.load(str(tiny))
    install(str(tiny))
    assert Encoder.load(str(tiny)).digest != before.digest
    weights.unlink()  # the installed encoder needs it no longer
    assert Encoder.load(str(tiny)).encode(["why?"]).any()


def test_a_full_disk_leaves_what_was_there(tiny: Path) -> None:
    """The limit on the size of files stands for a disk that is full."""
    before = install(str(tiny))
    content = {path.name: path.read_bytes() for path in before.folder.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
        with pytest.raises(ArtifactError, match=f"cannot write .*model.onnx: {os.strerror(errno.EFBIG)}"):
            install(str(tiny), precision="float32")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in encoders_folder().iterdir()] == [before.folder.name]
    assert {path.name: path.read_bytes() for path in before.folder.iterdir()} == content


def test_onnx_files_of_others_are_checked(tiny: Path) -> None:
    (tiny / "model.onnx").write_bytes(b"this is not a graph")
    with pytest.raises(ArtifactError, match="onnxruntime cannot load the model of"):
        Encoder.load(str(tiny))


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_missing_package_is_named_with_its_extra(tiny: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs the package '{package}', .*\[encoder\]"):
        install(str(tiny))


def test_a_hub_id_is_read_from_the_cache_of_the_hub(tiny: Path, tmp_path: Path) -> None:
    """In a fresh process: the hub's library reads its variables when it is imported."""
    expected = install(str(tiny))
    lay_out(tmp_path / "hub-home", tiny)
    program = (
        "from ir3de.encoders import Encoder\nfrom ir3de.encoders.installing import install\n"
        "install('owner/tiny'); print(Encoder.load('owner/tiny').digest)\n"
        "try:\n    install('owner/other')\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hub-home"), "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = str(Path(ir3de.__file__).parent.parent)
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    digest, refused = done.stdout.splitlines()
    assert digest == Encoder.load(str(tiny)).digest and expected.folder != find_source("owner/tiny").installed
    assert refused.startswith("EmbeddingError cannot get 'owner/other' from the hub, nor from its cache")


def lay_out(home: Path, folder: Path) -> None:
    """The files as the hub's cache has them."""
    pooling = folder / "1_Pooling" / "config.json"
    kept = pooling.read_bytes()
    pooling.unlink()
    pooling.parent.rmdir()
    hub_cache(home, "owner/tiny", folder)
    snapshot = next(home.glob("hub/*/snapshots/*"))
    for place in (folder, snapshot):
        (place / "1_Pooling").mkdir()
        (place / "1_Pooling" / "config.json").write_bytes(kept)


def test_the_commands_install_show_and_list(tiny: Path) -> None:
    made = run_json("encoder", "install", tiny)
    loaded = Encoder.load(str(tiny))
    assert made["digest"] == loaded.digest and made["width"] == loaded.width and made["precision"] == "int8"
    assert made["difference"] < 1e-3 and made["texts_per_second"]["alone"] > 0
    assert made["bytes"] == sum(path.stat().st_size for path in Path(made["path"]).iterdir())
    assert run_json("encoder", "show", tiny)["digest"] == made["digest"]
    rows = {row["name"]: row for row in run_json("encoder", "list")}
    assert rows[str(tiny)]["digest"] == made["digest"] and rows[str(tiny)]["installed"]
    assert not rows["minilm-l6"]["installed"]
    assert [one.header["name"] for one in list_installed()] == [str(tiny)]
    assert loaded.encode(TEXTS).any()
