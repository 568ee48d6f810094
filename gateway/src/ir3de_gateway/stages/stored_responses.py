"""Responses that the gateway stores itself, for experts that have only chats: kept, continued, shown and deleted."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse, Response

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.json_body import SMALL_BYTES, JsonBody, offload, read_json
from ir3de_gateway.stages.values import Accepted
from ir3de_gateway.store.pins import OWN_RESPONSE, build_delete_error, build_unknown_error
from ir3de_gateway.store.workers import is_first_report
from ir3de_gateway.translation.answers import dump
from ir3de_gateway.translation.translation import Continuation, ResponsesByChat
from ir3de_gateway.wire.formats import PassthroughFormat

MAX_CONTINUED = 1_000  # responses before the one that is continued
MAX_LISTED = 100  # items of the input in one answer
DEFAULT_LISTED = 20

_log = logging.getLogger("ir3de.gateway")


def may_store(accepted: Accepted) -> bool:
    """Whether the gateway stores responses: not if hooks may change them after that."""
    pinning = accepted.snapshot.config.routing.pinning
    return pinning.store_responses and pinning.stored_ttl > 0 and not accepted.snapshot.has_after_hooks


async def store_response(accepted: Accepted) -> None:
    """Store a response that is complete, once."""
    translation = accepted.progress.translation
    if not isinstance(translation, ResponsesByChat) or (found := translation.take_stored()) is None:
        return
    if not await accepted.stored_objects.put_own(found["response"]["id"], found) and is_first_report("large response"):
        _log.warning("a response is too large to be stored, and cannot be continued: %s", found["response"]["id"])


# continued ----------------------------------------------------------------------------------------------------------


async def expand_request(accepted: Accepted, body: JsonBody) -> JsonBody:
    """The request with the items of the stored response that it continues, so that any expert can answer it."""
    previous = body.values.get("previous_response_id")
    if not isinstance(previous, str) or not previous.startswith(OWN_RESPONSE):
        return body
    history, limits = await read_history(accepted, previous), accepted.snapshot.config.server.limits

    def expand(content: bytes) -> tuple[bytes, int]:
        values = json.loads(content)
        given = values.pop("input", None)
        del values["previous_response_id"]
        own = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(own, list):  # which is rejected later
            return dump({**values, "input": given}), 0
        return dump({**values, "input": [*history, *own]}), len(own)

    content = body.content
    content, own_count = expand(content) if len(content) <= SMALL_BYTES else await offload(expand, content)
    if len(content) > limits.body_bytes:
        message = f"the conversation has more than {limits.body_bytes:,} bytes: begin a new one"
        raise ApiError(413, message, param="previous_response_id")
    accepted.progress.continued = Continuation(previous, history[-1] if history else None, own_count)
    return await read_json(content, limits.json_depth)


async def read_history(accepted: Accepted, response_id: str) -> list[dict[str, Any]]:
    """The items of a conversation up to a response, whose output is the last of them; or an `ApiError`."""
    turns: list[list[dict[str, Any]]] = []
    while response_id and len(turns) <= MAX_CONTINUED:
        found = await accepted.stored_objects.get_own(response_id)
        if found is None:
            message = f"no response {response_id[:200]!r}: it was not made here, or it is gone"
            raise ApiError(400, message, "previous_response_not_found", "previous_response_id")
        output = [item for item in found["response"]["output"] if item.get("type") != "reasoning"]
        turns.append([*found["input"], *output])
        response_id = found["previous"]
    return [item for turn in reversed(turns) for item in turn]


# shown and deleted --------------------------------------------------------------------------------------------------


async def answer_own(accepted: Accepted, wire: PassthroughFormat) -> Response:
    """The answer to a request about a stored response."""
    response_id, objects = accepted.object_id, accepted.stored_objects
    found = await objects.get_own(response_id)
    if found is None:
        raise build_unknown_error("response", response_id)
    if wire.method == "DELETE":
        if not await objects.delete_own(response_id):
            raise build_delete_error(response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})
    if wire.path.endswith("/cancel"):
        message = "only a response in the background can be cancelled: this one is complete"
        raise ApiError(400, message, param="id")
    query = QueryParams(accepted.query)
    if wire.path.endswith("/input_items"):
        items = [*(await read_history(accepted, found["previous"])), *found["input"]]
        return JSONResponse(_list_items(response_id, items, query))
    if query.get("stream") == "true":
        raise ApiError(400, "this response cannot be streamed again: get it without stream=true", param="stream")
    return JSONResponse(found["response"])


def _list_items(response_id: str, items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of the input of a response."""
    given = query.get("limit", str(DEFAULT_LISTED))
    if not given.isdigit() or not 1 <= int(given) <= MAX_LISTED:
        raise ApiError(400, f"limit must be a number from 1 to {MAX_LISTED}, found {given[:20]!r}", param="limit")
    rows = [_describe_item(response_id, place, item) for place, item in enumerate(items)]
    if query.get("order", "desc") == "desc":
        rows.reverse()
    places = {row["id"]: place for place, row in enumerate(rows)}
    if (after := query.get("after")) is not None:
        if after not in places:
            raise ApiError(400, f"no item {after[:200]!r} of this response", param="after")
        rows = rows[places[after] + 1 :]
    page = rows[: int(given)]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return {"object": "list", "data": page, **ends, "has_more": len(rows) > len(page)}


def _describe_item(response_id: str, place: int, item: Mapping[str, Any]) -> dict[str, Any]:
    digest = hashlib.sha256(f"{response_id} {place}".encode()).hexdigest()[:32]
    found = {"type": "message", "id": f"msg_{digest}", "status": "completed", **item}
    if isinstance(content := found.get("content"), str):
        kind = "output_text" if found.get("role") == "assistant" else "input_text"
        found["content"] = [{"type": kind, "text": content}]
    return found
