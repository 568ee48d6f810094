"""Reads forms with files (multipart/form-data) piece by piece: some fields are taken out, all else passes unchanged.

It is stricter than most servers. What two readers could understand differently is refused: otherwise a client could
name a model that the gateway does not see.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.field_names import check_field

MAX_FIELD_BYTES = 65_536  # of a field that is taken out
MAX_HEAD_BYTES = 16_384  # of a part
MAX_PARTS = 1_000

_boundary = re.compile(r'multipart/form-data\s*;\s*boundary=(?:"([^"\\]{1,70})"|([^\s;"]{1,70}))\s*', re.IGNORECASE)
_header = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")  # no line ends and no other controls
_parameter = re.compile(rb';[ \t]*([a-z*]+)=(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s;"]+))[ \t]*', re.IGNORECASE)


def read_boundary(content_type: str) -> bytes:
    """The boundary that a content type names, or an `ApiError`."""
    found = _boundary.fullmatch(content_type.strip())
    if found is None:
        said = content_type[:100] or "nothing"
        raise ApiError(415, f"a form is expected here: multipart/form-data with a boundary, found {said}")
    return (found[1] or found[2]).encode("latin-1", "replace")


class FormReader:
    """Takes a form in pieces, and gives it back in pieces without the fields that are taken out.

    The last line of the form, which closes it, is not given back: `closing` is.

    >>> reader = FormReader(b"b", ("model",))
    >>> field = b'--b\\r\\ncontent-disposition: form-data; name="%b"\\r\\n\\r\\n%b\\r\\n'
    >>> reader.feed(field % (b"model", b"auto")) + reader.feed(field % (b"n", b"1") + b"--b--") == field % (b"n", b"1")
    True
    >>> reader.fields, reader.has_ended
    ({'model': 'auto'}, True)
    """

    def __init__(self, boundary: bytes, taken: tuple[str, ...]) -> None:
        self._line = b"--" + boundary
        self._taken = taken
        self._held = b"\r\n"  # so that the first line is found like all others
        self._state = "preamble"  # then "line", "head", "content", "end"
        self._name = ""  # of the field that is being taken out
        self._value = b""
        self._parts = 0
        self.fields: dict[str, str] = {}

    @property
    def has_ended(self) -> bool:
        """Whether the form is complete."""
        return self._state == "end"

    @property
    def closing(self) -> bytes:
        return self._line + b"--\r\n"

    def build_part(self, name: str, value: str) -> bytes:
        """A field as a part of this form."""
        head = f'\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n'
        return self._line + head.encode() + value.encode(errors="replace") + b"\r\n"

    def feed(self, piece: bytes) -> bytes:
        """Take a piece, and return what can be passed on."""
        self._held += piece
        passed: list[bytes] = []
        while self._state != "end" and self._read_part(passed):
            pass
        if self._state == "end":
            self._held = b""  # what follows the form is dropped
        return b"".join(passed)

    def _read_part(self, passed: list[bytes]) -> bool:
        """Read what comes next; False if more must come first."""
        if self._state == "line":
            return self._read_line_end()
        if self._state == "head":
            return self._read_head(passed)
        return self._read_content(passed)

    def _read_content(self, passed: list[bytes]) -> bool:
        end = self._held.find(b"\r\n" + self._line)
        if end < 0:
            safe = max(0, len(self._held) - len(self._line) - 1)  # the rest may be the beginning of a line
            self._take(self._held[:safe], passed)
            self._held = self._held[safe:]
            return False
        self._take(self._held[:end], passed)
        self._end_content(passed)
        self._held = self._held[end + 2 + len(self._line) :]
        self._state = "line"
        return True

    def _take(self, content: bytes, passed: list[bytes]) -> None:
        if self._state == "preamble":
            if content:
                _refuse("it must begin with its boundary")
        elif not self._name:
            passed.append(content)
        else:
            self._value += content
            if len(self._value) > MAX_FIELD_BYTES:
                raise ApiError(400, f"{self._name} is longer than {MAX_FIELD_BYTES:,} bytes", param=self._name)

    def _end_content(self, passed: list[bytes]) -> None:
        if self._name:
            try:
                self.fields[self._name] = self._value.decode()
            except UnicodeDecodeError:
                raise ApiError(400, f"{self._name} is not UTF-8", param=self._name) from None
            self._name, self._value = "", b""
        elif self._state == "content":
            passed.append(b"\r\n")

    def _read_line_end(self) -> bool:
        if len(self._held) < 2:
            return False
        after, self._held = self._held[:2], self._held[2:]
        if after == b"--":
            self._state = "end"
        elif after == b"\r\n":
            self._state = "head"
        else:
            _refuse("a line that begins with the boundary must end there")
        return True

    def _read_head(self, passed: list[bytes]) -> bool:
        end = self._held.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            if len(self._held) > MAX_HEAD_BYTES:
                _refuse(f"the head of a part is longer than {MAX_HEAD_BYTES:,} bytes")
            return False
        head, self._held = self._held[:end], self._held[end + 4 :]
        name = _read_name(head)
        check_field(name, frozenset(self._taken))
        self._parts += 1
        if self._parts > MAX_PARTS:
            _refuse(f"it has more than {MAX_PARTS:,} parts")
        if name in self._taken:
            if name in self.fields:
                raise ApiError(400, f"{name} occurs twice in the form", param=name)
            self._name = name
        else:
            passed.append(self._line + b"\r\n" + head + b"\r\n\r\n")
        self._state = "content"
        return True


def _read_name(head: bytes) -> str:
    """The name of a part."""
    lines = [_header.fullmatch(line) for line in head.split(b"\r\n")]
    found = [line[2] for line in lines if line is not None and line[1].lower() == b"content-disposition"]
    if None in lines or len(found) != 1:
        _refuse("each part needs one content-disposition, and plain headers")
    kind = found[0].partition(b";")[0]
    if kind.strip().lower() != b"form-data":
        _refuse("each part must be form-data")
    names, place = [], len(kind)
    while place < len(found[0]):
        parameter = _parameter.match(found[0], place)
        if parameter is None:
            _refuse("a content-disposition cannot be read")
        if parameter[1].lower().startswith(b"name"):
            names.append((parameter[1].lower(), parameter[2] if parameter[2] is not None else parameter[3]))
        place = parameter.end()
    if len(names) != 1 or names[0][0] != b"name" or re.search(rb"[\\%\x00-\x1f]", names[0][1]):
        _refuse("each part needs one plain name")
    return str(names[0][1].decode("utf-8", "replace"))


def _refuse(what: str) -> NoReturn:
    raise ApiError(400, f"the form cannot be read: {what}", "invalid_form")
