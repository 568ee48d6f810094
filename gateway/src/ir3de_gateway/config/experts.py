"""The configuration of an expert: its addresses, its capabilities and its limits."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  # the name of a variable
Capability = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "tools", "vision", "audio", "images", "audio_speech",
    "audio_transcriptions", "audio_translations", "rerank", "moderations", "files", "batches",
]  # fmt: skip

RESERVED = ("auto", "ir3de/auto")  # the models that request routing


class Part(BaseModel):
    """A part of the configuration: immutable, and unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def read_variable(variable: str | None) -> str | None:
    """The value of an environment variable; None if it is not set or empty."""
    return (os.environ.get(variable) or "").strip() or None if variable else None


def resolve_path(given: str, info: ValidationInfo) -> str:
    """A path as a configuration names it, made absolute from the folder of its file; addresses and `-` stay."""
    if not info.context or not given or given == "-" or "://" in given:
        return given
    return str((info.context["folder"] / Path(given).expanduser()).resolve())


FilePath = Annotated[str, AfterValidator(resolve_path)]


def check_base_url(value: str) -> str:
    """The address without a slash at its end; raises ValueError if it cannot be the address of an expert."""
    parts = urlsplit(value)
    if "@" in (parts.netloc or value):
        raise ValueError("must not contain a user or password: name a variable in api_key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must look like http://127.0.0.1:8001/v1, found {value!r}")
    if "," in value:
        raise ValueError("must be one address, without a comma: list several addresses in replicas")
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


BaseUrl = Annotated[str, AfterValidator(check_base_url)]


class ReplicaConfig(Part):
    """One address of an expert. Fields that it omits have the expert's values."""

    base_url: BaseUrl
    """The base URL of its OpenAI-compatible API."""
    name: Name | None = None
    """Its name for operators, in metrics and in /admin; by default the address without its scheme."""
    weight: float = Field(1.0, gt=0, le=1_000)
    """Its share of the traffic, relative to the other replicas."""
    api_key_env: Variable | None = None
    """The variable that holds its key."""

    @property
    def label(self) -> str:
        return self.name or self.base_url.partition("://")[2]


def _find_replica_kind(value: object) -> Literal["address", "replica"]:
    return "address" if isinstance(value, str) else "replica"


_AddressOrReplica = Annotated[BaseUrl, Tag("address")] | Annotated[ReplicaConfig, Tag("replica")]
Replicas = tuple[Annotated[_AddressOrReplica, Discriminator(_find_replica_kind)], ...]


class HealthChecks(Part):
    """The health checks of an expert's replicas. An expert with one address, as in `base_url`, is never checked."""

    active: bool = True
    """Whether to check them."""
    path: str = Field("models", pattern=r"^[!-~]+$")
    """The path of the GET request: below the base URL, or from the server's root if it begins with a slash, as
    /health does."""
    interval: Seconds = 10.0
    """Seconds between two checks of a replica, over all workers."""
    down_interval: Seconds = 2.0
    """The same for a replica that is down."""
    timeout: Seconds = 2.0
    """Seconds within which it must respond. Any status below 500 means that the server works."""
    unhealthy: int = Field(2, ge=1, le=100)
    """Failed checks in a row after which a replica is down."""
    healthy: int = Field(1, ge=1, le=100)
    """Successful checks in a row after which it is up again."""


class Retries(Part):
    """What happens when a replica fails before its response begins."""

    others: int = Field(2, ge=0, le=100)
    """Other replicas to try before the next expert."""
    backoff: float = Field(0.025, ge=0, le=60)
    """Seconds before the first retry, doubled for each further one; each wait is shortened by up to half at random."""
    max_backoff: float = Field(1.0, ge=0, le=60)
    """The longest of these waits."""


class Price(Part):
    """The price of an expert, in any one currency."""

    input_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Price of a million prompt tokens."""
    cached_input_per_1m: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Price of a million prompt tokens that the expert read from its prompt cache; by default that of the others."""
    output_per_1m: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Price of a million answer tokens."""

    @model_validator(mode="after")
    def _cache_is_not_dearer(self) -> Self:
        if self.cached_input_per_1m is not None and self.cached_input_per_1m > self.input_per_1m:
            raise ValueError(f"cached_input_per_1m must not be more than input_per_1m, {self.input_per_1m:g}")
        return self

    def compute_cost(self, prompt_tokens: int, answer_tokens: int, cached_tokens: int = 0) -> float:
        """The cost of an answer; `cached_tokens` are among those of the prompt.

        >>> Price(input_per_1m=2.0, cached_input_per_1m=0.5, output_per_1m=8.0).compute_cost(1000, 100, 800)
        0.0016
        """
        cost = prompt_tokens * self.input_per_1m + answer_tokens * self.output_per_1m
        if cached_tokens and self.cached_input_per_1m is not None:
            cost -= min(cached_tokens, prompt_tokens) * (self.input_per_1m - self.cached_input_per_1m)
        return cost / 1e6


class Timeouts(Part):
    """How long to wait for an expert, in seconds."""

    connect: Seconds = 5.0
    """To open a connection."""
    first_token: Seconds = 120.0
    """From sending the request to the first byte of the answer. Most servers send an answer that is not streamed only
    when it is complete: for these answers it limits the whole. Raise it for slow models."""
    idle: Seconds = 60.0
    """Between two parts of an answer."""
    total: Seconds = 600.0
    """For the whole answer."""


class Concurrency(Part):
    """How many requests an expert gets at once, and how many wait."""

    limit: int = Field(64, ge=1, le=100_000)
    """Requests at once, over all workers."""
    queue: int = Field(128, ge=0, le=1_000_000)
    """Requests that may wait. When the queue is full, the request goes to another expert, or the client gets status
    429."""
    wait: Seconds = 10.0
    """Seconds that a request may wait."""


class Breaker(Part):
    """The circuit breaker: when to stop sending requests to an expert that fails or is overloaded."""

    failures: int = Field(5, ge=1, le=10_000)
    """Failures in a row that open the circuit breaker."""
    rest: Seconds = 10.0
    """Seconds until one request probes whether the expert works again."""
    max_retry_after: Seconds = 60.0
    """The longest pause after status 429, or 503 with Retry-After, whatever Retry-After requests."""
    cooldown: Seconds = 1.0
    """Seconds of pause after a second 429 in a row without Retry-After."""


class TlsFileError(OSError):
    """A certificate or key file that cannot be used; `field` is the field that names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class TlsFiles(Part):
    """Files in PEM for TLS with an expert."""

    ca: FilePath | None = None
    """The authorities to trust instead of the system's."""
    certificate: FilePath | None = None
    """The certificate that the gateway presents to the expert, with the intermediate certificates."""
    key: FilePath | None = None
    """The key of the certificate, without a password; by default it is in the same file."""

    @model_validator(mode="after")
    def _key_has_certificate(self) -> Self:
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate: name that file in certificate")
        return self

    def build_context(self) -> ssl.SSLContext:
        """The context for TLS; raises `TlsFileError` if a file cannot be used."""
        for field, path in (("ca", self.ca), ("certificate", self.certificate), ("key", self.key)):
            try:
                if path is not None:
                    Path(path).open("rb").close()
            except OSError as error:
                raise TlsFileError(field, f"the file {path} cannot be read: {error.strerror}") from error
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError as error:
            problem = f"the file {self.ca} holds no certificates in PEM (-----BEGIN CERTIFICATE-----)"
            raise TlsFileError("ca", f"{problem}: {error.reason or error}") from error
        try:
            if self.certificate is not None:
                # with an empty password, OpenSSL fails instead of prompting on the terminal
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except ssl.SSLError as error:
            problem = (
                f"{self.certificate} and its key {self.key} do not match or are not PEM, or the key has a password"
            )
            if self.key is None:
                problem = f"the file {self.certificate} does not hold a certificate and its key in PEM"
                problem += ": name the key's file in key"
            raise TlsFileError("certificate", f"{problem} ({error.reason or error})") from error
        return context


def _take_first_address(fields: dict[str, Any]) -> str:
    """The base URL of an expert that has `replicas` only."""
    first = next(iter(fields.get("replicas", ())), "")
    return first.base_url if isinstance(first, ReplicaConfig) else first


def _require_address(value: object) -> object:
    if value == "":
        raise ValueError("base_url or replicas is needed: name its address in base_url, or several in replicas")
    return value


class ExpertConfig(Part):
    """An expert: an OpenAI-compatible endpoint, or several equal ones, and its properties."""

    name: Name
    """Its name in the router; clients can also request it by this name."""
    replicas: Replicas = ()
    """Instead of base_url: its addresses, if there are several. Each is a base URL, or an object with more fields."""
    base_url: Annotated[BaseUrl, BeforeValidator(_require_address)] = Field(
        default_factory=_take_first_address, validate_default=True
    )
    """The base URL of its OpenAI-compatible API: http://127.0.0.1:8001/v1"""
    model: str | None = None
    """The endpoint's name of the model; by default the expert's name."""
    provider: Name | None = None
    """Who provides it, as OpenTelemetry names providers: openai, anthropic, aws.bedrock. By default the gateway
    derives it from the host or the answers."""
    api_key_env: Variable | None = None
    """The variable that holds the endpoint's key."""
    capabilities: tuple[Capability, ...] = ("chat", "completions", "tools")
    """What it can do; requests that need more go to its fallbacks, a candidate of the router or the default expert."""
    translate: bool = True
    """Whether it also answers `messages` and `responses` if it has only `chat`, or `chat` if it has only `messages`:
    requests and answers are translated."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; longer requests go where those go that need another capability."""
    max_output_tokens: int | None = Field(None, ge=1)
    """Tokens of the longest answer that its server gives. A key's limits reserve as much for a request that does not
    limit its answer; by default the context window, or 8,192."""
    price: Price = Price()
    """Its price, for the control `max_price` and for the cost in logs and metrics; otherwise that in the price file."""
    stream_usage: bool | None = None
    """Whether to request the token counts of streams even if the client does not; the client then does not see them.
    By default yes if it has a price, or the gateway has a keys file."""
    fallbacks: tuple[str, ...] = ()
    """Experts to try when it fails or cannot answer, before candidates of the router and the default expert."""
    timeouts: Timeouts = Timeouts()
    """How long to wait for it."""
    concurrency: Concurrency = Concurrency()
    """How many requests it gets at once."""
    breaker: Breaker = Breaker()
    """When to stop sending requests to it."""
    health: HealthChecks = HealthChecks()
    """How its replicas are checked."""
    retries: Retries = Retries()
    """What happens when one of its replicas fails."""
    slow_start: float = Field(5.0, ge=0, le=86_400)
    """Seconds in which the share of a replica that comes back grows from nearly none to all of it; 0: all at once."""
    affinity: float = Field(2.0, ge=0, le=1_000)
    """A conversation goes to the same replica, whose cache has its beginning, until that replica has this many times
    its share of the requests in flight; then the conversation's next one gets it. At least 1; 0 turns it off."""
    hedge_after: Seconds | None = None
    """Seconds without a first byte after which a second replica gets the same request: the first one to respond wins.
    By default none does. Only repeatable requests are hedged."""
    max_connections: int | None = Field(None, ge=1, le=100_000)
    """Connections to each address that a worker may have; by default as many as there are requests at once. HTTP/2
    needs few, and is not limited."""
    keep_alive: Seconds = 4.0
    """Seconds that an idle connection stays open. Shorter than the endpoint's own: many servers close after 5
    seconds."""
    resend: bool = True
    """Whether to resend a request, once, if its reused connection closes at once and nothing was received."""
    http2: bool = False
    """Whether to offer HTTP/2; the address must be https."""
    tls: TlsFiles | None = None
    """Authorities to trust and a certificate to present; by default the system's authorities and none."""
    system_prompt: str | None = None
    """System message for chats that have none."""
    defaults: dict[str, Any] = {}
    """Fields to add to requests that lack them: {temperature: 0.2}"""

    @field_validator("name")
    @classmethod
    def _is_not_reserved(cls, value: str) -> str:
        if value in RESERVED:
            raise ValueError(f"{value!r} is the model that requests routing: choose another name")
        if not value.isprintable():
            raise ValueError(f"must be printable, found {value!r}")
        return value

    @field_validator("affinity")
    @classmethod
    def _bounds_a_share(cls, value: float) -> float:
        if 0 < value < 1:
            raise ValueError(
                f"must be 0, or at least 1: replicas cannot all have less than their share, found {value:g}"
            )
        return value

    @model_validator(mode="after")
    def _tls_needs_https(self) -> Self:
        has_plain = any(address.startswith("http://") for address in self.list_addresses())
        if has_plain and (self.http2 or self.tls is not None):
            raise ValueError(f"{'http2' if self.http2 else 'tls'} needs an address that begins with https://")
        return self

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        replicas = self.list_replicas()
        if replicas and self.base_url != replicas[0].base_url:
            raise ValueError("name one address in base_url, or all of them in replicas, but not others in both")
        for kind in ("base_url", "label"):
            named = [getattr(replica, kind) for replica in replicas]
            if twice := sorted({one for one in named if named.count(one) > 1}):
                raise ValueError(f"the replicas {', '.join(twice)} occur twice: give each an address and a name")
        return self

    def list_replicas(self) -> tuple[ReplicaConfig, ...]:
        """Its replicas; none if it has one address, in `base_url`."""
        return tuple(one if isinstance(one, ReplicaConfig) else ReplicaConfig(base_url=one) for one in self.replicas)

    def list_addresses(self) -> tuple[str, ...]:
        """All its base URLs."""
        return tuple(replica.base_url for replica in self.list_replicas()) or (self.base_url,)

    @property
    def served_model(self) -> str:
        return self.model or self.name
