"""What a request takes, in tokens and cost: expected before an expert is asked, measured at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.config.experts import RESERVED, ExpertConfig
from ir3de_gateway.exchange.exchange import Exchange
from ir3de_gateway.exchange_record import read_usage
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.experts.upstream import UpstreamResponse
from ir3de_gateway.keys.client_key import Lease
from ir3de_gateway.requests.choice import Choice
from ir3de_gateway.requests.controls import Controls
from ir3de_gateway.requests.forwarding import OutgoingBody, RequestContent
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.requests.prompt import Prompt
from ir3de_gateway.requests.request_bound import RequestBound, bound_prompt, find_bound, read_answer_limit
from ir3de_gateway.store.limits import Charge, Spending
from ir3de_gateway.transport import RequestBody
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.event_relay import AccountingRelay, EventRelay

BYTES_PER_TOKEN = 5  # of a whole answer that does not tell its usage, JSON included
_UNFINISHED = ("queued", "in_progress")  # states of a response
_failed_event = re.compile(rb'(?m)^event: ?response\.failed\s|"type": ?"response\.failed"')


def restrict_to_key(exchange: Exchange, asked: str, experts: frozenset[str]) -> Controls:
    """The controls with the experts of the key. Another one that was asked for by its name is refused here."""
    controls = exchange.controls
    if asked not in RESERVED and asked not in experts:
        there = ", ".join(name for name in exchange.snapshot.experts if name in experts) or "none"
        message = f"the API key '{exchange.key.name}' may not ask {asked[:200]!r}: it may ask auto, and by name {there}"
        is_there = asked in exchange.snapshot.experts
        raise ApiError(403 if is_there else 404, message, "" if is_there else "model_not_found", "model")
    shadow = exchange.snapshot.config.routing.shadow
    if shadow is not None and shadow not in experts:
        raise ApiError(403, f"the API key '{exchange.key.name}' may not ask {shadow!r}, which answers everything here")
    return replace(controls, of_key=experts)


def reserve_usage(exchange: Exchange, lease: Lease, choice: Choice, prompt: Prompt, body: JsonBody) -> None:
    """Reserve the most that a request can take, whoever answers it, and note what it is expected to take."""
    wire, values = exchange.wire, body.values
    if not wire.is_charged:
        return
    exchange.expected_prompt_tokens = max(0, prompt.tokens - read_answer_limit(values))
    most, unseen = bound_prompt(values, len(body.content), exchange.expected_prompt_tokens)
    find = partial(find_bound, wire, values, prompt_tokens=most, unseen=unseen + bool(prompt.follows))
    reserve(exchange, lease, choice, find)


def reserve(exchange: Exchange, lease: Lease, choice: Choice, find: Callable[[ExpertConfig], RequestBound]) -> None:
    """Reserve the largest bound of the experts that may answer. One of them is charged, whoever else was asked."""
    bounds = [(expert.config.price, find(expert.config)) for expert in (choice.first, *choice.list_fallbacks())]
    exchange.longest_answer_tokens = max(bound.answer for _, bound in bounds)
    lease.expect(max(sum(bound) for _, bound in bounds), max(price.compute_cost(*bound) for price, bound in bounds))


def measure(exchange: Exchange) -> Spending | None:
    """What the request took, which the record is told, too; None if nothing was answered.

    An expert that has begun to answer, or would have if the client had waited, and tells no usage: an estimate.
    """
    record, expert = exchange.record, exchange.expert
    if record.cache == "hit":  # nobody was asked
        return None
    usage = exchange.usage
    if expert is None or (not usage and not (exchange.wire.is_charged and _has_worked(exchange))):
        return None
    prompt, answer = read_usage(usage)
    is_estimated = prompt is None and answer is None
    if is_estimated and exchange.is_background and exchange.lease is not None:
        return _charge_later(exchange, exchange.lease.reserved, expert)
    if is_estimated:
        prompt, answer = exchange.expected_prompt_tokens, _estimate_answer(exchange)
    cost = expert.config.price.compute_cost(prompt or 0, answer or 0)
    record.prompt_tokens, record.completion_tokens = prompt, answer
    record.cost, record.is_estimated = cost, is_estimated
    return Spending(expert.name, prompt or 0, answer or 0, cost, is_estimated)


def _has_worked(exchange: Exchange) -> bool:
    """Whether an expert has answered, or was answering when the client left; not if the gateway gave the request up."""
    if exchange.relay is not None or exchange.answer_bytes:
        return True
    has_left = exchange.record.outcome == "cancelled" and not exchange.record.error
    return exchange.is_sent and (exchange.response.status == 200 or has_left)


def _estimate_answer(exchange: Exchange) -> int:
    """The tokens of an answer that does not tell them: servers send one in an event, as a rule.

    Nobody knows how much of a whole answer was written when the client left, so it counts as the longest one.
    """
    if not exchange.wire.is_sampled:
        return 0
    size, longest = exchange.answer_bytes or exchange.response.sent_bytes, exchange.longest_answer_tokens
    if isinstance(exchange.relay, AccountingRelay):
        return min(exchange.relay.events, longest)
    return min(size // BYTES_PER_TOKEN, longest) if size or exchange.record.stream else longest


def _charge_later(exchange: Exchange, reserved: Charge, expert: Expert) -> Spending:
    """Let what was reserved for a response in the background stay charged, until it is retrieved with its usage."""
    if exchange.response_id:
        exchange.stored_objects.remember_charge(exchange.response_id, reserved)
    return Spending(expert.name, reserved.tokens, 0, reserved.cost, is_estimated=False)


def settle_retrieved(exchange: Exchange, response: Mapping[str, Any]) -> None:
    """Charge a response that was made in the background, once, when it is retrieved and tells its usage.

    One that failed and tells none costs nothing.
    """
    usage = response.get("usage")
    if response.get("status") == "failed" and not usage:
        usage = {"input_tokens": 0, "output_tokens": 0}
    if response.get("status") in _UNFINISHED or not isinstance(usage, dict) or read_usage(usage) == (None, None):
        return
    assert exchange.lease is not None
    if (found := exchange.stored_objects.take_charge(exchange.response_id)) is not None:
        tokens, cost, since = found
        exchange.usage = usage
        exchange.lease.settle(Charge(int(tokens), cost, int(since)))


def build_retrieval_watch(exchange: Exchange) -> Callable[[bytes], None]:
    """The same for a response that is retrieved as a stream: what to call with each of its pieces."""
    relay = EventRelay(FORMATS["responses"])

    def watch(piece: bytes) -> None:
        relay.feed(piece)
        if relay.is_done:
            status = "failed" if _failed_event.search(relay.tail) else ""
            settle_retrieved(exchange, {"status": status, "usage": relay.find_usage()})

    return watch


def build_content(exchange: Exchange, body: RequestContent, expert: Expert) -> RequestBody:
    """The body for this expert, which asks for the usage of a stream if that is counted."""
    if isinstance(body, OutgoingBody) and _wants_usage(exchange, body, expert):
        exchange.adds_usage = True
        return body.build(expert, asks_usage=True)
    return body.build(expert)


def _wants_usage(exchange: Exchange, body: OutgoingBody, expert: Expert) -> bool:
    """Whether to ask this expert for the usage of its stream, which the client has not asked for."""
    if body.usage_options is None or "stream_options" in expert.config.defaults:
        return False
    return expert.asks_usage or (exchange.lease is not None and expert.config.stream_usage is not False)


def build_relay(exchange: Exchange, expert: Expert, answer: UpstreamResponse) -> EventRelay:
    """The relay of a stream. One that is counted has the request charged before its final event is sent."""
    member, lease = exchange.build_member(expert), exchange.lease
    if lease is None and not exchange.adds_usage:
        return EventRelay(exchange.wire, member)

    def end(relay: AccountingRelay) -> None:
        exchange.usage = relay.find_usage() or answer.find_usage()
        if lease is not None:
            lease.close()

    return AccountingRelay(exchange.wire, member, drops_usage=exchange.adds_usage, on_end=end)
