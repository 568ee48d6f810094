"""Stage 6, record: what happened, once, at the end, for metrics, logs and traces; and what is kept for later requests.

`Progress` is the only value on the way that changes. A client may disconnect at any moment, and the record of its
request must then show how far it got.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ir3de_gateway.exchange_record import ExchangeRecord

if TYPE_CHECKING:
    from ir3de_gateway.experts.snapshot import Expert
    from ir3de_gateway.stages.accept import Accepted
    from ir3de_gateway.stages.choice import Choice
    from ir3de_gateway.stages.relay import Relayed
    from ir3de_gateway.translation.translation import Translation
    from ir3de_gateway.wire.events import EventRelay

MAX_TOKENS = 1 << 53  # of a usage: larger counts are errors of the expert


class Expected(NamedTuple):
    """What a request of a key is expected to take, in tokens."""

    prompt_tokens: int = 0
    answer_tokens: int = 0  # the most, of all answers together
    is_background: bool = False  # the expert answers before it has written anything


NOTHING_EXPECTED = Expected()


class Progress:
    """How far a request has got. Only the stages write to it."""

    __slots__ = (
        "answer_bytes", "expected", "expert", "is_sent", "record", "relay", "response_id", "translation", "usage",
    )  # fmt: skip

    def __init__(self, record: ExchangeRecord) -> None:
        self.record = record
        self.expected = NOTHING_EXPECTED
        self.expert: Expert | None = None  # the one that answers, or that got the request last
        self.translation: Translation | None = None  # where that expert has another format than the client
        self.is_sent = False  # whether that expert, or a replica of it, has the request and has not failed
        self.relay: EventRelay | None = None  # of a stream that has begun
        self.usage: Mapping[str, Any] = {}
        self.answer_bytes = 0  # of a whole answer
        self.response_id = ""  # of an answer that the expert stores

    @property
    def is_complete(self) -> bool:
        """Whether a stream has sent its final event, even if its connection is still open."""
        return self.relay is not None and self.relay.is_done

    def add_choice(self, choice: Choice) -> None:
        """Record which router decided what, and why an expert was chosen."""
        record = self.record
        record.router, record.why, record.decided = choice.snapshot.digest, choice.why, choice.decided
        if (routed := choice.routed) is not None:
            record.decision, record.confidence, record.expected_score, record.margin, seconds, record.reason = routed
            record.route_seconds = seconds

    def begin_expert(self, choice: Choice, expert: Expert) -> None:
        """Record which expert gets the request, how the router judges it, and why it is this one."""
        record, self.expert, self.translation = self.record, expert, None
        name = record.expert = expert.name
        record.model = expert.model
        routed = choice.routed
        is_plain = routed is None or (name == routed.decision.expert and not routed.decision.abstained)
        if is_plain and name == choice.decided and expert is choice.first:  # `add_choice` has recorded it
            return
        record.instead, record.why = choice.explain_instead(name, record.fallbacks), choice.explain_why(name)
        if routed is not None:
            record.confidence, record.expected_score, record.margin = routed.find_standing(name)


async def remember(relayed: Relayed) -> None:
    """Keep what later requests need: the conversation's expert, and the answer. Then call hooks that observe it."""
    accepted, record = relayed.accepted, relayed.accepted.progress.record
    if relayed.copy is not None:
        relayed.copy.store(accepted)
    if record.outcome == "ok" and relayed.session:
        accepted.gateway.pins.put(relayed.session, record.expert)
    if relayed.observe is not None:
        await relayed.observe()


def finish(accepted: Accepted) -> None:
    """Fill in what is known at the end, and hand the record to metrics, logs and traces."""
    progress, response = accepted.progress, accepted.response
    record, expert, usage = progress.record, progress.expert, progress.usage
    record.status = response.status or (499 if record.outcome == "cancelled" else 0)
    record.sent_bytes = response.sent_bytes
    record.total_seconds = perf_counter() - accepted.clock
    if accepted.lease is not None:
        accepted.lease.close()  # which fills in what it took
    elif usage and expert is not None and record.cache != "hit":  # a hit costs nothing
        prompt, answer = record.prompt_tokens, record.completion_tokens = read_usage(usage)
        record.cost = expert.config.price.compute_cost(prompt or 0, answer or 0) if expert.has_price else 0.0
    accepted.gateway.observer.observe(record)
    if accepted.trace is not None:
        accepted.trace.finish(record, None if expert is None else expert.config, usage)
    progress.relay = None  # one that counts refers to the request, which would keep its router until a collection


def read_usage(usage: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The tokens of prompt and answer, as an expert counts them. Anthropic's API lists those of its cache apart."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    answer = usage.get("completion_tokens", usage.get("output_tokens"))
    if type(prompt) is not int or not 0 <= prompt < MAX_TOKENS:
        prompt = None
    elif "cache_read_input_tokens" in usage:
        cached = (usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens"))
        prompt += sum(count for count in cached if type(count) is int and 0 <= count < MAX_TOKENS)
    return prompt, answer if type(answer) is int and 0 <= answer < MAX_TOKENS else None
