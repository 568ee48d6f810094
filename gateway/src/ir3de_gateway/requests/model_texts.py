"""The texts that a model reads in a request or writes in an answer: one walk for hooks, token estimates and windows.

Below the fields that models read, every string is text unless it is known to be something else. So a field that an API
adds later is included. The names of fields are text in the arguments of tools and in the properties of schemas.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from codecs import utf_8_decode
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from ir3de_gateway.requests.tokens import Beginning

READ_BY_MODELS = (
    "system", "instructions", "messages", "input", "prompt", "suffix", "prediction", "query", "documents", "tools",
    "functions", "response_format", "text", "output_config", "output_format", "web_search_options", "chat_template",
    "chat_template_kwargs", "input_prefix", "input_suffix", "input_extra",
)  # fmt: skip
FILE_FIELDS = ("data", "file_data", "file_url", "url")  # a file in base64, or a text
FILE_HEAD_CHARS = 64  # of a file in base64: by these it is text or not
_IDENTIFIERS = frozenset((  # not text, unless they do not look like identifiers
    "type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "item_id", "approval_request_id", "status",
    "detail", "media_type", "mime_type", "mimeType", "format", "syntax", "verbosity", "effort", "ttl", "phase",
))  # fmt: skip
_NO_TEXT = frozenset((
    "image_url", "input_audio", "audio_url", "video_url", "image", "video", "file_id", "server_url", "headers",
    "authorization", "signature", "encrypted_content", "encrypted_index", "cache_control", "b64_json",
))  # fmt: skip
_SCHEMAS = frozenset(("parameters", "input_schema", "inputSchema", "schema"))
_ARGUMENTS = frozenset(("input", "arguments"))  # of a tool's call: any JSON
_SCHEMA_TYPES = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_PLACES = ("output_index", "content_index", "summary_index")
_WHOLE = ("item", "part", "text", "refusal", "arguments", "transcript", "input", "code")  # of OpenAI's named events
_PROPERTIES = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_SCHEMA_VALUES = frozenset(("enum", "const", "default", "examples", "example", "required"))
_KEYWORDS = frozenset((
    "type", "title", "description", "format", "pattern", "items", "prefixItems", "additionalProperties",
    "unevaluatedProperties", "propertyNames", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "contains",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "uniqueItems", "minProperties", "maxProperties", "minContains", "maxContains", "nullable", "readOnly",
    "writeOnly", "deprecated", "strict", "$ref", "$schema", "$id", "$anchor", "$comment", "contentEncoding",
    "contentMediaType", "dependentRequired", "discriminator",
))  # fmt: skip

PART_NAMES = frozenset((  # the fields that define a message, a part or a tool
    *_IDENTIFIERS, *_NO_TEXT, *_SCHEMAS, *_ARGUMENTS, *FILE_FIELDS, "content", "text", "output", "source", "file",
    "name", "function", "tool_calls", "function_call",
))  # fmt: skip

_is_identifier = re.compile(r"[\w.:/+-]{0,100}", re.ASCII).fullmatch
_data_url = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE).match
_looks_like_base64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}").fullmatch
_controls = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]").search

_WITH_TEXT, _WITHOUT_TEXT = (str, dict, list), frozenset((int, float, bool, type(None)))

# what a value is: a message, a part or a tool; a JSON schema; its properties by their names; any JSON; any JSON whose
# names are text only if they do not look like identifiers; parts by names that the client has chosen
Zone = Literal["part", "schema", "properties", "data", "free", "variables", "name", "file"]
_FREE: dict[str, Zone] = {"documents": "free", "chat_template_kwargs": "free", "variables": "variables"}
_ZONES: dict[str, Zone] = {**dict.fromkeys(_SCHEMAS, "schema"), **dict.fromkeys(_ARGUMENTS, "data"), **_FREE}


class Slot(NamedTuple):
    """A place that holds a text."""

    holder: Any  # an object or a list
    name: Any  # the field or the index there
    path: tuple[Hashable, ...]  # equal for the parts of one text in the events of a stream
    kind: Zone = "part"  # `name`: the text is the field's name; `file`: it is in base64

    @property
    def text(self) -> str:
        if self.kind == "name":
            return str(self.name)
        value: str = self.holder[self.name]
        if self.kind != "file" or isinstance(value, Beginning):
            return value
        try:
            return b64decode(value[_find_payload(value) :] + "==").decode(errors="replace")
        except ValueError:  # only the beginning is base64
            return value

    def put(self, text: str) -> None:
        """Change the text. Of several slots, the last one must be changed first: names move."""
        if self.kind == "name":
            items = [(text if key == self.name else key, value) for key, value in self.holder.items()]
            self.holder.clear()
            self.holder.update(items)
        elif self.kind == "file":
            before = self.holder[self.name]
            self.holder[self.name] = before[: _find_payload(before)] + b64encode(text.encode(errors="replace")).decode()
        else:
            self.holder[self.name] = text


def list_request_slots(body: Mapping[str, Any]) -> Iterator[Slot]:
    """Where a request has texts that a model reads, in their order.

    >>> [slot.text for slot in list_request_slots({"messages": [{"role": "user", "content": "Hi"}], "model": "m"})]
    ['Hi']
    """
    return walk(body, *READ_BY_MODELS)


def list_answer_slots(answer: dict[str, Any]) -> Iterator[tuple[Slot, dict[str, Any]]]:
    """Where an answer, or one event of a stream, has a text of the model or a part of one.

    Each slot comes with the object that may have log-probabilities, which repeat the text.
    """
    for place, choice in enumerate(_list_objects(answer.get("choices"))):
        path = ("choice", read_index(choice, place))
        yield from ((slot, choice) for slot in walk(choice, "message", "delta", path=path))
        yield from ((slot, choice) for slot in walk(choice, "text", path=(*path, "text")))
    kind = str(answer.get("type"))
    if kind == "message":
        yield from ((slot, {}) for slot in walk(answer, "content", path=("block",)))
    elif kind in ("content_block_start", "content_block_delta"):
        path = ("block", read_index(answer, 0))
        yield from ((slot, {}) for slot in walk(answer, "content_block", "delta", path=path))
    elif kind.startswith("response.") and kind.endswith(".delta") and not kind.endswith("audio.delta"):
        places = (json.dumps(answer.get(place)) for place in _PLACES)
        yield from ((slot, answer) for slot in walk(answer, "delta", path=(kind, *places)))
    if answer.get("object") == "response":
        yield from ((slot, {}) for slot in walk(answer, "output", path=("item",)))


def list_whole_slots(event: dict[str, Any]) -> Iterator[Slot]:
    """Where an event of a stream has whole texts: those that came in parts, once more, and perhaps others."""
    response, kind = event.get("response"), event.get("type")
    if isinstance(response, dict):
        yield from walk(response, "output")
    if isinstance(kind, str) and kind.startswith("response."):
        yield from walk(event, *_WHOLE)


def _list_objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def list_part_slots(name: str, value: Any) -> Iterator[Slot]:
    """The same for one field of a message, or of a part of one."""
    return walk({"": {name: value}}, "")


def walk(body: Mapping[str, Any], *fields: str, path: tuple[Hashable, ...] = ()) -> Iterator[Slot]:
    """The texts below some fields of a request, a message or an answer.

    Slots have a path only if one is given. Values without text are skipped, because this runs in the event loop.
    """
    waiting: list[tuple[Any, Any, tuple[Hashable, ...], Zone]]
    waiting = [(body, name, path, _FREE.get(name, "part")) for name in reversed(fields) if name in body]
    while waiting:
        holder, name, path, zone = waiting.pop()
        if zone == "name":
            yield Slot(holder, name, path and (*path, zone), zone)
        elif isinstance(value := holder[name], str):
            yield Slot(holder, name, path, zone)
        elif isinstance(value, dict):
            for inner, inner_zone in reversed(list(_LISTS[zone](value))):
                if inner_zone == "name" or isinstance(value[inner], _WITH_TEXT):
                    waiting.append((value, inner, path and (*path, inner), inner_zone))
        elif isinstance(value, list) and not _WITHOUT_TEXT.issuperset(map(type, value)):
            waiting += [
                (value, place, path and (*path, read_index(item, place)), zone)
                for place, item in enumerate(value)
                if isinstance(item, _WITH_TEXT)
            ][::-1]


def read_index(item: Any, place: int) -> int:
    """The place of an item of a list; in a stream, which sends a list in parts, items have a field for theirs."""
    index = item.get("index") if isinstance(item, dict) else None
    return index if type(index) is int else place


def _list_part(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    for name, inner in value.items():
        if name in _NO_TEXT or (name in _IDENTIFIERS and isinstance(inner, str) and _is_identifier(inner)):
            continue
        if name in FILE_FIELDS and isinstance(inner, str):
            if value.get("type") == "text" or not _is_base64(inner):
                yield name, "part"
            elif _is_declared_text(value.get("media_type")) or _is_text_file(inner):
                yield name, "file"
        else:
            yield name, _ZONES.get(name, "part")


def _list_schema(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    for name, inner in value.items():
        if name == "type" and all(
            isinstance(one, str) and one in _SCHEMA_TYPES for one in (inner if isinstance(inner, list) else (inner,))
        ):
            continue
        if name in _PROPERTIES:
            yield name, "properties"
        elif name in _SCHEMA_VALUES:
            yield name, "data"
        else:
            if name not in _KEYWORDS:
                yield name, "name"
            yield name, "schema"


def _list_all(inner: Zone, is_text: Callable[[str], object], value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    """Every field of an object, and the names that are text."""
    for name in value:
        if is_text(name):
            yield name, "name"
        yield name, inner


_LISTS: dict[Zone, Callable[[dict[str, Any]], Iterator[tuple[str, Zone]]]] = {
    "part": _list_part,
    "schema": _list_schema,
    "properties": partial(_list_all, "schema", lambda name: True),
    "data": partial(_list_all, "data", lambda name: True),
    "free": partial(_list_all, "free", lambda name: not _is_identifier(name)),
    "variables": partial(_list_all, "part", lambda name: False),
}


def _find_payload(data: str) -> int:
    """Where the base64 begins: some files are `data:text/plain;base64,…`."""
    found = _data_url(data)
    return found.end() if found is not None else 0


def _is_base64(data: str) -> bool:
    start = _find_payload(data)
    return start > 0 or _looks_like_base64(data[:FILE_HEAD_CHARS]) is not None


def _is_declared_text(media_type: object) -> bool:
    return isinstance(media_type, str) and media_type.lower().startswith("text/")


def _is_text_file(data: str) -> bool:
    """Whether a file in base64 is declared as text, or begins like a text."""
    start = _find_payload(data)
    if _is_declared_text(data[len("data:") : start]):
        return True
    head = data[start : start + FILE_HEAD_CHARS]
    try:
        text, _ = utf_8_decode(b64decode(head[: len(head) // 4 * 4], validate=True), "strict", False)
    except ValueError:
        return False
    return bool(text) and not text.startswith("%PDF") and _controls(text) is None
