"""Files that were changed and sealed again, as a publisher could: no hash tells, and still one clear error."""

import gzip
import hashlib
import json
import struct
import tracemalloc
from pathlib import Path

import pytest

from ir3de import Router, collect, files
from ir3de.errors import ArtifactError
from ir3de.files import streams as packing
from ir3de.files.router_folder import holds_router
from ir3de.statistics.files import load_statistics, save_statistics
from saved import edit, first_router, refusal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    first_router().save(tmp_path / "router")
    return tmp_path / "router"


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("familiarity", "within", {}),
        ("familiarity", "mean", []),
        ("membership", "bias", "1"),
        ("calibration", "scale", None),
    ],
)
def test_a_number_that_is_none_is_found_when_the_router_is_loaded(
    folder: Path, section: str, name: str, value: object
) -> None:
    def change(header: dict) -> None:
        if header[section] is None:
            pytest.skip(f"this router has no {section}")
        header[section][name] = value

    edit(folder, change)
    assert "router.json is damaged" in refusal(Router.load, folder)


@pytest.mark.parametrize("name", [{"": None}, 7, None, ["law"]])
def test_an_experts_name_is_text(folder: Path, name: object) -> None:
    edit(folder, lambda header: header["experts"][1].update(name=name))
    assert "an expert's name is" in refusal(Router.load, folder)


@pytest.mark.parametrize(
    "content", [gzip.compress(b"{}" * 500, mtime=0)[:-9], b"\x1f\x8b" + b"\0" * 50], ids=["cut", "empty"]
)
def test_packed_bytes_that_are_damaged(content: bytes) -> None:
    with pytest.raises(ArtifactError, match="the tokenizer is damaged"):
        packing.unpack_gzip(content, "the tokenizer")


def test_packed_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "MAX_UNPACKED_BYTES", 1_000)
    assert packing.unpack_gzip(gzip.compress(b"a" * 1_000), "the tokenizer") == b"a" * 1_000
    with pytest.raises(ArtifactError, match="more than 1,000 bytes"):
        packing.unpack_gzip(gzip.compress(b"a" * 1_001), "the tokenizer")


def test_unpacking_takes_no_more_memory_than_what_is_unpacked() -> None:
    tracemalloc.start()
    try:
        packing.unpack_gzip(gzip.compress(b"a" * 10_000), "the tokenizer")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_compiled_tokenizer_that_is_damaged_is_named(folder: Path) -> None:
    header = json.loads((folder / "router.json").read_bytes())
    if not header["tokenizer"].get("fast_file"):
        pytest.skip("the fast tokenizer is not installed")
    path = folder / header["tokenizer"]["fast_file"]["name"]
    damaged = path.read_bytes()[:-30]
    path.unlink()  # it may be linked to another router's
    path.write_bytes(damaged)
    edit(folder, lambda header: header["tokenizer"]["fast_file"].update(sha256=hashlib.sha256(damaged).hexdigest()))
    assert "is damaged" in refusal(lambda: Router.load(folder).route("a b"))


def test_statistics_of_a_fingerprint_that_is_no_text(tmp_path: Path) -> None:
    path = save_statistics(collect(["a b c"]), tmp_path / "a.stats")
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    described = json.loads(data[8 : 8 + size])
    header = json.loads(described["__metadata__"]["ir3de"])
    header.pop("sha256")
    described["__metadata__"]["ir3de"] = json.dumps(files.seal({**header, "fingerprint": "\ud800"}))
    text = json.dumps(described).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    assert "a.stats is damaged" in refusal(load_statistics, path)


def test_a_name_that_is_too_long_holds_no_router() -> None:
    assert holds_router("/" + "x" * 5_000) is False
