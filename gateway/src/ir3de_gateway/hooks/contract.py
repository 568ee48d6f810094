"""What hooks get, and what they may return. docs/hooks.md explains it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypedDict


class HookRequest(TypedDict):
    """A request, before it is routed."""

    request_id: str
    endpoint: str  # chat, completions, responses, messages, embeddings, images, …
    path: str  # /v1/chat/completions
    key: str  # the name of the client's key; empty where keys have no names
    body: dict[str, Any] | None  # the request's JSON; None if it is a form with files
    texts: list[str]  # all texts in the body that a model reads, in their order


class HookAnswer(TypedDict):
    """An answer, before the client gets it; of a stream that is only observed, afterwards."""

    request_id: str
    endpoint: str
    path: str
    key: str
    expert: str  # who answered
    model: str  # what its endpoint calls the model
    body: dict[str, Any] | None  # the answer's JSON; None if it is a stream
    events: list[dict[str, Any]] | None  # the JSON of a stream's events; None if it is whole
    texts: list[str]  # what the model writes, one text for each choice or part; reasoning and refusals apart


class HookRefusal(TypedDict, total=False):
    """Why the client gets an error instead."""

    message: str
    status: int  # 400 to 599; 403 by default
    code: str  # refused_by_hook by default


class HookVerdict(TypedDict, total=False):
    """What a hook returns: the parts it changes, or a refusal. Nothing, or None, leaves everything as it is."""

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
