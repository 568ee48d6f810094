"""How a client controls the routing of one request: the field `ir3de` of the body, or headers."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, WithJsonSchema

from ir3de.errors import InputError
from ir3de.policies import COSTS, Cost
from ir3de_gateway.api_errors import build_type_error, validate
from ir3de_gateway.config.experts import Part
from ir3de_gateway.headers import text
from ir3de_gateway.requests.json_body import FIELD

MAX_WEIGHT = 1e12  # with more, costs of ordinary units would be larger than any number
PRICE_PATTERN = r"^\d{1,12}(\.\d{1,12})?$"  # of the header's value
CONTROL_HEADERS = {
    b"x-ir3de-allow": "allow",
    b"x-ir3de-deny": "deny",
    b"x-ir3de-max-price": "max_price",
    b"x-ir3de-skip": "skip",
    b"x-ir3de-session": "session",
}


@dataclass(frozen=True, slots=True)
class Controls:
    """Which experts may answer, at which price, whether to route at all, and which conversation it is."""

    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    max_price: float | None = None  # of a million tokens, of prompt or answer
    skip: bool = False  # do not route: use the default expert
    session: str = ""
    weights: Mapping[str, float] | None = None  # what a unit of cost is worth, instead of the router's own
    of_key: frozenset[str] | None = None  # the experts that the client's key may use; None: all

    @property
    def is_unrestricted(self) -> bool:
        """Whether every expert may answer."""
        return self.allow is None and not self.deny and self.max_price is None and self.of_key is None


NO_CONTROLS = Controls()


def _check_weights(given: Any) -> Any:
    weights = Cost.of(given)
    for name in COSTS:
        if (weight := getattr(weights, name)) > MAX_WEIGHT:
            raise InputError(f"{name} must be a number from 0 to {MAX_WEIGHT:g}, found {weight:g}")
    return given


def _limit_integer(given: Any) -> Any:
    """JSON has integers that are larger than any float."""
    return min(given, sys.float_info.max) if type(given) is int else given


_COST = {"type": "number", "minimum": 0, "maximum": MAX_WEIGHT}
_COSTS = {"type": "object", "properties": dict.fromkeys(COSTS, _COST), "additionalProperties": False}
CostWeights = Annotated[dict[str, Any], BeforeValidator(_check_weights), WithJsonSchema(_COSTS)]


class ControlsField(Part, strict=True):
    """How a client controls the routing of one request."""

    allow: list[str] | None = None
    """Experts that may answer; otherwise all."""
    deny: list[str] | None = None
    """Experts that may not answer."""
    max_price: Annotated[float, BeforeValidator(_limit_integer), Field(ge=0)] | None = None
    """The highest price of a million tokens, of prompt or answer."""
    skip: bool | None = None
    """Do not route: use the default expert."""
    session: str | None = None
    """The conversation, which stays with its expert."""
    weights: CostWeights | None = None
    """What a unit of cost is worth, instead of the router's own."""


def read_controls(given: object, headers: Mapping[bytes, bytes], session_headers: tuple[bytes, ...]) -> Controls:
    """The controls of a request; the body's field comes before the headers."""
    found: dict[str, Any] = {}
    for header, name in CONTROL_HEADERS.items():
        if header in headers:
            found[name] = _from_header(name, text(headers[header]).strip(), header.decode())
    if given is not None:
        found |= _from_body(given)
    if "session" not in found:
        for header in session_headers:
            if value := headers.get(header):
                found["session"] = value.decode("latin-1")
                break
    return Controls(**found) if found else NO_CONTROLS


def _from_header(name: str, value: str, header: str) -> Any:
    if name in ("allow", "deny"):
        return frozenset(unquote(one.strip()) for one in value.split(",") if one.strip())  # as x-ir3de-expert has them
    if name == "skip":
        if value.lower() not in ("true", "false", "1", "0"):
            raise build_type_error(header, "true or false", value)
        return value.lower() in ("true", "1")
    if name == "max_price":
        if re.fullmatch(PRICE_PATTERN, value, re.ASCII) is None:
            raise build_type_error(header, "a number such as 0.5", value)
        return float(value)
    return value


def _from_body(given: object) -> dict[str, Any]:
    field = validate(ControlsField, given, FIELD, status=400, shows_found=True)
    found = {name: value for name, value in field if value is not None}
    return found | {name: frozenset(found[name]) for name in ("allow", "deny") if name in found}
