"""Reads the JSON object of a large request in windows, in a thread, and keeps only what routing needs of its values.

Python's JSON decoder holds the interpreter's lock while it works, and values take up to 25 times the memory of their
text. So a large object is read window by window. An index of each window has the places of its brackets and commas
outside of strings; what is complete in a window is left to the decoder, which also checks it. Of the values, short ones
are kept, and the texts of messages: of a long text its beginning, with an estimate of its tokens.
"""

from __future__ import annotations

import json
import re
from codecs import utf_8_decode
from collections.abc import Callable, Collection
from json.decoder import scanstring  # type: ignore[attr-defined]
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.kept_texts import MAX_END_CHARS, MAX_KEPT_CHARS, PART_FIELDS, SHORT_CHARS, KeptTexts
from ir3de_gateway.requests.tokens import Beginning, estimate_all, estimate_tokens

WINDOW_BYTES = 32_768  # the decoder takes at most 2 ms for it
MAX_MEMBERS = 1_000  # fields of the request itself
MAX_VALUES = 1_000_000  # of a request
MAX_NAMES = 100_000  # fields of one object inside it
MAX_OTHER_BYTES = 262_144  # kept of fields that have no messages, all together
BYTES_PER_TOKEN = 3  # of a list or an object that is left out
TEXT_FIELDS = frozenset(("messages", "system", "prompt", "input", "instructions", "tools"))  # of tools, their types

_space = re.compile(r"[ \t\n\r]*+").match
_escape = re.compile(r"\\.", re.DOTALL)
_string = re.compile(r'(?:[^"\\]++|\\[^u]|\\u.{4})*+', re.DOTALL).match
_COMMA, _QUOTE = ord(","), ord('"')


class DuplicateName(ValueError):  # noqa: N818 - as JSONDecodeError
    """A name that occurs twice in one object."""


class JsonError(Exception):
    """What is not JSON, and the byte where it is."""

    def __init__(self, message: str, place: int) -> None:
        super().__init__(message)
        self.message, self.place = message, place


class NotUtf8(Exception):  # noqa: N818 - as UnicodeDecodeError
    """The content is not UTF-8."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.place = place


class TooDeep(Exception):  # noqa: N818 - as RecursionError
    """The JSON nests deeper than it may."""


class Member(NamedTuple):
    """The position of a member in the content, in bytes: `"key" : value`."""

    start: int
    value: int
    end: int


class Rules(NamedTuple):
    """How values and names are read, which is the same for small objects: see `json_body.py`."""

    scan: Callable[[str, int], tuple[Any, int]]  # the decoder's function that reads one value
    check_field: Callable[[str], None]  # for a field of the request
    check_part_field: Callable[[str, object], None]  # for a field of a message, of a part of one, or of a tool


def read_large(content: bytes, depth: int, kept_bytes: int, rules: Rules) -> tuple[dict[str, Any], dict[str, Member]]:
    """The values of a large object, as far as routing needs them, and where its members are.

    Texts are kept up to `kept_bytes`.
    """
    return _LargeReader(content, depth, kept_bytes, rules).read_object()


class _LargeReader:
    def __init__(self, content: bytes, depth: int, kept_bytes: int, rules: Rules) -> None:
        self._content, self._most = content, depth
        self._scan, self._check_field = rules.scan, rules.check_field
        self._depth = 0  # of what the reader is in
        self._counted = 0  # values so far
        self._other_bytes = 0
        self._texts = KeptTexts(kept_bytes, rules.check_part_field)
        self._text, self._start, self._place = "", 0, 0  # the window, its first byte, and how far it is read
        self._load(0)

    # the window ----------------------------------------------------------------------------------------------------

    def _load(self, start: int) -> None:
        """Make the window that begins at a byte, and its index."""
        sleep(0)  # gives the interpreter's lock to the event loop
        seen = len(self._text) - self._place  # counted already
        self._text, self._place = self._decode_text(start), 0
        plain = _escape.sub("__", self._text) if "\\" in self._text else self._text
        points = np.frombuffer(plain.encode("utf-32-le"), np.uint32)
        quotes = points == _QUOTE
        outside = np.cumsum(quotes) & 1 == 0
        opening = outside & ((points == ord("[")) | (points == ord("{")))
        closing = outside & ((points == ord("]")) | (points == ord("}")))
        commas = outside & (points == _COMMA)
        self._levels = np.cumsum(opening.astype(np.int32) - closing)
        self._commas = np.flatnonzero(commas)
        self._counted += int(np.count_nonzero(opening[seen:])) + int(np.count_nonzero(commas[seen:]))
        if self._counted > MAX_VALUES:
            raise ApiError(413, f"the request's JSON has more than {MAX_VALUES:,} values, which is the limit here")
        if self._depth + int(self._levels.max(initial=0)) > self._most:
            raise TooDeep
        lowest = np.minimum.accumulate(self._levels[::-1])[::-1]
        self._open = set(np.flatnonzero(opening & (lowest >= self._levels)).tolist())  # not closed in this window
        if not outside[-1:].all():
            self._open.add(int(np.flatnonzero(quotes)[-1]))

    def _decode_text(self, start: int) -> str:
        chunk = self._content[start : start + WINDOW_BYTES]
        self._start, self._is_last = start, start + len(chunk) == len(self._content)
        try:
            text, size = utf_8_decode(chunk, "strict", self._is_last)
        except UnicodeDecodeError as error:
            raise NotUtf8(start + error.start) from None
        self._is_ascii = size == len(text)
        return text

    def _advance(self) -> None:
        """Make a new window that begins here, if half of this one is read: what does not end in it then is large."""
        if self._place > len(self._text) // 2 and not self._is_last:
            self._load(self._byte())

    def _byte(self, place: int | None = None) -> int:
        """A place in the window as a byte of the content."""
        place = self._place if place is None else place
        return self._start + (place if self._is_ascii else len(self._text[:place].encode()))

    def _fault(self, message: str, place: int | None = None) -> JsonError:
        return JsonError(message, self._byte(place))

    def _peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            self._place = _space(self._text, self._place).end()  # type: ignore[union-attr]
            if self._place < len(self._text) or self._is_last:
                return self._text[self._place : self._place + 1]
            self._load(self._byte())

    def _take(self, wanted: str, message: str) -> str:
        found = self._peek()
        if not found or found not in wanted:
            raise self._fault(message)
        self._place += 1
        return found

    # the object ----------------------------------------------------------------------------------------------------

    def read_object(self) -> tuple[dict[str, Any], dict[str, Member]]:
        values: dict[str, Any] = {}
        members: dict[str, Member] = {}
        self._take("{", "expected the beginning of an object")
        self._depth = 1
        while self._peek() != "}" or values:
            start, key = self._read_name()
            if key in values:
                raise JsonError(f"{json.dumps(key)} occurs twice", start)
            self._check_field(key)
            if len(values) == MAX_MEMBERS:
                raise ApiError(400, f"the request has more than {MAX_MEMBERS:,} fields, the limit here", "invalid_json")
            self._peek()
            value_start = self._byte()
            values[key] = self._read_member(key)
            members[key] = Member(start, value_start, self._byte())
            if self._take(",}", "expected a comma or the end of the object") == "}":
                break
        else:
            self._place += 1
        if self._peek():
            raise self._fault("unexpected text after the object")
        return values, members

    def _read_name(self) -> tuple[int, str]:
        """A name and the colon behind it; also where it begins."""
        if self._peek() != '"':
            raise self._fault("expected a name in quotes")
        self._advance()
        start = self._byte()
        if self._place in self._open:
            raise self._fault("a name is too long, or does not end")
        key, self._place = self._scan_string(self._place + 1)
        self._take(":", "expected a colon")
        return start, key

    def _scan_string(self, place: int) -> tuple[str, int]:
        try:
            return scanstring(self._text, place, True)  # type: ignore[no-any-return]
        except json.JSONDecodeError as error:
            raise self._fault(error.msg, error.pos) from None

    def _read_member(self, key: str) -> Any:
        """The value of one of the request's own fields."""
        start = self._byte()
        if key in TEXT_FIELDS:
            return self._read_value(keeps=True)
        value = self._read_value(keeps=False)
        self._other_bytes += self._byte() - start
        if not isinstance(value, (str, dict, list)) or self._other_bytes <= MAX_OTHER_BYTES:
            return value
        left_out = Beginning(value[:SHORT_CHARS] if isinstance(value, str) else "", estimate_all([value]))
        return left_out if isinstance(value, str) else [left_out] if isinstance(value, list) else {"": left_out}

    # values --------------------------------------------------------------------------------------------------------

    def _read_value(self, *, keeps: bool) -> Any:
        """A value; one that is larger than a window only as far as it `keeps` texts."""
        first = self._peek()
        self._advance()
        if self._place in self._open:
            return self._read_long_string() if first == '"' else self._read_container(keeps=keeps)
        value, end = self._decode(self._text, self._place, self._place)
        if type(value) in (int, float) and end > len(self._text) - 4 and not self._is_last:  # it may go on
            raise self._fault("this number cannot be read")
        self._place = end
        return self._texts.prune(value) if keeps else value

    def _decode(self, text: str, place: int, offset: int) -> tuple[Any, int]:
        """Let the decoder read a value of a text that stands at `offset` in the window."""
        try:
            return self._scan(text, place)
        except StopIteration as error:
            raise self._fault("a value is missing", offset + error.value - place) from None
        except json.JSONDecodeError as error:
            raise self._fault(error.msg, offset + error.pos - place) from None
        except DuplicateName as error:
            raise self._fault(str(error), offset) from None
        except ValueError:
            raise self._fault("this number cannot be read", offset) from None

    def _read_container(self, *, keeps: bool) -> Any:
        """A list or an object that does not end in this window: in stretches that do, or one by one."""
        opening, start = self._text[self._place], self._byte()
        is_object, closing = opening == "{", "}" if opening == "{" else "]"
        found = None if not keeps else self._texts.hold_fields() if is_object else self._texts.hold_items()
        self._place += 1
        self._depth += 1
        names = set[str]()
        is_first = True
        while True:
            self._peek()
            self._advance()
            end, is_end = self._find_stretch()
            if end is not None:
                stretch = self._text[self._place : end]
                value, stop = self._decode(opening + stretch + closing, 0, self._place - 1)
                if stop != len(stretch) + 2 or not (value or (is_first and is_end)):
                    raise self._fault("a value is missing")
                if is_object:
                    self._add_names(names, value)
                if found is not None:
                    found.add_all(value)
                self._place = end + 1
                if is_end:
                    if self._text[end] != closing:
                        raise self._fault(f"expected {closing}", end)
                    break
            else:
                name = self._read_name()[1] if is_object else ""
                if is_object:
                    self._add_names(names, (name,))
                value = self._read_value(keeps=keeps and (not is_object or name in PART_FIELDS))
                if found is not None:
                    found.add(name, value)
                if self._take("," + closing, f"expected a comma or {closing}") == closing:
                    break
            is_first = False
        self._depth -= 1
        if found is not None:
            return found.finish()
        left_out = Beginning("", (self._byte() - start) // BYTES_PER_TOKEN)
        return {"": left_out} if is_object else [left_out]

    def _add_names(self, names: set[str], more: Collection[str]) -> None:
        """The names of an object that is read in stretches: none may occur twice."""
        if not names.isdisjoint(more):
            raise self._fault(f"{json.dumps(next(name for name in more if name in names))} occurs twice")
        names.update(more)
        if len(names) > MAX_NAMES:
            raise ApiError(413, f"an object of the request has more than {MAX_NAMES:,} fields, the limit here")

    def _find_stretch(self) -> tuple[int | None, bool]:
        """Where the values end that are complete in this window: at the end of the container, or at its last comma."""
        level = int(self._levels[self._place - 1]) if self._place else 0
        below = self._levels[self._place :] < level
        if below.any():
            return self._place + int(below.argmax()), True
        commas = self._commas[np.searchsorted(self._commas, self._place) :]
        commas = commas[self._levels[commas] == level]
        return (int(commas[-1]), False) if commas.size else (None, False)

    def _read_long_string(self) -> str:
        """A string that does not end in this window, in pieces; only its beginning and its end are kept."""
        place, kept, size, tokens, end_text = self._byte(self._place + 1), list[str](), 0, 0, ""
        while True:
            text = self._decode_text(place)
            end = _string(text).end()  # type: ignore[union-attr]
            self._text = text[:end] + '"'
            piece = self._scan_string(0)[0]
            tokens += estimate_tokens(piece)
            if size < MAX_KEPT_CHARS:
                kept.append(piece)
            size += len(piece)
            end_text = (end_text + piece)[-MAX_END_CHARS:]
            place = self._byte(end)
            if text[end : end + 1] == '"':
                break
            if self._is_last:
                raise JsonError("a string does not end", place)
            sleep(0)
        self._text, self._place = "", 0
        self._load(place + 1)
        text = "".join(kept)[:MAX_KEPT_CHARS]
        if size > MAX_KEPT_CHARS:
            between = "" if size <= MAX_KEPT_CHARS + MAX_END_CHARS else "\n\n"
            text += between + end_text[-(size - MAX_KEPT_CHARS) :]
        if not text.isascii():  # two halves of a character may have been read apart
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return Beginning(text, tokens)
