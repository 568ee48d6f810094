"""Names that two readers of a request may understand differently: twice in one object, or another only in case.

Servers in Go take `Model` for `model`, and of two equal names some servers take the first, others the last. Such a
request is rejected: what the gateway did not read could be another model, or another prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.model_texts import PART_NAMES, READ_BY_MODELS

READ_FIELDS = frozenset((
    *READ_BY_MODELS, "model", "stream", "stream_options", "store", "background", "previous_response_id", "conversation",
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict", "n", "best_of", "audio",
    "mcp_servers", "input_file_id", "ir3de",
))  # fmt: skip
_NESTED_FIELDS = PART_NAMES | {"include_usage"}
_WITH_OBJECTS = ("messages", "input", "system", "prediction", "tools", "functions", "conversation", "stream_options")
_INSIDE = frozenset(("content", "output", "source", "file", "function", "tool_calls", "function_call", "summary"))


class DuplicateName(ValueError):  # noqa: N818 - as JSONDecodeError, it says what is wrong with the JSON
    """A name that occurs twice in one object."""


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members, for the JSON decoder."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateName(f"{json.dumps(next(name for name in names if names.count(name) > 1))} occurs twice")
    return found


def check_field(name: str, known: frozenset[str] = READ_FIELDS) -> None:
    """An `ApiError` for a name that differs from a known one in case alone."""
    if name not in known and (folded := name.casefold()) in known:
        found, wanted = json.dumps(name[:100]), json.dumps(folded)
        message = f"the field {found} differs from {wanted} in case alone, and some servers take one for the other"
        raise ApiError(400, f"{message}: write {wanted}, or leave it out", "ambiguous_field", name[:100])


def check_part_field(name: str, value: object) -> None:
    """The same for a field of a message, of a part of one, or of a tool, and for the objects in it."""
    check_field(name, _NESTED_FIELDS)
    if name in _INSIDE:
        _check_objects([value])


def check_nested(values: Mapping[str, Any]) -> None:
    """The same for all messages, parts and tools; what tools get, and their schemas, may have any names."""
    _check_objects([values[name] for name in _WITH_OBJECTS if name in values])


def _check_objects(waiting: list[Any]) -> None:
    for value in waiting:  # which grows meanwhile
        if type(value) is dict:
            if not _NESTED_FIELDS.issuperset(value):
                for name in value:
                    check_field(name, _NESTED_FIELDS)
            waiting += [value[name] for name in value if name in _INSIDE and type(value[name]) is not str]
        elif type(value) is list:
            waiting += value
