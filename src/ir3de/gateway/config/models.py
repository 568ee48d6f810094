"""The gateway's configuration: one YAML file, read strictly; secrets only by the names of environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

VERSION: Literal[1] = 1

Capability = Literal["chat", "completions", "responses", "messages", "embeddings", "tools", "vision"]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name of an environment variable.")]

RESERVED = ("auto", "ir3de/auto")  # the names by which a client asks for routing


class Part(BaseModel):
    """A part of the configuration: unknown fields are refused, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Price(Part):
    """What an expert charges, in any one currency."""

    input_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """For a million tokens of prompt."""
    output_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """For a million tokens of answer."""


class Timeouts(Part):
    """How long to wait for an expert, in seconds."""

    connect: Seconds = 5.0
    """For a connection."""
    first_token: Seconds = 120.0
    """From sending the request to the first byte of the answer."""
    idle: Seconds = 60.0
    """Between two pieces of an answer."""
    total: Seconds = 600.0
    """For the whole answer."""


class Concurrency(Part):
    """How many requests an expert gets at once, and how many wait for their turn."""

    limit: int = Field(64, ge=1, le=100_000)
    """Requests at once, over all workers."""
    queue: int = Field(128, ge=0, le=1_000_000)
    """Requests that may wait; beyond them the next expert is asked, or the client is told to come back."""
    wait: Seconds = 10.0
    """How long one may wait."""


class Breaker(Part):
    """When to leave a failing expert alone."""

    failures: int = Field(5, ge=1, le=10_000)
    """Failures in a row after which it is not asked any more."""
    rest: Seconds = 10.0
    """How long; then one request tries whether it is back."""


class ExpertConfig(Part):
    """An expert: an OpenAI-compatible endpoint, and what is to know about it."""

    name: Name
    """As in the router; clients may also ask for it by this name."""
    base_url: str
    """As clients of OpenAI's API have it: http://127.0.0.1:8001/v1"""
    model: str | None = None
    """What the endpoint calls the model; otherwise the expert's name."""
    api_key_env: Variable | None = None
    """The variable that holds the endpoint's key."""
    capabilities: tuple[Capability, ...] = ("chat", "completions", "tools")
    """What it can do: a request that needs more goes elsewhere."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; a longer request goes elsewhere."""
    price: Price = Price()
    """What it charges."""
    fallbacks: tuple[str, ...] = ()
    """Experts to ask in its place when it fails, before the next-ranked ones."""
    timeouts: Timeouts = Timeouts()
    """How long to wait for it."""
    concurrency: Concurrency = Concurrency()
    """How many requests it gets at once."""
    breaker: Breaker = Breaker()
    """When to leave it alone."""
    system_prompt: str | None = None
    """Put in front of chats that have no system message of their own."""
    defaults: dict[str, Any] = {}
    """Fields for requests that lack them: {temperature: 0.2}"""

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
            raise ValueError(f"{value!r} is how clients ask for routing: choose another name")
        if not value.isprintable():
            raise ValueError("must be printable")
        return value

    @property
    def served_model(self) -> str:
        return self.model or self.name


class Limits(Part):
    """What a client may send."""

    body_bytes: int = Field(20_000_000, ge=1_000)
    """The largest request."""
    json_depth: int = Field(64, ge=4, le=500)
    """How deep its JSON may nest."""
    header_seconds: Seconds = 10.0
    """How long a client may take for its headers."""
    body_seconds: Seconds = 30.0
    """How long for the body."""


class Server(Part):
    """Where the gateway listens, and who may use it."""

    host: str = "127.0.0.1"
    """Other than loopback needs api_keys_env, or open: true."""
    port: int = Field(8100, ge=0, le=65_535)
    """0 takes a free one."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that serve."""
    api_keys_env: tuple[Variable, ...] = ()
    """Variables that hold clients' keys, several in one separated by commas; if none is named, IR3DE_API_KEY."""
    admin_token_env: Variable = "IR3DE_ADMIN_TOKEN"
    """The variable that holds the token for /admin; while it is not set there is no /admin."""
    open: bool = False
    """Serve other machines without a key."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the gateway from a browser; none by default."""
    drain: Seconds = 30.0
    """How long requests in flight may go on after a stop."""
    limits: Limits = Limits()
    """What a client may send."""


class RouterConfig(Part):
    """The router that decides."""

    path: str
    """A folder, or an address such as s3://bucket/router; a router fitted or tuned there is taken up while serving."""
    follow: Seconds = 2.0
    """How often to look for a new one."""


class Pinning(Part):
    """Conversations stay with their expert."""

    ttl: float = Field(1_800.0, ge=0, le=31_536_000)
    """Seconds since the last request; 0 pins nothing."""
    headers: tuple[str, ...] = (
        "x-session-id",
        "x-conversation-id",
        "x-litellm-session-id",
        "session-id",
        "x-thread-id",
    )
    """Where clients say which conversation it is."""
    release: float = Field(0.95, ge=0, le=1)
    """Confidence in another expert from which a conversation moves to it; 1 never moves."""


class Routing(Part):
    """How a request finds its expert."""

    default: str | None = None
    """The expert for prompts the router abstains on; otherwise the router's own."""
    text: Literal["last_user", "all_user", "full"] = "last_user"
    """What is routed on: the newest turn of the user, all of them, or everything."""
    envelopes: tuple[str, ...] = (
        r"<system-reminder>.*?</system-reminder>",
        r"<environment_details>.*?</environment_details>",
    )
    """Patterns of text that tools put around a user's words: not routed on."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Confidence below which to abstain; otherwise the router's own."""
    fallbacks: int = Field(2, ge=0, le=100)
    """Other experts to try when the first one fails."""
    pinning: Pinning = Pinning()
    """Conversations stay with their expert."""
    shadow: str | None = None
    """Route and log, but send everything to this expert."""
    provenance: tuple[Literal["headers", "body"], ...] = ("headers", "body")
    """Where answers say who answered; an empty list leaves them as they came."""

    @field_validator("envelopes")
    @classmethod
    def _are_patterns(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"{value!r} is no regular expression: {error}") from error
        return values


class Logs(Part):
    """What is written down. Prompts only where it says so."""

    access: str | None = "-"
    """One JSON line a request: a file, - for standard output, null for none."""
    decisions: str | None = None
    """One JSON line a routed request, for `ir3de eval --replay`: a file."""
    prompts: bool = False
    """Put the text that was routed on into the decisions log; replaying needs it."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Of messages on standard error; IR3DE_LOG_LEVEL comes first."""


class Config(Part):
    """The configuration of `ir3de serve`."""

    version: Literal[1] = VERSION
    """Of this format."""
    router: RouterConfig
    """The router that decides."""
    experts: tuple[ExpertConfig, ...] = Field(min_length=1)
    """Who answers."""
    server: Server = Server()
    """Where the gateway listens, and who may use it."""
    routing: Routing = Routing()
    """How a request finds its expert."""
    logs: Logs = Logs()
    """What is written down."""
    state: str | None = None
    """Folder for what /admin changes; otherwise `ir3de-state` beside this file."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [expert.name for expert in self.experts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"experts: the names {', '.join(twice)} occur twice")
        mentioned = [("routing.default", self.routing.default), ("routing.shadow", self.routing.shadow)]
        mentioned += [(f"experts.{i}.fallbacks", name) for i, e in enumerate(self.experts) for name in e.fallbacks]
        for place, name in mentioned:
            if name is not None and name not in names:
                raise ValueError(f"{place}: no expert {name!r}, there are {', '.join(names)}")
        return self

    @property
    def by_name(self) -> Mapping[str, ExpertConfig]:
        return {expert.name: expert for expert in self.experts}


def secret(variable: str | None) -> str | None:
    """What an environment variable holds; empty is as good as none."""
    return (os.environ.get(variable) or "").strip() or None if variable else None


def beside(path: Path, given: str) -> str:
    """A path of the configuration: relative to the file that names it, addresses as they are."""
    if "://" in given:
        return given
    return str((path.parent / Path(given).expanduser()).resolve())
