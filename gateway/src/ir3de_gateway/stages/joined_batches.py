"""Files and batches of several experts as one: a batch file is split by expert, and its batches are joined again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from time import time
from typing import Any, TypeVar
from uuid import uuid4

from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.requests.forms import Upload
from ir3de_gateway.requests.forwarding import RequestContent
from ir3de_gateway.requests.json_body import offload
from ir3de_gateway.stages.batch_lines import BatchLine, names_own_models, parse_lines, route_lines
from ir3de_gateway.stages.choice import check_batch
from ir3de_gateway.stages.expert_calls import Part, call, call_part, find_target, upload
from ir3de_gateway.stages.joined_status import join_batches
from ir3de_gateway.stages.values import Accepted, Answered
from ir3de_gateway.store.pins import OWN_BATCH, OWN_FILE, build_delete_error, build_unknown_error
from ir3de_gateway.wire.formats import PassthroughFormat

T = TypeVar("T")

FILENAME = "batch.jsonl"
MAX_ROUTED_BYTES = 64 << 20  # of a batch file, whose lines are held in memory while they are routed
MAX_UNDO_S = 10.0  # that a request waits until its parts are taken back; it goes on after that
_batch_purpose = re.compile(rb'name="?purpose"?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\nbatch\s*\r\n')
_routed_model = re.compile(rb'"model"\s*:\s*"(?:ir3de/)?auto"')


async def answer_joined(
    accepted: Accepted,
    wire: PassthroughFormat,
    body: RequestContent,
    values: Mapping[str, Any],
    controls: Controls,
    named: str,
) -> Answered | None:
    """The answer to a request about a file or batch of several experts; None if it is about another one.

    `named` is the expert that an upload names: then its file passes as it is.
    """
    object_id = accepted.object_id
    if wire.path == "files" and isinstance(body, Upload) and not named:
        return await _split(accepted, body, controls)
    if wire.path == "batches" and wire.method == "POST":
        file_id = values.get("input_file_id")
        is_own = isinstance(file_id, str) and file_id.startswith(OWN_FILE)
        return await _start(accepted, str(file_id), values, controls) if is_own else None
    if wire.finds == "file" and object_id.startswith(OWN_FILE):
        return await _answer_about_file(accepted, wire, object_id)
    if wire.finds == "batch" and object_id.startswith(OWN_BATCH):
        found, parts = await _find(accepted, "batch", object_id)
        path = "batches/{id}/cancel" if wire.path.endswith("/cancel") else "batches/{id}"
        objects = await asyncio.gather(*(call_part(accepted, part, wire.method, path) for part in parts))
        return await _answer_about_batch(accepted, found, parts, objects)
    return None


# files --------------------------------------------------------------------------------------------------------------


async def _split(accepted: Accepted, form: Upload, controls: Controls) -> Answered | None:
    """Split an uploaded batch file by expert, and upload the parts. Other files are left to the expert."""

    def read(form: Upload) -> list[BatchLine]:
        if not form.holds(_batch_purpose):
            return []
        if form.size > MAX_ROUTED_BYTES:
            if form.holds(_routed_model):
                message = f"a batch file that is routed has at most {MAX_ROUTED_BYTES >> 20} MB: split it into several"
                raise ApiError(413, message, param="file")
            return []
        return parse_lines(form.read_parts().get("file", b""))

    lines = await offload(read, form)
    if not names_own_models(lines, accepted.snapshot):
        return None
    if not accepted.snapshot.config.routing.pinning.stored_ttl:
        message = "nothing is stored here (routing.pinning.stored_ttl is 0), so a batch cannot be joined"
        advice = "name an expert in x-ir3de-allow, and its own model in the lines"
        raise ApiError(400, f"{message}: {advice}", "not_stored")
    by_expert = await route_lines(lines, accepted.snapshot, controls)
    size = sum(len(one) + 1 for own in by_expert.values() for one in own)
    made = {
        "id": f"{OWN_FILE}{uuid4().hex}", "object": "file", "bytes": size, "created_at": int(time()),
        "filename": FILENAME, "purpose": "batch", "status": "processed",
    }  # fmt: skip
    parts = list[Part]()

    async def put(expert: str, own: list[bytes]) -> None:
        parts.append(await upload(accepted, expert, own, "batch", FILENAME))

    async with _taking_back(accepted, parts, "DELETE", "files/{id}"):
        for expert, own in by_expert.items():
            await _finish(put(expert, own))
        await _keep(accepted, made, parts)
    return _answer(accepted, _describe(made, parts))


async def _answer_about_file(accepted: Accepted, wire: PassthroughFormat, file_id: str) -> Answered:
    found, parts = await _find(accepted, "file", file_id)
    if wire.path.endswith("/content"):
        contents = await asyncio.gather(*(_read_content(accepted, part) for part in parts))
        body = b"".join(one if one.endswith(b"\n") or not one else one + b"\n" for one in contents)
        return Answered(accepted, 200, [(b"content-type", b"application/octet-stream")], body=body)
    if wire.method == "DELETE":
        for part in parts:
            await _delete(accepted, part)
        if not await accepted.stored_objects.delete_own(file_id):
            raise build_delete_error(file_id)
        return _answer(accepted, {"id": file_id, "object": "file", "deleted": True})
    return _answer(accepted, _describe(found, parts))


async def _delete(accepted: Accepted, part: Part) -> None:
    """Delete a file at its expert. If that fails, the client can retry: a part that is gone counts as deleted."""
    target, _ = find_target(accepted, part.expert, part.replica)
    try:
        await call(accepted, target, "DELETE", f"files/{part.object_id}")
    except ApiError as error:
        if error.status != 404:
            raise


async def _read_content(accepted: Accepted, part: Part) -> bytes:
    target, _ = find_target(accepted, part.expert, part.replica)
    return await call(accepted, target, "GET", f"files/{part.object_id}/content")


# batches ------------------------------------------------------------------------------------------------------------


async def _start(accepted: Accepted, file_id: str, values: Mapping[str, Any], controls: Controls) -> Answered:
    """Start a batch at each expert that has a part of the file."""
    _, files = await _find(accepted, "file", file_id, "input_file_id")
    for file in files:
        if (expert := accepted.snapshot.experts.get(file.expert)) is not None:
            check_batch(expert, controls)
    asked = {name: value for name, value in values.items() if name not in ("model", "ir3de")}
    known = {"endpoint": values.get("endpoint"), "completion_window": values.get("completion_window")}
    known |= {"input_file_id": file_id, "metadata": values.get("metadata"), "created_at": int(time())}
    batch = {"id": f"{OWN_BATCH}{uuid4().hex}", "object": "batch", **known}
    parts, objects = list[Part](), list[dict[str, Any]]()

    async def begin(file: Part) -> None:
        made = await call_part(accepted, file, "POST", "batches", asked | {"input_file_id": file.object_id})
        parts.append(file._replace(object_id=made["id"]))
        objects.append(made)

    async with _taking_back(accepted, parts, "POST", "batches/{id}/cancel"):
        for file in files:
            await _finish(begin(file))
        await _keep(accepted, batch, parts)
        return await _answer_about_batch(accepted, batch, parts, objects)


async def _answer_about_batch(
    accepted: Accepted, batch: Mapping[str, Any], parts: Sequence[Part], objects: Sequence[Mapping[str, Any]]
) -> Answered:
    """The batches of all experts as one. Its files are those of all of them, as soon as all have ended."""
    joined = join_batches(batch, objects, [part.lines for part in parts])
    for kind in ("output", "error"):
        files = [
            part._replace(object_id=found)
            for part, one in zip(parts, objects, strict=True)
            if isinstance(found := one.get(f"{kind}_file_id"), str)
        ]
        if files and joined.has_ended:
            file = {
                "id": f"{OWN_FILE}{batch['id'].removeprefix(OWN_BATCH)}-{kind}", "object": "file", "bytes": 0,
                "created_at": batch["created_at"], "filename": f"{kind}.jsonl", "purpose": "batch_output",
            }  # fmt: skip
            await _keep(accepted, file, files)
            joined.fields[f"{kind}_file_id"] = file["id"]
    rows = [
        {"expert": part.expert, "lines": part.lines, "status": one.get("status")}
        for part, one in zip(parts, objects, strict=True)
    ]
    return _answer(accepted, {**joined.fields, "ir3de": {"parts": rows}})


# the gateway's own objects ------------------------------------------------------------------------------------------


async def _keep(accepted: Accepted, made: Mapping[str, Any], parts: Sequence[Part]) -> None:
    await accepted.stored_objects.put_own(made["id"], {"object": made, "parts": parts})


async def _find(
    accepted: Accepted, kind: str, object_id: str, param: str | None = None
) -> tuple[dict[str, Any], list[Part]]:
    """An object of this key, and its parts; unknown if the key may no longer ask an expert that has one."""
    found = await accepted.stored_objects.get_own(object_id)
    parts = [] if found is None else [Part(*part) for part in found["parts"]]
    if found is None or not all(accepted.key.may_ask(part.expert) for part in parts):
        raise build_unknown_error(kind, object_id, param)
    return found["object"], parts


async def _finish(making: Coroutine[Any, Any, None]) -> None:
    """Make a part to its end, even if the client leaves: only then is its id known, and it can be taken back."""
    task = asyncio.ensure_future(making)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


@asynccontextmanager
async def _taking_back(accepted: Accepted, parts: Sequence[Part], method: str, path: str) -> AsyncIterator[None]:
    """Take back the parts that were made if another expert fails, or if the client leaves, who has no id then."""
    try:
        yield
    except (ApiError, asyncio.CancelledError):
        undoing = asyncio.ensure_future(_undo(accepted, parts, method, path))
        await asyncio.wait([undoing], timeout=MAX_UNDO_S)  # it is not cancelled with the request
        raise


async def _undo(accepted: Accepted, parts: Sequence[Part], method: str, path: str) -> None:
    """Take back what was done, as far as that is possible."""
    for part in parts:
        with suppress(ApiError):
            await call_part(accepted, part, method, path)


def _describe(made: Mapping[str, Any], parts: Sequence[Part]) -> dict[str, Any]:
    return {**made, "ir3de": {"parts": [{"expert": part.expert, "lines": part.lines} for part in parts]}}


def _answer(accepted: Accepted, content: dict[str, Any]) -> Answered:
    return Answered(accepted, 200, [(b"content-type", b"application/json")], body=encode_json(content))
