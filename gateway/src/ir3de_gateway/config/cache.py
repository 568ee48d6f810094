"""The response cache: answers that are given again to equal requests."""

from __future__ import annotations

from pydantic import Field

from ir3de_gateway.config.experts import Capability
from ir3de_gateway.config.part import Part


class Cache(Part):
    """The response cache: the same request of the same key gets the same answer, and no expert is asked."""

    ttl: float = Field(0.0, ge=0, le=31_536_000)
    """Seconds that an answer is kept; 0 keeps none."""
    max_bytes: int = Field(64_000_000, ge=100_000)
    """Memory for answers, in each worker. When it is full, those that were not asked for longest are dropped."""
    answer_bytes: int = Field(1_000_000, ge=1_000)
    """Size of the largest answer that is kept."""
    shared: bool = False
    """Whether keys share answers; otherwise each key has its own."""
    endpoints: tuple[Capability, ...] = ("chat", "completions", "responses", "messages", "embeddings")
    """The endpoints whose answers are kept."""
    headers: tuple[str, ...] = ("accept-language", "openai-*", "anthropic-*")
    """Request headers in which requests must be equal, too: those that an answer depends on. Headers that experts get
    (`routing.forward_headers`) are among them, but for sessions, traces and the client's program."""
