"""An expert's errors in the format of the client: the same status and message, the other API's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.formats import WireFormat

_STATUSES = {  # of Anthropic's types, for events that have no status of their own
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 503,
}


def build_message_error(status: int, content: Mapping[str, Any]) -> dict[str, Any]:
    """The error object of Anthropic's API."""
    return FORMATS["messages"].build_error(_read_error(status, content))


def build_chat_error(status: int, content: Mapping[str, Any]) -> dict[str, Any]:
    """The error object of OpenAI's API."""
    return FORMATS["chat/completions"].build_error(_read_error(status, content))


def translate_error(wire: WireFormat, status: int, content: Mapping[str, Any] | None, expert: str) -> dict[str, Any]:
    """The error object in the client's format, from the one that an expert sent with a status, if it sent one."""
    return wire.build_error(_read_error(status, content or {"message": f"'{expert}' answered with status {status}"}))


def _read_error(status: int, content: Mapping[str, Any]) -> ApiError:
    error = content.get("error", content)
    if not isinstance(error, dict):
        error = {"message": error}
    kind, message, code, param = (error.get(name) for name in ("type", "message", "code", "param"))
    if status == 502 and isinstance(kind, str):
        status = _STATUSES.get(kind, status)
    if isinstance(code, int) and not isinstance(code, bool) and status == 502 and 400 <= code < 600:
        status = code  # llama.cpp has the status there
    text = message if isinstance(message, str) and message else "the expert reports an error"
    return ApiError(status, text, code if isinstance(code, str) else "", param if isinstance(param, str) else None)
