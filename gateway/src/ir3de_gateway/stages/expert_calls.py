"""Requests of the gateway itself to experts that store files and batches, for one request of a client."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import uuid4

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.experts.retry import UpstreamFailure
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import as_failure, parse_object, send_request
from ir3de_gateway.headers import compile_header_filter
from ir3de_gateway.requests.forwarding import build_head
from ir3de_gateway.stages.values import Accepted
from ir3de_gateway.translation.answers import dump

JSON_KIND = "application/json"


class Part(NamedTuple):
    """A file or batch at one expert, as a part of the gateway's own."""

    expert: str
    replica: str  # its label, where the expert has several addresses
    object_id: str
    lines: int = 0


def find_target(accepted: Accepted, expert: str, replica: str = "") -> tuple[Expert, str]:
    """The expert, or the replica of it that has the part or can get one, and its label; or an `ApiError`."""
    found = accepted.snapshot.experts.get(expert)
    if found is None:
        raise ApiError(503, f"'{expert}' has a part of this, and is not configured any more", "expert_removed")
    if not found.replicas:
        return found, ""
    for one in found.replicas:
        if one.label == replica or (not replica and one.is_available):
            return one, one.label
    raise ApiError(503, f"no replica of '{expert}' can be used for this now", "replica_unavailable")


async def call(
    accepted: Accepted, target: Expert, method: str, path: str, content: bytes = b"", kind: str = JSON_KIND
) -> bytes:
    """The body of an expert's answer, or an `ApiError` with the expert's own message."""
    kinds = f"content-type: {kind}\r\naccept: */*\r\n".encode() if content else b"accept: */*\r\n"
    forwarded = compile_header_filter(accepted.snapshot.config.routing.forward_headers)
    head = build_head(accepted.wire, target, accepted.header_list, accepted.request_id, {}, forwarded, kinds)
    transport, is_repeatable = accepted.gateway.transport, method == "GET"
    try:
        source = await send_request(transport, target, path, head, content, is_repeatable=is_repeatable, method=method)
        try:
            body = await source.read_whole()
        finally:
            source.close()
    except (UpstreamFailure, OSError) as error:
        failure = as_failure(error, target)
        raise ApiError(failure.status, failure.message, "upstream_unreachable") from None
    if body is None:
        raise ApiError(502, f"'{target.name}' sent more than the gateway can join", "upstream_invalid")
    if source.status >= 400:
        error_object = (parse_object(body) or {}).get("error")
        reason = error_object.get("message") if isinstance(error_object, dict) else None
        raise ApiError(source.status, f"'{target.name}': {reason or f'status {source.status}'}", "upstream_error")
    return body


async def call_for_object(
    accepted: Accepted, target: Expert, method: str, path: str, content: bytes = b"", kind: str = JSON_KIND
) -> dict[str, Any]:
    """The same, where the answer is an object with an id."""
    found = parse_object(await call(accepted, target, method, path, content, kind))
    if found is None or not isinstance(found.get("id"), str):
        raise ApiError(502, f"'{target.name}' did not answer with an object and its id", "upstream_invalid")
    return found


async def upload(accepted: Accepted, expert: str, lines: list[bytes], purpose: str, filename: str) -> Part:
    """Upload lines as a file to an expert."""
    target, label = find_target(accepted, expert)
    boundary = uuid4().hex
    head = '--{0}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n{1}\r\n--{0}\r\n'
    head += 'content-disposition: form-data; name="file"; filename="{2}"\r\ncontent-type: application/jsonl\r\n\r\n'
    content = head.format(boundary, purpose, filename).encode() + b"\n".join(lines) + b"\n"
    content += f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    made = await call_for_object(accepted, target, "POST", "files", content, kind)
    return Part(expert, label, made["id"], len(lines))


async def call_part(
    accepted: Accepted, part: Part, method: str, path: str, content: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A request about a part; {id} in the path is its id."""
    target, _ = find_target(accepted, part.expert, part.replica)
    body = b"" if content is None else dump(content)
    return await call_for_object(accepted, target, method, path.replace("{id}", part.object_id), body)
