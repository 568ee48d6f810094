"""Forms with files: what passes is what came, however it is cut, but for the fields that are taken out."""

from __future__ import annotations

from email import message_from_bytes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.forms import FormReader, read_boundary

LINE = b"--b0undary"
NAMES = st.sampled_from(["model", "ir3de", "file", "language", "image[]", "Models", "models"])
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b"--", b"--b0undar", b"\r\n--b0undar", b"x"]), max_size=8).map(
        b"".join
    ),
)


def build_part(name: str, content: bytes, more: str = "") -> bytes:
    return LINE + f'\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + content + b"\r\n"


def feed(content: bytes, cuts: list[int]) -> tuple[FormReader, bytes]:
    reader, passed, places = FormReader(LINE[2:], ("model", "ir3de")), b"", sorted(one % len(content) for one in cuts)
    for start, end in zip([0, *places], [*places, len(content)], strict=True):
        passed += reader.feed(content[start:end])
    return reader, passed


@given(
    st.lists(st.tuples(NAMES, CONTENTS), max_size=6, unique_by=lambda part: part[0]), st.lists(st.integers(0, 10**6))
)
def test_all_but_what_is_taken_passes_however_it_is_cut(parts: list[tuple[str, bytes]], cuts: list[int]) -> None:
    taken = [(name, content.decode("latin-1").encode()) for name, content in parts if name in ("model", "ir3de")]
    parts = [part for part in parts if part[0] not in ("model", "ir3de")] + taken
    content = b"".join(build_part(*part) for part in parts) + LINE + b"--\r\n"
    reader, passed = feed(content, cuts)
    assert reader.has_ended
    assert passed == b"".join(build_part(*part) for part in parts if part not in taken)
    assert {name: value.encode() for name, value in reader.fields.items()} == dict(taken)


@pytest.mark.parametrize(
    "content",
    [
        b"x" + build_part("n", b"1"),
        build_part("n", b"1") + LINE + b"x",
        LINE + b"\r\ncontent-type: text/plain\r\n\r\n1\r\n",
        build_part("n", b"1", '; name="model"'),
        build_part("n", b"1", "; name*=utf-8''model"),
        build_part("mo\\del", b"1"),
        build_part("%6dodel", b"1"),
        build_part("n", b"1", "; filename"),
        build_part("n", b"1").replace(b"\r\n\r\n", b"\r\ncontent-disposition: form-data; name=model\r\n\r\n"),
        LINE + b"\r\ncontent-disposition: attachment; name=model\r\n\r\n1\r\n",
        build_part("n", b"1", '\n; name="model"'),
        build_part("n", b"1", '\r\n folded; name="model"'),
        LINE
        + b'\r\ncontent-disposition: \0; name=model\r\n--\r\ncontent-disposition: form-data; name="n"\r\n\r\n1\r\n',
        LINE + b"\r\n" + b"x" * 20_000,
        build_part("model", b"x" * 70_000),
        build_part("model", b"\xff"),
        build_part("model", b"1") * 2,
        build_part("n", b"1") * 1_001,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(content: bytes) -> None:
    with pytest.raises(ApiError) as problem:
        feed(content + LINE + b"--", [])
    assert problem.value.status == 400


@pytest.mark.parametrize(
    ("said", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data;boundary="a b:c"', b"a b:c"),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=x", None),
        ("application/json", None),
        ("multipart/form-data; boundary=x; boundary=y", None),
        ("", None),
    ],
)
def test_boundaries(said: str, boundary: Any) -> None:
    if boundary is not None:
        assert read_boundary(said) == boundary
        return
    with pytest.raises(ApiError) as problem:
        read_boundary(said)
    assert problem.value.status == 415


PIECES = st.lists(
    st.sampled_from(
        [
            b"--b0undary", b"--", b"\r\n", b"\n", b"\r", b" ", b"\t", b";", b"=", b'"', b"\\", b"%6d", b"\x00", b":",
            b"content-disposition: form-data", b"Content-Disposition:form-data", b"; name=", b'; name="model"',
            b"; name=model", b"; name*=utf-8''model", b'; name="n"', b'; filename="model"', b"content-type: text/plain",
            b"model", b"\r\n\r\n", b"\r\n--b0undary\r\n", b"\r\n--b0undary--\r\n", b"value",
        ]
    ),
    max_size=40,
).map(b"".join)  # fmt: skip


@given(PIECES)
def test_another_reader_finds_no_model_in_what_passes(content: bytes) -> None:
    """Whatever a client sends: it is refused, or the model is taken out for other readers, too."""
    reader = FormReader(LINE[2:], ("model",))
    try:
        passed = reader.feed(LINE + b"\r\n" + content + b"\r\n" + LINE + b"--\r\n")
    except ApiError as problem:
        assert problem.status == 400
        return
    head = b"content-type: multipart/form-data; boundary=b0undary\r\n\r\n"
    message = message_from_bytes(head + passed + reader.closing)
    parts: Any = message.get_payload() if message.is_multipart() else []
    assert "model" not in [part.get_param("name", header="content-disposition") for part in parts]
