"""The response to the client, whole or piece by piece, with provenance headers."""

from __future__ import annotations

from starlette.types import Message, Receive, Send

from ir3de.gateway.api_errors import ApiError, ClientDisconnect
from ir3de.gateway.exchange_record import ExchangeRecord
from ir3de.gateway.headers import HeaderList
from ir3de.gateway.requests.client import DisconnectWatcher, discard_body
from ir3de.gateway.responses.provenance import build_provenance_headers

JSON: HeaderList = [(b"content-type", b"application/json")]


class ClientResponse:
    """The response to one request; `has_begun` once its first byte was sent."""

    def __init__(self, send: Send, record: ExchangeRecord, *, signed: bool) -> None:
        self._send, self._record, self._signed = send, record, signed
        self.watcher: DisconnectWatcher | None = None
        self.has_begun = False

    async def send_whole(self, status: int, headers: HeaderList, body: bytes) -> None:
        """An answer in one piece."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.end(body)

    async def send_error(self, problem: ApiError, *more: tuple[bytes, bytes]) -> None:
        """An error instead of an answer."""
        self._record.error = problem.code
        headers = [*JSON, *problem.header_list(), *more]
        await self.send_whole(problem.status, headers, problem.body(self._record.endpoint))

    async def send_early_error(self, problem: ApiError, receive: Receive) -> None:
        """An error about a body that has not been read to its end."""
        self._record.error, body = problem.code, problem.body(self._record.endpoint)
        length = (b"content-length", str(len(body)).encode())
        await self.start(problem.status, [*JSON, *problem.header_list(), length])
        await self.send_piece(body)
        await discard_body(receive)
        await self.end()

    async def start(self, status: int, headers: HeaderList) -> None:
        """Send the head of an answer."""
        record = self._record
        record.status = status
        headers = [*headers, (b"x-request-id", record.request_id.encode())]
        if self._signed and record.expert:
            headers += build_provenance_headers(record)
        self.has_begun = True
        await self._pass({"type": "http.response.start", "status": status, "headers": headers})

    async def send_piece(self, content: bytes, *, is_last: bool = False) -> None:
        self._record.sent_bytes += len(content)
        await self._pass({"type": "http.response.body", "body": content, "more_body": not is_last})

    async def end(self, content: bytes = b"") -> None:
        if self.watcher is not None:
            self.watcher.stop()  # a disconnect from here on is normal
        await self.send_piece(content, is_last=True)

    async def _pass(self, message: Message) -> None:
        try:
            await self._send(message)
        except OSError:  # ASGI servers raise it when the client has disconnected
            raise ClientDisconnect from None
