"""What a client may ask of the routing of one request: the field `ir3de` of the body, or headers."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import unquote

from ir3de.gateway.api_errors import Problem
from ir3de.gateway.headers import text

FIELD = "ir3de"
PRICE = r"^\d{1,12}(\.\d{1,12})?$"  # as a header gives it
_HEADERS = {
    b"x-ir3de-allow": "allow",
    b"x-ir3de-deny": "deny",
    b"x-ir3de-max-price": "max_price",
    b"x-ir3de-skip": "skip",
    b"x-ir3de-session": "session",
}

_NAMES = frozenset(_HEADERS)


@dataclass(frozen=True, slots=True)
class Controls:
    """Whom to ask, whom not, what it may cost; whether to route at all; which conversation it belongs to."""

    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    max_price: float | None = None  # for a million tokens, of prompt or answer
    skip: bool = False  # straight to the default expert
    session: str = ""
    weights: Mapping[str, float] | None = None  # what a unit of cost is worth, instead of the router's own

    @property
    def is_open(self) -> bool:
        """Whether every expert may answer."""
        return self.allow is None and not self.deny and self.max_price is None


NONE = Controls()
_KNOWN = tuple(part.name for part in fields(Controls))


def read_controls(given: object, headers: Mapping[bytes, bytes], session_headers: tuple[bytes, ...]) -> Controls:
    """The controls of a request; the body's field comes before the headers."""
    if given is None and _NAMES.isdisjoint(headers) and headers.keys().isdisjoint(session_headers):
        return NONE  # as with most requests
    found: dict[str, Any] = {}
    for header, name in _HEADERS.items():
        if header in headers:
            found[name] = _from_header(name, text(headers[header]).strip(), header.decode())
    if given is not None:
        found |= _from_body(given)
    if "session" not in found:
        for header in session_headers:
            if value := headers.get(header):
                found["session"] = value.decode("latin-1")
                break
    return Controls(**found) if found else NONE


def _from_header(name: str, value: str, header: str) -> Any:
    if name in ("allow", "deny"):
        return frozenset(unquote(one.strip()) for one in value.split(",") if one.strip())  # as x-ir3de-expert has them
    if name == "skip":
        if value.lower() not in ("true", "false", "1", "0"):
            raise _wrong(header, "true or false", value)
        return value.lower() in ("true", "1")
    if name == "max_price":
        if re.fullmatch(PRICE, value, re.ASCII) is None:
            raise _wrong(header, "a number such as 0.5", value)
        return float(value)
    return value


def _from_body(given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _wrong(FIELD, "an object", given)
    if unknown := sorted(set(given) - set(_KNOWN)):
        raise Problem(
            400, f"{FIELD} has no field {', '.join(map(repr, unknown))}: there are {', '.join(_KNOWN)}", param=FIELD
        )
    found: dict[str, Any] = {}
    for name, value in given.items():
        param = f"{FIELD}.{name}"
        if value is None:
            continue
        if name in ("allow", "deny"):
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise _wrong(param, "a list of experts' names", value)
            found[name] = frozenset(value)
        elif name == "max_price":
            found[name] = _price(value, param)
        elif name == "skip":
            if not isinstance(value, bool):
                raise _wrong(param, "true or false", value)
            found[name] = value
        elif name == "session":
            if not isinstance(value, str):
                raise _wrong(param, "a string", value)
            found[name] = value
        else:
            found[name] = _weights(value, param)
    return found


def _price(value: object, param: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise _wrong(param, "a number, at least 0", value)
    return float(min(value, sys.float_info.max))


def _weights(value: object, param: str) -> Mapping[str, float]:
    from ir3de.errors import InputError
    from ir3de.policies import Cost

    try:
        Cost.of(value)  # type: ignore[arg-type]
    except InputError as error:
        raise Problem(400, f"{param}: {error}", param=param) from error
    assert isinstance(value, dict)
    return value


def _wrong(param: str, wanted: str, found: object) -> Problem:
    return Problem(400, f"{param} must be {wanted}, found {str(found)[:80]!r}", "invalid_type", param)
