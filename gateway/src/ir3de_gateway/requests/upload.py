"""Uploads: forms with files, which may be larger than memory has room for. Beyond a megabyte they are kept on disk."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from mmap import ACCESS_COPY, mmap
from typing import IO, Any

from starlette.types import Receive

from ir3de_gateway.api_errors import ApiError, ClientDisconnect
from ir3de_gateway.config.models import Limits
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.client import ClientConnection, build_too_large_error
from ir3de_gateway.requests.controls import FIELD
from ir3de_gateway.requests.multipart import FormReader, read_boundary
from ir3de_gateway.transport import RequestBody

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
        """The headers that say what is sent and what may come."""
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
                raise ApiError(503, "there are too many uploads at once: try again later", retry_after=5.0)
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

    def build(self, expert: Expert) -> RequestBody:
        """The form as this expert gets it."""
        part = self._form.build_part("model", expert.config.served_model) if self._has_model else b""
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


async def read_upload(
    upload: Upload,
    receive: Receive,
    headers: Mapping[bytes, bytes],
    limits: Limits,
    connection: ClientConnection | None = None,
) -> None:
    """Read a form, or raise an `ApiError`: too large, too slow, compressed, or not a form."""
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise ApiError(415, "the request is compressed: send it without content-encoding")
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limits.upload_bytes:
        raise build_too_large_error(limits.upload_bytes)
    try:
        async with asyncio.timeout(limits.upload_seconds):
            await upload.read(receive, limits)
    except TimeoutError:
        message = f"the upload did not arrive within {limits.upload_seconds:g} s"
        raise ApiError(408, message, headers={"connection": "close"}) from None


@lru_cache(maxsize=1)
def _start_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WRITING_THREADS, thread_name_prefix="ir3de-upload")
