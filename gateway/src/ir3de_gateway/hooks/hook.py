"""One hook: what it gets, what it may return, and how it is called. docs/hooks.md is the manual."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, TypedDict, cast
from urllib.parse import urlsplit

from ir3de.errors import InputError, describe_value
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.background import run_in_thread
from ir3de_gateway.config.document import HookConfig
from ir3de_gateway.config.experts import read_variable
from ir3de_gateway.transport import Destination, Transport, UpstreamCall

MAX_THREADS = 128  # of one hook, blocked ones included
MAX_VERDICT_BYTES = 64 << 20
WARN_INTERVAL_S = 60.0
_FIELDS = {"texts": list, "body": dict, "events": list, "refuse": dict}

_log = logging.getLogger("ir3de.gateway")


class HookRequest(TypedDict):
    """A request, before it is routed."""

    request_id: str
    endpoint: str  # chat, completions, responses, messages, embeddings, images, …
    path: str  # /v1/chat/completions
    key: str  # the name of the client's key; empty if keys have no names
    body: dict[str, Any] | None  # the request's JSON; None if it is a form with files
    texts: list[str]  # all texts in the body that a model reads, in their order


class HookAnswer(TypedDict):
    """An answer, before the client gets it; a stream that is only observed, afterwards."""

    request_id: str
    endpoint: str
    path: str
    key: str
    expert: str  # the expert that answered
    model: str  # the name of its model upstream
    body: dict[str, Any] | None  # the answer's JSON; None if it is a stream
    events: list[dict[str, Any]] | None  # the JSON of a stream's events; None if it is whole
    texts: list[str]  # what the model writes, one text for each choice or part; reasoning and refusals apart


class HookRefusal(TypedDict, total=False):
    """The error that the client gets instead."""

    message: str
    status: int  # 400 to 599; 403 by default
    code: str  # refused_by_hook by default


class HookVerdict(TypedDict, total=False):
    """What a hook returns: the parts it changes, or a refusal. An empty verdict, or None, changes nothing."""

    texts: list[str]  # as many as there were, to replace them
    body: dict[str, Any]  # instead of the body
    events: list[dict[str, Any]]  # instead of the events
    refuse: HookRefusal


class BeforeHook(Protocol):
    """A hook before a request: a function, or a coroutine function."""

    def __call__(self, request: HookRequest, /) -> HookVerdict | Awaitable[HookVerdict | None] | None: ...


class AfterHook(Protocol):
    """A hook after an answer: a function, or a coroutine function."""

    def __call__(self, answer: HookAnswer, /) -> HookVerdict | Awaitable[HookVerdict | None] | None: ...


# calling ------------------------------------------------------------------------------------------------------------


class HookFailure(Exception):  # noqa: N818 - of the operator's code
    """A hook raised, took too long, or returned something that is not a verdict."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class Hook:
    """One hook. A callable that is not a coroutine function runs in a thread of its own."""

    def __init__(self, config: HookConfig) -> None:
        self.config = config
        self._function = None if config.call is None else load_function(config.call)
        self.calls: Counter[str] = Counter()  # unfinished ones in threads, by the key of the client
        self._warned = -WARN_INTERVAL_S

    def is_for(self, endpoint: str) -> bool:
        return not self.config.endpoints or endpoint in self.config.endpoints

    async def call(self, event: bytes, key: str, texts: int, transport: Transport) -> dict[str, Any] | None:
        """The verdict, which may be empty, on an event of a client's key. `texts` is the number of texts in the event.

        If the hook fails, raise an `ApiError`, or return None where requests continue without the hook.
        """
        try:
            return _check_verdict(await self._call(event, key, transport), texts)
        except HookFailure as failure:
            self._warn(failure)
            if self.config.on_failure == "continue":
                return None
            status, what = (504, "did not answer in time") if failure.is_late else (502, "failed")
            message = f"the hook '{self.config.public_label}' of this gateway {what}, and every request needs it"
            raise ApiError(status, message, "hook_timeout" if failure.is_late else "hook_failed") from failure

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
        except TimeoutError:  # its traceback would only show the gateway's own lines
            raise HookFailure(f"took longer than {limit:g} s", is_late=True) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the client disconnected
            raise HookFailure("cancelled itself") from error
        except BaseException as error:  # SystemExit, too: a hook does not end the gateway
            raise HookFailure(f"{type(error).__name__}: {str(error)[:300]}") from error

    async def _run(self, function: Callable[..., Any], event: bytes, key: str) -> Any:
        """Call a function in a thread. A key may use as many threads as are still free, so half of all, and always one.

        So prompts that block a hook only use up the threads of their key. Clients without a named key share one.
        """
        total = self.calls.total()
        if self.calls[key] >= max(1, MAX_THREADS - total):
            owner = f"the key '{key}'" if key else "clients without a named key"
            raise HookFailure(f"{total} of its calls are still running, too many of them for {owner}")
        self.calls[key] += 1
        loop = asyncio.get_running_loop()

        def run() -> Any:
            try:
                return function(json.loads(event))
            finally:
                loop.call_soon_threadsafe(self.calls.subtract, (key,))

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
                    raise HookFailure(f"answered with more than {MAX_VERDICT_BYTES >> 20} MB")
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
            then = "requests are rejected" if self.config.on_failure == "refuse" else "requests continue without it"
            _log.warning("the hook '%s' failed (%s): %s", self.config.label, failure, then, exc_info=failure.__cause__)


def _check_verdict(found: Any, texts: int) -> dict[str, Any]:
    """The verdict that a hook returned, or a `HookFailure` if it is not valid."""
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise HookFailure(f"must return a mapping or None, found {describe_value(found)}")
    for name, value in found.items():
        wanted = _FIELDS.get(name)
        if wanted is None:
            raise HookFailure(f"returned {name!r}, but only {', '.join(_FIELDS)} are allowed")
        if not isinstance(value, wanted):
            raise HookFailure(f"{name} must be a {wanted.__name__}, found {describe_value(value)}")
    if "texts" in found and (len(found["texts"]) != texts or not all(isinstance(one, str) for one in found["texts"])):
        raise HookFailure(f"texts must be a list of {texts} strings, one for each text of the event")
    return dict(found)


def build_refusal(refusal: Mapping[str, Any], label: str) -> ApiError:
    """The error that the client gets when a hook rejects its request or answer."""
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
        raise InputError(f"the hook {name!r} is not callable: found {describe_value(found)}")
    return cast(Callable[..., Any], found)


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
