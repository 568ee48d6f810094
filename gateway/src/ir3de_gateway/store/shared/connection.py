"""The connection to the store that machines share: one client, its scripts, and whether the store answers.

A store that does not answer is away. From then on operations fail at once, and `tend` asks every second whether it is
back, so that requests do not wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from importlib.resources import files
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from ir3de.errors import InputError
from ir3de.serving import name_extra
from ir3de_gateway.store.contract import StoreUnavailableError

FORMAT = "ir3de 1"
MAX_CONNECTIONS = 64  # of one worker
MAX_SCANNED, SCANNED_AT_ONCE = 100_000, 1_000  # keys of others that are looked at before the first use
WARN_INTERVAL_S = 60.0

_log = logging.getLogger("ir3de.gateway")


class ForeignContentError(InputError):
    """The shared store holds something that this version of the gateway did not write."""


def import_redis() -> Any:
    """The package `redis`, or an `InputError` that names what to install."""
    try:
        import redis
        import redis.asyncio
    except ImportError as error:
        raise InputError(f"state.store needs redis-py: {name_extra('redis', 'ir3de-gateway')}") from error
    return redis


def hide_password(url: str) -> str:
    """The address of a store for messages.

    >>> hide_password("rediss://user:secret@store:6380/0"), hide_password("redis://store")
    ('rediss://user:…@store:6380/0', 'redis://store')
    """
    parts = urlsplit(url)
    if parts.password is None:
        return url
    netloc = parts.netloc.replace(f":{parts.password}@", ":…@")
    return urlunsplit(parts._replace(netloc=netloc))


@cache
def read_script(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def create_client(url: str, timeout_s: float, *, is_async: bool) -> Any:
    """A client of redis-py, which connects when it is used."""
    redis = import_redis()
    scheme, _, rest = url.partition("://")
    plain = f"{scheme.removesuffix('+cluster')}://{rest}"
    options = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    module = redis.asyncio if is_async else redis
    try:
        if scheme.endswith("+cluster"):
            return module.RedisCluster.from_url(plain, **options)
        options["retry"] = (redis.asyncio.retry if is_async else redis.retry).Retry(redis.backoff.NoBackoff(), 0)
        if is_async:
            return module.Redis.from_pool(module.ConnectionPool.from_url(plain, **options))
        return module.Redis.from_url(plain, **options)
    except ValueError as error:
        raise InputError(f"state.store {hide_password(url)!r} is not the address of a store: {error}") from error


class StoreConnection:
    """The client of one worker. All operations end within the configured time."""

    def __init__(self, url: str, prefix: str, timeout_s: float) -> None:
        self.shown, self.prefix = hide_password(url), prefix
        self._redis = create_client(url, timeout_s, is_async=True)
        self._errors = import_redis().exceptions
        self._scripts: dict[str, Any] = {}
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)  # a gateway that is busy waits; its store is not away
        self._check: asyncio.Task[bool] | None = None
        self.is_away, self.is_writable = False, True
        self.failures: Counter[str] = Counter()  # by kind: away, full, refused
        self._warn_at = 0.0

    @property
    def is_up(self) -> bool:
        return self.is_writable and not self.is_away

    async def run(
        self, script: str, keys: Sequence[str], arguments: Sequence[Any], *, is_urgent: bool = False
    ) -> list[Any]:
        """Run a script of this package, which writes. What is urgent does not wait for a place."""
        if script not in self._scripts:
            self._scripts[script] = self._redis.register_script(read_script(script))
        made = self._scripts[script]
        return cast(
            list[Any], await self._ask(lambda: made(keys=keys, args=arguments), writes=True, is_urgent=is_urgent)
        )

    async def do(self, *command: Any, writes: bool = False) -> Any:
        """Send one command."""
        return await self._ask(lambda: self._redis.execute_command(*command), writes=writes)

    async def _ask(self, ask: Any, *, writes: bool, is_urgent: bool = False) -> Any:
        async with nullcontext() if is_urgent else self._places:
            if self.is_away:
                raise StoreUnavailableError("the shared store is away")
            try:
                found = await self._ask_twice(ask)
            except (self._errors.RedisError, OSError) as error:
                raise self._note(error) from error
        if writes and not self.is_writable:
            self.is_writable = True
            _log.warning("the shared store %s can be written again", self.shown)
        return found

    async def _ask_twice(self, ask: Any) -> Any:
        """A connection may have ended because the store was restarted, or the event loop was busy for long."""
        try:
            return await ask()
        except (self._errors.ConnectionError, self._errors.TimeoutError, OSError):
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._is_there())
            if not await asyncio.shield(self._check):
                raise
        return await ask()

    async def _is_there(self) -> bool:
        try:
            await self._redis.execute_command("PING")
        except (self._errors.RedisError, OSError):
            return False
        return True

    def _note(self, error: Exception) -> Exception:
        """Note a failure; the error to raise for it."""
        text, kinds = str(error), self._errors
        if "IR3DEDAMAGED" in text or "WRONGTYPE" in text:
            found = f"the shared store {self.shown} holds something else than the gateway wrote"
            return ForeignContentError(f"{found}: {text}")
        is_full = isinstance(error, kinds.OutOfMemoryError) or "OOM " in text or "MISCONF" in text
        is_answer = isinstance(error, kinds.ResponseError | kinds.NoPermissionError) and not _is_passing(text)
        kind = "full" if is_full else "refused" if is_answer else "away"
        self.failures[kind] += 1
        if kind == "away":
            self.is_away = True
        else:
            self.is_writable = False
        if monotonic() >= self._warn_at:
            self._warn_at = monotonic() + WARN_INTERVAL_S
            _log.error("the shared store %s cannot be used (%s): %s", self.shown, kind, text or type(error).__name__)
        return StoreUnavailableError(text)

    async def check(self) -> bool:
        """Ask a store that is away whether it is back; whether it is here."""
        if self.is_away:
            if not await self._is_there():
                self.failures["away"] += 1
                return False
            self.is_away, self._warn_at = False, 0.0
            _log.warning("the shared store %s is back", self.shown)
        return True

    async def close(self) -> None:
        await self._redis.aclose()


def _is_passing(text: str) -> bool:
    """Whether an answer means that the store is about to serve: it loads, or another one takes over."""
    return text.startswith(("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "NOREPLICAS"))


# before the start -----------------------------------------------------------------------------------------------


def check_store(url: str, prefix: str, timeout_s: float) -> None:
    """Raise an `InputError` unless the store can be used: address, rights, version; a note is left in a new one.

    A store that does not answer raises a `StoreUnavailableError`.
    """
    errors, shown = import_redis().exceptions, hide_password(url)
    client = create_client(url, timeout_s, is_async=False)
    try:
        try:
            _check_format(client, prefix, shown)
            client.eval(read_script("limits.lua"), 6, *name_keys(prefix, "\0check"), "read", "", "")
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            need = f"the user of state.store needs all commands on keys ~{prefix}:* except admin commands (see docs)"
            raise InputError(f"the shared store {shown} refuses this gateway: {error}. {need}") from error
        except errors.ResponseError as error:
            if _is_passing(str(error)):
                raise StoreUnavailableError(str(error)) from error
            raise InputError(f"the shared store {shown} cannot be used: {error}") from error
        except (errors.RedisError, OSError) as error:
            raise StoreUnavailableError(f"the shared store {shown} does not answer: {error}") from error
    finally:
        client.close()


def _check_format(client: Any, prefix: str, shown: str) -> None:
    name = f"{prefix}:format"
    kind = client.type(name)
    found = client.get(name) if kind in (b"string", b"none") else kind
    if found is None:
        others = _find_others(client, prefix)
        if others and client.get(name) is None:  # otherwise another gateway has just begun to use the store
            raise ForeignContentError(
                f"the shared store {shown} has keys that begin with '{prefix}:' but are not a gateway's, such as "
                f"{others!r}: name another state.prefix, or another database"
            )
        client.set(name, FORMAT, nx=True)
        found = client.get(name)
    if found != FORMAT.encode():
        raise ForeignContentError(
            f"the shared store {shown} has {name} = {found[:80]!r}, and this version of the gateway needs {FORMAT!r}: "
            "run one version on all machines, or name another state.prefix"
        )


def _find_others(client: Any, prefix: str) -> str:
    """A key that begins with the prefix, if one is found among the first keys."""
    if isinstance(client, import_redis().RedisCluster):  # its pages are of one node
        return ""
    cursor = 0
    for _ in range(MAX_SCANNED // SCANNED_AT_ONCE):
        cursor, found = client.scan(cursor, match=f"{prefix}:*", count=SCANNED_AT_ONCE)
        if found:
            return str(found[0].decode(errors="replace"))[:100]
        if cursor == 0:
            break
    return ""


def name_keys(prefix: str, key: str) -> list[str]:
    """The names of what is stored of a client's key; KEYS of limits.lua. The braces keep them in one slot."""
    place = f"{prefix}:key:{{{hashlib.sha256(key.encode(errors='replace')).hexdigest()[:32]}}}"
    return [f"{place}:{part}" for part in ("numbers", "leases", "reserved", "unrenewed", "experts", "settled")]
