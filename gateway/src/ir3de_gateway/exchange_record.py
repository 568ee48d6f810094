"""The record of one exchange: the stages alone fill it in, metrics, logs and traces read it. Also `Server-Timing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from ir3de import Decision
    from ir3de.serving import TurnReason
    from ir3de_gateway.experts.switch import Switch

Outcome = Literal["ok", "client_error", "upstream_error", "unavailable", "cancelled", "broken_stream", "failed"]

Arm = Literal["", "live", "candidate", "explore"]

Handover = tuple[str, str, str]  # a request was forwarded: from an expert that failed, to another, and the reason
REFUSAL_LABELS = ("endpoint", "capability", "translation", "context", "key", "request", "price")


class Instead(NamedTuple):
    """Why another expert answers than the decided one, or that the router abstained. All is empty otherwise."""

    kind: str = ""  # who answers: a fallback, a candidate, the default expert, the nearest expert
    label: str = ""  # why the decided one does not, in one of a few words
    text: str = ""  # why the router abstained, or why the decided one does not answer; empty if `why` explains it


NOT_INSTEAD = Instead()


class Trial(NamedTuple):
    """What the live router and the candidate decided on a request. The record itself has the decision that served."""

    router: str  # hash of the live router
    decided: str | None  # by the live router
    decision: Decision
    candidate: str  # hash of the candidate
    candidate_expert: str | None


@dataclass(slots=True)
class ExchangeRecord:
    """One exchange, from first to last byte. Times are in seconds; None if a stage was not reached."""

    request_id: str
    endpoint: str  # chat, completions, responses, messages, embeddings; or the path of one that needs no expert
    started: float = field(default_factory=time)  # since 1970
    asked: str = ""  # the model the client named
    alias: str = ""  # the same, if it is an alias
    decision: Decision | None = None  # None where nothing was routed
    decided: str | None = None  # by the router, or by who named an expert
    confidence: float | None = None  # of the expert that answered; of the decision if no expert got the request
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    margin: float | None = None
    router: str = ""  # hash of the artifact that decided
    why: str = ""  # "" routed; otherwise "asked by name", "pinned", "shadow", "explore", "skip", "abstained", "refused"
    instead: Instead = NOT_INSTEAD  # why another expert answered than the decided one
    reason: TurnReason | None = None  # of a chat with several turns: which one decided, and why
    text: str = ""  # what was routed on, if the decision log or the journal has prompts
    turns: Sequence[str] = ()  # likewise, where the user's turns were routed together
    expert: str = ""  # the one that answered, or that got the request last
    model: str = ""  # what its endpoint calls the model
    session: str = ""
    conversation: str = ""  # its name in the journal, where that is not made from the session
    switch: Switch | None = None  # where the conversation changed its expert, or would have
    trial: Trial | None = None  # where a candidate decided, too
    propensity: float = 1.0  # the probability with which the expert was chosen for this prompt
    arm: Arm = ""  # who chose, where chance decided
    stream: bool = False
    status: int = 0  # sent to the client
    outcome: Outcome = "ok"
    error: str = ""  # the code of the error object, if there was one
    fallbacks: list[Handover] = field(default_factory=list)
    replica: str = ""  # the one of the expert that answered, or that got the request last
    retries: int = 0  # replicas that were tried before it
    cache: str = ""  # hit or miss; empty where the answer cannot be cached
    cache_age: float = 0.0  # seconds, of a hit
    resends: int = 0  # how often it was sent again because a kept connection had closed
    read_seconds: float | None = None  # until the body had arrived
    route_seconds: float | None = None
    queue_seconds: float | None = None  # in the queue of that expert
    asked_seconds: float | None = None  # from the request until that expert got it
    upstream_seconds: float | None = None  # from then to the end of its answer
    first_seconds: float | None = None  # from the request to the first byte of the answer
    total_seconds: float = 0.0
    response_id: str = ""  # of the answer, if the journal is kept
    prompt_tokens: int | None = None  # as the expert counts them
    cached_tokens: int | None = None  # of them, read from the expert's prompt cache; None if it reports none
    completion_tokens: int | None = None
    cost: float | None = None  # tokens times the expert's price
    is_estimated: bool = False  # the expert reported no tokens, so the gateway estimated them for the client's key
    key: str = ""  # the name of the client's key; empty where it has none
    received_bytes: int = 0
    sent_bytes: int = 0
    method: str = "POST"


def build_server_timing(record: ExchangeRecord, seconds: float, *, hooks: float = 0.0) -> bytes:
    """The value of the header `Server-Timing`, in ms, for an answer that begins that many seconds after its request.

    The phases are in their order: `read` the body, `route` to an expert, `fallback` for experts that failed before,
    `queue` for a place at the expert, `upstream` until its answer (of a stream: until its first byte), `hooks`
    if they held the answer for that many seconds, and the `total`. An answer of the cache has the phase `cache` instead
    of `queue` and `upstream`.
    """
    parts = []
    if record.read_seconds is not None:
        parts.append(f"read;dur={record.read_seconds * 1e3:.3f}")
    if record.route_seconds is not None:
        parts.append(f"route;dur={record.route_seconds * 1e3:.3f}")
    asked, queue = record.asked_seconds, record.queue_seconds or 0.0
    if record.fallbacks:
        failed = (seconds if asked is None else asked - queue) - (record.read_seconds or 0.0)
        parts.append(f'fallback;desc="{_quote_name(record.fallbacks[0][0])}";dur={max(0.0, failed) * 1e3:.3f}')
    if asked is not None and record.cache == "hit":
        parts.append(f"cache;dur={(seconds - asked) * 1e3:.3f}")
    elif asked is not None:
        parts.append(f"queue;dur={queue * 1e3:.3f}")
        parts.append(f'upstream;desc="{_quote_name(record.expert)}";dur={(seconds - asked - hooks) * 1e3:.3f}')
    if hooks:
        parts.append(f"hooks;dur={hooks * 1e3:.3f}")
    parts.append(f"total;dur={seconds * 1e3:.3f}")
    return ", ".join(parts).encode()


@lru_cache(maxsize=4096)
def _quote_name(name: str) -> str:
    """A name that may stand between quotes in a header."""
    return quote(name, safe=" !#$&'()*+,/:;=?@[]~")
