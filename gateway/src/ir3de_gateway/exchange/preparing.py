"""Before an expert of the other kind is asked: its version of the request, or an answer without it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ir3de_gateway.api_errors import encode_json
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.requests.forwarding import OutgoingBody
from ir3de_gateway.requests.json_body import SMALL_BYTES, run_beside
from ir3de_gateway.requests.prompt import Prompt, count_tokens
from ir3de_gateway.translation.fields import UntranslatableError
from ir3de_gateway.translation.translation import TRANSLATIONS, find_untranslatable
from ir3de_gateway.wire.event_relay import add_member
from ir3de_gateway.wire.formats import WireFormat

T = TypeVar("T")


def mark_untranslatable(prompt: Prompt, wire: WireFormat, values: Mapping[str, Any]) -> Prompt:
    """The prompt, with the reason why experts of the other kind cannot answer it, if there is one."""
    found = find_untranslatable(wire, values)
    return prompt if found is None else prompt._replace(untranslatable=found.message)


async def prepare_translation(exchange: Exchange, expert: Expert) -> bool:
    """Translate the request for an expert. Whether the client has its answer already, and nobody need be asked."""
    assert isinstance(exchange.body, OutgoingBody)
    content, translation = exchange.body.body.content, TRANSLATIONS.get(exchange.wire.path)
    if translation is None:
        await _send_token_estimate(exchange, expert, content)
        return True
    try:
        exchange.translation = await _work_on(content, lambda values: translation(values, expert.config))
    except UntranslatableError as error:
        able = [one.name for one in exchange.snapshot.experts.values() if _speaks(one, exchange.wire)]
        error.message += f". These experts need no translation: {', '.join(able)}" if able else ""
        raise
    return False


async def _work_on(content: bytes, function: Callable[[Mapping[str, Any]], T]) -> T:
    """What a function makes of the request's values: beside other requests, if they are large."""

    def work(content: bytes) -> T:
        return function(json.loads(content))

    return work(content) if len(content) <= SMALL_BYTES else await run_beside(work, content)


def _speaks(expert: Expert, wire: WireFormat) -> bool:
    return wire.capability in expert.config.capabilities


async def _send_token_estimate(exchange: Exchange, expert: Expert, content: bytes) -> None:
    """OpenAI's API has no counting of tokens, so the gateway's own estimate must do."""
    tokens = await _work_on(content, count_tokens)
    body = add_member(encode_json({"input_tokens": tokens}), exchange.build_member(expert))
    headers = [(b"content-type", b"application/json"), (b"x-ir3de-estimated", b"true")]
    await exchange.response.send_whole(200, exchange.add_headers(headers), body)
