"""The gateway's configuration: one YAML file. It names the environment variables that hold secrets, never a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from ir3de.serving import ENVELOPES
from ir3de_gateway.config.aliases import find_target, list_alias_problems
from ir3de_gateway.config.conversations import Pinning, SwitchConfig
from ir3de_gateway.config.experts import (
    Capability,
    ExpertConfig,
    FilePath,
    Name,
    Part,
    Price,
    Seconds,
    Variable,
    resolve_path,
)
from ir3de_gateway.config.findings import suggest_name
from ir3de_gateway.config.state import SharedState, StateLocation

VERSION: Literal[1] = 1
Keep = Literal["text", "tokens", "statistics"]  # what the journal keeps of a prompt


class RouterConfig(Part):
    """The router that decides."""

    path: FilePath
    """A folder, or an address such as s3://bucket/router; a new router there is loaded while serving."""
    follow: Seconds = 2.0
    """Seconds between two checks for a new router."""
    versions: int = Field(5, ge=0, le=1_000)
    """Routers that are kept in the state folder for a rollback, the one that serves among them; 0 keeps none."""


class Limits(Part):
    """What a client may send, and what a change through /admin may use."""

    body_bytes: int = Field(20_000_000, ge=1_000)
    """Size of the largest request body."""
    json_depth: int = Field(64, ge=4, le=500)
    """How deep the JSON of a request may nest."""
    header_seconds: Seconds = 10.0
    """Seconds within which the headers must arrive."""
    body_seconds: Seconds = 30.0
    """Seconds within which the body must arrive."""
    upload_bytes: int = Field(512_000_000, ge=1_000)
    """Size of the largest upload to /v1/files, /v1/audio or /v1/images; uploads at once may have four times as much."""
    upload_seconds: Seconds = 600.0
    """Seconds within which an upload must arrive."""
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
    """The address to listen on. Any address but loopback needs api_keys_env, keys_file, or open: true."""
    port: int = Field(8100, ge=0, le=65_535)
    """The port to listen on; 0 takes a free one."""
    workers: int = Field(1, ge=1, le=256)
    """Worker processes."""
    api_keys_env: tuple[Variable, ...] = ()
    """Variables that hold clients' keys, separated by commas if there are several; by default IR3DE_API_KEY."""
    keys_file: FilePath | None = None
    """File of named keys with scopes, experts and limits; it is read again when it changes."""
    admin_token_env: Variable = "IR3DE_ADMIN_TOKEN"
    """The variable that holds the token for /admin; if it is not set, and no key has the scope `admin`, there is no
    /admin, except on loopback, where `ir3de serve` prints a token for its run."""
    metrics_need_key: bool = False
    """Whether /metrics needs a key with the scope `metrics`, or the admin token; by default it needs none."""
    open: bool = False
    """Whether other machines may use the gateway without a key."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the gateway from a browser; none by default."""
    timing: bool = False
    """Whether answers have the header Server-Timing, with the duration of each phase."""
    drain: Seconds = 30.0
    """Seconds that requests in flight get to finish after a stop."""
    limits: Limits = Limits()
    """What a client may send."""


class CandidateConfig(Part):
    """A candidate router: it decides beside the live one, and may serve a share of the conversations."""

    router: FilePath
    """Its folder, or an address. A new router there is another candidate."""
    mode: Literal["shadow", "canary"] = "shadow"
    """In shadow mode the live router always serves; a canary serves a share of the conversations."""
    share: float = Field(0.05, gt=0, lt=1)
    """Share of the conversations that a canary serves, by chance."""
    promote: Literal["by_hand", "auto"] = "by_hand"
    """Who puts a better candidate live: an admin, with POST /admin/candidate/promote, or the gateway by itself."""
    level: float = Field(0.05, gt=0, le=0.5)
    """The probability that a candidate which is not worse is ever stopped, and that one which is not better is ever
    called better."""


class Routing(Part):
    """How an expert is chosen for a request."""

    default: str | None = None
    """The expert for prompts on which the router abstains, and for those whose expert cannot answer and has no
    substitute. By default the router's own; if it has none, the nearest one answers where the router abstains."""
    out_of_domain: Literal["answer", "refuse"] = "answer"
    """What to do with prompts that are out of domain: the default or the nearest expert answers, or the client gets
    status 422."""
    text: Literal["conversation", "last_user", "all_user", "full"] = "conversation"
    """What is routed: the user's turns, where newer ones weigh more and follow-ups stay with their expert; the user's
    last message alone; all messages of the user as one text; or all messages as one text."""
    envelopes: tuple[str, ...] = ENVELOPES
    """Regular expressions of text that tools add to prompts; it is removed before routing."""
    threshold: float | None = Field(None, ge=0, le=1)
    """Abstain below this confidence; by default the router's own threshold."""
    explore: float = Field(0.0, ge=0, le=0.5)
    """Share of the uncertain prompts that another candidate of the router answers, so that scores show how good the
    others would be; 0.01 is recommended where feedback is kept."""
    candidate: CandidateConfig | None = None
    """A router that is tried beside the live one; none by default."""
    fallbacks: int = Field(2, ge=0, le=100)
    """Other experts to try when the first one fails."""
    deadline: Seconds | None = None
    """Seconds, counted from the arrival of a request, within which a stream must begin and any other answer must be
    complete, including all retries; then the client gets status 504. By default only the timeouts of the experts
    apply."""
    encoder_deadline: float = Field(0.25, ge=0, le=60)
    """Seconds that a request waits for the router's encoder, if it has one; then the table decides alone. 0 never asks
    the encoder."""
    pinning: Pinning = Pinning()
    """Conversations stay with their expert."""
    switch: SwitchConfig = SwitchConfig()
    """A conversation changes its expert only if that is worth the lost prompt cache."""
    shadow: str | None = None
    """Route and log, but send everything to this expert."""
    forward_headers: tuple[str, ...] = (
        "accept-language", "user-agent", "openai-*", "anthropic-*", "traceparent", "tracestate", "baggage", "x-*",
    )  # fmt: skip
    """Request headers that experts get. A * covers no keys, tokens, cookies, names, accounts or addresses of clients,
    and no other path or method: name those in full, such as openai-organization."""
    provenance: tuple[Literal["headers", "body"], ...] = ("headers", "body")
    """Where an answer names the expert that gave it; an empty list leaves answers unchanged."""

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

    access: FilePath | None = "-"
    """The access log, one line per request: a file, - for standard output, null for none."""
    format: Literal["auto", "json", "text"] = "auto"
    """How the access log is written: json for programs, text for people; auto is text on a terminal, json elsewhere."""
    decisions: FilePath | None = None
    """The decision log, one JSON line per routed request, for `ir3de compare`: a file."""
    prompts: bool = False
    """Whether the decision log has the routed text; `ir3de compare` needs it."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Level of the messages on standard error; IR3DE_LOG_LEVEL overrides it."""


class Cache(Part):
    """The response cache: equal requests with the same key get the same answer, without a request to an expert."""

    ttl: float = Field(0.0, ge=0, le=31_536_000)
    """Seconds that an answer is cached; 0 caches none."""
    max_bytes: int = Field(64_000_000, ge=100_000)
    """Memory for answers, in each worker. When it is full, the least recently used are dropped."""
    answer_bytes: int = Field(1_000_000, ge=1_000)
    """Size of the largest answer that is cached."""
    shared: bool = False
    """Whether keys share answers; otherwise each key has its own."""
    endpoints: tuple[Capability, ...] = ("chat", "completions", "responses", "messages", "embeddings")
    """The endpoints whose answers are cached."""
    headers: tuple[str, ...] = ("accept-language", "openai-*", "anthropic-*")
    """Request headers in which requests must be equal, too: those that an answer depends on. Headers that experts get
    (`routing.forward_headers`) are among them, but for sessions, traces and the client's program."""


class FeedbackConfig(Part):
    """The journal: routed requests and the feedback on them. Nothing is kept unless a folder is named."""

    folder: FilePath | None = None
    """Folder of the journal. Without one, no request is kept, and /v1/feedback is off."""
    keep: Keep = "statistics"
    """What is kept of a prompt: its text; its token ids; or its token ids in ascending order, without their places."""
    days: float = Field(30.0, gt=0, le=3_650)
    """Days after which a request and its feedback are deleted."""


class HookConfig(Part):
    """A hook: a Python callable, or an address that is called over HTTP."""

    name: Name | None = None
    """Its name in errors, logs and metrics; by default what it calls."""
    call: str | None = None
    """A callable: package.module:function, or a file next to this one: hooks.py:function"""
    url: str | None = None
    """Or an address that gets the request or the answer as JSON, with POST: http://127.0.0.1:9000/check"""
    token_env: Variable | None = None
    """The variable that holds the token for that address."""
    timeout: Seconds = 5.0
    """Seconds that it may take."""
    on_failure: Literal["refuse", "continue"] = "refuse"
    """What happens if it raises or takes too long: the client gets an error, or the request continues without it."""
    endpoints: tuple[Capability, ...] = ()
    """The endpoints that it is for; all by default."""

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"https?://[^\s/?#@]+(/[!-~]*)?", value) is None:
            raise ValueError(f"must look like http://127.0.0.1:9000/check, found {value!r}")
        return value

    @field_validator("call")
    @classmethod
    def _is_callable(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and re.fullmatch(r"[^:]+:[A-Za-z_][\w.]*", value) is None:
            raise ValueError(f"must look like package.module:function, found {value!r}")
        file, _, function = (value or "").rpartition(":")
        return f"{resolve_path(file, info)}:{function}" if file.endswith(".py") else value

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.call is None) == (self.url is None):
            raise ValueError("a hook needs either call, a Python callable, or url, an address")
        return self

    @property
    def label(self) -> str:
        """Its name in logs and metrics, without the folder of a file."""
        where, colon, function = (self.call or "").rpartition(":")
        return self.name or f"{Path(where).name}{colon}{function}" or str(self.url)

    @property
    def public_label(self) -> str:
        """Its name for clients, without its address."""
        return self.name or (self.label if self.url is None else urlsplit(self.url).path.rpartition("/")[2] or "http")


class AfterHookConfig(HookConfig):
    """A hook that sees answers."""

    streams: Literal["hold", "observe"] = "hold"
    """Whether a stream is held until it is complete, so that the hook can change or reject it; or forwarded as it
    arrives, and the hook sees it afterwards."""


class Hooks(Part):
    """Hooks, which are called in their order."""

    before: tuple[HookConfig, ...] = ()
    """These see requests, before routing. They may change or reject them."""
    after: tuple[AfterHookConfig, ...] = ()
    """These see answers. They may change or reject them."""


def list_problems(value: Mapping[str, Any]) -> list[str]:
    """What does not fit together, each with its field. Other fields of the configuration may be wrong."""
    routing, feedback = value.get("routing"), value.get("feedback")
    candidate = routing.get("candidate") if isinstance(routing, dict) else None
    is_kept = isinstance(feedback, dict) and feedback.get("folder") is not None
    if isinstance(candidate, dict) and candidate.get("mode") == "canary" and not is_kept:
        text = "a canary is judged by feedback, and none is kept: name a folder in feedback.folder, or use mode: shadow"
        return [*_list_name_problems(value), f"routing.candidate: {text}"]
    return _list_name_problems(value)


def _list_name_problems(value: Mapping[str, Any]) -> list[str]:
    """Duplicate and unknown names of experts."""
    experts = value.get("experts")
    rows = [one if isinstance(one, dict) else {} for one in experts] if isinstance(experts, list) else []
    names = [str(row.get("name")) for row in rows]
    if not rows or not all(isinstance(row.get("name"), str) for row in rows):
        return []
    routing = value.get("routing")
    others = routing if isinstance(routing, dict) else {}
    mentioned = [("routing.default", others.get("default")), ("routing.shadow", others.get("shadow"))]
    for index, row in enumerate(rows):
        own = row.get("fallbacks")
        mentioned += [(f"experts.{index}.fallbacks", name) for name in own] if isinstance(own, list) else []
    twice = sorted({name for name in names if names.count(name) > 1})
    found = [f"experts: the names {', '.join(twice)} occur twice"] if twice else []
    for place, name in mentioned:
        if isinstance(name, str) and name not in names:
            found.append(f"{place}: no expert {name!r}: {suggest_name(name, names)}there are {', '.join(names)}")
    aliases = value.get("aliases")
    return [*found, *list_alias_problems(aliases, names)] if isinstance(aliases, dict) else found


class Config(Part):
    """The configuration of `ir3de serve`."""

    version: Literal[1] = VERSION
    """Version of this format."""
    router: RouterConfig
    """The router that decides."""
    experts: tuple[ExpertConfig, ...] = Field(min_length=1)
    """The experts that answer requests."""
    aliases: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    """Other names of models, for clients: {gpt-4o: auto, text-embedding-3-small: embedder}"""
    server: Server = Server()
    """Where the gateway listens, and who may use it."""
    routing: Routing = Routing()
    """How an expert is chosen for a request."""
    logs: Logs = Logs()
    """The logs."""
    cache: Cache = Cache()
    """The response cache; off by default."""
    hooks: Hooks = Hooks()
    """What sees requests and answers on their way, for guardrails and redaction."""
    feedback: FeedbackConfig = FeedbackConfig()
    """The journal of requests and the feedback on them; off by default."""
    prices: FilePath | None = None
    """File with the prices of experts that have no `price` here, in JSON or YAML; a reload reads it again."""
    state: StateLocation | None = None
    """Folder for changes through /admin, by default `ir3de-state` next to this file, or a store of all machines."""

    _listed_prices: Mapping[str, Price] = PrivateAttr(default_factory=dict)  # of the price file

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        checked = {"aliases", "experts", "routing", "feedback"}
        if problems := list_problems(self.model_dump(mode="json", include=checked)):
            raise ValueError("\n".join(problems))
        return self

    @property
    def state_folder(self) -> str | None:
        return self.state.folder if isinstance(self.state, SharedState) else self.state

    @property
    def shared_state(self) -> SharedState | None:
        """The store that machines share; None if this one serves alone."""
        return self.state if isinstance(self.state, SharedState) else None

    @property
    def by_name(self) -> Mapping[str, ExpertConfig]:
        return {expert.name: expert for expert in self.experts}

    @property
    def listed_prices(self) -> Mapping[str, Price]:
        """The prices of the price file, if it was read."""
        return self._listed_prices

    def with_prices(self, listed: Mapping[str, Price]) -> Config:
        """The same, with these prices for experts that have none of their own."""
        rest = [one.name for one in self.experts if "price" not in one.model_fields_set and one.name in listed]
        experts = [
            one.model_copy(update={"price": listed[one.name]}) if one.name in rest else one for one in self.experts
        ]
        made = self.model_copy(update={"experts": tuple(experts)})
        made._listed_prices = listed
        return made

    def resolve_aliases(self) -> Mapping[str, str]:
        """Each alias, and `auto` or the expert that it stands for."""
        return {name: find_target(name, self.aliases) or name for name in self.aliases}
