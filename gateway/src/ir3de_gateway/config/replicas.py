"""Several addresses of one expert: how its requests are shared among them, and what happens when one fails."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag

from ir3de_gateway.config.part import Name, Part, Seconds, Variable


def check_base_url(value: str) -> str:
    """The address without a slash at its end; raises ValueError if no expert can be there."""
    parts = urlsplit(value)
    if "@" in (parts.netloc or value):
        raise ValueError("must not contain a user or password: name a variable in api_key_env")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"must look like http://127.0.0.1:8001/v1, found {value!r}")
    if "," in value:
        raise ValueError("must be one address, without a comma: several addresses belong into replicas")
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
    """One address of an expert. What it leaves out is as the expert has it."""

    base_url: BaseUrl
    """The base URL of its OpenAI-compatible API."""
    name: Name | None = None
    """Its name for operators, in metrics and in /admin; by default the address without its scheme."""
    weight: float = Field(1.0, gt=0, le=1_000)
    """How much of the traffic it gets, compared with the others."""
    api_key_env: Variable | None = None
    """The variable that holds its key."""

    @property
    def label(self) -> str:
        return self.name or self.base_url.partition("://")[2]


def _tell_kind(value: object) -> Literal["address", "replica"]:
    return "address" if isinstance(value, str) else "replica"


Replicas = tuple[
    Annotated[Annotated[BaseUrl, Tag("address")] | Annotated[ReplicaConfig, Tag("replica")], Discriminator(_tell_kind)],
    ...,
]


class HealthChecks(Part):
    """The health checks of an expert's replicas. An expert with one address, as in `base_url`, is never checked."""

    active: bool = True
    """Whether to check them at all."""
    path: str = Field("models", pattern=r"^[!-~]+$")
    """What to GET: below the base URL, or from the server's root if it begins with a slash, as /health does."""
    interval: Seconds = 10.0
    """Seconds between two checks of a replica, whichever worker makes them."""
    down_interval: Seconds = 2.0
    """The same for a replica that is down."""
    timeout: Seconds = 2.0
    """Seconds within which it must answer. Any status below 500 is an answer of a server that works."""
    unhealthy: int = Field(2, ge=1, le=100)
    """Failed checks in a row after which a replica is down."""
    healthy: int = Field(1, ge=1, le=100)
    """Good checks in a row after which it is up again."""


class Retries(Part):
    """What happens when a replica fails before its answer begins."""

    others: int = Field(2, ge=0, le=100)
    """Other replicas to ask, before another expert is asked."""
    backoff: float = Field(0.025, ge=0, le=60)
    """Seconds before the first of them is asked, doubled for each further one; up to half of it is left out at
    random."""
    max_backoff: float = Field(1.0, ge=0, le=60)
    """The longest of these waits."""
