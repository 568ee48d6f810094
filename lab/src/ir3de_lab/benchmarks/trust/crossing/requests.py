"""A case as a request: path, headers and body of its API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ir3de_lab.benchmarks.trust.crossing.covering import Case

PROMPTS = {
    "clear": "Can my landlord evict tenants before this contract ends, or does the statute void that clause?",
    "mixed": "Does the statute of tenants say how long I boil an egg?",
    "unknown words": "Zyx wvu tsr.",
}
EARLIER = "Is this contract void?"
SYSTEM = "Be brief."
IMAGE = "iVBORw0KGgo="
LIMITS: dict[str, dict[str, int]] = {
    "absent": {},
    "max_tokens": {"max_tokens": 40},
    "max_completion_tokens": {"max_completion_tokens": 40},
    "contradicting": {"max_tokens": 60, "max_completion_tokens": 5},
}
CONTROLS: dict[str, dict[str, Any]] = {
    "weights": {"weights": {"price": 0.001}},
    "allow": {"allow": ["maths", "cooking"]},
    "deny": {"deny": ["law"]},
    "skip": {"skip": True},
}
SCHEMAS: dict[str, Any] = {
    "plain": {"type": "object", "properties": {"city": {"type": "string"}}},
    "type is a list": {"type": "object", "properties": {"city": {"type": ["string", "null"]}}},
    "property called type": {"type": "object", "properties": {"type": {"type": "string", "enum": [["a"], {}]}}},
}


def _nest(depth: int) -> Any:
    nested: Any = {"type": ["x"]}
    for _ in range(depth):
        nested = {"type": [nested], "": 1}
    return nested


SCHEMAS["deep"] = {"type": "object", "properties": {"a": _nest(14)}}
IGNORED: dict[str, dict[str, Any]] = {  # in fields that routing does not read
    "absent": {},
    "types": {"metadata": [None, {"type": ["x"]}], "user": 7, "seed": {"type": {}}, "logit_bias": [[]], "stop": False},
    "numbers": {"metadata": {"a": 10**400, "b": -0.0}, "seed": 1e300, "top_p": -1, "user": 2**64},
    "deep": {"metadata": _nest(20), "new_field": [[[[[{"type": {"type": []}}]]]]]},
    "text": {"metadata": {"\ud800": "\x00\u2028\ufffe"}, "user": "Ü" * 300, "": ""},
}


@dataclass(frozen=True)
class Request:
    """What a client sends."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def content(self) -> bytes:
        return json.dumps(self.body).encode()


def build_request(case: Case, number: int) -> Request:
    """The request of the case with that number of its gateway."""
    headers = {"content-type": "application/json"}
    if case["key"] != "none":
        headers["authorization"] = f"Bearer {write_key(case, number)}"
    if case["control"] == "session":
        headers["x-session-id"] = f"session-{number}"
    body = {"model": case["model"], **_build_input(case), **_build_tools(case)}
    if case["n"] != "absent":
        body["n"] = int(case["n"])
    limits = LIMITS[case["limits"]]
    body |= {"max_output_tokens": max(limits.values())} if limits and case["api"] == "responses" else limits
    body |= IGNORED[case["ignored"]]
    if case["stream"] == "yes":
        body["stream"] = True
    if case["control"] in CONTROLS:
        body["ir3de"] = CONTROLS[case["control"]]
    return Request(f"/v1/{case['api']}", headers, body)


def write_key(case: Case, number: int, *, at_once: bool = False) -> str:
    """The API key of a case: each has its own, and so a budget of its own; and another for many requests at once."""
    return f"sk-{case['key']}-{number}" + "-at-once" * at_once


def list_user_turns(case: Case) -> list[str]:
    """The user's turns, which are routed."""
    has_earlier = case["history"] in ("chat", "tool loop")
    return [*([EARLIER] if has_earlier else []), PROMPTS[case["prompt"]]]


def _build_input(case: Case) -> dict[str, Any]:
    api, history, prompt = case["api"], case["history"], PROMPTS[case["prompt"]]
    if api == "completions":
        return {"prompt": prompt}
    content = _build_content(case, prompt)
    turns: list[dict[str, Any]] = []
    if history in ("chat", "tool loop"):
        turns = [{"role": "user", "content": EARLIER}, {"role": "assistant", "content": "It depends."}]
    turns.append({"role": "user", "content": content})
    if history == "tool loop":
        turns += _build_loop(api)
    if api == "responses":
        given: dict[str, Any] = {"input": prompt if turns == [{"role": "user", "content": prompt}] else turns}
        return {**given, "instructions": SYSTEM} if history == "system" else given
    if history == "system":
        if api == "messages":
            return {"messages": turns, "system": SYSTEM}
        turns.insert(0, {"role": "system", "content": SYSTEM})
    return {"messages": turns}


def _build_content(case: Case, prompt: str) -> Any:
    if case["images"] == "none":
        return prompt
    is_url, data = case["images"] == "url", f"data:image/png;base64,{IMAGE}"
    url = "http://127.0.0.1:9/cat.png" if is_url else data
    if case["api"] == "messages":
        encoded = {"type": "base64", "media_type": "image/png", "data": IMAGE}
        source = {"type": "url", "url": url} if is_url else encoded
        return [{"type": "text", "text": prompt}, {"type": "image", "source": source}]
    if case["api"] == "responses":
        return [{"type": "input_text", "text": prompt}, {"type": "input_image", "image_url": url}]
    return [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": url}}]


def _build_loop(api: str) -> list[dict[str, Any]]:
    """A call of a tool, and its result."""
    if api == "messages":
        call = {"type": "tool_use", "id": "call_1", "name": "f", "input": {"city": "Bern"}}
        result = {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    if api == "responses":
        called = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
        return [called, {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]
    made = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answered = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
    return [{"role": "assistant", "content": None, "tool_calls": [made]}, answered]


def _build_tools(case: Case) -> dict[str, Any]:
    if case["tools"] == "none":
        return {}
    if case["tools"] == "not objects":
        return {"tools": ["f", 7, None, [{"type": ["x"]}]]}
    schema = SCHEMAS[case["tools"]]
    if case["api"] == "messages":
        return {"tools": [{"name": "f", "description": "Weather", "input_schema": schema}]}
    if case["api"] == "responses":
        return {"tools": [{"type": "function", "name": "f", "description": "Weather", "parameters": schema}]}
    return {"tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
