"""Messages about a configuration: the line, the field, what is wrong, what was found, and a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ir3de.errors import InputError, describe_value
from ir3de_gateway.config.models import Config
from ir3de_gateway.config.part import suggest_name
from ir3de_gateway.config.yaml_parser import Document, FieldPath

_SECRETS = {  # names of fields that would hold a secret, and the field for the name of its variable
    **dict.fromkeys(("api_key", "apikey", "key", "token", "api_token", "access_token", "bearer"), "api_key_env"),
    **dict.fromkeys(("secret", "password", "authorization", "auth", "credentials"), "api_key_env"),
    "api_keys": "api_keys_env",
    "admin_token": "admin_token_env",
}


@dataclass(frozen=True)
class Finding:
    """A problem of a configuration: `where` is the field, as in experts.0.base_url."""

    level: Literal["error", "warning"]
    where: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.line and f"line {self.line}", self.where) if part)
        return f"{place}: {self.message}" if place else self.message


class ConfigError(InputError):
    """A configuration that cannot be used; `findings` are its problems."""

    def __init__(self, name: str, findings: list[Finding]) -> None:
        self.name, self.findings = name, tuple(findings)
        many = f"{len(findings)} problems: " if len(findings) > 1 else ""
        super().__init__(f"{name}: {many}" + "; ".join(map(str, findings)))


def convert_errors(
    document: Document, details: Iterable[ErrorDetails], root: type[BaseModel] = Config
) -> list[Finding]:
    """Pydantic's errors as findings with the lines of the file; `root` is the model of the whole file."""
    details = list(details)
    paths = [detail["loc"] for detail in details]
    whole = [one for one in details if one["type"] != "too_short" or not _is_above(one["loc"], paths)]
    return [finding for detail in whole for finding in _convert_error(document, detail, root)]


def describe_unset(name: str, instead: str = "leave the field out") -> str:
    """What is wrong with a variable that is not set, or with a key in the place of its name."""
    if len(name) >= 16 and not name.isupper():  # it may be a key, so it is not repeated
        return "this looks like a key: write the name of the environment variable that holds it, such as MY_KEY"
    return f"the environment variable {name} is not set: set it, or {instead}"


def find_literal_secrets(document: Document, value: Any, path: FieldPath) -> Iterator[Finding]:
    """Secrets that stand in the file, where only the name of a variable may stand."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        field = str(key).lower().replace("-", "_")
        is_file = path[-1:] == ("tls",) and field == "key"
        if isinstance(key, str) and field in _SECRETS and not is_file:
            text = f"no secrets in the file: put it into an environment variable, and its name into {_SECRETS[field]}"
            yield Finding("error", join_path((*path, key)), text, document.line((*path, key)))
        else:
            yield from find_literal_secrets(document, below, (*path, key))


def _convert_error(document: Document, detail: ErrorDetails, root: type[BaseModel]) -> Iterator[Finding]:
    path, message = detail["loc"], _describe_error(detail, root)
    if path:
        yield Finding("error", join_path(path), message, document.line(path))
        return
    for one in message.splitlines():  # checks of the whole name the fields themselves
        yield convert_problem(document, one)


def convert_problem(document: Document, problem: str) -> Finding:
    """A problem that begins with its field, as a finding."""
    parts = re.match(r"([\w.]+): (.*)", problem)
    if parts is None:
        return Finding("error", "", problem, document.line(()))
    path = tuple(int(part) if part.isdecimal() else part for part in parts[1].split("."))
    return Finding("error", join_path(path), parts[2], document.line(path))


def _is_above(path: FieldPath, others: Iterable[FieldPath]) -> bool:
    """Whether others are inside it: pydantic calls a list empty if its items are wrong."""
    return any(len(other) > len(path) and other[: len(path)] == path for other in others)


def _describe_error(detail: ErrorDetails, root: type[BaseModel]) -> str:
    path, kind, value = detail["loc"], detail["type"], detail["input"]
    if kind == "missing":
        return "this field is missing"
    if kind == "extra_forbidden":
        return "there is no such field" + _suggest_field(str(path[-1]), path[:-1], root)
    if kind == "too_short":
        return "should not be empty"
    if kind == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    wanted = detail["msg"].replace("Input should", "should")
    if any(str(step).endswith("_env") for step in path):
        return "should be the name of an environment variable, such as MY_KEY, not a key itself"
    is_unquoted = kind == "string_type" and isinstance(value, bool | int | float)
    if kind == "tuple_type":
        return f"should be a list, found {describe_value(value)}" + (
            ": put it in [ ]" if isinstance(value, str) else ""
        )
    if kind == "literal_error" and isinstance(value, str):
        names = re.findall(r"'([^']*)'", detail["msg"])
        return f"{wanted}, found {describe_value(value)}: {suggest_name(value, names)}".rstrip(": ")
    hint = ": write true or false" if kind.startswith("bool") else ": put it in quotes" if is_unquoted else ""
    return f"{wanted}, found {describe_value(value)}{hint}"


def _suggest_field(field: str, path: FieldPath, root: type[BaseModel]) -> str:
    part = _find_part(path, root)
    here = list(part.model_fields) if part else []
    if close := get_close_matches(field, here, n=1, cutoff=0.6):
        return f", did you mean {close[0]}?"
    if longer := [name for name in here if name.endswith(f"_{field}")]:  # url for base_url
        return f", did you mean {longer[0]}?"
    elsewhere = [place for place in _list_places(root, ()) if place.rpartition(".")[2] == field]
    if elsewhere:
        return f" here, did you mean {' or '.join(elsewhere)}?"
    return f": there are {', '.join(here)}" if here else ""


def _find_part(path: FieldPath, root: type[BaseModel]) -> type[BaseModel] | None:
    part: type[BaseModel] | None = root
    for step in path:
        if isinstance(step, int):
            continue
        field = part.model_fields.get(step) if part else None
        part = _find_model(field.annotation) if field else None
    return part


def _find_model(annotation: Any) -> type[BaseModel] | None:
    """The model in an annotation: `Part`, `tuple[Part, ...]`, `Part | None`, or one of these in `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType, Annotated):
        return next((part for inner in get_args(annotation) if (part := _find_model(inner))), None)
    return None


def _list_places(part: type[BaseModel], above: tuple[str, ...]) -> Iterator[str]:
    for name, field in part.model_fields.items():
        yield ".".join((*above, name))
        if inner := _find_model(field.annotation):
            yield from _list_places(inner, (*above, name))


def join_path(path: FieldPath) -> str:
    return ".".join(map(str, path))


def sort_findings(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.where))
