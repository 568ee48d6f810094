"""Calls a hook, within its time, and says what came of it. Whatever it does, the gateway goes on."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ir3de.errors import InputError, describe_value
from ir3de_gateway.admin.bounded import run_in_thread
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.config.models import HookConfig
from ir3de_gateway.experts.transport import Destination, Transport, UpstreamCall

MAX_THREADS = 128  # of one hook: those that hang count, too
MAX_VERDICT_BYTES = 64 << 20
WARN_INTERVAL_S = 60.0
_FIELDS = {"texts": list, "body": dict, "events": list, "refuse": dict}

_log = logging.getLogger("ir3de.gateway")


class HookFailure(Exception):  # noqa: N818 - of somebody else's code
    """A hook that raised, took too long, or returned something that is no verdict."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class CallShares:
    """The calls of a hook that have not ended, by the key of the client: prompts that hang it use up their key's share.

    A key may have as many calls as are still free, so half of all at most. The first call of a key is always free.
    Clients without the name of a key share one.
    """

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._calls.total()

    def begin(self, key: str) -> bool:
        """Count a call, if the key may have one more."""
        if self._calls[key] and self._calls[key] >= MAX_THREADS - self.total:
            return False
        self._calls[key] += 1
        return True

    def end(self, key: str) -> None:
        self._calls[key] -= 1
        if not self._calls[key]:
            del self._calls[key]


class Hook:
    """One hook. A callable that is not a coroutine function runs in a thread of its own."""

    def __init__(self, config: HookConfig) -> None:
        self.config = config
        self._function = None if config.call is None else load_function(config.call)
        self.calls = CallShares()  # those in threads
        self._warned = -WARN_INTERVAL_S

    def is_for(self, endpoint: str) -> bool:
        return not self.config.endpoints or endpoint in self.config.endpoints

    async def call(self, event: bytes, key: str, texts: int, transport: Transport) -> dict[str, Any] | None:
        """The verdict, which may be empty, on an event of a client's key with so many texts, as JSON.

        A failure is an `ApiError`; None, if requests are to go on without the hook.
        """
        try:
            return _check_verdict(await self._call(event, key, transport), texts)
        except HookFailure as failure:
            self._warn(failure)
            if self.config.on_failure == "continue":
                return None
            what = "did not answer in time" if failure.is_late else "failed"
            code = "hook_timeout" if failure.is_late else "hook_failed"
            message = f"the hook '{self.config.public_label}' of this gateway {what}, and it must allow each request"
            raise ApiError(504 if failure.is_late else 502, message, code) from failure

    async def _call(self, event: bytes, key: str, transport: Transport) -> Any:
        limit = self.config.timeout
        try:
            async with asyncio.timeout(limit):
                if self._function is None:
                    return await self._post(event, transport)
                if inspect.iscoroutinefunction(self._function):
                    return await self._function(json.loads(event))
                return await self._run(self._function, event, key)
        except HookFailure:
            raise
        except TimeoutError:  # of whose traceback every line would be the gateway's own
            raise HookFailure(f"took longer than {limit:g} s", is_late=True) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the client has left
            raise HookFailure("cancelled itself") from error
        except BaseException as error:  # SystemExit, too: a hook does not end the gateway
            raise HookFailure(f"{type(error).__name__}: {str(error)[:300]}") from error

    async def _run(self, function: Callable[..., Any], event: bytes, key: str) -> Any:
        if not self.calls.begin(key):
            whose = f"the key '{key}'" if key else "clients without a named key"
            raise HookFailure(f"{self.calls.total} calls of it have not ended yet, too many of them of {whose}")
        loop = asyncio.get_running_loop()

        def run() -> Any:
            try:
                return function(json.loads(event))
            finally:
                loop.call_soon_threadsafe(self.calls.end, key)

        return await run_in_thread(run)

    async def _post(self, event: bytes, transport: Transport) -> Any:
        """Send the event as JSON; the answer is the verdict."""
        parts = urlsplit(str(self.config.url))
        token = read_variable(self.config.token_env)
        head = b"content-type: application/json\r\naccept: application/json\r\naccept-encoding: identity\r\n"
        head += f"authorization: Bearer {token}\r\n".encode("latin-1", "replace") if token else b""
        deadline = asyncio.get_running_loop().time() + self.config.timeout
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        there = Destination(f"{parts.scheme}://{parts.netloc}")
        answer = await transport.send(UpstreamCall(there, path, head, event, self.config.timeout, deadline))
        try:
            content = bytearray()
            while piece := await answer.read(deadline):
                content += piece
                if len(content) > MAX_VERDICT_BYTES:
                    raise HookFailure("answered with too much")
        finally:
            answer.close()
        if answer.status == 204:
            return None
        if answer.status != 200:
            raise HookFailure(f"answered with status {answer.status}")
        return json.loads(content)

    def _warn(self, failure: HookFailure) -> None:
        if monotonic() - self._warned >= WARN_INTERVAL_S:
            self._warned = monotonic()
            then = "requests are refused" if self.config.on_failure == "refuse" else "requests go on without it"
            _log.warning("the hook '%s' failed (%s): %s", self.config.label, failure, then, exc_info=failure.__cause__)


def _check_verdict(found: Any, texts: int) -> dict[str, Any]:
    """What a hook returned, if it can be used."""
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise HookFailure(f"must return a mapping or None, found {describe_value(found)}")
    for name, value in found.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise HookFailure(f"returned {name!r}, possible are {', '.join(_FIELDS)}")
        if not isinstance(value, wanted):
            raise HookFailure(f"{name} must be a {wanted.__name__}, found {describe_value(value)}")
    if "texts" in found and (len(found["texts"]) != texts or not all(isinstance(one, str) for one in found["texts"])):
        raise HookFailure(f"texts must be {texts} strings, as many as there were")
    return dict(found)


def build_refusal(refusal: Mapping[str, Any], label: str) -> ApiError:
    """The error that a hook wants the client to get."""
    given = refusal.get("status")
    status = given if isinstance(given, int) and 400 <= given <= 599 else 403
    message = str(refusal.get("message") or f"refused by '{label}'")
    return ApiError(status, message, str(refusal.get("code") or "refused_by_hook"))


def load_function(name: str) -> Callable[..., Any]:
    """The callable that `package.module:function` or `path/to/file.py:function` names."""
    where, _, path = name.rpartition(":")
    try:
        found: Any = _load_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise InputError(f"the hook {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InputError(f"the hook {name!r} is not a callable, but {describe_value(found)}")
    call: Callable[..., Any] = found
    return call


def _load_file(path: Path) -> Any:
    """A file as a module; hooks of one file share it."""
    name = f"ir3de_hooks_{path.resolve()}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
