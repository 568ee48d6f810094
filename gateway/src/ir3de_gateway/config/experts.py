"""The configuration of an expert: where it is, what it can do, and how it is asked."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ir3de_gateway.config.part import Name, Part, Seconds, Variable
from ir3de_gateway.config.replicas import BaseUrl, HealthChecks, ReplicaConfig, Replicas, Retries

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
    """Requests that may wait. When the queue is full, another expert is asked, or the client gets status 429."""
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


def _take_first_address(fields: dict[str, Any]) -> str:
    """The base URL of an expert that names its replicas alone."""
    first = next(iter(fields.get("replicas", ())), "")
    return first.base_url if isinstance(first, ReplicaConfig) else first


def _need_address(value: object) -> object:
    if value == "":
        raise ValueError("base_url or replicas is needed: name its address in base_url, or several in replicas")
    return value


class ExpertConfig(Part):
    """An expert: an OpenAI-compatible endpoint, or several that are alike, and its properties."""

    name: Name
    """The name that the router has for it; clients may also ask for it by this name."""
    replicas: Replicas = ()
    """Instead of base_url: its addresses, if there are several. Each is a base URL, or an object that says more."""
    base_url: Annotated[BaseUrl, BeforeValidator(_need_address)] = Field(
        default_factory=_take_first_address, validate_default=True
    )
    """The base URL of its OpenAI-compatible API: http://127.0.0.1:8001/v1"""
    model: str | None = None
    """The endpoint's name of the model; by default the expert's name."""
    provider: Name | None = None
    """Who provides it, as OpenTelemetry names providers: openai, anthropic, aws.bedrock. By default its host or its
    answers tell."""
    api_key_env: Variable | None = None
    """The variable that holds the endpoint's key."""
    capabilities: tuple[Capability, ...] = ("chat", "completions", "tools")
    """What it can do; requests that need more go to its fallbacks, a candidate of the router or the default expert."""
    translate: bool = True
    """Whether it also answers `messages` if it has only `chat`, or the reverse: requests and answers are translated."""
    context_window: int | None = Field(None, ge=1)
    """Tokens of prompt and answer together; longer requests go where those go that need another capability."""
    max_output_tokens: int | None = Field(None, ge=1)
    """Tokens of the longest answer that its server gives. A key's limits reserve as much for a request that does not
    limit its answer; by default the context window, or 8,192."""
    price: Price = Price()
    """Its price, for the control `max_price` and for the cost in logs and metrics."""
    stream_usage: bool | None = None
    """Whether to ask it for the tokens of streams, also where the client did not; the client then does not see them.
    By default where it has a price, or the client's key is counted."""
    fallbacks: tuple[str, ...] = ()
    """Experts to ask when it fails or cannot answer, before candidates of the router and the default expert."""
    timeouts: Timeouts = Timeouts()
    """How long to wait for it."""
    concurrency: Concurrency = Concurrency()
    """How many requests it gets at once."""
    breaker: Breaker = Breaker()
    """When to stop asking it."""
    health: HealthChecks = HealthChecks()
    """How its replicas are checked."""
    retries: Retries = Retries()
    """What happens when one of its replicas fails."""
    slow_start: float = Field(5.0, ge=0, le=86_400)
    """Seconds in which a replica that comes back gets its share of the requests little by little; 0: all at once."""
    hedge_after: Seconds | None = None
    """Seconds without a first byte after which a second replica is asked, too: the first one to answer wins. By
    default none is. Only requests that may be repeated are."""
    max_connections: int | None = Field(None, ge=1, le=100_000)
    """Connections to each address that a worker may have; by default as many as there are requests at once. HTTP/2
    needs few, and is not limited."""
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
        has_plain = any(address.startswith("http://") for address in self.list_addresses())
        if has_plain and (self.http2 or self.tls is not None):
            raise ValueError(f"{'http2' if self.http2 else 'tls'} needs an address that begins with https://")
        return self

    @model_validator(mode="after")
    def _replicas_fit(self) -> Self:
        replicas = self.list_replicas()
        if not replicas:
            return self
        if self.base_url != replicas[0].base_url:
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

    def list_variables(self) -> tuple[str, ...]:
        """The variables that hold its keys: its own, and those of its replicas."""
        named = (self.api_key_env, *(replica.api_key_env for replica in self.list_replicas()))
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def served_model(self) -> str:
        return self.model or self.name
