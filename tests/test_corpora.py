"""Every format, packed every way; what a row's text is; what is said when something is wrong."""

import bz2
import csv
import doctest
import gzip
import io
import json
import lzma
import random
import sys
import tracemalloc
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ir3de.corpora
import ir3de.corpora.rows
from ir3de.corpora import read_rows, read_texts, text_of, total_bytes
from ir3de.errors import InputError, MissingExtraError

TEXTS = ["What is a cell?", "naïve café ∑ 🙂", 'a "quoted", thing', "tab\there"]


def zstd_compress(data: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        zstandard = pytest.importorskip("zstandard")
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd_compress,
}


def separated(texts: list[str], delimiter: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows([("id", "text"), *enumerate(texts)])
    return out.getvalue().encode()


def json_lines(rows: list[object]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_rows(texts: list[str]) -> list[object]:
    return [{"id": i, "text": text} for i, text in enumerate(texts)]


WRITERS: dict[str, Callable[[list[str]], bytes]] = {
    ".txt": lambda texts: "\n".join(texts).encode(),
    ".text": lambda texts: "\n\n".join(texts).encode(),
    ".md": lambda texts: "\r\n".join(texts).encode(),
    ".jsonl": lambda texts: json_lines(as_rows(texts)),
    ".ndjson": lambda texts: json_lines(list(texts)),
    ".json": lambda texts: json.dumps(as_rows(texts), indent=1).encode(),
    ".csv": lambda texts: separated(texts, ","),
    ".tsv": lambda texts: separated(texts, "\t"),
}


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(path: Path, columns: dict[str, list[object]], **options: object) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path, **options)
    return path


def said(*sources: object, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        list(read_texts(sources, **options))  # type: ignore[arg-type]
    return str(caught.value)


class Piped:
    """A standard input that has bytes beneath it, as the real one has."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


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


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".csv"])
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


# --- rows


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("plain", "plain"),
        ({"query": "q", "text": "t"}, "t"),
        ({"query": "q", "question": "?"}, "?"),
        ({"text": None, "prompt": "p"}, "p"),
        ({"text": None, "id": 1}, ""),
        ({"instruction": "Add.", "input": "1 2"}, "Add.\n1 2"),
        ({"instruction": "Add.", "input": " "}, "Add."),
        ({"instruction": "Add.", "input": None}, "Add."),
        ({"input": "only"}, "only"),
        ({"prompt": "p", "messages": [{"role": "user", "content": "m"}]}, "p"),
    ],
)
def test_the_usual_fields_are_found(row: dict[str, object] | str, text: str) -> None:
    assert text_of(row) == text


@pytest.mark.parametrize(
    ("turns", "text"),
    [
        ([("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c")], "a\nc"),
        ([("human", "a"), ("gpt", "b")], "a"),
        ([("system", "s"), ("assistant", "b"), ("tool", "t")], "b"),
        ([("user", None), ("user", "a")], "a"),
        ([("user", [{"type": "text", "text": "a"}, {"type": "image_url"}, {"text": "b"}, "c"])], "a\nb\nc"),
        ([("user", "")], ""),
    ],
)
def test_a_chat_gives_the_words_of_its_user(turns: list[tuple[str, object]], text: str) -> None:
    assert text_of({"messages": [{"role": role, "content": said} for role, said in turns]}) == text
    assert text_of({"conversations": [{"from": role, "value": said} for role, said in turns]}) == text
    chat = [{"role": role, "content": said} for role, said in turns]
    assert text_of({"text": "no", "messages": chat}, "messages") == text
    assert text_of({"text": "no", "data": {"messages": chat}}, "data.messages") == text


def test_a_field_may_be_a_path_unless_there_is_one_of_that_name() -> None:
    row = {"a": {"b": "nested", "c": None}, "x.y": "plain", "x": {"y": "nested"}, "n": None}
    assert text_of(row, "a.b") == "nested"
    assert text_of(row, "x.y") == "plain"
    assert text_of(row, "a.c") == text_of(row, "n") == text_of(row, "n.b") == ""


def test_empty_texts_are_left_out_but_their_rows_are_kept(tmp_path: Path) -> None:
    rows: list[object] = [{"text": ""}, {"text": None}, {"text": " \t\n"}, {"text": "one"}, ""]
    path = write(tmp_path, "a.jsonl", json_lines(rows))
    assert list(read_texts([path])) == ["one"]
    assert list(read_rows([path])) == [*rows[:4], {"text": ""}]


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ({"a": 1, "b": 2}, None, "found no text: .*; found 'a', 'b': name the field"),
        ({str(i): i for i in range(30)}, None, "'19' and 10 more: name"),
        ({}, None, "found none"),
        ({"a": 1}, "z", "found no field 'z'; found the fields 'a': name a field"),
        ({"a": {"b": 1}}, "a.z", r"found no field 'a.z' \(no 'z' on the way\); found the fields 'b'"),
        ({"a": 7}, "a.z", "found a number"),
        ("plain", "z", "found the fields 'text'"),
        ({"text": 7}, None, "the field 'text' must hold a string, but found a number"),
        ({"a": ["x"]}, "a", "found a list"),
        ({"a": True}, "a", "found a true or false"),
        ({"a": b"x"}, "a", "found a bytes"),
        ({"instruction": "a", "input": 7}, None, "the field 'input' must"),
        ({"messages": [{"role": "system", "content": "s"}]}, None, "found the roles 'system'"),
        ({"messages": []}, None, "found the roles none"),
        ({"messages": {}}, None, "must hold a list of turns"),
        ({"messages": ["a"]}, None, "must hold a list of turns"),
        ({"messages": [{"role": "user", "content": 7}]}, None, "'messages.content' must hold a string"),
    ],
)
def test_rows_without_a_text_are_refused(row: dict[str, object] | str, field: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        text_of(row, field)


def test_errors_name_the_file_and_the_line(tmp_path: Path) -> None:
    rows = [{"text": "one"}, {"body": "two"}]
    lines = write(tmp_path, "a.jsonl", json_lines(list(rows)))
    assert said(lines).startswith(f"{lines}:2: found no text")
    with pytest.raises(InputError, match=r"a\.jsonl:2: found no text"):
        text_of(list(read_rows([lines]))[1])
    whole = write(tmp_path, "a.json", json.dumps(rows))
    assert said(whole).startswith(f"{whole}, row 2: found no text")


def test_a_row_is_an_object_or_a_string(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", "[1]\n")
    assert said(path).startswith(f"{path}:1: a row must be an object")
    with pytest.raises(InputError, match=r"a\.jsonl:1: a row must be .* found a list"):
        list(read_rows([path]))


# --- what is wrong with a file


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a" "b"}', "Expecting ',' delimiter"),
        ("{}x", "Extra data"),
        ('{"a": 1} {"b": 2}', "Extra data"),
        ("plain", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ("1" * 5000, "digits"),
    ],
)
def test_broken_json_lines_are_shown(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path, "a.jsonl", f'"one"\n\n{line}')
    message = said(path)
    assert message.startswith(f"{path}:3: not valid JSON (") and reason in message
    assert repr(line[:3])[1:-1] in message and "write one JSON object or string a line" in message
    assert len(message) < 400 + len(str(path))


def test_broken_json_files_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '{"text": "a"}\n{"text": "b"}\n')
    assert said(path).startswith(f"{path}:2: not valid JSON (Extra data)") and "name it .jsonl" in said(path)
    assert "must hold a list of rows or strings, but found '{}'" in said(write(tmp_path, "b.json", "{}"))


@pytest.mark.parametrize("suffix", WRITERS)
def test_bytes_that_are_not_utf8_are_placed(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, f"a{suffix}", b'["a"\n,"\xff"]\n')
    for whole_files in (False, True):
        message = said(path, whole_files=whole_files)
        if suffix in (".jsonl", ".ndjson"):  # its first line is already wrong
            assert message.startswith(f"{path}:1: not valid JSON")
        else:
            assert message.startswith(f"{path}:2: not valid UTF-8 (found the byte 0xff)")
            assert "convert the file to UTF-8" in message


def test_json_lines_that_are_not_utf8_are_placed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", b'"a"\n"\xe9t\xe9"\n')
    assert said(path).startswith(f"{path}:2: not valid UTF-8 (found the byte 0xe9)")
    surrogate = write(tmp_path, "b.jsonl", b'"\xed\xa0\x80"\n')
    assert "not valid UTF-8" in said(surrogate)


@pytest.mark.parametrize("packing", [packing for packing in PACKERS if packing])
def test_packed_files_that_are_cut_or_damaged_are_named(tmp_path: Path, packing: str) -> None:
    packed = PACKERS[packing]("\n".join(str(i**5) for i in range(20_000)).encode())
    damaged = packed[:300] + bytes(byte ^ 0xFF for byte in packed[300:600]) + packed[600:]
    for broken in (
        b"",
        packed[:3],
        packed[:-3],
        packed[: len(packed) // 2],
        damaged,
        b"no " + packed,
        packed + b"?",
    ):
        path = write(tmp_path, f"a.txt{packing}", broken)
        message = said(path)
        assert message.startswith(f"{path}: the {packing} data are truncated or corrupt (")
        assert "again" in message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "a.csv: found no header"),
        ("a.csv", "text,n\none\n", "a.csv:2: the row has 1 values, but the header has 2 columns"),
        ("a.csv", "text,n\none,two,three\n", "that hold a comma"),
        ("a.csv", 'text,n\nx,1\n"one,1\n', "a.csv:3: not a valid table (unexpected end of data)"),
        ("a.csv", "text,n,n\none,1,2\n", "names a column more than once ('n')"),
        ("a.csv", "text;n\none;1\n", "looks separated by semicolons, but the suffix says commas"),
        ("a.tsv", "text,n\none,1\n", "looks separated by commas, but the suffix says tabs"),
    ],
)
def test_broken_tables_are_explained(tmp_path: Path, name: str, content: str, message: str) -> None:
    assert message in said(write(tmp_path, name, content))


def test_missing_files_are_said_at_the_call_with_their_likes(tmp_path: Path) -> None:
    write(tmp_path, "questions.jsonl", "")
    with pytest.raises(InputError, match=r"no such file or folder: did you mean questions\.jsonl\?"):
        read_texts([tmp_path / "question.jsonl"])
    with pytest.raises(InputError, match="check the name"):
        read_rows([tmp_path / "zzz"])
    with pytest.raises(InputError, match=r"the folder .* does not exist either"):
        total_bytes([tmp_path / "no" / "where.txt"])


def test_unknown_suffixes_list_the_known_ones(tmp_path: Path) -> None:
    for name, found in (
        ("a.docx", ".docx"),
        ("b", "no suffix"),
        ("c.parquet.gz", ".parquet.gz"),
        ("d.gz", ".gz"),
    ):
        message = said(write(tmp_path, name, "x"))
        assert f"cannot tell the format, found {found}: use .txt, " in message
        assert ".parquet" in message and ".zst" in message


def test_folders_and_patterns_without_a_file_are_refused(tmp_path: Path) -> None:
    assert f"the folder {tmp_path} holds no file that can be read, found nothing" in said(tmp_path)
    write(tmp_path, "a.png", "")
    assert "found only a.png: use .txt" in said(tmp_path)
    assert "the pattern " in said(tmp_path / "*.txt")


def test_files_that_may_not_be_read_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write(tmp_path, "a.txt", "x"), write(tmp_path, "b.parquet", "x")]

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # a mode would not stop a superuser
        patch.setattr(Path, "open", refuse)
        for path in paths:
            assert said(path).startswith(f"{path}: cannot be read (Permission denied): check")
    monkeypatch.setattr(Path, "is_dir", refuse)
    assert said(paths[0]).startswith(f"{paths[0]}: cannot be read (Permission denied): check")


def test_missing_packages_name_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("zstandard", "compression", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    for name, extra in (("a.txt.zst", "zstd"), ("a.parquet", "parquet")):
        with pytest.raises(MissingExtraError, match=rf"ir3de\[{extra}\]"):
            list(read_texts([write(tmp_path, name, "x")]))


# --- properties


@given(texts=st.lists(st.text()), suffix=st.sampled_from([".jsonl", ".ndjson", ".json"]), data=st.data())
def test_json_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], suffix: str, data: st.DataObject
) -> None:
    packing = data.draw(st.sampled_from(list(PACKERS)))
    path = tmp_path_factory.getbasetemp() / f"given{suffix}{packing}"
    path.write_bytes(PACKERS[packing](WRITERS[suffix](texts)))
    assert list(read_texts([path])) == [text for text in texts if text.strip()]


@given(lines=st.lists(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_lines_give_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "given.txt"
    path.write_bytes("\r\n".join(["first", *lines, ""]).encode())
    assert list(read_texts([path])) == ["first", *(line for line in lines if line.strip())]


@given(
    content=st.binary(max_size=200),
    name=st.sampled_from(["a.txt.gz", "a.jsonl", "a.json", "a.csv", "a.txt.zst"]),
)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        assert all(isinstance(text, str) for text in read_texts([path]))
    except InputError as error:
        assert str(error).startswith(str(path))


@pytest.mark.parametrize("module", [ir3de.corpora, ir3de.corpora.rows])
def test_the_examples_are_true(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted and not results.failed


def test_half_of_a_surrogate_pair_reads_as_the_replacement_character(tmp_path: Path) -> None:
    path = tmp_path / "half.jsonl"
    path.write_text('{"text": "a\\ud800b"}\n{"text": "\\ud83d\\ude00"}\n', encoding="utf-8")
    assert list(read_texts([path])) == ["a\ufffdb", "😀"]
