"""The JSON object of a request with its bytes, so that some fields can change and every other byte stays.

Names that two readers of a request may understand differently are rejected: a name that occurs twice in one object, or
that differs from a known name in case alone. Servers in Go take `Model` for `model`, and of two equal names some
servers take the first, others the last. The gateway could otherwise miss another model, or another prompt.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate, pairwise
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple, TypeVar

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.large_json import (
    MAX_MEMBERS,
    DuplicateName,
    JsonError,
    Member,
    NotUtf8,
    Rules,
    TooDeep,
    read_large,
)
from ir3de_gateway.requests.model_texts import PART_NAMES, READ_BY_MODELS

T = TypeVar("T")
V = TypeVar("V")

FIELD = "ir3de"  # of a request: its controls; of an answer: its provenance
MIN_KEPT_BYTES = 1_000_000  # that texts of a large request may take in memory
SMALL_BYTES = 65_536  # parsed at once, within 5 ms whatever they hold
MAX_INLINE_BYTES = 524_288  # so are these, if their JSON is simple, such as a chat of long texts
MAX_INLINE_MARKS = 10_000  # brackets, commas and backslashes
MAX_COUNTED_BYTES = 65_536  # of a line, to name the column of a fault

READ_FIELDS = frozenset((
    *READ_BY_MODELS, "model", "stream", "stream_options", "store", "background", "previous_response_id", "conversation",
    "max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "n_predict", "n", "best_of", "audio",
    "mcp_servers", "input_file_id", FIELD,
))  # fmt: skip
_NESTED_FIELDS = PART_NAMES | {"include_usage"}
_WITH_OBJECTS = ("messages", "input", "system", "prediction", "tools", "functions", "conversation", "stream_options")
_INSIDE = frozenset(("content", "output", "source", "file", "function", "tool_calls", "function_call", "summary"))

_opening = re.compile(r"[ \t\n\r]*\{[ \t\n\r]*").match
_space = re.compile(r"[ \t\n\r]*").match
_name = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match  # of a member, without escapes, and its colon
_mark = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*").match  # after a member
_odd = re.compile(r'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN|\d{4300,})')  # the first alternative skips strings


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these members, for the JSON decoder."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise DuplicateName(f"{json.dumps(next(name for name in names if names.count(name) > 1))} occurs twice")
    return found


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_scan = json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=_build_object).scan_once  # type: ignore[attr-defined]


class JsonBody(NamedTuple):
    """A JSON object: its values, and the bytes they came from.

    Of a large object, the values are what routing needs of them: see `large_json.py`.

    >>> body = JsonBody.parse(b'{"model" : "auto", "n":1.0, "ir3de": {"skip": true}}', depth=10)
    >>> body.rewrite({"model": "maths"}, drop="ir3de")
    b'{"model" : "maths", "n":1.0}'
    """

    content: bytes
    values: Mapping[str, Any]
    members: Mapping[str, Member]
    is_large: bool = False

    @classmethod
    def parse(cls, content: bytes, depth: int) -> JsonBody:
        """Parse the object, or raise an `ApiError` that describes what is wrong with it."""
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise _build_utf8_error(error.start) from error
        try:
            values, members = _parse_members(text)
        except RecursionError as error:
            raise _build_depth_error(depth) from error
        except StopIteration as error:
            raise _build_json_error(content, _count_bytes(text, error.value), "a value is missing") from error
        except json.JSONDecodeError as error:
            raise _build_json_error(content, _count_bytes(text, error.pos), error.msg) from error
        except DuplicateName as error:
            raise _build_duplicate_error(error) from None
        except ValueError as error:  # NaN, or a number with thousands of digits
            found = next((odd for odd in _odd.finditer(text) if odd[1]), None)
            place = _count_bytes(text, found.start()) if found else 0
            raise _build_json_error(content, place, "this number cannot be read") from error
        if text.count("[") + text.count("{") > depth:  # fewer brackets cannot nest too deep
            _check_depth(values, depth)
        check_nested(values)
        return cls(content, values, members if text.isascii() else _to_bytes(text, members))

    @classmethod
    def parse_large(cls, content: bytes, depth: int, kept_bytes: int = MIN_KEPT_BYTES) -> JsonBody:
        """The same in short steps, for a thread besides the event loop's; the values are pruned."""
        try:
            values, members = read_large(content, depth, max(kept_bytes, len(content) // 2), _RULES)
        except NotUtf8 as error:
            raise _build_utf8_error(error.place) from error
        except TooDeep as error:
            raise _build_depth_error(depth) from error
        except JsonError as error:
            raise _build_json_error(content, error.place, error.message) from error
        except DuplicateName as error:
            raise _build_duplicate_error(error) from None
        check_nested(values)
        return cls(content, values, members, is_large=True)

    def rewrite(
        self, changes: Mapping[str, Any], *, drop: str = "", first_message: Mapping[str, Any] | None = None
    ) -> bytes:
        """The bytes with some members changed or added, one dropped, and a message put before the others."""
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
            after = self.content.index(b"{") + 1
            others = set(self.members) - {drop}
            edits.append((after, after, added if others else added[:-1]))
        return self._apply_edits(sorted(edits))

    def _apply_edits(self, edits: list[tuple[int, int, str]]) -> bytes:
        whole, done = memoryview(self.content), 0
        pieces: list[memoryview | bytes] = []
        for start, end, written in edits:
            pieces += [whole[done:start], written.encode(errors="surrogatepass")]
            done = end
        return b"".join((*pieces, whole[done:]))

    def _find_span(self, key: str) -> tuple[int, int]:
        """The position of a member, with the comma that must go with it."""
        order = list(self.members)
        place, member = order.index(key), self.members[key]
        if place > 0:
            return self.members[order[place - 1]].end, member.end
        return member.start, self.members[order[1]].start if len(order) > 1 else member.end


async def read_json(content: bytes, depth: int, *, kept_bytes: int = MIN_KEPT_BYTES) -> JsonBody:
    """Parse a request's object: at once if that is quick, otherwise in a thread while others are served.

    Of a large request, texts are kept up to `kept_bytes`, or up to half its size.
    """
    if len(content) <= SMALL_BYTES or _is_simple(content):
        return JsonBody.parse(content, depth)
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_start_thread(), JsonBody.parse_large, content, depth, kept_bytes)


async def offload(function: Callable[[V], T], value: V) -> T:
    """Call a function in the thread for large requests, while the event loop serves others."""
    return await asyncio.get_running_loop().run_in_executor(_start_thread(), function, value)


def _is_simple(content: bytes) -> bool:
    return len(content) <= MAX_INLINE_BYTES and sum(map(content.count, (b"[", b"{", b",", b"\\"))) <= MAX_INLINE_MARKS


@lru_cache(maxsize=1)
def _start_thread() -> ThreadPoolExecutor:
    """One thread for all large requests: with more, the event loop would wait for each of them in turn."""
    return ThreadPoolExecutor(1, thread_name_prefix="ir3de-json")


def _parse_members(text: str) -> tuple[dict[str, Any], dict[str, Member]]:
    """Parse the top level member by member; the values are left to the decoder."""
    values: dict[str, Any] = {}
    members: dict[str, Member] = {}
    if (opening := _opening(text)) is None:
        raise json.JSONDecodeError("expected the beginning of an object", text, _skip_space(text, 0))
    place = opening.end()
    mark = text[place : place + 1]
    if mark == "}":
        place = _skip_space(text, place + 1)
    while mark != "}":
        start = place
        named = _name(text, place)
        key, value_start = _read_name(text, place) if named is None else (named[1], named.end())
        value, place = _scan(text, value_start)
        if key in values:
            raise json.JSONDecodeError(f"{json.dumps(key)} occurs twice", text, start)
        if key not in READ_FIELDS:
            check_field(key)
        if len(values) == MAX_MEMBERS:
            raise ApiError(400, f"the request has more than {MAX_MEMBERS:,} fields, the limit here", "invalid_json")
        values[key], members[key] = value, Member(start, value_start, place)
        if (after := _mark(text, place)) is None:
            message = "expected a comma or the end of the object"
            raise json.JSONDecodeError(message, text, _skip_space(text, place))
        mark, place = after[1], after.end()
    if place != len(text):
        raise json.JSONDecodeError("unexpected text after the object", text, place)
    return values, members


def _read_name(text: str, place: int) -> tuple[str, int]:
    """The name of a member that has escapes, and where its value begins; or what is wrong there."""
    if text[place : place + 1] != '"':
        raise json.JSONDecodeError("expected a name in quotes", text, place)
    name, place = scanstring(text, place + 1, True)
    place = _skip_space(text, place)
    if text[place : place + 1] != ":":
        raise json.JSONDecodeError("expected a colon", text, place)
    return name, _skip_space(text, place + 1)


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
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]


def _build_depth_error(most: int) -> ApiError:
    return ApiError(400, f"the request's JSON nests deeper than {most} levels, the limit here", "invalid_json")


def _build_duplicate_error(error: DuplicateName) -> ApiError:
    return ApiError(400, f"the request is not a JSON object: {error} in one of its objects", "invalid_json")


def _build_utf8_error(place: int) -> ApiError:
    return ApiError(400, f"the request is not UTF-8: byte {place} is invalid", "invalid_json")


def _build_json_error(content: bytes, place: int, what: str) -> ApiError:
    line, begin = content.count(b"\n", 0, place) + 1, content.rfind(b"\n", 0, place) + 1
    column = 1 + sum(1 for byte in content[max(begin, place - MAX_COUNTED_BYTES) : place] if byte & 0xC0 != 0x80)
    at = f"column {column}" if place - begin <= MAX_COUNTED_BYTES else f"byte {place}"
    return ApiError(400, f"the request is not a JSON object: {what} (line {line}, {at})", "invalid_json")


def _count_bytes(text: str, place: int) -> int:
    return place if text.isascii() else len(text[:place].encode())


def _to_bytes(text: str, members: Mapping[str, Member]) -> dict[str, Member]:
    """Places in the text as places in its bytes."""
    places = [place for member in members.values() for place in member]
    sizes = [len(text[first:last].encode()) for first, last in pairwise([0, *places])]
    counted = [*accumulate(sizes)]
    return {key: Member(*counted[3 * n : 3 * n + 3]) for n, key in enumerate(members)}


# names of fields -------------------------------------------------------------------------------------------------


def check_field(name: str, known: frozenset[str] = READ_FIELDS) -> None:
    """An `ApiError` for a name that differs from a known one in case alone."""
    if name not in known and (folded := name.casefold()) in known:
        found, wanted = json.dumps(name[:100]), json.dumps(folded)
        message = f"the field {found} differs from {wanted} in case alone, and some servers take one for the other"
        raise ApiError(400, f"{message}: write {wanted}, or leave it out", "ambiguous_field", name[:100])


def check_part_field(name: str, value: object) -> None:
    """The same for a field of a message, of a part of one, or of a tool, and for the objects in it."""
    check_field(name, _NESTED_FIELDS)
    if name in _INSIDE:
        _check_objects([value])


def check_nested(values: Mapping[str, Any]) -> None:
    """The same for all messages, parts and tools; what tools get, and their schemas, may have any names."""
    _check_objects([values[name] for name in _WITH_OBJECTS if name in values])


def _check_objects(waiting: list[Any]) -> None:
    for value in waiting:  # which grows meanwhile
        if type(value) is list:
            waiting += value
        elif type(value) is dict:
            if not _NESTED_FIELDS.issuperset(value):
                for name in value:
                    check_field(name, _NESTED_FIELDS)
            for name in _INSIDE.intersection(value):
                if type(value[name]) is not str:
                    waiting.append(value[name])


_RULES = Rules(_scan, check_field, check_part_field)
