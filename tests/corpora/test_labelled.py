"""Labelled texts of every shape are read into {label: texts}, and what is wrong is told with what was found."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir3de.corpora import read_labelled, read_texts
from ir3de.corpora.labels import find_experts, guess_label, order_labels, read_label
from ir3de.errors import InputError
from refused import refusal

TEXTS, LABELS = ["Is it void?", "Sort a list.", "Sue them, or not?"], ["law", "code", "law"]
WANTED = {"code": ["Sort a list."], "law": ["Is it void?", "Sue them, or not?"]}


def table(separator: str) -> str:
    quoted = [f'"{text}"{separator}{label}' for text, label in zip(TEXTS, LABELS, strict=True)]
    return "\n".join([f"prompt{separator}team", *quoted]) + "\n"


def rows() -> list[dict[str, object]]:
    return [{"prompt": text, "team": label} for text, label in zip(TEXTS, LABELS, strict=True)]


JSON_LINES = "".join(json.dumps(row) + "\n" for row in rows())


def write_parquet(path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"prompt": TEXTS, "team": LABELS, "unused": [1, 2, 3]}), path)


WRITERS: dict[str, Callable[[Path], object]] = {
    "csv": lambda path: path.write_text(table(",")),
    "tsv": lambda path: path.write_text(table("\t")),
    "jsonl": lambda path: path.write_text(JSON_LINES),
    "json": lambda path: path.write_text(json.dumps(rows())),
    "csv.gz": lambda path: path.write_bytes(gzip.compress(table(",").encode())),
    "parquet": write_parquet,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_every_kind_with_columns_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{kind}"
    WRITERS[kind](path)
    assert read_labelled(path, label="team") == read_labelled([path], label="team", text="prompt") == WANTED
    assert read_labelled(tmp_path, label="team") == WANTED  # a folder of such files


def test_rows_and_pairs_are_read() -> None:
    assert read_labelled(rows(), label="team") == WANTED
    assert read_labelled(iter(rows()), label="team") == WANTED
    assert read_labelled((TEXTS, LABELS)) == read_labelled((iter(TEXTS), tuple(LABELS))) == WANTED
    nested = [{"messages": [{"role": "user", "content": "Hi"}], "meta": {"team": "law"}}]
    assert read_labelled(nested, label="meta.team") == {"law": ["Hi"]}


def test_the_label_is_never_taken_for_the_text() -> None:
    assert read_labelled([{"content": "law", "query": "Is it void?"}], label="content") == {"law": ["Is it void?"]}
    assert read_labelled([{"utterance": "Is it void?", "y": 0, "source": "web"}], label="y") == {"0": ["Is it void?"]}
    told = refusal(InputError, read_labelled, [{"a": "x", "b": "y", "team": "law"}], label="team")
    assert "found no text" in told and "'a', 'b', 'team'" in told


def test_texts_keep_the_source_of_their_row() -> None:
    (text,) = read_labelled([{"text": "Hi", "team": "law", "source": "forum"}], label="team")["law"]
    assert text.source == "forum"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "label"),
    [(" law ", "law"), (0, "0"), (3.0, "3"), (0.5, "0.5"), (True, "true"), ("", None), (" ", None), (None, None)],
)
def test_a_label_is_a_stripped_string(value: object, label: str | None) -> None:
    assert read_label(value, "team") == label


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["a", "b"], "'team' is a list, .*one label in each row"),
        ({"a": 1}, "must be a string or a number"),
        (b"a", "is a list|must be"),
    ],
)
def test_what_is_no_label_is_refused(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labelled([{"text": "Hi", "team": value}], label="team")


def test_rows_without_a_label_stop_the_reading_unless_they_may_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("prompt,team\nIs it void?,law\nSort a list.,\n,\n,code\n")
    assert refusal(InputError, read_labelled, path, label="team") == (
        f"{path}:3: the row has no label, 'team' is empty: fill it in, or leave the row out"
    )
    skipped: list[InputError] = []
    assert read_labelled(path, label="team", on_damage=skipped.append) == {"law": ["Is it void?"]}
    assert len(skipped) == 1  # rows without a text are no loss


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (rows(), {"label": "tema"}, "index 0: found no field 'tema' for the label; .* did you mean 'team'?"),
        (rows(), {"label": "team", "text": "promt"}, "found no field 'promt' for the text; .* did you mean 'prompt'"),
        (rows(), {"label": "meta.team"}, "found no field 'meta.team'"),
        (rows(), {"label": "team", "text": "team"}, "label= and text= both name 'team'"),
        (rows(), {}, "name the column of the expert"),
        ((TEXTS, LABELS[:2]), {}, "found 3 texts and 2 labels: give one label for each text"),
        ((TEXTS, LABELS), {"label": "team"}, r"\(texts, labels\) have no columns"),
        (([1], ["law"]), {}, "index 0: a text must be a str, found 1"),
        ((["Hi"], [None]), {}, "index 0: the text has no label"),
        ({"law": TEXTS}, {"label": "team"}, "names its experts itself"),
        (7, {"label": "team"}, "found int"),
        ([], {"label": "team"}, "found no text with a label"),
        (["Hi"], {"label": "team"}, "Hi: no such file or folder"),
        ([3], {"label": "team"}, "index 0: a row with a label must be an object with the field 'team', found int"),
    ],
)  # fmt: skip
def test_wrong_data_are_told_with_what_was_found(data: object, options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labelled(data, **options)


def test_plain_text_has_no_label(tmp_path: Path) -> None:
    path = tmp_path / "law.txt"
    path.write_text("Is it void?\n")
    told = refusal(InputError, read_labelled, path, label="team")
    assert told.startswith(f"{path}: lines of plain text have no column with a label") and f"law={path}" in told
    WRITERS["csv"](tmp_path / "train.csv")
    assert read_labelled(tmp_path, label="team") == WANTED  # text files beside tables are notes


def test_a_folder_names_its_experts(tmp_path: Path) -> None:
    for name, content in {"law.txt": "Is it void?", "law/more.txt": "Sue?", "code.jsonl": '{"text": "Sort."}'}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    for name in ("README.md", ".hidden.txt", "notes.pdf"):
        (tmp_path / name).write_text("no expert")
    assert list(find_experts(tmp_path)) == ["code", "law"]
    assert read_labelled(tmp_path) == {"code": ["Sort."], "law": ["Sue?", "Is it void?"]}
    (tmp_path / "maths.stats").write_bytes(b"")
    assert list(find_experts(tmp_path, with_statistics=True)) == ["code", "law", "maths"]


@pytest.mark.parametrize("names", [["train.csv"], ["train.csv", "test.csv"], ["law.txt"], []])
def test_a_folder_that_names_no_experts_is_refused(names: Sequence[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("text\nIs it void?\n")
    told = refusal(InputError, find_experts, tmp_path)
    assert (names[0] if names else "nothing that can be read") in told and "--label" in told


@pytest.mark.parametrize(
    ("fields", "label"),
    [
        (["prompt", "id", "Team"], "Team"),
        (["text", "category", "label"], "label"),
        (["utterance", "kind"], "kind"),
        (["text"], None),
    ],
)
def test_the_label_is_guessed_to_be_proposed(fields: list[str], label: str | None) -> None:
    few = {"kind", "Team", "label", "category"}
    found = [{name: f"{name} {number % 2 if name in few else number}" for name in fields} for number in range(6)]
    assert guess_label(found) == label
    assert guess_label([]) is None


def test_a_label_of_more_digits_than_python_reads_as_a_number_is_a_label() -> None:
    assert order_labels(["7" * 5_000, "10", "9"]) == ["9", "10", "7" * 5_000]


@given(st.lists(st.tuples(st.sampled_from(["law", "code", "0", "10", "9"]), st.text(min_size=1)), min_size=1))
def test_every_text_is_kept_once_under_its_label(pairs: list[tuple[str, str]]) -> None:
    kept = [(label, text) for label, text in pairs if not text.isspace()]
    if not kept:
        return
    found = read_labelled([{"text": text, "team": label} for label, text in pairs], label="team")
    assert list(found) == order_labels({label for label, _ in kept})
    for label, texts in found.items():
        assert len(texts) == sum(other == label for other, _ in kept)


def test_a_labelled_file_holds_what_files_by_label_hold(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(JSON_LINES)
    for name in WANTED:
        lines = [line for line in JSON_LINES.splitlines(keepends=True) if json.loads(line)["team"] == name]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    assert read_labelled(path, label="team") == {
        name: list(read_texts([tmp_path / f"{name}.jsonl"])) for name in WANTED
    }


def test_a_file_without_one_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("prompt,team\n,law\n ,code\n", encoding="utf-8")
    for data in (path, [path]):
        with pytest.raises(InputError, match=r"train\.csv: found no text with a label \(.* without a text: 2\)"):
            read_labelled(data, label="team")
