"""A server that speaks HTTP/2 on a real socket, on h2, and does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated

Act = Callable[["Http2Server", "Asked"], Awaitable[None]]


@dataclass
class Asked:
    """A request."""

    stream: int
    headers: dict[bytes, bytes]
    body: bytes = b""


@dataclass
class Http2Server:
    """One connection; `act` answers a request."""

    act: Act
    h2: H2Connection = field(default_factory=lambda: H2Connection(H2Configuration(client_side=False)))
    asked: dict[int, Asked] = field(default_factory=dict)
    resets: list[int] = field(default_factory=list)
    writer: Any = None
    window: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.h2.initiate_connection()
        self.flush()
        acts = []
        while data := await reader.read(1 << 16):
            for event in self.h2.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.asked[event.stream_id] = Asked(event.stream_id, dict(event.headers))
                elif isinstance(event, DataReceived):
                    self.asked[event.stream_id].body += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    acts.append(asyncio.create_task(self.act(self, self.asked[event.stream_id])))  # type: ignore[arg-type]
                elif isinstance(event, StreamReset):
                    self.resets.append(event.stream_id)
                    self.window.set()
                elif isinstance(event, WindowUpdated):
                    self.window.set()
            self.flush()
        for act in acts:
            act.cancel()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def start(self, asked: Asked, *headers: tuple[str, str], status: str = "200") -> None:
        self.h2.send_headers(asked.stream, [(":status", status), *headers])
        self.flush()

    async def send(self, asked: Asked, data: bytes, *, end: bool = False) -> None:
        """Send data as far as the client's windows let it."""
        while data and asked.stream not in self.resets:
            size = min(self.h2.local_flow_control_window(asked.stream), self.h2.max_outbound_frame_size, len(data))
            if not size:
                self.window.clear()
                await self.window.wait()
                continue
            self.h2.send_data(asked.stream, data[:size])
            data = data[size:]
            self.flush()
        if end and asked.stream not in self.resets:
            self.h2.end_stream(asked.stream)
            self.flush()
