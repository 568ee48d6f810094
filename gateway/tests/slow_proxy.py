"""A TCP proxy that delivers each piece later, as a distant network does, or stops delivering."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class SlowProxy:
    """In front of one port, in a thread of its own."""

    def __init__(self, target: int, delay_s: float) -> None:
        self.target, self.delay_s, self.is_frozen, self.port = target, delay_s, False, 0
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        self._thread.start()
        assert self._is_ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(asyncio.sleep(0.05))  # transports close
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            theirs, to_them = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                await asyncio.gather(self._pass(reader, to_them, self.delay_s), self._pass(theirs, writer, 0.0))
            finally:
                to_them.close()
                writer.close()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_s: float) -> None:
        with suppress(OSError):
            while piece := await source.read(65_536):
                await asyncio.sleep(delay_s)
                while self.is_frozen:
                    await asyncio.sleep(0.01)
                target.write(piece)
                await target.drain()
        target.close()  # the other side may still have something to send


@contextmanager
def slow_proxy(target: int, delay_s: float) -> Iterator[SlowProxy]:
    proxy = SlowProxy(target, delay_s)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
