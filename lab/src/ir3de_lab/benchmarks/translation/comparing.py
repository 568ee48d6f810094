"""Asks the model natively and through the gateway, with the official clients, and compares what they say they got."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ir3de.errors import InputError
from ir3de_lab.benchmarks.translation.cases import CHATS, MESSAGES
from ir3de_lab.benchmarks.translation.serving import both_servers

MAX_TOKENS = 500


class Seen(NamedTuple):
    """What a client got, as its official library tells it."""

    content: Any
    usage: Any
    stop: Any


@dataclass(frozen=True)
class Row:
    """One case: whether the translated answer equals the native one."""

    client: str
    case: str
    way: str  # whole or streamed
    content: bool
    usage: bool
    stop: bool

    @property
    def is_equal(self) -> bool:
        return self.content and self.usage and self.stop

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare() -> Iterator[Row]:
    """Every case of both clients, whole and streamed."""
    with (
        tempfile.TemporaryDirectory(prefix="ir3de-translation-") as folder,
        both_servers(Path(folder)) as addresses,
        ExitStack() as clients,
    ):
        for name, cases, ask, expert in (
            ("Anthropic", MESSAGES, _ask_messages, "by-chat"),
            ("OpenAI", CHATS, _ask_chat, "by-messages"),
        ):
            native, translated = (ask(address, clients) for address in addresses)
            for case, fields in cases.items():
                for is_streamed in (False, True):
                    one = native({**fields, "model": "both"}, is_streamed)
                    other = translated({**fields, "model": expert}, is_streamed)
                    equal = [mine == its for mine, its in zip(one, other, strict=True)]
                    yield Row(name, case, "streamed" if is_streamed else "whole", *equal)


def find_versions() -> dict[str, str]:
    """The versions of the clients."""
    return {name: str(_load(name).__version__) for name in ("anthropic", "openai")}


Ask = Callable[[dict[str, Any], bool], Seen]


def _load(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"this needs the official client: pip install {name}") from error


def _ask_messages(address: str, clients: ExitStack) -> Ask:
    anthropic = _load("anthropic")
    client = clients.enter_context(anthropic.Anthropic(base_url=address, api_key="any", max_retries=0))

    def ask(fields: dict[str, Any], is_streamed: bool) -> Seen:
        try:
            if is_streamed:
                with client.messages.stream(max_tokens=MAX_TOKENS, **fields) as stream:
                    told = "".join(stream.text_stream)
                    message = stream.get_final_message()
                    assert told == "".join(block.text for block in message.content if block.type == "text")
            else:
                message = client.messages.create(max_tokens=MAX_TOKENS, **fields)
        except anthropic.APIStatusError as error:
            return _describe_error(error, error.body["error"]["message"])
        used = message.usage
        counts = (used.input_tokens, used.cache_read_input_tokens, used.cache_creation_input_tokens, used.output_tokens)
        content = [block.model_dump(exclude_none=True) for block in message.content]
        return Seen((message.role, message.model, content), counts, (message.stop_reason, message.stop_sequence))

    return ask


def _ask_chat(address: str, clients: ExitStack) -> Ask:
    openai = _load("openai")
    client = clients.enter_context(openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0))

    def ask(fields: dict[str, Any], is_streamed: bool) -> Seen:
        given = {"max_completion_tokens": MAX_TOKENS, **fields}
        try:
            if is_streamed:
                options = {"include_usage": True}
                with client.chat.completions.stream(stream_options=options, **given) as stream:
                    with suppress(openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                        stream.until_done()
                    completion = stream.current_completion_snapshot
            else:
                completion = client.chat.completions.create(**given)
        except openai.APIStatusError as error:
            return _describe_error(error, error.body["message"])
        choice, used = completion.choices[0], completion.usage
        message = choice.message
        calls = [
            (call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()
        ]
        content = (message.role, message.content, message.refusal, calls, getattr(message, "reasoning_content", None))
        cached = used.prompt_tokens_details.cached_tokens
        counts = (used.prompt_tokens, used.completion_tokens, used.total_tokens, cached)
        return Seen((completion.model, *content), counts, choice.finish_reason)

    return ask


def _describe_error(error: Any, message: str) -> Seen:
    """An error: its class and message are the content, its status is the reason for the end."""
    return Seen((type(error).__name__, message), None, error.status_code)
