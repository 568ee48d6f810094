"""OpenAI's responses: items instead of messages, named events, and answers that later requests refer to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ir3de.serving import Turn, build_type_error, parse_message
from ir3de_gateway.api_errors import ApiError, encode_json
from ir3de_gateway.wire.format import WireFormat

_response_id = re.compile(rb'"response": ?\{[^{}]*?"id": ?"([!-~]{1,256}?)"')


class ResponsesFormat(WireFormat):
    """`/v1/responses`: `input`, `instructions`, `previous_response_id`."""

    path = "responses"
    capability = "responses"
    answer_limits = ("max_output_tokens",)
    needs_head = stores_answers = True
    final_event = re.compile(  # which may be an error
        rb"(?m)^data: ?\[DONE\]|^event: ?(?:response\.(?:completed|incomplete|failed)|error)\s"
        rb'|"type": ?"response\.(?:completed|incomplete|failed)"'
    )

    def parse_turns(self, values: Mapping[str, Any]) -> list[Turn]:
        given, instructions = values.get("input"), values.get("instructions")
        before = [Turn("system", instructions)] if isinstance(instructions, str) else []
        if isinstance(given, str):
            return [*before, Turn("user", given)]
        if not isinstance(given, list) or not given:
            raise build_type_error("input", "a string or a list of items", given)
        return before + [_parse_item(item, f"input[{place}]") for place, item in enumerate(given)]

    def read_response_id(self, answer: Mapping[str, Any]) -> str:
        found = answer.get("id")
        return found if isinstance(found, str) else ""

    def find_response_id(self, head: bytes) -> str:
        found = _response_id.search(head)
        return found.group(1).decode() if found is not None else ""

    def find_previous_response(self, values: Mapping[str, Any]) -> str:
        found = values.get("previous_response_id")
        return found if isinstance(found, str) else ""

    def is_repeatable(self, values: Mapping[str, Any]) -> bool:
        """Answers are stored by default here, and a server may work on in the background."""
        return values.get("store") is False and super().is_repeatable(values)

    def build_error_event(self, problem: ApiError) -> bytes:
        content = {**problem.fields, "type": "error", **self.build_error(problem)}  # also at the top level
        return b"event: error\ndata: " + encode_json(content) + b"\n\n"


def _parse_item(item: object, param: str) -> Turn:
    if not isinstance(item, dict):
        raise build_type_error(param, "an object", item)
    if "role" in item:
        return parse_message(item, param)
    is_result = str(item.get("type", "")).endswith("_output")  # else a function call, or a reference
    return Turn("tool" if is_result else "assistant", "", tool_result=is_result)
