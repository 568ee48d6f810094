"""The lines of a batch file: each is a request, which is routed by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.requests.client import Controls
from ir3de_gateway.requests.forwarding import OutgoingBody
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.stages.choice import find_refusal
from ir3de_gateway.stages.choose import choose_expert
from ir3de_gateway.stages.read import read_prompt
from ir3de_gateway.translation.answers import dump
from ir3de_gateway.wire import FORMATS

MAX_LINES = 50_000
LINES_AT_A_TIME = 16  # routed in the event loop, before others have their turn
STORES = frozenset(("files", "batches"))  # what an expert of a batch needs
UNTRANSLATED = "cannot answer it, because lines of a batch are not translated"


class BatchLine(NamedTuple):
    """A line as the client wrote it."""

    number: int  # from 1 on
    values: dict[str, Any]  # empty for one that is not a request

    @property
    def model(self) -> object:
        return self.values["body"].get("model", RESERVED[0]) if self.values else None

    def build_error(self, message: str, status: int = 400, code: str = "invalid_batch_line") -> ApiError:
        return ApiError(status, f"line {self.number} of the file: {message}", code, "file")


def parse_lines(content: bytes) -> list[BatchLine]:
    """The lines of a batch file."""
    found = list[BatchLine]()
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = {}
        is_request = isinstance(values, dict) and isinstance(values.get("body"), dict)
        found.append(BatchLine(number, values if is_request else {}))
    return found


def names_own_models(lines: Sequence[BatchLine], snapshot: Snapshot) -> bool:
    """Whether a model is one of the gateway's: `auto`, an alias or an expert. Other files pass as they are."""
    own = {*RESERVED, *snapshot.aliases, *snapshot.experts}
    return any(isinstance(line.model, str) and line.model in own for line in lines)


async def route_lines(lines: Sequence[BatchLine], snapshot: Snapshot, controls: Controls) -> dict[str, list[bytes]]:
    """The lines that each expert gets, with its own model; or an `ApiError` that names the line."""
    if len(lines) > MAX_LINES:
        raise ApiError(400, f"the file has {len(lines):,} lines, at most {MAX_LINES:,} are possible", param="file")
    found, seen = dict[str, list[bytes]](), dict[str, int]()
    controls = replace(controls, session="")  # each line is a conversation of its own
    for place, line in enumerate(lines):
        custom_id = line.values.get("custom_id")
        if not isinstance(custom_id, str):
            raise line.build_error("it is not an object with custom_id, method, url and body")
        if (first := seen.setdefault(custom_id, line.number)) != line.number:
            raise line.build_error(f"line {first} has the same custom_id")
        try:
            expert, content = _route_line(line, snapshot, controls)
        except ApiError as error:
            raise line.build_error(error.message, error.status, error.code) from None
        found.setdefault(expert.name, []).append(content)
        if place % LINES_AT_A_TIME == 0:
            await asyncio.sleep(0)
    return found


def _route_line(line: BatchLine, snapshot: Snapshot, controls: Controls) -> tuple[Expert, bytes]:
    wire = FORMATS.get(str(line.values.get("url")).removeprefix("/v1/"))
    if wire is None:
        raise ApiError(400, f"no endpoint {str(line.values.get('url'))[:100]!r}")
    body, model = line.values["body"], line.model
    if not isinstance(model, str):
        raise ApiError(400, "model must be a name such as 'auto'", "invalid_type")
    routing = snapshot.config.routing
    counts = snapshot.has_context_windows
    prompt = read_prompt(wire, body, routing.text, routing.envelopes, counts_tokens=counts)
    if prompt.follows:
        raise ApiError(400, "previous_response_id is not possible in a batch that is routed", "invalid_batch_line")
    prompt = prompt._replace(needs=prompt.needs | STORES, untranslatable=UNTRANSLATED)
    choice = choose_expert(snapshot, snapshot.aliases.get(model, model), prompt, controls, {})
    if choice.build_rejection is not None:
        raise choice.build_rejection()
    if (refusal := find_refusal(choice.first, prompt, controls)) is not None:  # of an expert that is named
        raise ApiError(400, f"{choice.first.name} {refusal.text}", "no_eligible_expert")
    parsed = JsonBody.parse(dump(body), snapshot.config.server.limits.json_depth)
    built = OutgoingBody.from_request(wire, parsed).build(choice.first)
    return choice.first, dump({**line.values, "body": json.loads(built)})
