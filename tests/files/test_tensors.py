"""Safetensors files: the bytes of the `safetensors` package, read and written without it."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from ir3de.errors import ArtifactError
from ir3de.files import tensors

DTYPES = ["u8", "i8", "f8", "u4", "i4", "f4", "u2", "i2", "f2", "u1", "i1", "b1"]
shapes = st.lists(st.integers(0, 5), min_size=1, max_size=3)
some_tensors = st.dictionaries(st.text(max_size=3), st.tuples(st.sampled_from(DTYPES), shapes), max_size=6)


def make(described: dict[str, tuple[str, list[int]]]) -> dict[str, np.ndarray]:
    return {
        name: np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        for name, (dtype, shape) in described.items()
        if name != "__metadata__"
    }


@given(some_tensors, st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3))
def test_the_bytes_are_those_of_the_format_s_own_package(described: dict, header: dict) -> None:
    content = make(described)
    written = tensors.to_safetensors(content, header)
    ordered = {name: content[name] for name in sorted(content)}
    assert written == save(ordered, {"ir3de": json.dumps(header, ensure_ascii=False, sort_keys=True)})
    found, extra = tensors.from_safetensors(written, Path("a"))
    assert extra == header
    assert found.keys() == content.keys()
    for name, expected in load(written).items():
        assert found[name].dtype == expected.dtype
        assert np.array_equal(found[name], expected)


@given(st.data())
def test_a_file_that_is_cut_or_too_long_is_refused(data: st.DataObject) -> None:
    written = tensors.to_safetensors({"a": np.arange(9), "b": np.ones(3, np.float16)}, {"kind": "x"})
    shorter = written[: data.draw(st.integers(0, len(written) - 1))]
    for damaged in (shorter, written + b"\0"):
        with pytest.raises(ArtifactError, match="not a file that ir3de wrote"):
            tensors.from_safetensors(damaged, Path("a"))


@pytest.mark.parametrize(
    "change",
    [
        *({"dtype": dtype} for dtype in ("F8", 3)),
        *({"shape": shape} for shape in ([3], [-2], "2")),
        *({"data_offsets": offsets} for offsets in ([16, 0], [0], None, [0, 8], [8, 24])),
    ],
)
def test_a_damaged_entry_is_refused(change: dict) -> None:
    refuse({"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16], **change}, "__metadata__": {"ir3de": "{}"}})


@pytest.mark.parametrize("metadata", [None, {}, {"ir3de": "{"}])
def test_damaged_metadata_are_refused(metadata: object) -> None:
    refuse({"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}, "__metadata__": metadata})


def refuse(header: dict) -> None:
    content = json.dumps(header).encode()
    with pytest.raises(ArtifactError, match="damaged"):
        tensors.from_safetensors(len(content).to_bytes(8, "little") + content + bytes(16), Path("a"))
