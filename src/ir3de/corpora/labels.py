"""The label of a row, which names its expert, and the text beside it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from ir3de.corpora.rows import CHAT_FIELDS, TEXT_FIELDS, columns_with_text, list_names, text_in, value_at
from ir3de.errors import InputError
from ir3de.statistics.texts import SOURCE_FIELD

USUAL_LABELS = (
    "label", "labels", "team", "expert", "intent", "category", "domain", "topic", "class", "target", "queue", "route",
    "skill", "department", "subject", "tag", "model",
)  # fmt: skip
MAX_DIGITS = 100  # of a label that is ordered by its value: Python refuses to read numbers of thousands of digits
_USUAL_TEXTS = frozenset({*TEXT_FIELDS, *CHAT_FIELDS})


def split_row(row: object, label: str, text: str | None) -> tuple[str | None, str]:
    """The label of a row, None where it is empty, and its text.

    Without the name of the text's field the usual ones are tried, and then the only field beside the label.

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
    """The field that most likely names the expert, to be proposed and never to be taken unasked."""
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
    """The field that must be named for the text beside this label, to be proposed; None if it is found without."""
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
