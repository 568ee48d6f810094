"""The router that decides, and what becomes of its decisions."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from ir3de.serving import ENVELOPES
from ir3de_gateway.config.part import Part, Seconds


class RouterConfig(Part):
    """The router that decides."""

    path: str
    """A folder, or an address such as s3://bucket/router; a new router there is loaded while serving."""
    follow: Seconds = 2.0
    """Seconds between two checks for a new router."""


class Pinning(Part):
    """Conversations stay with their expert."""

    ttl: float = Field(1_800.0, ge=0, le=31_536_000)
    """Seconds after its last request that a conversation stays with its expert; 0 turns pinning off."""
    headers: tuple[str, ...] = (
        "x-session-id",
        "x-conversation-id",
        "x-litellm-session-id",
        "session-id",
        "x-thread-id",
    )
    """Request headers that may name the conversation."""
    stored_ttl: float = Field(2_592_000.0, ge=0, le=31_536_000)
    """Seconds that the gateway knows who has a response, file or batch that was made through it; 30 days by default."""
    release: float = Field(0.95, ge=0, le=1)
    """A conversation moves to another expert from this confidence (or expected score) on; with 1 it never moves."""


class Routing(Part):
    """How an expert is chosen for a request."""

    default: str | None = None
    """The expert for prompts on which the router abstains, and for those whose expert cannot answer and has no
    substitute. By default the router's own; if it has none, the nearest one answers where the router abstains."""
    out_of_domain: Literal["answer", "refuse"] = "answer"
    """What to do with prompts that are unlike every domain: the default or the nearest expert answers, or the client
    gets status 422."""
    text: Literal["conversation", "last_user", "all_user", "full"] = "conversation"
    """What is routed: the user's turns, where newer ones weigh more and follow-ups stay with their expert; the user's
    last message alone; all messages of the user as one text; or all messages as one text."""
    envelopes: tuple[str, ...] = ENVELOPES
    """Regular expressions of text that tools add to prompts; it is removed before routing."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Abstain below this confidence; by default the router's own threshold."""
    fallbacks: int = Field(2, ge=0, le=100)
    """Other experts to try when the first one fails."""
    deadline: Seconds | None = None
    """Seconds, counted from the arrival of a request, within which its answer must begin, whoever is asked meanwhile;
    then the client gets status 504. By default the timeouts of the experts alone count."""
    pinning: Pinning = Pinning()
    """Conversations stay with their expert."""
    shadow: str | None = None
    """Route and log, but send everything to this expert."""
    forward_headers: tuple[str, ...] = (
        "accept-language",
        "user-agent",
        "openai-*",
        "anthropic-*",
        "traceparent",
        "tracestate",
        "baggage",
        "x-*",
    )
    """Request headers that experts get. A * covers no keys, tokens, cookies, names, accounts or addresses of clients,
    and no other path or method: name those in full, such as openai-organization."""
    provenance: tuple[Literal["headers", "body"], ...] = ("headers", "body")
    """Where an answer says which expert gave it; an empty list leaves answers unchanged."""

    @field_validator("envelopes")
    @classmethod
    def _are_patterns(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"{value!r} is not a regular expression: {error}") from error
        return values
