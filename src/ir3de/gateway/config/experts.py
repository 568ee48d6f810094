"""The configuration of an expert: where it is, what it can do, and how it is asked."""

from __future__ import annotations

import re
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ir3de.gateway.config.part import Name, Part, Seconds, Variable

Capability = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "tools", "vision", "audio", "images", "audio_speech",
    "audio_transcriptions", "audio_translations", "rerank", "moderations", "files", "batches",
]  # fmt: skip

RESERVED = ("auto", "ir3de/auto")  # the models that ask for routing


class Price(Part):
    """The price of an expert, in any one currency."""

    input_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Price of a million prompt tokens."""
    output_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Price of a million answer tokens."""

    def compute_cost(self, prompt_tokens: int, answer_tokens: int) -> float:
        return (prompt_tokens * self.input_per_1m + answer_tokens * self.output_per_1m) / 1e6


class Timeouts(Part):
    """How long to wait for an expert, in seconds."""

    connect: Seconds = 5.0
    """To open a connection."""
    first_token: Seconds = 120.0
    """From sending the request to the first byte of the answer."""
    idle: Seconds = 60.0
    """Between two parts of an answer."""
    total: Seconds = 600.0
    """For the whole answer."""


class Concurrency(Part):
    """How many requests an expert gets at once, and how many wait."""

    limit: int = Field(64, ge=1, le=100_000)
    """Requests at once, over all workers."""
    queue: int = Field(128, ge=0, le=1_000_000)
    """Requests that may wait. When the queue is full, the next expert is asked, or the client gets status 429."""
    wait: Seconds = 10.0
    """Seconds that a request may wait."""


class Breaker(Part):
    """The circuit breaker: when to stop asking an expert that fails or is overloaded."""

    failures: int = Field(5, ge=1, le=10_000)
    """Failures in a row that open the circuit breaker."""
    rest: Seconds = 10.0
    """Seconds until one request probes whether the expert works again."""
    max_retry_after: Seconds = 60.0
    """The longest that an expert which answers 429, or 503 with Retry-After, is left alone, whatever it asks for."""
    cooldown: Seconds = 1.0
    """Seconds that an expert is left alone after a second 429 in a row without Retry-After."""


class TlsFiles(Part):
    """Files in PEM for TLS with an expert."""

    ca: str | None = None
    """The authorities to trust instead of the system's."""
    certificate: str | None = None
    """The certificate that the gateway shows to the expert, with those between it and its authority."""
    key: str | None = None
    """The key of the certificate, without a password; by default it is in the same file."""

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate: name that file in certificate")
        return self


class ExpertConfig(Part):
    """An expert: an OpenAI-compatible endpoint and its properties."""

    name: Name
    """The name that the router has for it; clients may also ask for it by this name."""
    base_url: str
    """The base URL of its OpenAI-compatible API: http://127.0.0.1:8001/v1"""
    model: str | None = None
    """The endpoint's name of the model; by default the expert's name."""
    provider: Name | None = None
    """Who provides it, as OpenTelemetry names providers: openai, anthropic, aws.bedrock. By default its host or its
    answers tell."""
    api_key_env: Variable | None = None
    """The variable that holds the endpoint's key."""
    capabilities: tuple[Capability, ...] = ("chat", "completions", "tools")
    """What it can do; requests that need more go to other experts."""
    translate: bool = True
    """Whether it also answers `messages` if it has only `chat`, or the reverse: requests and answers are translated."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; longer requests go to other experts."""
    price: Price = Price()
    """Its price, for the control `max_price` and for the cost in logs and metrics."""
    stream_usage: bool | None = None
    """Whether to ask it for the tokens of streams, also where the client did not; the client then does not see them.
    By default where it has a price, or the client's key is counted."""
    fallbacks: tuple[str, ...] = ()
    """Experts to ask when it fails, before the next ones of the ranking."""
    timeouts: Timeouts = Timeouts()
    """How long to wait for it."""
    concurrency: Concurrency = Concurrency()
    """How many requests it gets at once."""
    breaker: Breaker = Breaker()
    """When to stop asking it."""
    keep_alive: Seconds = 4.0
    """Seconds that an idle connection is kept. Shorter than the endpoint's own: many servers close after 5 seconds."""
    resend: bool = True
    """Whether to send a request again, once, if its kept connection closes at once and nothing was received."""
    http2: bool = False
    """Whether to offer HTTP/2; the address must be https."""
    tls: TlsFiles | None = None
    """Authorities to trust and a certificate to show; by default the system's authorities and none."""
    system_prompt: str | None = None
    """System message for chats that have none."""
    defaults: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies it
    """Fields to add to requests that lack them: {temperature: 0.2}"""

    @field_validator("base_url")
    @classmethod
    def _is_web_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if "@" in (parts.netloc or value):
            raise ValueError("must not contain a user or password: name a variable in api_key_env")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"must look like http://127.0.0.1:8001/v1, found {value!r}")
        if re.search(r"[^!-~]", value):
            raise ValueError("must have no spaces and only ASCII: write others as %C3%A4, in a host as xn--…")
        try:
            port = parts.port
        except ValueError:
            port = 0
        if port == 0:
            raise ValueError("must have a port from 1 to 65535, or none")
        if parts.query or parts.fragment:
            raise ValueError("must end with the path: no ? and no #")
        return value.rstrip("/")

    @field_validator("name")
    @classmethod
    def _is_not_reserved(cls, value: str) -> str:
        if value in RESERVED:
            raise ValueError(f"{value!r} is the model that asks for routing: choose another name")
        if not value.isprintable():
            raise ValueError(f"must be printable, found {value!r}")
        return value

    @model_validator(mode="after")
    def _tls_needs_https(self) -> Self:
        if self.base_url.startswith("http://") and (self.http2 or self.tls is not None):
            raise ValueError(f"{'http2' if self.http2 else 'tls'} needs an address that begins with https://")
        return self

    @property
    def served_model(self) -> str:
        return self.model or self.name
