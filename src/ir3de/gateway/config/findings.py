"""What is wrong with a configuration, in words: the line, the field, what was found, what was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ir3de.errors import InputError
from ir3de.gateway.config.models import Config
from ir3de.gateway.config.yaml_parser import Document, FieldPath

_SECRETS = {  # names under which people write a secret down, and the field that takes the variable's name
    **dict.fromkeys(("api_key", "apikey", "key", "token", "api_token", "access_token", "bearer"), "api_key_env"),
    **dict.fromkeys(("secret", "password", "authorization", "auth", "credentials"), "api_key_env"),
    "api_keys": "api_keys_env",
    "admin_token": "admin_token_env",
}
_MAX_VALUE_CHARS = 60  # characters of a wrong value that are shown


@dataclass(frozen=True)
class Finding:
    """Something to know about a configuration: `where` is the field, as in experts.0.base_url."""

    level: Literal["error", "warning"]
    where: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.line and f"line {self.line}", self.where) if part)
        return f"{place}: {self.message}" if place else self.message


class ConfigError(InputError):
    """A configuration that cannot be used, with all that is wrong about it in `findings`."""

    def __init__(self, name: str, findings: list[Finding]) -> None:
        self.name, self.findings = name, tuple(findings)
        many = f"{len(findings)} problems: " if len(findings) > 1 else ""
        super().__init__(f"{name}: {many}" + "; ".join(map(str, findings)))


def convert_errors(document: Document, details: Iterable[ErrorDetails]) -> list[Finding]:
    """What pydantic found, told of the file."""
    details = list(details)
    paths = [detail["loc"] for detail in details]
    whole = [one for one in details if one["type"] != "too_short" or not _is_above(one["loc"], paths)]
    return [_convert_error(document, detail) for detail in whole]


def describe_unset(name: str) -> str:
    if len(name) >= 16 and not name.isupper():  # keys are long and mixed; what may be one is not repeated
        return "this looks like a key: write the name of the environment variable that holds it, such as MY_KEY"
    return f"the environment variable {name} is not set: set it, or leave the field out"


def find_literal_secrets(document: Document, value: Any, path: FieldPath) -> Iterator[Finding]:
    """Secrets that were written down where the name of a variable belongs."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        field = str(key).lower().replace("-", "_")
        if isinstance(key, str) and field in _SECRETS:
            said = f"no secrets in the file: put it into an environment variable, and its name into {_SECRETS[field]}"
            yield Finding("error", join_path((*path, key)), said, document.line((*path, key)))
        else:
            yield from find_literal_secrets(document, below, (*path, key))


def _convert_error(document: Document, detail: ErrorDetails) -> Finding:
    path, message = detail["loc"], _describe_error(detail)
    if not path and (said := re.match(r"([\w.]+): (.*)", message)):  # a check of the whole names its field itself
        path, message = tuple(int(part) if part.isdecimal() else part for part in said[1].split(".")), said[2]
    return Finding("error", join_path(path), message, document.line(path))


def _is_above(path: FieldPath, others: Iterable[FieldPath]) -> bool:
    """Whether others are inside it: what is wrong in a list is not also that it is empty."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in others)


def _describe_error(detail: ErrorDetails) -> str:
    path, kind, value = detail["loc"], detail["type"], detail["input"]
    if kind == "missing":
        return "this field is missing"
    if kind == "extra_forbidden":
        return "there is no such field" + _suggest_field(str(path[-1]), path[:-1])
    if kind == "too_short":
        return "should not be empty"
    if kind == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    said = detail["msg"].replace("Input should be", "should be").replace("Input should", "should")
    if any(str(step).endswith("_env") for step in path):
        return "should be the name of an environment variable, such as MY_KEY, not a key itself"
    hint = ": write true or false" if kind.startswith("bool") else ": put it in quotes" if _is_bare(kind, value) else ""
    return f"{said}, found {format_value(value)}{hint}"


def _is_bare(kind: str, value: Any) -> bool:
    return kind == "string_type" and isinstance(value, bool | int | float)


def format_value(value: Any) -> str:
    """A wrong value, as far as it helps to see it."""
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "fields"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE_CHARS else text[: _MAX_VALUE_CHARS - 1] + "…"


def _suggest_field(field: str, path: FieldPath) -> str:
    part = _find_part(path)
    here = list(part.model_fields) if part else []
    if close := get_close_matches(field, here, n=1, cutoff=0.6):
        return f", did you mean {close[0]}?"
    elsewhere = [place for place in _list_places(Config, ()) if place.rpartition(".")[2] == field]
    if elsewhere:
        return f" here, did you mean {' or '.join(elsewhere)}?"
    return f": there are {', '.join(here)}" if here else ""


def _find_part(path: FieldPath) -> type[BaseModel] | None:
    part: type[BaseModel] | None = Config
    for step in path:
        if isinstance(step, int):
            continue
        field = part.model_fields.get(step) if part else None
        part = _part_of(field.annotation) if field else None
    return part


def _part_of(annotation: Any) -> type[BaseModel] | None:
    """The part of the configuration that a field holds: itself, in a list, or perhaps."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType):
        return next((part for inner in get_args(annotation) if (part := _part_of(inner))), None)
    return None


def _list_places(part: type[BaseModel], above: tuple[str, ...]) -> Iterator[str]:
    for name, field in part.model_fields.items():
        yield ".".join((*above, name))
        if inner := _part_of(field.annotation):
            yield from _list_places(inner, (*above, name))


def join_path(path: FieldPath) -> str:
    return ".".join(map(str, path))


def sort_findings(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.where))
