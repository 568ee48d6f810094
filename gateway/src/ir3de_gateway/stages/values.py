"""The values that one stage hands to the next. Only `Progress` changes on the way, and an `Attempt` until it ends.

A client may disconnect at any moment, and the record of its request must then show how far it got.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.types import Receive

from ir3de_gateway.exchange_record import ExchangeRecord
from ir3de_gateway.experts.concurrency import ConcurrencyLimit
from ir3de_gateway.experts.retry import UpstreamFailure, record_failure
from ir3de_gateway.experts.snapshot import Expert, Snapshot
from ir3de_gateway.experts.upstream import UpstreamResponse, is_overdue
from ir3de_gateway.headers import HeaderList
from ir3de_gateway.keys.client_key import ClientKey, Lease
from ir3de_gateway.requests.answer_cache import CachedAnswer
from ir3de_gateway.requests.client import ClientConnection, ClientResponse, Controls
from ir3de_gateway.requests.forwarding import RequestContent
from ir3de_gateway.requests.json_body import JsonBody
from ir3de_gateway.stages.choice import Choice, Prompt
from ir3de_gateway.store.pins import StoredObjects
from ir3de_gateway.translation.translation import NOT_CONTINUED, Translation
from ir3de_gateway.wire.events import EventRelay
from ir3de_gateway.wire.formats import WireFormat

if TYPE_CHECKING:
    from ir3de_gateway.gateway import Gateway
    from ir3de_gateway.telemetry.tracing import Trace

SLOW_CLIENT_S = 1.0  # an expert may break off an answer that the client does not read for that long

Observe = Callable[[], Awaitable[object]]


class Expected(NamedTuple):
    """What a request of a key is expected to take, in tokens."""

    prompt_tokens: int = 0
    answer_tokens: int = 0  # the most, of all answers together
    is_background: bool = False  # the expert answers before it has written anything


NOTHING_EXPECTED = Expected()


class Progress:
    """How far a request has got. Only the stages write to it."""

    __slots__ = (
        "answer_bytes", "continued", "expected", "expert", "is_sent", "record", "relay", "response_id", "translation",
        "usage",
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
        self.continued = NOT_CONTINUED  # the stored response that the request continues

    @property
    def is_complete(self) -> bool:
        """Whether a stream has sent its final event, even if its connection is still open."""
        return self.relay is not None and self.relay.is_done

    def add_choice(self, choice: Choice) -> None:
        """Record which router decided what, and why an expert was chosen."""
        record = self.record
        record.router, record.why, record.decided = choice.snapshot.digest, choice.why, choice.decided
        record.switch = choice.switch
        if (routed := choice.routed) is not None:
            record.decision, record.confidence, record.expected_score, record.margin, seconds, record.reason, _ = routed
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


class Accepted(NamedTuple):
    """A request that may use the gateway. Only its `progress` and its `response` change on the way."""

    gateway: Gateway
    snapshot: Snapshot  # what serves: the request keeps it to its end
    wire: WireFormat
    key: ClientKey
    lease: Lease | None  # None where the key's requests are not counted
    request_id: str
    headers: Mapping[bytes, bytes]
    header_list: HeaderList  # the same, in their order, and each time that they occur
    query: bytes
    object_id: str  # in the path of a stored object
    receive: Receive
    connection: ClientConnection | None
    response: ClientResponse
    trace: Trace | None
    clock: float  # when it began
    progress: Progress

    @property
    def stored_objects(self) -> StoredObjects:
        """What experts store for the key of the request."""
        seconds = self.snapshot.config.routing.pinning.stored_ttl
        return StoredObjects(self.gateway.pins, self.key.name, seconds, self.progress.record.replica)


class Received(NamedTuple):
    """A request that has been read."""

    accepted: Accepted
    body: JsonBody
    model: str
    controls: Controls
    prompt: Prompt
    replica: str  # the one that has what the request refers to


class Chosen(NamedTuple):
    """A request, and the experts that get it."""

    accepted: Accepted
    choice: Choice
    body: RequestContent  # without its values, which take several times its memory
    replica: str = ""  # the one that has what the request refers to
    beginning: bytes = b""  # a hash of the conversation's, if any expert has replicas
    session: str = ""  # to pin to the expert that answers
    cache_key: bytes = b""  # to cache the answer with
    deadline: float = inf  # when an answer must have begun, as a time of the event loop


class AnswerCopy:
    """The content of an answer, without provenance, to cache it when it is complete."""

    __slots__ = ("_adds_usage", "_is_stream", "_key", "_kind", "_most_bytes", "_pieces", "_size")

    def __init__(self, chosen: Chosen, source: UpstreamResponse, *, adds_usage: bool) -> None:
        self._key, self._adds_usage, self._is_stream = chosen.cache_key, adds_usage, source.is_stream
        self._kind = dict(source.headers).get(b"content-type", b"application/json")
        self._most_bytes = chosen.accepted.snapshot.config.cache.answer_bytes
        self._pieces: list[bytes] | None = []  # None if there is too much
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._most_bytes:
            self._pieces = None
        elif self._pieces is not None:
            self._pieces.append(piece)

    def store(self, accepted: Accepted) -> None:
        """Cache the answer, which is complete, if it was the first expert's and a good one."""
        record, cache = accepted.progress.record, accepted.gateway.get_cache(accepted.snapshot)
        if cache is not None and self._pieces is not None and record.outcome == "ok" and not record.fallbacks:
            content = b"".join(self._pieces)
            cache.put(self._key, CachedAnswer(content, self._kind, self._is_stream, self._adds_usage, cache.clock()))


class Attempt:
    """A request that an expert, or one of its replicas, has. It ends with `succeed`, `fail` or `abandon`."""

    __slots__ = ("_accepted", "expert", "place", "source", "started", "ticket")

    def __init__(self, accepted: Accepted, expert: Expert, ticket: int, started: float) -> None:
        self._accepted, self.expert, self.ticket, self.started = accepted, expert, ticket, started
        self.source: UpstreamResponse | None = None
        self.place: ConcurrencyLimit | None = None  # of all replicas together, to be released at the end
        progress = accepted.progress
        progress.expert, progress.is_sent = expert, True
        progress.record.asked_seconds = started - accepted.clock
        accepted.gateway.observer.request_started(expert.name)

    def succeed(self) -> None:
        self.expert.breaker.record_success(self.ticket)
        self._end()
        if (record := self._accepted.progress.record).replica:
            count_replica(self._accepted, record.replica, has_failed=record.outcome == "broken_stream")

    def abandon(self) -> None:
        """The request ended before the expert could answer, which is not its fault."""
        self.expert.breaker.record_abandoned(self.ticket)
        self._end()

    def fail(self, failure: UpstreamFailure, deadline: float = inf, digest: int = 0) -> None:
        seconds = perf_counter() - self.started
        note_failure(self._accepted, self.expert, failure, self.ticket, seconds, deadline, digest, self.source)
        self._end()
        if label := self._accepted.progress.record.replica:
            count_replica(self._accepted, label, has_failed=True)

    def _end(self) -> None:
        if self.source is not None:
            self.source.close()
        self._accepted.progress.record.upstream_seconds = perf_counter() - self.started
        self.expert.leave()
        if self.place is not None:
            self.place.release()
        self._accepted.gateway.observer.request_ended(self.expert.name)


def count_replica(accepted: Accepted, label: str, *, has_failed: bool) -> None:
    """Count a request to a replica."""
    name, counted = accepted.progress.record.expert, accepted.gateway.observer.metrics.replicas.requests
    counted[name, label, "failed" if has_failed else "ok"] += 1


def note_failure(
    accepted: Accepted,
    expert: Expert,
    failure: UpstreamFailure,
    ticket: int,
    seconds: float,
    deadline: float,
    digest: int,
    source: UpstreamResponse | None = None,
) -> None:
    """Let the failure act on the expert's circuit breaker. That the whole request took too long is not its fault."""
    if failure.status == 504 and is_overdue(deadline):
        failure.is_expert_fault = False
    if accepted.trace is not None:
        error = f"upstream_{failure.status}" if failure.reason in ("408", "429", "5xx") else failure.reason
        accepted.trace.add_failure(accepted.progress.record, expert.config, error, seconds)
    response = accepted.response
    has_begun, is_client_slow = response.status != 0, response.longest_stall >= SLOW_CLIENT_S
    record_failure(
        expert,
        failure,
        ticket,
        request=digest,
        seconds=seconds,
        has_begun=has_begun,
        is_out_of_time=source is not None and source.is_out_of_time,
        is_client_slow=is_client_slow,
    )


class Answered(NamedTuple):
    """An answer that has begun, of which nothing was sent yet. The attempt of a whole one has ended."""

    accepted: Accepted
    status: int
    headers: HeaderList  # of the expert, as far as clients get them
    session: str = ""  # to pin to the expert
    body: bytes | None = None  # of a whole answer; None for one that is relayed piece by piece:
    first: bytes = b""  # its first piece
    source: UpstreamResponse | None = None  # for the other pieces; None if there are none
    attempt: Attempt | None = None
    relay: EventRelay | None = None  # of a stream of events
    watch: Callable[[bytes], None] | None = None  # called with each piece before it is sent
    copy: AnswerCopy | None = None
    hook_seconds: float = 0.0
    observe: Observe | None = None  # called when the client has its answer


Outcome = Answered | UpstreamFailure


class Relayed(NamedTuple):
    """The client has its answer."""

    accepted: Accepted
    session: str
    copy: AnswerCopy | None
    observe: Observe | None
