"""The gateway's configuration: one YAML file. It names the environment variables that hold secrets, never a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ir3de.routing.messages import ENVELOPES

VERSION: Literal[1] = 1

Capability = Literal["chat", "completions", "responses", "messages", "embeddings", "tools", "vision"]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of an environment variable.")]

RESERVED = ("auto", "ir3de/auto")  # the models that ask for routing


class Part(BaseModel):
    """A part of the configuration: unknown fields are refused, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


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
    api_key_env: Variable | None = None
    """The variable that holds the endpoint's key."""
    capabilities: tuple[Capability, ...] = ("chat", "completions", "tools")
    """What it can do; requests that need more go to other experts."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; longer requests go to other experts."""
    price: Price = Price()
    """Its price, for the control `max_price` and for the cost in logs and metrics."""
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
    defaults: dict[str, Any] = {}
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


class Limits(Part):
    """What a client may send, and what a change through /admin may take."""

    body_bytes: int = Field(20_000_000, ge=1_000)
    """Size of the largest request body."""
    json_depth: int = Field(64, ge=4, le=500)
    """How deep the JSON of a request may nest."""
    header_seconds: Seconds = 10.0
    """Seconds within which the headers must arrive."""
    body_seconds: Seconds = 30.0
    """Seconds within which the body must arrive."""
    connections: int | None = Field(None, ge=1)
    """Clients that may be connected to one worker; by default as many as its limit of open files allows."""
    fit_seconds: Seconds = 600.0
    """Seconds that a fit for /admin may take."""
    fit_memory_bytes: int = Field(2_000_000_000, ge=100_000_000)
    """Memory that a fit for /admin may take."""
    fit_text_bytes: int = Field(200_000_000, ge=1_000)
    """Size of an uploaded file after decompression."""
    fetch_seconds: Seconds = 120.0
    """Seconds within which a router must be fetched from an address."""
    router_bytes: int = Field(4_000_000_000, ge=1_000_000)
    """Size of the largest router that is fetched from an address."""


class Server(Part):
    """Where the gateway listens, and who may use it."""

    host: str = "127.0.0.1"
    """The address to listen on. Any address but loopback needs api_keys_env, or open: true."""
    port: int = Field(8100, ge=0, le=65_535)
    """The port to listen on; 0 takes a free one."""
    workers: int = Field(1, ge=1, le=256)
    """Worker processes."""
    api_keys_env: tuple[Variable, ...] = ()
    """Variables that hold clients' keys, separated by commas if there are several; by default IR3DE_API_KEY."""
    admin_token_env: Variable = "IR3DE_ADMIN_TOKEN"
    """The variable that holds the token for /admin; if it is not set, there is no /admin."""
    open: bool = False
    """Whether other machines may use the gateway without a key."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the gateway from a browser; none by default."""
    drain: Seconds = 30.0
    """Seconds that requests in flight get to finish after a stop."""
    limits: Limits = Limits()
    """What a client may send."""


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
    release: float = Field(0.95, ge=0, le=1)
    """A conversation moves to another expert from this confidence (or expected score) on; with 1 it never moves."""


class Routing(Part):
    """How an expert is chosen for a request."""

    default: str | None = None
    """The expert for prompts on which the router abstains; by default the router's own, else the nearest one."""
    text: Literal["last_user", "all_user", "full"] = "last_user"
    """The text to route: the user's last message, all messages of the user, or all messages."""
    envelopes: tuple[str, ...] = ENVELOPES
    """Regular expressions of text that tools add to prompts; it is removed before routing."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Abstain below this confidence; by default the router's own threshold."""
    fallbacks: int = Field(2, ge=0, le=100)
    """Other experts to try when the first one fails."""
    pinning: Pinning = Pinning()
    """Conversations stay with their expert."""
    shadow: str | None = None
    """Route and log, but send everything to this expert."""
    forward_headers: tuple[str, ...] = (
        "accept-language",
        "user-agent",
        "openai-*",
        "anthropic-*",
        "idempotency-key",
        "traceparent",
        "tracestate",
        "baggage",
        "x-*",
    )
    """Request headers that experts get. A * covers no keys, tokens, cookies or addresses of clients: name those in
    full."""
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


class Logs(Part):
    """The logs. They hold prompts only if `prompts` is true."""

    access: str | None = "-"
    """The access log, one JSON line per request: a file, - for standard output, null for none."""
    decisions: str | None = None
    """The decision log, one JSON line per routed request, for `ir3de eval --replay`: a file."""
    prompts: bool = False
    """Whether the decision log has the routed text; replaying needs it."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Level of the messages on standard error; IR3DE_LOG_LEVEL overrides it."""


class Config(Part):
    """The configuration of `ir3de serve`."""

    version: Literal[1] = VERSION
    """Version of this format."""
    router: RouterConfig
    """The router that decides."""
    experts: tuple[ExpertConfig, ...] = Field(min_length=1)
    """The experts that answer requests."""
    server: Server = Server()
    """Where the gateway listens, and who may use it."""
    routing: Routing = Routing()
    """How an expert is chosen for a request."""
    logs: Logs = Logs()
    """The logs."""
    state: str | None = None
    """Folder for the changes made through /admin; by default `ir3de-state` next to this file."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [expert.name for expert in self.experts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"experts: the names {', '.join(twice)} occur twice")
        mentioned = [("routing.default", self.routing.default), ("routing.shadow", self.routing.shadow)]
        mentioned += [(f"experts.{i}.fallbacks", name) for i, e in enumerate(self.experts) for name in e.fallbacks]
        for place, name in mentioned:
            if name is not None and name not in names:
                raise ValueError(f"{place}: no expert {name!r}: there are {', '.join(names)}")
        return self

    @property
    def by_name(self) -> Mapping[str, ExpertConfig]:
        return {expert.name: expert for expert in self.experts}


def read_variable(variable: str | None) -> str | None:
    """The value of an environment variable; None if it is not set or empty."""
    return (os.environ.get(variable) or "").strip() or None if variable else None


def resolve_path(path: Path, given: str) -> str:
    """A path of the configuration, relative to the file that names it; addresses stay as they are."""
    if "://" in given:
        return given
    return str((path.parent / Path(given).expanduser()).resolve())
