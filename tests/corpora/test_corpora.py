"""Every format, packed every way, from wherever it comes."""

import gzip
import random
import sys
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from corpus_files import PACKERS, TEXTS, WRITERS, Piped, json_lines, said, write, write_parquet

from ir3de.corpora import read_rows, read_texts, text_of, total_bytes
from ir3de.errors import InputError
from ir3de.files.streams import limit_expansion

# --- formats and compressions


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_is_read_plain_and_packed(tmp_path: Path, suffix: str, packing: str) -> None:
    path = write(tmp_path, f"data{suffix}{packing}", PACKERS[packing](WRITERS[suffix](TEXTS)))
    counted: list[int] = []
    assert list(read_texts([path], on_bytes=counted.append)) == TEXTS
    assert sum(counted) == total_bytes([path]) == path.stat().st_size
    assert [row["text"] for row in read_rows([path])] == TEXTS


def test_suffixes_may_be_in_capitals(tmp_path: Path) -> None:
    assert list(read_texts([write(tmp_path, "A.TXT.GZ", gzip.compress(b"one\n"))])) == ["one"]


@pytest.mark.parametrize("packing", [packing for packing in PACKERS if packing])
def test_members_one_after_another_are_one_file(tmp_path: Path, packing: str) -> None:
    pack = PACKERS[packing]
    path = write(tmp_path, f"a.txt{packing}", pack(b"one\ntw") + pack(b"o\n") + pack(b"") + pack(b"three"))
    assert list(read_texts([path])) == ["one", "two", "three"]


@pytest.mark.parametrize("packing", [packing for packing in PACKERS if packing])
def test_what_expands_to_more_than_the_limit_is_refused(tmp_path: Path, packing: str) -> None:
    pack, line = PACKERS[packing], b"one of ten thousand lines\n"
    enough = write(tmp_path, f"enough.txt{packing}", pack(line * 10_000))
    too_much = write(tmp_path, f"more.txt{packing}", pack(line * 10_000) + pack(b"\n"))  # the limit is for all members
    with limit_expansion(10_000 * len(line)):
        assert sum(1 for _ in read_texts([enough])) == 10_000
        with pytest.raises(InputError, match=r"more\.txt.*: expands to more than 0\.26 MB, which is the limit here"):
            list(read_texts([too_much]))
    assert sum(1 for _ in read_texts([too_much])) == 10_000


def test_zeros_after_a_member_are_padding(tmp_path: Path) -> None:
    packed = gzip.compress(b"one\n") + bytes(40_000) + gzip.compress(b"two\n") + bytes(5)
    assert list(read_texts([write(tmp_path, "a.txt.gz", packed)])) == ["one", "two"]


def test_zstd_frames_to_skip_and_long_windows_are_read(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    skipped = b"\x50\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = skipped + packer.compress(b"one\ntwo\n") + packer.flush()
    assert list(read_texts([write(tmp_path, "a.txt.zst", packed)])) == ["one", "two"]


@pytest.mark.parametrize("packing", PACKERS)
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, packing: str) -> None:
    for suffix, writer in WRITERS.items():
        packed = PACKERS[packing](b"\xef\xbb\xbf" + writer(TEXTS))
        assert list(read_texts([write(tmp_path, f"a{suffix}{packing}", packed)])) == TEXTS


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    lines = ["a\u2028b\x0bc\x0cd\x85e\x1cf", "nul\0inside", "a\rb"]
    assert list(read_texts([write(tmp_path, "a.txt", "\r\n".join(lines) + "\r\n")])) == lines
    assert list(read_texts([write(tmp_path, "a.jsonl", json_lines(list(lines)))])) == lines


def test_whole_files_are_one_text_each(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "# One\r\n\r\ntwo\n")
    write(tmp_path, "b.txt", "\n \n")
    write(tmp_path, "c.jsonl", '"three"\n"four"\n')
    assert list(read_texts([tmp_path], whole_files=True)) == ["# One\r\n\r\ntwo\n", "three", "four"]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_line_of_ten_megabytes_is_read(tmp_path: Path, suffix: str) -> None:
    texts = ["x" * 10_000_000, "short"]
    assert list(read_texts([write(tmp_path, f"a{suffix}", WRITERS[suffix](texts))])) == texts


def test_blank_lines_and_spaces_around_json_are_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '\n  {"text": "one"}  \r\n\r\n\t\n"two" ')
    assert list(read_texts([path])) == ["one", "two"]


def test_empty_files_hold_no_texts(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl"):
        assert list(read_texts([write(tmp_path, name, "")])) == []
    assert list(read_texts([write(tmp_path, "c.txt", "")], whole_files=True)) == []


def test_csv_values_may_hold_line_ends_and_errors_name_the_line_where_the_row_begins(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", 'text,n\r\n"one\r\ntwo",1\r\n\r\n"three\nfour",2\r\n')
    assert list(read_texts([path])) == ["one\r\ntwo", "three\nfour"]
    rows = list(read_rows([path]))
    assert rows[1] == {"text": "three\nfour", "n": "2"}
    with pytest.raises(InputError, match=r"a\.csv:5: found no field 'x'"):
        text_of(rows[1], "x")


def test_the_only_column_of_a_csv_is_the_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "sentence\none\n\ntwo\n")
    assert list(read_texts([path])) == ["one", "two"]
    assert [text_of(row) for row in read_rows([path])] == ["one", "two"]
    assert "found 'sentence'" in said(write(tmp_path, "a.jsonl", '{"sentence": "one"}'))


# --- parquet


def test_parquet_is_read_in_batches_and_every_byte_is_told(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(1000)]
    path = write_parquet(tmp_path / "a.parquet", {"id": list(range(1000)), "text": texts}, row_group_size=300)
    counted: list[int] = []
    assert list(read_texts([path], on_bytes=counted.append)) == texts
    assert sum(counted) == path.stat().st_size and len(counted) > 3
    assert list(islice(read_rows([path]), 1)) == [{"id": 0, "text": "text 0"}]


def test_parquet_without_rows_tells_its_bytes(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": []})
    counted: list[int] = []
    assert list(read_texts([path], on_bytes=counted.append)) == []
    assert sum(counted) == path.stat().st_size


def test_parquet_fields_may_be_nested_dotted_or_chats(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    columns = {"a": [{"b": "in a"}, None], "c.d": ["dotted", "name"], "messages": [chat, chat]}
    path = write_parquet(tmp_path / "a.parquet", columns)
    assert list(read_texts([path], field="a.b")) == ["in a"]
    assert list(read_texts([path], field="c.d")) == ["dotted", "name"]
    assert list(read_texts([path])) == ["Hi", "Hi"]


def test_parquet_errors_name_the_row_and_the_columns(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"id": [1], "body": ["x"], "n": [3]})
    assert said(path, field="nope").startswith(f"{path}, row 1: found no field 'nope'; found the fields 'id', ")
    assert "must hold a string, but found a number" in said(path, field="n")
    content = path.read_bytes()
    for broken in (b"", b"nonsense", content[:-20], content[20:]):
        message = said(write(tmp_path, "b.parquet", broken))
        assert message.startswith(f"{tmp_path / 'b.parquet'}: not a valid Parquet file")


# --- streaming


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path, digits = tmp_path / "big.jsonl.gz", random.Random(0)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for i in range(4000):  # digits at random, which no compression can make small
            file.write(json_lines([{"id": i, "text": digits.randbytes(5000).hex()}]))
    tracemalloc.start()
    try:
        assert sum(map(len, read_texts([path]))) == 40_000_000
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
@pytest.mark.nightly
def test_texts_come_before_the_file_is_consumed(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, f"big{suffix}", WRITERS[suffix](["a text of some length"] * 200_000))
    counted: list[int] = []
    texts = read_texts([path], on_bytes=counted.append)
    assert counted == []
    assert next(texts) == "a text of some length"
    assert 0 < sum(counted) <= 1 << 20 < path.stat().st_size
    assert sum(1 for _ in texts) == 199_999
    assert sum(counted) == path.stat().st_size
    assert len(counted) < 20  # not one call a line


def test_an_abandoned_iterator_closes_its_file(tmp_path: Path) -> None:
    for suffix, writer in WRITERS.items():
        for packing, pack in PACKERS.items():
            texts = read_texts([write(tmp_path, f"a{suffix}{packing}", pack(writer(TEXTS)))])
            next(texts)
            del texts  # a file left open would warn, and warnings are errors here


# --- sources


def test_a_folder_gives_its_files_sorted_without_hidden_and_foreign_ones(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/b/c.txt", ".hidden.txt", ".git/d.txt", "picture.png", "a.txt"):
        write(tmp_path, name, name)
    assert list(read_texts([tmp_path])) == ["a.txt", "a/b/c.txt", "a/z.txt", "b.txt"]
    assert total_bytes([str(tmp_path)]) == len("a.txta/b/c.txta/z.txtb.txt")


def test_glob_patterns_are_sorted(tmp_path: Path) -> None:
    for name in ("b1.txt", "b2.txt", "a.txt", "deep/er/b3.txt", "deep/other.md", "b4.png"):
        write(tmp_path, name, name)
    assert list(read_texts([f"{tmp_path}/b?.txt"])) == ["b1.txt", "b2.txt"]
    assert list(read_texts([tmp_path / "[ab]*.txt"])) == ["a.txt", "b1.txt", "b2.txt"]
    assert list(read_texts([f"{tmp_path}/**/b*"])) == ["b1.txt", "b2.txt", "deep/er/b3.txt"]


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path: Path) -> None:
    assert list(read_texts([write(tmp_path, "a[1].txt", "one")])) == ["one"]


def test_sources_come_in_the_order_given_and_one_alone_needs_no_list(tmp_path: Path) -> None:
    one, two = write(tmp_path, "1.txt", "one"), write(tmp_path, "2.txt", "two")
    assert list(read_texts([two, one, two])) == ["two", "one", "two"]
    assert list(read_texts(str(one))) == ["one"]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"one\r\n\ntwo\n", ["one", "two"]),
        (b'\n  \n{"text": "one"}\n{"text": "two"}\n', ["one", "two"]),
        (b'\xef\xbb\xbf{"text": "one"}', ["one"]),
        (b"", []),
        (b"\n\n", []),
    ],
)
def test_standard_input_is_lines_or_json_lines(
    monkeypatch: pytest.MonkeyPatch, content: bytes, texts: list[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(content))
    counted: list[int] = []
    assert list(read_texts(["-"], on_bytes=counted.append)) == texts
    assert sum(counted) == len(content)
    assert not sys.stdin.buffer.closed


def test_standard_input_has_no_size_and_errors_name_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b'\n{"text": "one"}\nnonsense\n'))
    assert total_bytes(["-"]) is None
    assert said("-").startswith("<stdin>:3: not valid JSON")
    monkeypatch.setattr(sys, "stdin", None)
    assert "there is none" in said("-")
