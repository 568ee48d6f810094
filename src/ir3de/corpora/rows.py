"""The text of a row: a named field, the usual fields, or the user's side of a chat."""

from collections.abc import Mapping

from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError
from ir3de.files.formats import Row, describe_wrong_row, list_names, name_kind
from ir3de.statistics.texts import SOURCE_FIELD, attach_source

TEXT_FIELDS = ("text", "prompt", "question", "instruction", "content", "input", "query")
CHAT_FIELDS = ("messages", "conversations")

_USER_ROLES = frozenset({"user", "human"})
_SILENT_ROLES = frozenset({"system", "tool"})  # never the text of a chat


def text_of(row: Mapping[str, object] | str, field: str | None = None) -> str:
    """Take the text out of a row: the named field or, without a name, the first usual one or the chat.

    The text is empty when the field is empty or null. The user's turns of a chat are joined by line ends. If the row
    has a field `source`, the text remembers it: a router that is fitted from the text keeps a hash of it.

    >>> text_of({"id": 7, "prompt": "Sort a list."})
    'Sort a list.'
    >>> text_of({"meta": {"title": "On cells"}}, "meta.title")
    'On cells'
    >>> text_of({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]})
    'Hi'
    """
    try:
        return text_in(row, field)
    except InputError as error:
        place = getattr(row, "place", None)
        if place is None:
            raise
        raise InputError(f"{place}: {error}") from None


def text_in(row: object, field: str | None) -> str:
    """The same for a row of any kind, with errors that do not name its place."""
    if isinstance(row, str):
        return replace_lone_surrogates(row if field is None else _named_text({"text": row}, field))
    if not isinstance(row, (dict, Mapping)):  # `dict` first: the check for it is many times faster
        raise InputError(describe_wrong_row(row))
    text = replace_lone_surrogates(_usual_text(row) if field is None else _named_text(row, field))
    # the field `source` of a translation, or of a table without any other column, is the text itself
    return text if SOURCE_FIELD not in row or field == SOURCE_FIELD or len(row) == 1 else attach_source(text, row)


def columns_with_text(names: list[str], field: str | None) -> list[str]:
    """Choose the columns `text_in` will look at; all of them when none has text, for the error to list them."""
    wanted = {*TEXT_FIELDS, *CHAT_FIELDS}
    if field is not None:
        wanted = {field} if field in names else {field.partition(".")[0]}
    return [name for name in names if name in {*wanted, SOURCE_FIELD}] if wanted.intersection(names) else names


def _usual_text(row: Mapping[str, object]) -> str:
    # A null counts as absent here: tables give every row every column, and leave most of them null.
    for name in TEXT_FIELDS:
        value = row.get(name)
        if value is not None:
            return _alpaca_text(row) if name == "instruction" else _string(value, name)
    for name in CHAT_FIELDS:
        if row.get(name) is not None:
            return _chat_text(row[name], name)
    sole = row.sole_column if isinstance(row, Row) else None
    if sole is not None:
        return _string(row[sole], sole)
    if any(name in row for name in (*TEXT_FIELDS, *CHAT_FIELDS)):
        return ""
    raise InputError(
        f"found no text: the row has none of the fields {', '.join(TEXT_FIELDS + CHAT_FIELDS)}; "
        f"found {list_names(row)}: name the field that holds the text (field=…, on the command line --text)"
    )


def _alpaca_text(row: Mapping[str, object]) -> str:
    parts = [_string(row.get(name), name) for name in ("instruction", "input")]
    return "\n".join(part for part in parts if part.strip())


def _named_text(row: Mapping[str, object], field: str) -> str:
    value = row[field] if field in row else value_at(row, field)
    is_chat = field.rpartition(".")[2] in CHAT_FIELDS and value is not None
    return _chat_text(value, field) if is_chat else _string(value, field)


def value_at(row: Mapping[str, object], field: str) -> object:
    """Follow a dotted path; a null on the way is a null at its end."""
    value: object = row
    for name in field.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or name not in value:
            found = f"the fields {list_names(value)}" if isinstance(value, Mapping) else name_kind(value)
            where = "" if value is row else f" (no {name!r} on the way)"
            raise InputError(f"found no field {field!r}{where}; found {found}: name a field that is there")
        value = value[name]
    return value


def _string(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(
            f"the field {name!r} must hold a string, but found {name_kind(value)}: name another field, "
            "or write the text as a string"
        )
    return value


def _chat_text(turns: object, name: str) -> str:
    if isinstance(turns, str):
        return turns
    if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns):
        raise InputError(
            f"the field {name!r} must hold a list of turns, each an object with a role and a content, "
            f"but found {name_kind(turns)}: name the field that holds the text (field=…, on the command line --text)"
        )
    roles = [turn.get("role") or turn.get("from") for turn in turns]
    chosen = [turn for turn, role in zip(turns, roles, strict=True) if role in _USER_ROLES] or [
        turn for turn, role in zip(turns, roles, strict=True) if role not in _SILENT_ROLES
    ]
    if not chosen:
        raise InputError(
            f"the chat in {name!r} has no turn of a user or an assistant; found the roles "
            f"{list_names(dict.fromkeys(roles))}: leave the row out, or name another field"
        )
    texts = (_turn_text(turn, name) for turn in chosen)
    return "\n".join(text for text in texts if text.strip())


def _turn_text(turn: Mapping[str, object], name: str) -> str:
    content = turn.get("content")
    if content is None:
        content = turn.get("value")
    if not isinstance(content, list):
        return _string(content, f"{name}.content")
    return "\n".join(filter(None, (_part_text(part, name) for part in content)))


def _part_text(part: object, name: str) -> str:
    """Take the text of one part of a turn; images and the like have none."""
    if not isinstance(part, Mapping):
        return _string(part, f"{name}.content")
    return _string(part.get("text"), f"{name}.content.text") if part.get("type", "text") == "text" else ""
