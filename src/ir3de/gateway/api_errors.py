"""Errors as clients of OpenAI's API know them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

# status: (type, code) where nothing more special is known
_KINDS = {
    400: ("invalid_request_error", "invalid_request"),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("timeout_error", "request_timeout"),
    409: ("invalid_request_error", "conflict"),
    412: ("invalid_request_error", "precondition_failed"),
    413: ("invalid_request_error", "request_too_large"),
    415: ("invalid_request_error", "unsupported_media_type"),
    422: ("invalid_request_error", "unprocessable"),
    428: ("invalid_request_error", "precondition_required"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    431: ("invalid_request_error", "headers_too_large"),
    500: ("server_error", "internal_error"),
    502: ("server_error", "bad_gateway"),
    503: ("server_error", "unavailable"),
    504: ("timeout_error", "upstream_timeout"),
}
_ANTHROPIC = {404: "not_found_error", 413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}

MAX_MESSAGE_CHARS = 1_000  # characters of a message: what was found may be as long as a request


@dataclass(eq=False)
class ApiError(Exception):
    """An error to send to the client: what was wrong, what was found, what to do."""

    status: int
    message: str
    code: str = ""
    param: str | None = None
    retry_after: float | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kind, usual = _KINDS.get(self.status, ("server_error", "error"))
        self.code = self.code or usual

    def body(self, endpoint: str = "") -> bytes:
        """The error object, as clients of this endpoint know it."""
        error = {"message": self.message[:MAX_MESSAGE_CHARS], "type": self.kind, "param": self.param, "code": self.code}
        said: dict[str, object] = {"error": error}
        if endpoint == "messages":
            usual = "api_error" if self.status >= 500 else self.kind
            said = {"type": "error", "error": {**error, "type": _ANTHROPIC.get(self.status, usual)}}
        return json.dumps(said, ensure_ascii=False).encode(errors="replace")

    def event(self, endpoint: str = "") -> bytes:
        """The error object as an event of a stream that has begun."""
        said = self.body(endpoint)
        if endpoint == "responses":
            told = {
                "type": "error",
                "code": self.code,
                "message": self.message[:MAX_MESSAGE_CHARS],
                "param": self.param,
            }
            said = json.dumps({**told, **json.loads(said)}, ensure_ascii=False).encode(errors="replace")
        name = b"event: error\n" if endpoint in ("responses", "messages") else b""
        return name + b"data: " + said + b"\n\n"

    def header_list(self) -> list[tuple[bytes, bytes]]:
        given = dict(self.headers)
        if self.retry_after is not None:
            given["retry-after"] = str(max(1, round(self.retry_after)))
        return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in given.items()]


Validated = TypeVar("Validated", bound=BaseModel)


def validate(kind: type[Validated], given: Any, within: str = "", *, status: int = 422) -> Validated:
    """Turn a part of a request into a model, or raise a `ApiError` that says what is wrong with each field.

    What was found is not repeated: somebody may have put a secret into the wrong field.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        places = [
            ".".join(str(step)[:80] for step in (*([within] if within else []), *fault["loc"])) for fault in faults
        ]
        texts = [
            f"no such field, there are {', '.join(kind.model_fields)}"
            if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1
            else fault["msg"].removeprefix("Value error, ")
            for fault in faults
        ]
        message = "; ".join(f"{place or 'the body'}: {text}" for place, text in zip(places, texts, strict=True))
        code = "invalid_field" if status == 422 else "invalid_type"
        raise ApiError(status, message, code, places[0] or "the body") from None


def build_internal_error(request_id: str) -> ApiError:
    """An internal error: the log has the details, the client does not get them."""
    return ApiError(500, f"the gateway failed: its log has more, request {request_id}")


class ClientDisconnect(Exception):  # noqa: N818 - nobody's error
    """The client has disconnected."""
