"""A configuration with the lines of its fields, and messages: what is wrong where, what was found, a suggestion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ir3de.errors import InputError, describe_value
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.config.state import TAGS

FieldPath = tuple[str | int, ...]  # ("experts", 0, "base_url")
_SECRETS = {  # names of fields that would hold a secret, and the field for the name of its variable
    **dict.fromkeys(("api_key", "apikey", "key", "token", "api_token", "access_token", "bearer"), "api_key_env"),
    **dict.fromkeys(("secret", "password", "authorization", "auth", "credentials"), "api_key_env"),
    "api_keys": "api_keys_env",
    "admin_token": "admin_token_env",
}


@dataclass(frozen=True)
class Document:
    """The content of a file, and the lines of its fields."""

    name: str  # of the file, for error messages
    value: Any
    root: yaml.Node | None = None

    def line(self, path: FieldPath) -> int | None:
        """The line of a field; if it is missing, of the innermost field around it."""
        if self.root is None:
            return None
        node, found = self.root, self.root.start_mark.line
        for step in path:
            inner = _find_child(node, step)
            if inner is None:
                break
            found, node = inner
        return found + 1

    def has(self, path: FieldPath) -> bool:
        """Whether the file has a field of its own there, or one around it."""
        return self.root is not None and _find_child(self.root, path[0]) is not None


def _find_child(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, inner in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key.start_mark.line, inner
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        inner = node.value[step]
        return inner.start_mark.line, inner
    return None


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


def build_error(document: Document, path: FieldPath, message: str) -> Finding:
    """An error of a field, with its line."""
    return Finding("error", join_path(path), message, document.line(path))


def join_path(path: FieldPath) -> str:
    return ".".join(map(str, path))


def split_path(where: str) -> FieldPath:
    return tuple(int(part) if part.isdecimal() else part for part in where.split("."))


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the order of the file."""
    return sorted(findings, key=lambda finding: (finding.line or 0, finding.where))


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A question with the most similar of the known names; empty if none is similar."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}? " if close else ""


def _describe_unset(name: str, instead: str) -> str:
    """The problem of a variable that is not set, or of a key in the place of its name."""
    if len(name) >= 16 and not name.isupper():  # it may be a key, so it is not repeated
        return "this looks like a key: write the name of the environment variable that holds it, such as MY_KEY"
    return f"the environment variable {name} is not set: set it, or {instead}"


def list_children(value: Any) -> Iterable[tuple[Any, Any]]:
    """The fields of a mapping, or the items of a list with their places."""
    return value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()


def list_variables(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:
    """The environment variables that a document names in its fields `…_env`, each with its field."""
    for key, below in list_children(value):
        here = (*path, key)
        if isinstance(key, str) and key.endswith("_env"):
            named = (
                [(here, below)] if isinstance(below, str) else [((*here, i), name) for i, name in list_children(below)]
            )
            yield from ((where, name) for where, name in named if isinstance(name, str))
        else:
            yield from list_variables(below, here)


def find_unset_variables(document: Document, value: Any, instead: str = "leave the field out") -> list[Finding]:
    """Variables that `value` names and that are not set. The one of the admin token may be unset."""
    named = [(path, name) for path, name in list_variables(value) if path[-1] != "admin_token_env"]
    unset = [(path, name) for path, name in named if not read_variable(name)]
    return [build_error(document, path, _describe_unset(name, instead)) for path, name in unset]


def find_literal_secrets(document: Document, value: Any, path: FieldPath) -> Iterator[Finding]:
    """Secrets in the file, which may only name their variables."""
    for key, below in list_children(value):
        field = str(key).lower().replace("-", "_")
        is_file = path[-1:] == ("tls",) and field == "key"
        if isinstance(key, str) and field in _SECRETS and not is_file:
            text = f"no secrets in the file: put it into an environment variable, and its name into {_SECRETS[field]}"
            yield build_error(document, (*path, key), text)
        else:
            yield from find_literal_secrets(document, below, (*path, key))


def convert_problem(document: Document, problem: str) -> Finding:
    """A problem that begins with its field, as a finding."""
    parts = re.match(r"([\w.]+): (.*)", problem)
    if parts is None:
        return Finding("error", "", problem, document.line(()))
    return build_error(document, split_path(parts[1]), parts[2])


# pydantic's errors ------------------------------------------------------------------------------------------------


def convert_errors(document: Document, details: Iterable[ErrorDetails], root: type[BaseModel]) -> list[Finding]:
    """Pydantic's errors as findings with the lines of the file; `root` is the model of the whole file."""
    details = [_drop_tags(one) for one in details]
    unknown = [one["loc"] for one in details if one["type"] == "extra_forbidden"]
    misspelt = {(*path[:-1], _find_similar(str(path[-1]), _list_fields(path[:-1], root))) for path in unknown}
    found = []
    for detail in details:
        path = detail["loc"]
        # pydantic calls a list empty if its items are wrong, and a field missing if its name is misspelt
        is_repeated = detail["type"] == "too_short" and any(
            len(other["loc"]) > len(path) and other["loc"][: len(path)] == path for other in details
        )
        if is_repeated or (path in misspelt and (detail["type"] == "missing" or detail["input"] == "")):
            continue
        message = _describe_error(detail, root)
        if path:
            found.append(build_error(document, path, message))
        else:  # checks of the whole name the fields themselves
            found += [convert_problem(document, one) for one in message.splitlines()]
    return found


def _drop_tags(detail: ErrorDetails) -> ErrorDetails:
    """The error without the names of alternatives, which pydantic puts among the fields.

    Where there is no such field, the last name is the user's, whatever it is.
    """
    path = detail["loc"]
    end = len(path) - (detail["type"] == "extra_forbidden")
    return {**detail, "loc": (*(step for step in path[:end] if step not in TAGS), *path[end:])}


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
    if any(str(step).endswith("_env") for step in path):
        return "should be the name of an environment variable, such as MY_KEY, not a key itself"
    wanted, found = detail["msg"].replace("Input should", "should"), describe_value(value)
    if kind == "tuple_type":
        return f"should be a list, found {found}" + (": put it in [ ]" if isinstance(value, str) else "")
    if kind == "literal_error" and isinstance(value, str):
        names = re.findall(r"'([^']*)'", detail["msg"])
        return f"{wanted}, found {found}: {suggest_name(value, names)}".rstrip(": ")
    is_unquoted = kind == "string_type" and isinstance(value, bool | int | float)
    hint = ": write true or false" if kind.startswith("bool") else ": put it in quotes" if is_unquoted else ""
    return f"{wanted}, found {found}{hint}"


def _suggest_field(field: str, path: FieldPath, root: type[BaseModel]) -> str:
    here = _list_fields(path, root)
    if similar := _find_similar(field, here):
        return f", did you mean {similar}?"
    elsewhere = [place for place in _list_places(root, ()) if place.rpartition(".")[2] == field]
    if elsewhere:
        return f" here, did you mean {' or '.join(elsewhere)}?"
    return f": there are {', '.join(here)}" if here else ""


def _find_similar(field: str, known: list[str]) -> str:
    """The field that was probably meant; empty if there is none. For `url`, it is `base_url`."""
    close = get_close_matches(field, known, n=1, cutoff=0.6)
    return next(iter([*close, *(name for name in known if name.endswith(f"_{field}"))]), "")


def _list_fields(path: FieldPath, root: type[BaseModel]) -> list[str]:
    """The names of the fields at a path; empty if there is no model."""
    above = ".".join(step for step in path if isinstance(step, str))
    places = [place.rpartition(".") for place in _list_places(root, ())]
    return [name for part, _, name in places if part == above]


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
