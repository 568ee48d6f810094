"""All text of a request that a model reads, and where it stands: one walk for hooks, token estimates and windows.

Below the fields that models read, every string is text unless it is known to be something else. So a field that an API
adds later is seen, too. Names of fields are text in what tools get, and of the properties in their schemas.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from codecs import utf_8_decode
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ir3de_gateway.requests.token_estimate import Beginning

READ_BY_MODELS = (
    "system", "instructions", "messages", "input", "prompt", "suffix", "prediction", "query", "documents", "tools",
    "functions", "response_format", "text", "output_config", "output_format", "web_search_options", "chat_template",
    "chat_template_kwargs", "input_prefix", "input_suffix", "input_extra",
)  # fmt: skip
FILE_FIELDS = ("data", "file_data", "file_url", "url")  # a file in base64, or a text
FILE_HEAD_CHARS = 64  # of a file in base64: by these it is text or not
_IDENTIFIERS = frozenset((  # no text as long as they look like what they are
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

PART_NAMES = frozenset((  # that say what a message, a part or a tool is
    *_IDENTIFIERS, *_NO_TEXT, *_SCHEMAS, *_ARGUMENTS, *FILE_FIELDS, "content", "text", "output", "source", "file",
    "name", "function", "tool_calls", "function_call",
))  # fmt: skip

_is_identifier = re.compile(r"[\w.:/+-]{0,100}", re.ASCII).fullmatch
_data_url = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE).match
_looks_like_base64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}").fullmatch
_controls = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]").search

_WITH_TEXT, _WITHOUT_TEXT = (str, dict, list), frozenset((int, float, bool, type(None)))

# what a value is: of a message, a part or a tool; a JSON schema; its properties by their names; any JSON; the same, and
# names that look like names are no text; parts by names that the client has chosen
Zone = Literal["part", "schema", "properties", "data", "free", "variables", "name", "file"]
_FREE: dict[str, Zone] = {"documents": "free", "chat_template_kwargs": "free", "variables": "variables"}
_ZONES: dict[str, Zone] = {**dict.fromkeys(_SCHEMAS, "schema"), **dict.fromkeys(_ARGUMENTS, "data"), **_FREE}


class Slot(NamedTuple):
    """A place that holds a text."""

    holder: Any  # an object or a list
    name: Any  # the field or the index there
    path: tuple[Hashable, ...]  # the same for the parts of one text in the events of a stream
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
        except ValueError:  # it began well
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


def list_part_slots(name: str, value: Any) -> Iterator[Slot]:
    """The same of one field of a message, or of a part of one."""
    return walk({"": {name: value}}, "")


def walk(body: Mapping[str, Any], *fields: str, path: tuple[Hashable, ...] = ()) -> Iterator[Slot]:
    """The texts below some fields of a request, a message or an answer, as far as they are there.

    Slots have a path only if it begins with one. The event loop waits for this: values without text are not visited.
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


def _list_properties(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    for name in value:
        yield name, "name"
        yield name, "schema"


def _list_data(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    for name in value:
        yield name, "name"
        yield name, "data"


def _list_free(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    for name in value:
        if not _is_identifier(name):
            yield name, "name"
        yield name, "free"


def _list_variables(value: dict[str, Any]) -> Iterator[tuple[str, Zone]]:
    return ((name, "part") for name in value)


_LISTS = {
    "part": _list_part, "schema": _list_schema, "properties": _list_properties, "data": _list_data, "free": _list_free,
    "variables": _list_variables,
}  # fmt: skip


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
    """Whether a file in base64 is declared to be a text, or begins as one does."""
    start = _find_payload(data)
    if _is_declared_text(data[len("data:") : start]):
        return True
    head = data[start : start + FILE_HEAD_CHARS]
    try:
        text, _ = utf_8_decode(b64decode(head[: len(head) // 4 * 4], validate=True), "strict", False)
    except ValueError:
        return False
    return bool(text) and not text.startswith("%PDF") and _controls(text) is None
