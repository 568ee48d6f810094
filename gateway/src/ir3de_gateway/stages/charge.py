"""What a request takes from the limits of its key, in tokens and cost: reserved before, measured at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.experts.snapshot import Expert
from ir3de_gateway.keys.client_key import Lease
from ir3de_gateway.requests.tokens import RequestBound, bound_prompt, find_bound, read_answer_limit
from ir3de_gateway.stages.choice import Choice
from ir3de_gateway.stages.values import NOTHING_EXPECTED, Accepted, Expected, Received
from ir3de_gateway.store.limits import Charge, Spending
from ir3de_gateway.wire import FORMATS
from ir3de_gateway.wire.events import AccountingRelay, EventRelay
from ir3de_gateway.wire.formats import count_cached, count_usage

BYTES_PER_TOKEN = 5  # of a whole answer without its usage, JSON included
_UNFINISHED = ("queued", "in_progress")  # states of a response
_failed_event = re.compile(rb'(?m)^event: ?response\.failed\s|"type": ?"response\.failed"')


async def reserve_usage(received: Received, lease: Lease, choice: Choice) -> None:
    """Reserve the most that a routed request can take, whichever expert answers."""
    accepted, body, prompt = received.accepted, received.body, received.prompt
    wire, values = accepted.wire, body.values
    if not wire.is_charged:
        return
    expected = max(0, prompt.tokens - read_answer_limit(values))
    most, unseen = bound_prompt(values, len(body.content), expected)
    find = partial(find_bound, wire, values, prompt_tokens=most, unseen=unseen + bool(prompt.follows))
    is_background = wire.stores_answers and bool(values.get("background"))
    await reserve(accepted, lease, choice, find, Expected(expected, 0, is_background))


async def reserve(
    accepted: Accepted,
    lease: Lease,
    choice: Choice,
    find: Callable[[ExpertConfig], RequestBound],
    expected: Expected = NOTHING_EXPECTED,
) -> None:
    """Reserve the largest bound of the experts that may answer. One of them is charged, whichever got the request."""
    bounds = [(expert.config.price, find(expert.config)) for expert in (choice.first, *choice.list_fallbacks())]
    longest = max(bound.answer for _, bound in bounds)
    accepted.progress.expected = expected._replace(answer_tokens=longest)
    cost = max(price.compute_cost(*bound) for price, bound in bounds)
    await lease.expect(max(sum(bound) for _, bound in bounds), cost)


def measure(accepted: Accepted) -> Spending | None:
    """What the request took, which is recorded, too; None if nothing was answered.

    It is an estimate if an expert reports no usage although it has begun to answer, or was about to when the client
    disconnected.
    """
    progress = accepted.progress
    record, expert, usage, expected = progress.record, progress.expert, progress.usage, progress.expected
    if expert is None or record.cache == "hit" or not (usage or (accepted.wire.is_charged and _has_worked(accepted))):
        return None
    prompt, answer = count_usage(usage)
    is_estimated = prompt is None and answer is None
    if is_estimated and expected.is_background and accepted.lease is not None:
        return _charge_later(accepted, accepted.lease, expert)
    if is_estimated:
        prompt, answer = expected.prompt_tokens, _estimate_answer(accepted)
    cached = count_cached(usage)
    cost = expert.config.price.compute_cost(prompt or 0, answer or 0, cached or 0)
    record.prompt_tokens, record.completion_tokens, record.cached_tokens = prompt, answer, cached
    record.cost, record.is_estimated = cost, is_estimated
    return Spending(expert.name, prompt or 0, answer or 0, cost, is_estimated)


def _has_worked(accepted: Accepted) -> bool:
    """Whether an expert has answered, or was answering when the client left; not if the gateway cancelled it."""
    progress = accepted.progress
    if progress.relay is not None or progress.answer_bytes:
        return True
    has_left = progress.record.outcome == "cancelled" and not progress.record.error
    return progress.is_sent and (accepted.response.status == 200 or has_left)


def _estimate_answer(accepted: Accepted) -> int:
    """The tokens of an answer without its usage: servers send one token in an event, as a rule.

    How much of a whole answer was written when the client left is unknown, so it counts as the longest one.
    """
    progress = accepted.progress
    if not accepted.wire.is_sampled:
        return 0
    size, longest = progress.answer_bytes or accepted.response.sent_bytes, progress.expected.answer_tokens
    if isinstance(progress.relay, AccountingRelay):
        return min(progress.relay.events, longest)
    return min(size // BYTES_PER_TOKEN, longest) if size or progress.record.stream else longest


def _charge_later(accepted: Accepted, lease: Lease, expert: Expert) -> Spending:
    """Let what was reserved for a response in the background stay charged, until it is retrieved with its usage."""
    response_id, reserved = accepted.progress.response_id, lease.reserved
    if response_id:
        lease.write_first(partial(accepted.stored_objects.remember_charge, response_id, reserved))
    return Spending(expert.name, reserved.tokens, 0, reserved.cost, is_estimated=False)


def settle_retrieved(accepted: Accepted, response: Mapping[str, Any]) -> None:
    """Charge a response that was made in the background, once, when it is retrieved with its usage.

    One that failed and reports none costs nothing. What was charged before is taken at the end of the request, which is
    completed even if the client leaves: no other request could charge the response then.
    """
    usage = response.get("usage")
    if response.get("status") == "failed" and not usage:
        usage = {"input_tokens": 0, "output_tokens": 0}
    if response.get("status") in _UNFINISHED or not isinstance(usage, dict) or count_usage(usage) == (None, None):
        return
    assert accepted.lease is not None
    accepted.lease.settle(partial(_take_charge, accepted, usage))


async def _take_charge(accepted: Accepted, usage: Mapping[str, Any]) -> Charge | None:
    """What was charged for a response, for the one request whose usage replaces it."""
    if (found := await accepted.stored_objects.take_charge(accepted.progress.response_id)) is None:
        return None
    tokens, cost, since = found
    accepted.progress.usage = usage
    return Charge(int(tokens), cost, int(since))


def build_retrieval_watch(accepted: Accepted) -> Callable[[bytes], None]:
    """The same for a response that is retrieved as a stream: the function to call with each of its pieces."""
    relay = EventRelay(FORMATS["responses"])

    def watch(piece: bytes) -> None:
        relay.feed(piece)
        if relay.is_done:
            status = "failed" if _failed_event.search(relay.tail) else ""
            settle_retrieved(accepted, {"status": status, "usage": relay.find_usage()})

    return watch


def build_relay(accepted: Accepted, member: bytes, *, adds_usage: bool) -> EventRelay:
    """The relay of a stream. One that is counted has the request charged before its final event is sent."""
    if accepted.lease is None and not adds_usage:
        return EventRelay(accepted.wire, member)
    return AccountingRelay(accepted.wire, member, drops_usage=adds_usage)
