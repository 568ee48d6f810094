"""What a row's text is, and what is said when something is wrong."""

import doctest
import json
import sys
from pathlib import Path

import pytest
from corpus_files import PACKERS, WRITERS, json_lines, said, write
from hypothesis import given
from hypothesis import strategies as st

import ir3de.corpora
import ir3de.corpora.rows
from ir3de.corpora import read_rows, read_texts, text_of, total_bytes
from ir3de.errors import InputError, MissingExtraError

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


@pytest.mark.parametrize("kind", ["utf-16", "utf-32"])
def test_another_encoding_is_named(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, "a.csv", "prompt,team\nIs it void?,law\n".encode(kind))
    assert said(path).startswith(f"{path}: this is {kind.upper()}: ") and f"iconv -f {kind.upper()}" in said(path)


def test_a_table_that_is_none_says_what_it_is(tmp_path: Path) -> None:
    unmarked = write(tmp_path, "a.csv", "prompt,team\nIs it void?,law\n".encode("utf-16-le"))
    assert "as UTF-16 does" in said(unmarked)
    assert "save the sheet as CSV" in said(write(tmp_path, "b.csv", b"PK\x03\x04\x14\0\x06\0\n\xff"))
    assert "save the sheet as CSV" in said(write(tmp_path, "c.xlsx", b"PK\x03\x04"))
    old_mac = said(write(tmp_path, "d.csv", b"prompt,team\rIs it void?,law\r"))
    assert "carriage return" in old_mac and "universal-newline" not in old_mac


def test_rows_that_are_too_short_or_too_long_get_advice_of_their_own(tmp_path: Path) -> None:
    short = said(write(tmp_path, "a.csv", "prompt,team\nIs it void?\n"))
    assert "the row has 1 value, but the header has 2 columns: fill in what is missing" in short
    assert "put quotes around values that hold a comma" in said(write(tmp_path, "b.csv", "prompt,team\na,b,c\n"))
    one = said(write(tmp_path, "c.csv", "prompt|team\nWell, is it?|law\n"))
    assert "the header has 1 column: separate the columns by commas, semicolons or tabs" in one


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
        ("a.csv", "text,n\none\n", "a.csv:2: the row has 1 value, but the header has 2 columns"),
        ("a.csv", "text,n\none,two,three\n", "that hold a comma"),
        ("a.csv", 'text,n\nx,1\n"one,1\n', "a.csv:3: not a valid table (unexpected end of data)"),
        ("a.csv", "text,n,n\none,1,2\n", "names a column more than once ('n')"),
        ("a.csv", "text;n\none;1;2\n", "a.csv:2: the row has 3 values, but the header has 2 columns"),
        ("a.csv", "text;n\none;1;2\n", "that hold a semicolon"),
    ],
)
def test_broken_tables_are_explained(tmp_path: Path, name: str, content: str, message: str) -> None:
    assert message in said(write(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text;n\n"one, two; three";1\n'),
        ("a.csv", '\ufefftext;n\n\n"one, two; three";1\n'),
        ("a.csv", 'text\tn\n"one, two; three"\t1\n'),
        ("a.tsv", 'text,n\n"one, two; three",1\n'),
        ("a.csv", 'text,n;m\n"one, two; three",1\n'),  # the separator of the suffix is there
    ],
)
def test_the_header_says_what_separates_the_columns(tmp_path: Path, name: str, content: str) -> None:
    (row,) = read_rows([write(tmp_path, name, content)])
    assert list(row.values()) == ["one, two; three", "1"] and next(iter(row)) == "text"


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
        assert f"unknown format, found {found}: use .txt, " in message
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
        with pytest.raises(MissingExtraError, match=rf"pip install .*\[{extra}\]"):
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
