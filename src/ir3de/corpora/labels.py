"""Labels: the column that names a row's expert, labels given with texts, folders whose names are labels."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ir3de.corpora.rows import CHAT_FIELDS, TEXT_FIELDS, columns_with_text, text_in, value_at
from ir3de.errors import InputError
from ir3de.files.formats import list_names
from ir3de.files.sources import expand, recognise
from ir3de.statistics.texts import SOURCE_FIELD, is_frame

USUAL_LABELS = (
    "label", "labels", "team", "expert", "intent", "category", "domain", "topic", "class", "target", "queue", "route",
    "skill", "department", "subject", "tag", "model",
)  # fmt: skip
MAX_DIGITS = 100  # of a label that is ordered by its value: Python refuses to read numbers of thousands of digits
_USUAL_TEXTS = frozenset({*TEXT_FIELDS, *CHAT_FIELDS})


def split_row(row: object, label: str, text: str | None) -> tuple[str | None, str]:
    """The label of a row, None where it is empty, and its text.

    Without the name of the text's field the usual ones are tried, and then the only other field.

    >>> split_row({"prompt": "Is this contract void?", "team": " law "}, "team", None)
    ('law', 'Is this contract void?')
    """
    if not isinstance(row, Mapping):
        raise InputError(f"a row with a label must be an object with the field {label!r}, found {type(row).__name__}")
    is_column = label in row
    found = read_label(row[label] if is_column else _follow(row, label), label)
    if text is not None:
        if text not in row and "." not in text:
            raise InputError(f"found no field {text!r} for the text; {_list_fields(row, text)}")
        return found, text_in(row, text)
    if is_column and label in _USUAL_TEXTS:
        row = {name: value for name, value in row.items() if name != label}
    if _USUAL_TEXTS.isdisjoint(row):
        text = _find_only_text(row, label)
        if text is None and getattr(row, "sole_column", None) is None:
            raise _find_no_text(row, label)
    return found, text_in(row, text)


def read_label(value: object, field: str) -> str | None:
    """A value as a label: stripped, numbers as they are written; None where there is none.

    >>> read_label(" law ", "team"), read_label(0, "team"), read_label(3.0, "team"), read_label("", "team")
    ('law', '0', '3', None)
    """
    if isinstance(value, str):
        return value.strip() or None
    if is_missing(value):
        return None
    if getattr(value, "ndim", None) == 0:
        value = getattr(value, "item", lambda: value)()  # a number of numpy's
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(int(value)) if float(value).is_integer() else repr(value)
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        raise InputError(
            f"the label {field!r} is a list, {value!r:.60}, and a prompt has one expert: write one label in each row"
        )
    raise InputError(f"the label {field!r} must be a string or a number, found {value!r:.60}")


def is_missing(value: object) -> bool:
    """Whether a value stands for no value: None, not a number, or what tables write for it."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def choose_columns(names: list[str], label: str, text: str | None) -> list[str]:
    """The columns that hold the label, the text and the source; all of them where one of those is not found."""
    head = label if label in names else label.partition(".")[0]
    if head not in names:
        return names
    others = [name for name in names if name != label]
    wanted = {head, *columns_with_text(others, text)}
    return [name for name in names if name in wanted]


def order_labels(labels: Iterable[str]) -> list[str]:
    """Labels in an order that does not depend on the rows': numbers by their value, then all others.

    >>> order_labels(["law", "10", "9", "code"])
    ['9', '10', 'code', 'law']
    """

    def rank(label: str) -> tuple[bool, int, str]:
        is_number = label.isdecimal() and len(label) <= MAX_DIGITS
        return not is_number, int(label) if is_number else 0, label

    return sorted(labels, key=rank)


def guess_label(rows: Sequence[Mapping[str, object]], text: str | None = None) -> str | None:
    """The field that most likely names the expert, to be proposed, never used silently."""
    if not rows:
        return None
    spoken = text or next((name for name in (*TEXT_FIELDS, *CHAT_FIELDS) if name in rows[0]), None)
    names = [name for name in rows[0] if name not in (spoken, SOURCE_FIELD)]
    lower = {name.lower(): name for name in reversed(names)}
    usual = next((lower[name] for name in USUAL_LABELS if name in lower), None)
    if usual is not None:
        return usual
    kinds = {name: {repr(row.get(name)) for row in rows} for name in names}
    several = [name for name in names if 1 < len(kinds[name]) < max(3, len(rows))]
    return min(several or names, key=lambda name: len(kinds[name]), default=None)


def find_spoken(rows: Sequence[Mapping[str, object]], names: Iterable[str]) -> str | None:
    """The field with the longest strings, which most likely holds the text, to be proposed."""
    lengths = {name: sum(len(value) for row in rows if isinstance(value := row.get(name), str)) for name in names}
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    return longest if longest is not None and lengths[longest] else None


def find_needed_text(rows: Sequence[Mapping[str, object]], label: str) -> str | None:
    """The field that must be named for the text with this label, to be proposed; None if it is found without."""
    others = [name for name in rows[0] if name != label] if rows else []
    if len([name for name in others if name != SOURCE_FIELD]) == 1 or not _USUAL_TEXTS.isdisjoint(others):
        return None
    return find_spoken(rows, others)


def suggest_name(wanted: str, names: Iterable[str]) -> str | None:
    """The name that is spelt most like the one that is not there."""
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def _follow(row: Mapping[str, object], label: str) -> object:
    if "." not in label:
        raise InputError(f"found no field {label!r} for the label; {_list_fields(row, label)}")
    return value_at(row, label)


def _list_fields(row: Mapping[str, object], wanted: str) -> str:
    close = suggest_name(wanted, row)
    return f"found {list_names(row)}: " + ("name one of these" if close is None else f"did you mean {close!r}?")


def _find_no_text(row: Mapping[str, object], label: str) -> InputError:
    likely = find_spoken([row], [name for name in row if name != label])
    example = "" if likely is None else f", for instance text={likely!r}"
    return InputError(
        f"found no text: the row has none of the fields {', '.join((*TEXT_FIELDS, *CHAT_FIELDS))}; found "
        f"{list_names(row)}: name the field that holds the text (text=…, on the command line --text){example}"
    )


def _find_only_text(row: Mapping[str, object], label: str) -> str | None:
    others = [name for name in row if name not in (label, SOURCE_FIELD)]
    return others[0] if len(others) == 1 else None


MIN_ROWS = 20  # of fewer, each may well be an expert of its own
MIN_UNIQUE = 0.8  # labels for each row
MAX_KINDS = 0.5  # different values for each row of a column that could hold labels

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class LikelyColumns:
    """The columns that were likely meant; `text` is None where it need not be named."""

    label: str
    text: str | None


def are_unique(texts: Mapping[str, Sequence[str]]) -> bool:
    """Whether nearly every row of {label: texts} has a label of its own.

    >>> are_unique({f"Title {number}": ["support"] for number in range(30)})
    True
    >>> are_unique({"billing": ["Where is my invoice?"] * 30})
    False
    """
    rows = sum(map(len, texts.values()))
    return rows >= MIN_ROWS and len(texts) >= MIN_UNIQUE * rows


def is_unique_column(rows: Rows, label: str) -> bool:
    """Whether nearly every one of these rows has a value of its own in that column."""
    return len(rows) >= MIN_ROWS and _count_kinds(rows, label) >= MIN_UNIQUE * len(rows)


def find_likely_columns(rows: Rows, label: str) -> LikelyColumns | None:
    """Which columns could be meant instead of `label`; None if no other column has values that come again."""
    meant = guess_label(rows, label)
    if meant is None or _count_kinds(rows, meant) > max(2, MAX_KINDS * len(rows)):
        return None
    return LikelyColumns(meant, find_needed_text(rows, meant))


def _count_kinds(rows: Rows, name: str) -> int:
    return len({repr(row.get(name)) for row in rows})


def describe_unique(texts: Mapping[str, Sequence[str]], label: str | None) -> str:
    """What was found, as the beginning of an error."""
    rows = sum(map(len, texts.values()))
    where = "the labels" if label is None else f"the column {label!r}"
    return f"{where} would make {len(texts):,} experts of {rows:,} rows: nearly every row has its own label"


def join_labels(texts: Any, labels: Any, label: str | None, text: str | None, call: str) -> tuple[Any, Any]:
    """The pair (texts, labels) of two arguments; `call` is how the function is called, as far as the texts.

    >>> join_labels(["Is it void?"], ["law"], None, None, "Router.fit(")
    (['Is it void?'], ['law'])
    """
    if isinstance(labels, str):  # the name of a column
        raise InputError(
            f"the argument after the texts holds their labels, found one str: {call}data, label={labels!r})"
        )
    if is_frame(labels):
        raise InputError(
            f"the labels are a {type(labels).__name__}: give one column, such as {call}texts, frame['team'])"
        )
    if label is not None or text is not None:
        raise InputError(f"give the labels themselves, {call}texts, labels), or name their column with label=")
    if isinstance(texts, (str, Path, Mapping)) or is_frame(texts):
        raise InputError(
            f"labels go with a list or a column of texts, found a {type(texts).__name__}: "
            f"{call}frame['prompt'], frame['team']), or {call}frame, text='prompt', label='team')"
        )
    return texts, labels


def is_pair(given: object) -> bool:
    """Whether this is the pair (texts, labels), and not two files or rows."""
    return (
        isinstance(given, tuple)
        and len(given) == 2
        and not any(isinstance(one, (str, Path, Mapping)) or one is None for one in given)
    )


def refuse_columns_by_name(given: Mapping[str, Any], label: str | None, text: str | None) -> None:
    """Reject a mapping with label= or text=: it names its experts, or it is columns, which need no names."""
    if label is None and text is None:
        return
    if label in given:
        spoken = text if text in given else next((name for name in given if name != label), "prompt")
        raise InputError(
            f"found a dict of columns: give them as a pair, (data[{spoken!r}], data[{label!r}]), or as a table"
        )
    raise InputError("{expert: texts} names its experts itself: leave label= and text= out")


def advise_unlabelled(given: object) -> str | None:
    """What to do with texts that have no labels, or with labels in a shape that is not taken; None for all else.

    >>> advise_unlabelled(["Is it void?", "Solve x."])
    'texts need labels: (texts, labels), or {expert: texts}'
    """
    if isinstance(given, (str, bytes, Path, Mapping)) or is_frame(given) or not isinstance(given, Iterable):
        return None
    listing = getattr(given, "tolist", None)  # of numpy and pandas
    first = next(iter(given if listing is None else listing()), None)
    if isinstance(first, str):
        return "texts need labels: (texts, labels), or {expert: texts}"
    if isinstance(first, (list, tuple)) and len(first) == 2 and all(isinstance(one, str) for one in first):
        return "pairs are taken apart: texts, labels = zip(*pairs), and then (texts, labels)"
    if isinstance(first, (list, tuple)) and hasattr(given, "to_dict"):  # texts grouped by label, in pandas
        return "give it as {expert: texts}, which is what its to_dict() returns"
    return None


STATISTICS_SUFFIX = ".stats"
# not experts: files about the folder, and the splits of a labelled data set
_NOTES = frozenset({"readme", "license", "licence", "copying", "changelog"})
_SPLITS = frozenset({"train", "training", "test", "dev", "val", "valid", "validation", "eval", "data", "all"})


def find_experts(folder: str | Path, *, with_statistics: bool = False) -> dict[str, list[str]]:
    """The experts of a folder with the paths of their texts.

    `law/` and `law.txt` (or law.jsonl, law.csv.gz, …) are paths of the expert `law`. Hidden files, notes such as
    README.md and files that cannot be read as texts are left out; `with_statistics` takes .stats files, too.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "law.txt").write_text("Is it void?\\n")
    ...     _ = Path(folder, "code.jsonl.gz").write_bytes(b"")
    ...     list(find_experts(folder))
    ['code', 'law']
    """
    found: dict[str, list[str]] = {}
    for path in sorted(Path(folder).expanduser().iterdir()):
        name = _name_expert(path, with_statistics=with_statistics)
        if name is not None:
            found.setdefault(name, []).append(str(path))
    if len(found) < 2 or all(name.lower() in _SPLITS for name in found):
        names = ", ".join(Path(path).name for paths in found.values() for path in paths) or "nothing that can be read"
        raise InputError(
            f"{folder}: a folder of experts has a file or a sub-folder for each expert, such as law.txt or law/, and "
            f"at least two; found {names}: name the column of the expert if there is one (label=…, on the command line "
            "--label), or name the expert itself (name=path)"
        )
    return {name: found[name] for name in order_labels(found)}


def _name_expert(path: Path, *, with_statistics: bool) -> str | None:
    if path.name.startswith("."):
        return None
    if path.is_dir():
        expand([path])  # raises for a folder without any text
        return path.name
    if with_statistics and path.suffix == STATISTICS_SUFFIX:
        return path.stem
    source = recognise(path)
    if source is None:
        return None
    stem = path.name[: -len(source.kind + source.codec)]
    return None if stem.lower() in _NOTES else stem
