"""The /admin endpoints of the traffic: its requests, drift, the prompts that are worth a label, and new domains."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import time
from typing import Annotated, Any, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import InputError, IR3DEError
from ir3de.traffic import (
    ADMIN,
    LABEL_PREFIX,
    Feedback,
    Journal,
    TrafficRecord,
    choose_prompts,
    find_new_domains,
    name_author,
)
from ir3de_gateway.admin.routes import get_administration, read, respond
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import Part
from ir3de_gateway.feedback.drift_watch import read_report
from ir3de_gateway.feedback.writer import JournalWriter

LAST_REQUESTS = 5_000  # among which prompts are chosen: time grows with their square
PROMPTS, MAX_PROMPTS = 20, 200
LISTED, MAX_LISTED = 50, 200  # requests
LARGEST_NUMBER = 2**63 - 1  # of a request in the journal
SHOWN_CHARS = 2_000  # of a prompt in the list
EXAMPLES = 5  # of a new domain

T = TypeVar("T")


class Label(Part):
    """The expert that a prompt belongs to, by somebody who was asked."""

    request_id: Annotated[str, Field(min_length=1, max_length=256)]
    """The request with the prompt, as /admin/labels/next names it."""
    expert: Annotated[str, Field(min_length=1, max_length=200)]
    """The expert."""


async def list_requests(request: Request) -> Response:
    """The last routed requests, newest first, each with its feedback. Their text is there if the journal keeps it."""
    administration = get_administration(request)
    _require_folder(request)
    journal: JournalWriter = request.app.state.gateway.get_journal()
    most = _read_number(request, "limit", MAX_LISTED) or LISTED
    older, found = await _work(journal.read_before, _read_number(request, "before", LARGEST_NUMBER), most)
    body = {
        "object": "list",
        "data": [_describe_request(one) for one in reversed(found)],
        "older": older or None,
        "keep": journal.config.keep,
        "author": _name_author(request),
        "experts": list(administration.current.experts),
    }
    return respond(administration, body)


async def show_drift(request: Request) -> Response:
    """The changes of the traffic that were found, in words; and shares in windows."""
    administration, folder = get_administration(request), _require_folder(request)
    report = await _work(read_report, folder)
    return respond(administration, {"object": "drift", **(report or {"prompts": 0, "changes": [], "windows": []})})


async def list_prompts(request: Request) -> Response:
    """The prompts whose labels would help most, the best first."""
    administration, folder = get_administration(request), _require_folder(request)
    many = _read_number(request, "n", MAX_PROMPTS) or PROMPTS
    now = administration.current

    def choose() -> list[dict[str, Any]]:
        with Journal.create(folder) as journal:
            _, records = journal.read_before(None, LAST_REQUESTS)
        try:
            return [one.to_dict() for one in choose_prompts(now.router, records, many)]
        except InputError:  # there is none
            return []

    body = {"object": "list", "data": await _work(choose), "experts": list(now.router.experts)}
    return respond(administration, body)


async def put_label(request: Request) -> Response:
    """Keep the label of a prompt, in place of the caller's earlier one."""
    administration, folder = get_administration(request), _require_folder(request)
    given, author = await read(Label, request), LABEL_PREFIX + _name_author(request)
    if given.expert not in (known := administration.current.router.experts):
        message = f"no expert {given.expert[:200]!r}: there are {', '.join(known)}"
        raise ApiError(400, message, "unknown_expert", "expert")

    def put() -> None:
        with Journal.create(folder) as journal:
            journal.put_feedback(given.request_id, Feedback(author, time(), expert=given.expert))

    await _work(put)
    return respond(administration, {"object": "label", **given.model_dump(), "author": author})


async def delete_label(request: Request) -> Response:
    """Delete the caller's label of a prompt."""
    administration, folder = get_administration(request), _require_folder(request)
    request_id, author = request.path_params["id"], LABEL_PREFIX + _name_author(request)

    def delete() -> bool:
        with Journal.create(folder) as journal:
            return journal.delete_feedback(request_id, author)

    await _work(delete)
    return respond(administration, {"object": "label", "request_id": request_id, "author": author, "deleted": True})


async def list_domains(request: Request) -> Response:
    """Groups of the last prompts that fit no expert, named by their words."""
    administration, folder = get_administration(request), _require_folder(request)
    now = administration.current

    def find() -> list[dict[str, Any]]:
        with Journal.create(folder) as journal:
            _, records = journal.read_before(None, LAST_REQUESTS)
        found = find_new_domains(now.router, records)
        return [{**one.to_dict(), "prompts": len(one.prompts), "examples": one.prompts[:EXAMPLES]} for one in found]

    body = {"object": "list", "data": await _work(find), "router": now.follower.shown, "folder": str(folder)}
    return respond(administration, body)


def _describe_request(record: TrafficRecord) -> dict[str, Any]:
    turns = record.prompt.turns if record.prompt is not None else ()
    return {
        "object": "request",
        "request_id": record.id,
        "time": record.time,
        "key": record.key,
        "decided": record.decided,
        "served": record.served,
        "confidence": record.confidence,
        "expected_score": record.expected_score,
        "why": record.why or "routed",
        "status": record.status,
        "seconds": record.seconds,
        "completion_tokens": record.completion_tokens,
        "cost": record.cost,
        "text": turns[-1][:SHOWN_CHARS] if turns else None,
        "turns": len(turns),
        "feedback": [asdict(one) for one in record.feedback],
    }


def _read_number(request: Request, name: str, largest: int) -> int | None:
    """A number from 1 on in the query; None if there is none."""
    given = request.query_params.get(name)
    if given is None:
        return None
    if not re.fullmatch("[0-9]{1,19}", given) or not 1 <= int(given) <= largest:
        message = f"{name} must be a number from 1 to {largest}, found {given[:20]!r}"
        raise ApiError(422, message, "invalid_field", name)
    return int(given)


def _require_folder(request: Request) -> Path:
    folder = get_administration(request).current.config.feedback.folder
    if folder is None:
        message = "this gateway keeps no journal: name a folder for it in `feedback.folder` of the configuration"
        raise ApiError(404, message, "feedback_off")
    return Path(folder).expanduser()


def _name_author(request: Request) -> str:
    """The author of feedback that is given with the token or the key of the request."""
    name = request.state.key.name
    return name_author(name) if name else ADMIN


async def _work(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that reads or writes the journal, in a thread."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except InputError as error:
        raise ApiError(404, str(error), "request_not_found") from None
    except IR3DEError as error:
        raise ApiError(503, f"the journal cannot be used now: {error}", "journal_unusable") from None


routes = [
    Route("/admin/requests", list_requests, methods=["GET"]),
    Route("/admin/drift", show_drift, methods=["GET"]),
    Route("/admin/labels/next", list_prompts, methods=["GET"]),
    Route("/admin/labels/domains", list_domains, methods=["GET"]),
    Route("/admin/labels", put_label, methods=["POST"]),
    Route("/admin/labels/{id:path}", delete_label, methods=["DELETE"]),
]
