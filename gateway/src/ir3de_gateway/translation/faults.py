"""What cannot be translated, and fields of a wrong type: errors for the client that name the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de.errors import describe_value
from ir3de_gateway.api_errors import ApiError

CODE = "untranslatable"
CHAT, MESSAGES = "OpenAI's chat completions", "Anthropic's messages"


class UntranslatableError(ApiError):
    """A field that has no counterpart in the format of the expert."""

    def __init__(self, param: str, wanted: str, hint: str = "") -> None:
        super().__init__(400, f"{param} has no counterpart in {wanted}{hint and f': {hint}'}", CODE, param)


class UnreadableAnswer(Exception):  # noqa: N818 - the expert's error
    """An answer of an expert that is not what its format says."""


def build_fault(param: str, wanted: str, found: object) -> ApiError:
    """The error for a field of a wrong type. A string may be a prompt, so it is not repeated."""
    shown = "a string" if isinstance(found, str) else describe_value(found)
    return ApiError(400, f"{param} must be {wanted}, found {shown}", "invalid_type", param)


def read_object(value: object, param: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise build_fault(param, "an object", value)
    return value


def read_list(value: object, param: str) -> list[Any]:
    if not isinstance(value, list):
        raise build_fault(param, "a list", value)
    return value


def read_string(value: object, param: str) -> str:
    if not isinstance(value, str):
        raise build_fault(param, "a string", value)
    return value


def refuse_unknown(values: Mapping[str, Any], known: frozenset[str], wanted: str) -> None:
    """Refuse the first field that is neither carried nor harmless. A null says nothing, so it is no field."""
    for name, value in values.items():
        if name not in known and value is not None:
            raise UntranslatableError(name[:100], wanted)
