"""The JSON object of a request with its text, so that some fields can change and every other byte stays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from ir3de.gateway.api_errors import ApiError

_space = re.compile(r"[ \t\n\r]*").match


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_odd = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN|\d{4300,})')  # the first alternative skips strings
_scan = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]


class Member(NamedTuple):
    """The position of a member in the text: `"key" : value`."""

    start: int
    value: int
    end: int


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A JSON object: its values, and the text they came from.

    >>> body = JsonBody.parse(b'{"model" : "auto", "n":1.0, "ir3de": {"skip": true}}', depth=10)
    >>> body.rewrite({"model": "maths"}, drop="ir3de")
    b'{"model" : "maths", "n":1.0}'
    """

    text: str
    values: Mapping[str, Any]
    members: Mapping[str, Member]

    @classmethod
    def parse(cls, content: bytes, depth: int) -> JsonBody:
        """Parse the object, or raise an `ApiError` that says what is wrong with it."""
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ApiError(400, f"the request is not UTF-8: byte {error.start} is invalid", "invalid_json") from error
        try:
            values, members = _parse_members(text)
        except RecursionError as error:
            raise _build_depth_error(depth) from error
        except StopIteration as error:
            raise _build_json_error(text, error.value, "a value is missing") from error
        except json.JSONDecodeError as error:
            raise _build_json_error(text, error.pos, error.msg) from error
        except ValueError as error:  # NaN, or a number with thousands of digits
            found = next((odd for odd in _odd.finditer(text) if odd[1]), None)
            raise _build_json_error(text, found.start() if found else 0, "this number cannot be read") from error
        if text.count("[") + text.count("{") > depth:  # fewer brackets cannot nest too deep
            _check_depth(values, depth)
        return cls(text, values, members)

    def rewrite(
        self, changes: Mapping[str, Any], *, drop: str = "", first_message: Mapping[str, Any] | None = None
    ) -> bytes:
        """The text with some members changed or added, one dropped, and a message put before the others."""
        edits: list[tuple[int, int, str]] = []
        added = ""
        for key, value in changes.items():
            member, written = self.members.get(key), json.dumps(value, ensure_ascii=False)
            if member is None:
                added += f"{json.dumps(key)}:{written},"
            else:
                edits.append((member.value, member.end, written))
        if first_message is not None:
            after = self.members["messages"].value + 1
            edits.append((after, after, json.dumps(first_message, ensure_ascii=False) + ","))
        if drop in self.members:
            edits.append((*self._find_span(drop), ""))
        if added:
            after = self.text.index("{") + 1
            others = set(self.members) - {drop}
            edits.append((after, after, added if others else added[:-1]))
        return self._apply_edits(sorted(edits))

    def _apply_edits(self, edits: list[tuple[int, int, str]]) -> bytes:
        pieces, done = [], 0
        for start, end, written in edits:
            pieces += [self.text[done:start], written]
            done = end
        pieces.append(self.text[done:])
        return "".join(pieces).encode(errors="surrogatepass")

    def _find_span(self, key: str) -> tuple[int, int]:
        """The position of a member, with the comma that must go with it."""
        order = list(self.members)
        place, member = order.index(key), self.members[key]
        if place > 0:
            return self.members[order[place - 1]].end, member.end
        return member.start, self.members[order[1]].start if len(order) > 1 else member.end


def _parse_members(text: str) -> tuple[dict[str, Any], dict[str, Member]]:
    """Parse the top level member by member; the values are left to the decoder."""
    values: dict[str, Any] = {}
    members: dict[str, Member] = {}
    place = _skip_space(text, 0)
    if text[place : place + 1] != "{":
        raise json.JSONDecodeError("expected the beginning of an object", text, place)
    place = _skip_space(text, place + 1)
    if text[place : place + 1] == "}":
        return _finish(text, place, values, members)
    while True:
        start = place
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("expected a name in quotes", text, place)
        key, place = scanstring(text, place + 1, True)
        place = _skip_space(text, place)
        if text[place : place + 1] != ":":
            raise json.JSONDecodeError("expected a colon", text, place)
        value_start = _skip_space(text, place + 1)
        value, place = _scan(text, value_start)
        if key in values:
            raise json.JSONDecodeError(f"{json.dumps(key)} occurs twice", text, start)
        values[key], members[key] = value, Member(start, value_start, place)
        place = _skip_space(text, place)
        mark = text[place : place + 1]
        if mark == "}":
            return _finish(text, place, values, members)
        if mark != ",":
            raise json.JSONDecodeError("expected a comma or the end of the object", text, place)
        place = _skip_space(text, place + 1)


def _finish(
    text: str, place: int, values: dict[str, Any], members: dict[str, Member]
) -> tuple[dict[str, Any], dict[str, Member]]:
    if (after := _skip_space(text, place + 1)) != len(text):
        raise json.JSONDecodeError("unexpected text after the object", text, after)
    return values, members


def _skip_space(text: str, place: int) -> int:
    """The end of the white space that begins at `place`."""
    found = _space(text, place)
    assert found is not None
    return found.end()


def _check_depth(value: Any, most: int) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            raise _build_depth_error(most)
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            if isinstance(inner, (dict, list))
        ]


def _build_depth_error(most: int) -> ApiError:
    return ApiError(400, f"the request's JSON nests deeper than {most} levels, the limit here", "invalid_json")


def _build_json_error(text: str, place: int, what: str) -> ApiError:
    line, column = text.count("\n", 0, place) + 1, place - text.rfind("\n", 0, place)
    return ApiError(400, f"the request is not a JSON object: {what} (line {line}, column {column})", "invalid_json")
