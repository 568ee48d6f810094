"""Forms with files (multipart/form-data): reads them piece by piece, and keeps what exceeds a megabyte on disk.

The reader is stricter than most servers. It rejects what two readers could understand differently: otherwise a client
could name a model that the gateway does not see.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import count
from mmap import ACCESS_COPY, ACCESS_READ, mmap
from typing import IO, Any, NoReturn

from starlette.types import Receive

from ir3de_gateway.api_errors import ApiError, ClientDisconnect
from ir3de_gateway.config.document import Limits
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.client import build_late_error, build_too_large_error, check_head
from ir3de_gateway.requests.json_body import FIELD, check_field
from ir3de_gateway.transport import RequestBody

MAX_FIELD_BYTES = 65_536  # of a field that is taken out
MAX_HEAD_BYTES = 16_384  # of a part
MAX_PARTS = 1_000

_boundary = re.compile(r'multipart/form-data\s*;\s*boundary=(?:"([^"\\]{1,70})"|([^\s;"]{1,70}))\s*', re.IGNORECASE)
_header = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")  # no line ends and no other controls
_parameter = re.compile(rb';[ \t]*([a-z*]+)=(?:"((?:[^"\\\r\n]|\\.)*)"|([^\s;"]+))[ \t]*', re.IGNORECASE)

MEMORY_BYTES = 1 << 20  # of an upload; the rest is written to a file
HEAD_ROOM_BYTES = 1 << 16  # before the form, for the model
UPLOADS_AT_ONCE = 4  # of the largest size; smaller ones may be more
WRITING_THREADS = 2

_in_use = 0  # bytes of all uploads of this process


class Upload:
    """A form without `model` and `ir3de`. Each expert gets it with its own model in front."""

    is_repeatable = False  # a file would be there twice

    def __init__(self, content_type: str, *, has_model: bool) -> None:
        self._form = FormReader(read_boundary(content_type), ("model", FIELD))
        self._content_type = content_type
        self._has_model = has_model
        self._pieces: list[bytes] = []
        self._unwritten_bytes = 0
        self._file: IO[bytes] | None = None
        self.size = 0

    @property
    def model(self) -> str:
        """The model that the client named; `auto` if none."""
        return self._form.fields.get("model", "auto")

    @property
    def controls(self) -> Any:
        """The field `ir3de`, which is JSON."""
        given = self._form.fields.get(FIELD)
        try:
            return None if given is None else json.loads(given)
        except (ValueError, RecursionError):
            raise ApiError(400, f"{FIELD} must be a JSON object", "invalid_json", FIELD) from None

    @property
    def kinds(self) -> bytes:
        """The headers with the type of the body, and of the answers that are accepted."""
        return f"content-type: {self._content_type}\r\naccept: */*\r\n".encode("latin-1", "replace")

    @property
    def digest(self) -> int:
        """No two uploads are taken for the same request."""
        return id(self)

    async def read(self, receive: Receive, limits: Limits) -> None:
        """Read the whole form, within limits."""
        global _in_use
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            self.size += len(piece)
            _in_use += len(piece)
            if self.size > limits.upload_bytes:
                raise build_too_large_error(limits.upload_bytes)
            if _in_use > UPLOADS_AT_ONCE * limits.upload_bytes:
                raise ApiError(503, "too many uploads at once, retry in 5 s", retry_after=5.0)
            await self._keep(self._form.feed(piece))
            if not message.get("more_body"):
                break
        if not self._form.has_ended:
            raise ApiError(400, "the form ends before its last line", "invalid_form")
        await self._keep(self._form.closing, is_last=True)

    async def _keep(self, piece: bytes, *, is_last: bool = False) -> None:
        self._pieces.append(piece)
        self._unwritten_bytes += len(piece)
        if self._unwritten_bytes > MEMORY_BYTES or (is_last and self._file is not None):
            await asyncio.get_running_loop().run_in_executor(_start_threads(), self._write)

    def _write(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="ir3de-upload-")  # noqa: SIM115 - `close` closes it
            self._file.seek(HEAD_ROOM_BYTES)
        self._file.writelines(self._pieces)
        self._file.flush()
        self._pieces, self._unwritten_bytes = [], 0

    def holds(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the form has such bytes; a file on disk is not read into memory for that."""
        if self._file is None:
            return pattern.search(b"".join(self._pieces)) is not None
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as mapped:
            return pattern.search(mapped) is not None

    def read_parts(self) -> dict[str, bytes]:
        """The contents of the form's parts, by their names. It holds the whole form in memory."""
        if self._file is not None:
            self._file.seek(HEAD_ROOM_BYTES)
        content = b"".join(self._pieces) if self._file is None else self._file.read()
        found = dict[str, bytes]()
        for part in (b"\r\n" + content).split(b"\r\n" + self._form.line)[1:-1]:
            head, _, body = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            found.setdefault(_read_name(head), body)
        return found

    def build(self, expert: Expert, *, adds_usage: bool = False) -> RequestBody:
        """The form as this expert gets it."""
        part = self._form.build_part("model", expert.model) if self._has_model else b""
        if self._file is None:
            return b"".join((part, *self._pieces))
        mapped = mmap(self._file.fileno(), 0, access=ACCESS_COPY)  # what is written there is not written to the file
        start = HEAD_ROOM_BYTES - len(part)
        mapped[start:HEAD_ROOM_BYTES] = part
        return memoryview(mapped)[start:]

    def close(self) -> None:
        global _in_use
        _in_use -= self.size
        self.size = 0
        self._pieces = []
        if self._file is not None:
            self._file.close()


async def read_upload(upload: Upload, receive: Receive, headers: Mapping[bytes, bytes], limits: Limits) -> None:
    """Read a form, or raise an `ApiError`: too large, too slow, compressed, or not a form."""
    check_head(headers, limits.upload_bytes)
    try:
        async with asyncio.timeout(limits.upload_seconds):
            await upload.read(receive, limits)
    except TimeoutError:
        raise build_late_error("upload", limits.upload_seconds) from None


@lru_cache(maxsize=1)
def _start_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WRITING_THREADS, thread_name_prefix="ir3de-upload")


def read_boundary(content_type: str) -> bytes:
    """The boundary that a content type names, or an `ApiError`."""
    found = _boundary.fullmatch(content_type.strip())
    if found is None:
        found_type = content_type[:100] or "nothing"
        raise ApiError(415, f"the body must be multipart/form-data with a boundary, found {found_type}")
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
        self._line, self._taken = b"--" + boundary, taken
        self._held = b"\r\n"  # so that the first line is found like all others
        self._passed: list[bytes] = []
        self._reading = self._read()
        self.fields: dict[str, str] = {}
        self.has_ended = False  # whether the form is complete

    @property
    def line(self) -> bytes:
        """The line before each part."""
        return self._line

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
        next(self._reading, None)
        if self.has_ended:
            self._held = b""  # what follows the form is dropped
        passed = b"".join(self._passed)
        self._passed.clear()
        return passed

    def _read(self) -> Iterator[None]:
        """Read the form to its end. It yields where more must come first."""
        yield from self._read_content(_reject_preamble)
        for number in count():
            while len(self._held) < 2:
                yield
            after, self._held = self._held[:2], self._held[2:]
            if after == b"--":
                self.has_ended = True
                return
            if after != b"\r\n":
                _reject("a line that begins with the boundary must end there")
            if number == MAX_PARTS:
                _reject(f"it has more than {MAX_PARTS:,} parts")
            yield from self._read_part()

    def _read_part(self) -> Iterator[None]:
        while (end := self._held.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES + 4)) < 0:
            if len(self._held) > MAX_HEAD_BYTES:
                _reject(f"the head of a part is longer than {MAX_HEAD_BYTES:,} bytes")
            yield
        head, self._held = self._held[:end], self._held[end + 4 :]
        name = _read_name(head)
        check_field(name, frozenset(self._taken))
        if name in self._taken:
            yield from self._read_field(name)
            return
        self._passed.append(self._line + b"\r\n" + head + b"\r\n\r\n")
        yield from self._read_content(self._passed.append)
        self._passed.append(b"\r\n")

    def _read_field(self, name: str) -> Iterator[None]:
        """Read a field that is taken out."""
        if name in self.fields:
            raise ApiError(400, f"{name} occurs twice in the form", param=name)
        value = bytearray()

        def keep(content: bytes) -> None:
            value.extend(content)
            if len(value) > MAX_FIELD_BYTES:
                raise ApiError(400, f"{name} is longer than {MAX_FIELD_BYTES:,} bytes", param=name)

        yield from self._read_content(keep)
        try:
            self.fields[name] = value.decode()
        except UnicodeDecodeError:
            raise ApiError(400, f"{name} is not UTF-8", param=name) from None

    def _read_content(self, keep: Callable[[bytes], None]) -> Iterator[None]:
        """Read what stands before the next line with the boundary, and the beginning of that line."""
        while (end := self._held.find(b"\r\n" + self._line)) < 0:
            safe = max(0, len(self._held) - len(self._line) - 1)  # the rest may be the beginning of a line
            keep(self._held[:safe])
            self._held = self._held[safe:]
            yield
        keep(self._held[:end])
        self._held = self._held[end + 2 + len(self._line) :]


def _reject_preamble(content: bytes) -> None:
    if content:
        _reject("it must begin with its boundary")


def _read_name(head: bytes) -> str:
    """The name of a part."""
    lines = [_header.fullmatch(line) for line in head.split(b"\r\n")]
    found = [line[2] for line in lines if line is not None and line[1].lower() == b"content-disposition"]
    if None in lines or len(found) != 1:
        _reject("each part needs one content-disposition, and plain headers")
    kind = found[0].partition(b";")[0]
    if kind.strip().lower() != b"form-data":
        _reject("each part must be form-data")
    names, place = [], len(kind)
    while place < len(found[0]):
        parameter = _parameter.match(found[0], place)
        if parameter is None:
            _reject("a content-disposition cannot be read")
        if parameter[1].lower().startswith(b"name"):
            names.append((parameter[1].lower(), parameter[2] if parameter[2] is not None else parameter[3]))
        place = parameter.end()
    if len(names) != 1 or names[0][0] != b"name" or re.search(rb"[\\%\x00-\x1f]", names[0][1]):
        _reject("each part needs one plain name")
    return str(names[0][1].decode("utf-8", "replace"))


def _reject(what: str) -> NoReturn:
    raise ApiError(400, f"the form cannot be read: {what}", "invalid_form")
