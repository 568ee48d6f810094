"""Errors for clients: what was wrong, with a status and a code, in the format of OpenAI's APIs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import ceil
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ir3de.errors import describe_value

# status: (type, code); the code is the default, where the error has no code of its own
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

MAX_MESSAGE_CHARS = 1_000  # a message may quote a value of the request, which can be of any length

_WANTED = {"model_type": "must be an object", "bool_type": "must be true or false", "missing": "this field is missing"}


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
        self.kind, default_code = _KINDS.get(self.status, ("server_error", "error"))
        self.code = self.code or default_code

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of OpenAI's error object."""
        return {"message": self.message[:MAX_MESSAGE_CHARS], "type": self.kind, "param": self.param, "code": self.code}

    def body(self) -> bytes:
        """The error object as OpenAI's APIs have it. `wire` has the formats of other APIs."""
        return encode_json({"error": self.fields})

    def header_list(self) -> list[tuple[bytes, bytes]]:
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["retry-after"] = str(max(1, ceil(self.retry_after)))
        return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]


def encode_json(content: dict[str, Any]) -> bytes:
    """The object as JSON in UTF-8."""
    return json.dumps(content, ensure_ascii=False).encode(errors="replace")


Validated = TypeVar("Validated", bound=BaseModel)


def validate(
    kind: type[Validated], given: Any, within: str = "", *, status: int = 422, shows_found: bool = False
) -> Validated:
    """Turn a part of a request into a model, or raise an `ApiError` that describes what is wrong with each field.

    The message quotes the wrong values only with `shows_found`. /admin does not use it, because a secret may be in the
    wrong field.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        faults = list_faults(error)
        prefix = [within] if within else []
        places = [".".join(str(step)[:80] for step in (*prefix, *fault["loc"])) or "the body" for fault in faults]
        texts = [_describe_fault(kind, fault, shows_found=shows_found) for fault in faults]
        message = "; ".join(f"{place}: {text}" for place, text in zip(places, texts, strict=True))
        raise ApiError(status, message, "invalid_field" if status == 422 else "invalid_type", places[0]) from None


def list_faults(error: ValidationError) -> list[ErrorDetails]:
    """What pydantic found wrong, each fault with the path that the caller wrote.

    Left out are defaults that could not be made because another field is wrong, and the tags of unions in paths.
    """
    found = [fault for fault in error.errors(include_url=False) if fault["type"] != "default_factory_not_called"]
    for fault in found:
        path = fault["loc"]
        tags = {
            place + 2 for place, step in enumerate(path[:-1]) if step == "replicas" and isinstance(path[place + 1], int)
        }
        fault["loc"] = tuple(step for place, step in enumerate(path) if place not in tags)
    return found


def _describe_fault(kind: type[BaseModel], fault: ErrorDetails, *, shows_found: bool) -> str:
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return f"no such field, there are {', '.join(kind.model_fields)}"
    if fault["type"] == "value_error":  # raised by a validator of ours, whose message is complete
        return fault["msg"].removeprefix("Value error, ")
    wanted = _WANTED.get(fault["type"]) or fault["msg"].replace("Input should", "must", 1)
    is_shown = shows_found and fault["type"] not in ("missing", "extra_forbidden")
    return f"{wanted}, found {describe_value(fault['input'])}" if is_shown else wanted


def build_type_error(param: str, wanted: str, found: object) -> ApiError:
    """The error for a field of a wrong type."""
    return ApiError(400, f"{param} must be {wanted}, found {describe_value(found)}", "invalid_type", param)


def build_internal_error(request_id: str) -> ApiError:
    """An internal error: the log has the details, the client does not get them."""
    return ApiError(500, f"internal error; the log has the details, request id {request_id}")


def build_stopping_error() -> ApiError:
    """The gateway stops, and cancels the requests that are left."""
    return ApiError(
        503, "the gateway is stopping and has cancelled this request: retry in 1 s", "stopping", retry_after=1.0
    )


class ClientDisconnect(Exception):  # noqa: N818 - an event, not an error
    """The client has disconnected."""
