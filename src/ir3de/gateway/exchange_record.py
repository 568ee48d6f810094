"""The record of one exchange, filled in on its way; metrics, logs and traces read it at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter, time
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ir3de.routing.decision import Decision

Outcome = Literal["ok", "client_error", "upstream_error", "unavailable", "cancelled", "broken_stream", "failed"]


@dataclass(slots=True)
class ExchangeRecord:
    """One exchange, from first to last byte. Times are in seconds; None if a stage was not reached."""

    request_id: str
    endpoint: str  # chat/completions, completions, responses, messages, embeddings
    started: float = field(default_factory=time)  # since 1970
    clock: float = field(default_factory=perf_counter)
    asked: str = ""  # the model the client named
    decision: Decision | None = None  # None where nothing was routed
    confidence: float | None = None  # of the decision, computed once; set together with it
    expected_score: float | None = None  # instead of the confidence, if an outcome router decided
    margin: float | None = None
    router: str = ""  # hash of the artifact that decided
    why: str = ""  # "" routed; otherwise "asked by name", "pinned", "shadow", "skip", "only one", "abstained"
    text: str = ""  # what was routed on
    expert: str = ""  # who answered, or was asked last
    model: str = ""  # what its endpoint calls the model
    session: str = ""
    stream: bool = False
    status: int = 0  # sent to the client
    outcome: Outcome = "ok"
    error: str = ""  # the code of the error object, if there was one
    fallbacks: list[tuple[str, str, str]] = field(default_factory=list)  # (from, to, reason)
    route_seconds: float | None = None
    upstream_seconds: float | None = None  # from asking the expert that answered to the end of its answer
    first_seconds: float | None = None  # from the request to the first byte of the answer
    total_seconds: float = 0.0
    prompt_tokens: int | None = None  # as the expert says
    completion_tokens: int | None = None
    cost: float | None = None  # tokens times the expert's price
    received_bytes: int = 0
    sent_bytes: int = 0
    method: str = "POST"
