"""/v1/feedback: what clients think of an answer, by the id of its request or its own id.

A key reaches its own requests alone. The admin token, and a key with the scope `admin`, reach all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ir3de.errors import InputError, IR3DEError
from ir3de.traffic import ADMIN, Feedback, name_author
from ir3de_gateway.api_errors import ApiError, ClientDisconnect, validate
from ir3de_gateway.background import run_in_thread
from ir3de_gateway.config.experts import Part
from ir3de_gateway.config.findings import suggest_name
from ir3de_gateway.requests.client import read_body
from ir3de_gateway.requests.json_body import read_json
from ir3de_gateway.store.contract import StoreUnavailableError

if TYPE_CHECKING:
    from ir3de.traffic import TrafficRecord
    from ir3de_gateway.feedback.mailbox import Pointer
    from ir3de_gateway.feedback.writer import JournalWriter
    from ir3de_gateway.gateway import Gateway
    from ir3de_gateway.keys.client_key import ClientKey

MAX_BODY_BYTES = 32_768  # a comment in JSON escapes needs 24,000
MAX_COMMENT_CHARS = 2_000
WRITE_WAIT_S = 1.0  # within which a request is in the journal, whichever worker answered it
CHECK_INTERVAL_S = 0.1
RETRY_S = 5.0
NO_STORE = {"cache-control": "no-store"}

T = TypeVar("T")
Id = Annotated[str, Field(min_length=1, max_length=256)]
_log = logging.getLogger("ir3de.gateway")


class FeedbackRequest(Part):
    """What a client thinks of an answer. It replaces the earlier feedback of the same author."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"oneOf": [{"required": ["request_id"]}, {"required": ["response_id"]}]}
    )

    request_id: Id | None = None
    """The request, by the header `x-request-id` of its answer."""
    response_id: Id | None = None
    """Or the answer, by its field `id`."""
    expert: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The expert that should have answered."""
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    """How good the answer was, from 0 to 1."""
    thumb: Literal["up", "down"] | None = None
    """The same as score 1 or 0."""
    comment: Annotated[str, Field(max_length=MAX_COMMENT_CHARS)] | None = None
    """Anything else."""


class Caller(NamedTuple):
    """Who gives feedback, and whose requests it may be about."""

    author: str
    key: str | None  # None: of all keys


async def put_feedback(request: Request) -> Response:
    """Keep feedback, in place of the author's earlier one."""
    gateway, journal, caller = _get_gateway(request), _require_journal(request), _identify(request)
    snapshot = gateway.live.snapshot
    limits = snapshot.config.server.limits
    most = min(MAX_BODY_BYTES, limits.body_bytes)
    try:
        content = await read_body(
            request.receive, dict(request.scope["headers"]), limits.model_copy(update={"body_bytes": most})
        )
    except ClientDisconnect:
        return Response(status_code=400)  # the client is gone
    values = (await read_json(content, limits.json_depth)).values
    given = validate(FeedbackRequest, values, status=400, shows_found=True)
    if (given.request_id is None) == (given.response_id is None):
        message = "send either request_id, the header x-request-id of the answer, or response_id, its field 'id'"
        raise ApiError(400, message, "invalid_request", "request_id")
    _check_expert(given.expert, [name for name in snapshot.experts if caller.key is None or _may_ask(request, name)])
    try:
        feedback = Feedback.parse(given.model_dump(exclude_none=True), author=caller.author, time=time())
    except InputError as error:
        raise ApiError(400, str(error), "invalid_field") from None
    named = given.request_id or given.response_id or ""
    if (elsewhere := await _find_elsewhere(gateway, journal, named, caller)) is not None:
        await _send(gateway, elsewhere, feedback, caller)
        shown = {**_describe(elsewhere, feedback), "pending": True}
        return JSONResponse(shown, 202, headers=NO_STORE)
    found = await _find(journal, named, caller)
    await _work(journal.put_feedback, found.id, feedback, found.key)
    has = {"expert": feedback.expert is not None, "score": feedback.score is not None, "comment": feedback.comment}
    gateway.observer.metrics.journal.count_feedback(*(kind for kind, is_there in has.items() if is_there))
    return JSONResponse(_describe(found, feedback), headers=NO_STORE)


async def show_feedback(request: Request) -> Response:
    """The caller's feedback on a request; with the admin token, everybody's."""
    gateway, journal, caller = _get_gateway(request), _require_journal(request), _identify(request)
    named = request.path_params["id"]
    if await _find_elsewhere(gateway, journal, named, caller) is not None:
        message = f"another machine answered the request {named[:200]!r}, and has its feedback: ask that one"
        raise ApiError(409, message, "other_machine")
    found = await _find(journal, named, caller)
    shown = [one for one in found.feedback if caller.key is None or one.author == caller.author]
    data = [_describe(found, one) for one in shown]
    facts = {"request_id": found.id, "decided": found.decided, "served": found.served, "time": found.time}
    return JSONResponse({"object": "list", **facts, "data": data}, headers=NO_STORE)


async def delete_feedback(request: Request) -> Response:
    """Delete the caller's feedback on a request. Deleted twice, it is still deleted."""
    gateway, journal, caller = _get_gateway(request), _require_journal(request), _identify(request)
    named = request.path_params["id"]
    if (elsewhere := await _find_elsewhere(gateway, journal, named, caller)) is not None:
        await _send(gateway, elsewhere, None, caller)
        content = {"object": "feedback", "request_id": elsewhere.id, "author": caller.author, "pending": True}
        return JSONResponse(content, 202, headers=NO_STORE)
    found = await _find(journal, named, caller)
    if await _work(journal.delete_feedback, found.id, caller.author, found.key):
        gateway.observer.metrics.journal.count_feedback("deleted")
    content = {"object": "feedback", "request_id": found.id, "author": caller.author, "deleted": True}
    return JSONResponse(content, headers=NO_STORE)


def _get_gateway(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


def _require_journal(request: Request) -> JournalWriter:
    if (journal := _get_gateway(request).get_journal()) is None:
        message = "this gateway takes no feedback: its operator names a folder for it in `feedback.folder`"
        raise ApiError(404, message, "feedback_off")
    return journal


def _identify(request: Request) -> Caller:
    key: ClientKey = request.state.key
    if getattr(request.state, "is_admin", False):
        return Caller(ADMIN, None)
    return Caller(name_author(key.name), key.name if key.name and "admin" not in key.scopes else None)


def _may_ask(request: Request, expert: str) -> bool:
    key: ClientKey = request.state.key
    return key.may_ask(expert)


def _check_expert(given: str | None, known: list[str]) -> None:
    if given is not None and given not in known:
        message = f"no expert {given[:200]!r}: {suggest_name(given, known)}there are {', '.join(known)}"
        raise ApiError(400, message, "unknown_expert", "expert")


async def _find_elsewhere(gateway: Gateway, journal: JournalWriter, named: str, caller: Caller) -> Pointer | None:
    """The machine that answered a request, if it is not this one."""
    if (mailbox := gateway.get_mailbox()) is None or await _work(journal.find, named, caller.key) is not None:
        return None
    return await mailbox.find(named, caller.key)


async def _send(gateway: Gateway, pointer: Pointer, feedback: Feedback | None, caller: Caller) -> None:
    mailbox = gateway.get_mailbox()
    assert mailbox is not None
    try:
        await mailbox.send(pointer, feedback, caller.author)
    except StoreUnavailableError:
        message = "feedback cannot be passed on to the machine that answered, because the store does not answer"
        raise ApiError(503, f"{message}: retry in a moment", "state_unavailable", retry_after=1.0) from None


async def _find(journal: JournalWriter, named: str, caller: Caller) -> TrafficRecord:
    """The request, or an `ApiError`. One that another worker answered, or that a hook still sees, is there soon."""
    until = asyncio.get_running_loop().time() + WRITE_WAIT_S
    while (found := await _work(journal.find, named, caller.key)) is None:
        if asyncio.get_running_loop().time() >= until:
            message = (
                f"no request {named[:200]!r}: it was not routed here, belongs to another key, or is no longer kept"
            )
            raise ApiError(404, message, "request_not_found")
        await asyncio.sleep(CHECK_INTERVAL_S)
    return found


async def _work(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of the journal in a thread, because it waits for the disk."""
    try:
        return await run_in_thread(function, *arguments)
    except InputError as error:  # it was deleted meanwhile
        raise ApiError(404, str(error), "request_not_found") from None
    except IR3DEError as error:
        _log.warning("feedback was not kept: %s", error)
        message = (
            f"feedback cannot be kept now, and nothing was changed; the log has the details: retry in {RETRY_S:g} s"
        )
        raise ApiError(503, message, "journal_unusable", retry_after=RETRY_S) from None


def _describe(found: TrafficRecord | Pointer, feedback: Feedback) -> dict[str, Any]:
    return {
        "object": "feedback",
        "request_id": found.id,
        "response_id": found.response or None,
        "served": found.served,
        "author": feedback.author,
        "time": feedback.time,
        "expert": feedback.expert,
        "score": feedback.score,
        "comment": feedback.comment,
    }


routes = [
    Route("/v1/feedback", put_feedback, methods=["POST"]),
    Route("/v1/feedback/{id:path}", show_feedback, methods=["GET"]),
    Route("/v1/feedback/{id:path}", delete_feedback, methods=["DELETE"]),
]
