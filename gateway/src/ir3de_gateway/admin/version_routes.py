"""The /admin endpoints of the candidate router and of the versions of the router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ir3de.errors import IR3DEError
from ir3de_gateway.admin import candidate
from ir3de_gateway.admin.routes import (
    get_administration,
    get_caught_up,
    make_change,
    read,
    read_caller,
    respond,
    show_router,
)
from ir3de_gateway.admin.version_diff import compare_versions, find_pair
from ir3de_gateway.admin.versions import describe_versions
from ir3de_gateway.api_errors import ApiError

T = TypeVar("T")


async def show_candidate(request: Request) -> Response:
    """The candidate router, and where its test stands."""
    administration = await get_caught_up(request)
    now, folder = administration.current, administration.folder
    return respond(administration, await asyncio.to_thread(candidate.describe_candidate, now, folder))


async def promote(request: Request) -> Response:
    """Put the candidate live."""
    now, given = get_administration(request).current, await read(candidate.Promotion, request)
    where = "" if now.trial is None else now.trial.follower.shown
    change = partial(candidate.promote, None, read_caller(request).who, given.why)
    await make_change(request, change, action="promote candidate", path=where, why=given.why)
    return await show_router(request)


async def withdraw(request: Request) -> Response:
    """End the trial of the candidate; the live router serves alone."""
    why = request.query_params.get("why", "")[:1_000]
    change = partial(candidate.end_trial, "withdrawn", None, read_caller(request).who, why)
    await make_change(request, change, action="withdraw candidate", why=why)
    return await show_candidate(request)


async def show_history(request: Request) -> Response:
    """Every router that went live, newest first."""
    administration = await get_caught_up(request)
    now = administration.current
    rows = await _read_folder(describe_versions, administration.folder, now.digest)
    return respond(administration, {"object": "list", "data": rows, "keeps": now.config.router.versions})


async def show_diff(request: Request) -> Response:
    """What differs between two versions."""
    administration, given = await get_caught_up(request), request.query_params
    folder, journal = administration.folder, administration.current.config.feedback.folder

    def compare() -> dict[str, Any]:
        pair = find_pair(folder, given.get("from", ""), given.get("to", ""))
        return compare_versions(folder, *pair, None if journal is None else Path(journal))

    return respond(administration, await _read_folder(compare))


async def roll_back(request: Request) -> Response:
    """Serve an earlier version again."""
    given = await read(candidate.Rollback, request)
    change = partial(candidate.roll_back, given.to)
    await make_change(request, change, action="roll back", to=given.to, why=given.why)
    return await show_router(request)


async def _read_folder(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread; an error of the state folder is one of the gateway."""
    try:
        return await asyncio.to_thread(function, *arguments)
    except IR3DEError as error:
        raise ApiError(500, str(error), "state_unusable") from error


routes = [
    Route("/admin/candidate", show_candidate, methods=["GET"]),
    Route("/admin/candidate", withdraw, methods=["DELETE"]),
    Route("/admin/candidate/promote", promote, methods=["POST"]),
    Route("/admin/router/history", show_history, methods=["GET"]),
    Route("/admin/router/diff", show_diff, methods=["GET"]),
    Route("/admin/router/rollback", roll_back, methods=["POST"]),
]
