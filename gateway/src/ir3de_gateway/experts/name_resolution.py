"""Looks up host names, so that a name that does not resolve holds up nobody but those who ask for it.

Each name is looked up in a thread of its own, and once at a time, however many ask. Answers are kept for a while, and
the last good one for as long as the resolver fails.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ir3de_gateway.experts.transport import OutOfResourcesError, UnreachableError, is_out_of_resources

ANSWER_TTL_S = 30.0  # getaddrinfo does not tell how long an answer may be kept
REFRESH_PATIENCE_S = 1.0  # how long to wait for a new answer while there is an old one
RETRY_S = 5.0  # how long an old answer is used before the resolver is asked again that did not give a new one

AddressInfo = tuple[Any, ...]  # as `getaddrinfo` gives it: family, type, protocol, name, address


def look_up(host: str) -> list[AddressInfo]:
    """The addresses of a name. It blocks, for as long as the system's resolver takes."""
    return list(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))


@dataclass(frozen=True)
class Answer:
    """What the resolver said about a name, or the error that it gave."""

    addresses: list[AddressInfo]
    expires: float
    error: OSError | UnicodeError | None = None


class NameResolver:
    """The addresses of names, with a cache."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._running: dict[str, asyncio.Future[Answer]] = {}

    async def resolve(self, host: str, port: int) -> list[AddressInfo]:
        """The addresses of a host; the caller limits the time."""
        answer = self._answers.get(host)
        if answer is None or answer.expires <= asyncio.get_running_loop().time():
            answer = await self._refresh(host, answer)
        return [(*info[:4], (info[4][0], port, *info[4][2:])) for info in answer.addresses]

    async def _refresh(self, host: str, known: Answer | None) -> Answer:
        look_up_running = self._running.get(host) or self._start(host)
        if known is None:
            found = await asyncio.shield(look_up_running)
        else:
            done, _ = await asyncio.wait([look_up_running], timeout=REFRESH_PATIENCE_S)
            found = look_up_running.result() if done else known
        if known is not None and (found is known or found.error is not None):
            self._answers[host] = replace(known, expires=asyncio.get_running_loop().time() + RETRY_S)
            return known
        if found.error is not None:
            raise _describe_failure(host, found.error) from found.error
        return found

    def _start(self, host: str) -> asyncio.Future[Answer]:
        if is_address(host):  # needs no resolver, and no thread
            future = asyncio.get_running_loop().create_future()
            future.set_result(self._keep(host, look_up(host), None))
            return future
        loop = asyncio.get_running_loop()
        self._running[host] = future = loop.create_future()
        try:
            threading.Thread(target=self._run, args=(loop, host), name=f"look up {host}", daemon=True).start()
        except RuntimeError as error:  # can't start new thread
            del self._running[host]
            raise OutOfResourcesError(str(error)) from error
        return future

    def _run(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        addresses, error = [], None
        try:
            addresses = look_up(host)
        except (OSError, UnicodeError) as found:  # UnicodeError: an invalid host name
            error = found
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(partial(self._finish, host, addresses, error))

    def _finish(self, host: str, addresses: list[AddressInfo], error: OSError | UnicodeError | None) -> None:
        future = self._running.pop(host)
        if not future.done():
            future.set_result(self._keep(host, addresses, error))

    def _keep(self, host: str, addresses: list[AddressInfo], error: OSError | UnicodeError | None) -> Answer:
        answer = Answer(addresses, asyncio.get_running_loop().time() + ANSWER_TTL_S, error)
        if error is None:
            self._answers[host] = answer
        return answer


def is_address(host: str) -> bool:
    """Whether it is an IP address rather than a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False


def _describe_failure(host: str, error: OSError | UnicodeError) -> OSError:
    """The resolver does not say that it lacks a file descriptor, so that is tried out."""
    try:
        socket.socket().close()
    except OSError as lack:
        if is_out_of_resources(lack):
            return OutOfResourcesError(lack.errno, str(lack))
    return UnreachableError(f"the name {host} cannot be resolved: {error}", "name")
