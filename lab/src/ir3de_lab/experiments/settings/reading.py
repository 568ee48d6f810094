"""A dataclass made of a TOML table, strictly by its type hints: every field known, there, and of its type."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ir3de.errors import InputError

T = TypeVar("T")
_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def made(kind: type[T], content: object, file: str, place: str = "") -> T:
    """The dataclass of a table; `place` is the table's name in the file, and errors name both."""
    where = f"{file}: {place}" if place else file
    if not isinstance(content, Mapping):
        raise InputError(f"{where} must be a table of fields, found {content!r}")
    fields = {item.name: item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if unknown := next((name for name in content if name not in fields), None):
        raise InputError(f"{where}: unknown field '{unknown}'; known are {', '.join(sorted(fields))}")
    for name, item in fields.items():
        optional = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
        if name not in content and not optional:
            raise InputError(f"{where}: the field '{name}' is missing")
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], value, file, _joined(place, name)) for name, value in content.items()})


def _value(hint: Any, value: object, file: str, place: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return made(hint, value, file, place)  # type: ignore[arg-type]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):  # X | None: TOML has no null, so what is written is an X
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return _value(inner, value, file, place)
    if origin is Literal:
        if value not in arguments or not isinstance(value, str):
            raise InputError(f"{file}: {place} is {value!r}; known are {', '.join(arguments)}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise InputError(f"{file}: {place} must be a list, found {value!r}")
        return tuple(_value(arguments[0], item, file, f"{place}[{i}]") for i, item in enumerate(value))
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise InputError(f"{file}: {place} must be a table, found {value!r}")
        return {key: _value(arguments[1], item, file, _joined(place, key)) for key, item in value.items()}
    return _plain(hint, value, file, place)


def _plain(kind: type, value: object, file: str, place: str) -> object:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):  # true is no number
        raise InputError(f"{file}: {place} must be {_NAMES[kind]}, found {value!r}")
    return value


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
