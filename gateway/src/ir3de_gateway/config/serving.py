"""Where the gateway listens, who may use it, what clients may send, and what it logs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ir3de_gateway.config.part import Part, Seconds, Variable


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
    keys_file: str | None = None
    """File of named keys with scopes, experts and limits; it is read again when it changes."""
    admin_token_env: Variable = "IR3DE_ADMIN_TOKEN"
    """The variable that holds the token for /admin; if it is not set, there is no /admin, except on loopback, where
    `ir3de serve` prints a token for its run."""
    metrics_need_key: bool = False
    """Whether /metrics needs a key with the scope `metrics`, or the admin token; by default it answers anybody."""
    open: bool = False
    """Whether other machines may use the gateway without a key."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the gateway from a browser; none by default."""
    timing: bool = False
    """Whether answers have the header Server-Timing, which says how long each phase took."""
    drain: Seconds = 30.0
    """Seconds that requests in flight get to finish after a stop."""
    limits: Limits = Limits()
    """What a client may send."""


class Logs(Part):
    """The logs. They hold prompts only if `prompts` is true."""

    access: str | None = "-"
    """The access log, one line per request: a file, - for standard output, null for none."""
    format: Literal["auto", "json", "text"] = "auto"
    """How the access log is written: json for programs, text for people; auto is text on a terminal, json elsewhere."""
    decisions: str | None = None
    """The decision log, one JSON line per routed request, for `ir3de eval --replay`: a file."""
    prompts: bool = False
    """Whether the decision log has the routed text; replaying needs it."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Level of the messages on standard error; IR3DE_LOG_LEVEL overrides it."""
