"""The configuration of conversations: their pins, and what a change of their expert must gain."""

from __future__ import annotations

from pydantic import Field

from ir3de_gateway.config.experts import Part


class Pinning(Part):
    """Conversations stay with their expert."""

    ttl: float = Field(1_800.0, ge=0, le=31_536_000)
    """Seconds after its last request that a conversation stays with its expert; 0 turns pinning off."""
    headers: tuple[str, ...] = (
        "x-session-id", "x-conversation-id", "x-litellm-session-id", "session-id", "x-thread-id",
    )  # fmt: skip
    """Request headers that may name the conversation."""
    stored_ttl: float = Field(2_592_000.0, ge=0, le=31_536_000)
    """Seconds that the gateway knows the expert of a response, file or batch that was made through it; 30 days by
    default."""
    store_responses: bool = True
    """Whether the gateway stores responses of experts that have only chats, with their texts, in its store for
    `stored_ttl` seconds, unless a request has `store: false`."""
    release: float = Field(0.95, ge=0, le=1)
    """A conversation moves to another expert from this confidence (or expected score) on; with 1 it never moves."""


class SwitchConfig(Part):
    """A conversation moves to another expert only if that gains more than the lost prompt cache costs.

    It applies to experts whose price has cached_input_per_1m, or to all of them with `prefill`.
    """

    active: bool = True
    """Whether the price of a switch counts."""
    value: float | None = Field(None, gt=0, allow_inf_nan=False)
    """What a right answer is worth, in the currency of the prices, or in seconds with `prefill`. By default the price
    of 50,000 prompt tokens of the expert that the conversation would move to."""
    margin: float = Field(0.4, ge=0, le=1)
    """By how much the other expert must be likelier (or its expected score higher) at least: on single turns, the
    router is more certain of a change than it should be."""
    prefill: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Tokens that the experts read in a second. A switch then costs the time to read the conversation again, instead of
    money."""
