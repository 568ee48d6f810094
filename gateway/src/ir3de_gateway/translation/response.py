"""An expert's answer as if it had been given in the client's format."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from ir3de_gateway.api_errors import encode_json
from ir3de_gateway.experts.upstream import RETRYABLE_STATUSES, UpstreamFailure, UpstreamResponse, parse_object
from ir3de_gateway.translation.errors import translate_error
from ir3de_gateway.translation.faults import UnreadableAnswer
from ir3de_gateway.translation.streams import StreamTranslator, dump
from ir3de_gateway.translation.translation import Translation
from ir3de_gateway.wire.formats import WireFormat

_REWRITTEN = frozenset((b"content-type", b"content-encoding", b"request-id"))


class TranslatedResponse(UpstreamResponse):
    """Reads the expert's answer and gives the client's: whole, or piece by piece without waiting for its end."""

    def __init__(self, inner: UpstreamResponse, translation: Translation, wire: WireFormat, expert: str) -> None:
        self._inner, self._translation, self._wire, self._name = inner, translation, wire, expert
        self._stream: StreamTranslator = translation.create_stream()
        self._has_ended = False
        self.status, self.resends = inner.status, inner.resends
        self.content_type, self.is_stream = inner.content_type, inner.is_stream
        self.headers = [pair for pair in inner.headers if pair[0] not in _REWRITTEN]
        kind = b"text/event-stream; charset=utf-8" if self.is_stream else b"application/json"
        self.headers.append((b"content-type", kind))
        self.is_decompressed = False  # what is sent on never was compressed

    def end_by(self, deadline: float) -> None:
        self._inner.end_by(deadline)

    async def await_first_piece(self) -> None:
        await self._inner.await_first_piece()

    def find_usage(self) -> Mapping[str, Any]:
        return self._stream.usage

    async def read_whole(self) -> bytes | None:
        body = await self._inner.read_whole()
        if body is None:
            message = f"'{self._name}' sent more than can be translated"
            raise UpstreamFailure("garbage", message, is_expert_fault=False)
        content = parse_object(body)
        if self.status >= 400:
            if content is None and (self.status >= 500 or self.status in RETRYABLE_STATUSES):
                return body  # not an error object: the gateway says itself what happened
            return encode_json(translate_error(self._wire, self.status, content, self._name))
        if content is None:
            return body  # whoever reads it complains
        try:
            return dump(self._translation.build_answer(content))
        except UnreadableAnswer as error:
            raise self._build_failure(error) from error

    def read_first_piece(self) -> Coroutine[Any, Any, bytes]:
        return self._read_translated(self._inner.read_first_piece())

    def read_piece(self, *, last: bool = False) -> Coroutine[Any, Any, bytes]:
        return self._read_translated(self._inner.read_piece(last=last or self._stream.has_ended))

    async def _read_translated(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        """The next events; a piece of the expert's stream need not hold a whole one."""
        try:
            while not self._has_ended:
                piece = await reading
                self._has_ended = not piece
                if ready := self._stream.feed(piece) if piece else self._stream.flush():
                    return ready
                reading = self._inner.read_piece(last=self._stream.has_ended) if piece else reading
        except UnreadableAnswer as error:
            raise self._build_failure(error) from error
        reading.close()
        return b""

    def _build_failure(self, error: UnreadableAnswer) -> UpstreamFailure:
        return UpstreamFailure("garbage", f"'{self._name}' answered with {error}")
